/* event_queue.h - events by time, for simulations: a binary heap. Events of one time come in the
 * order in which they were added, so that a simulation is deterministic. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_event {
    double time_s;
    uint64_t order;
    int kind, id; // the simulation's
} strait_event;

/* Zeroed: empty. */
struct strait_event_queue {
    strait_event *events;
    size_t n, capacity;
    uint64_t n_added;
};

/* Room for so many events at once. STRAIT_ENOMEM. */
strait_err strait_event_queue_init(struct strait_event_queue *queue, size_t capacity);
void strait_event_queue_fini(struct strait_event_queue *queue);

/* Adds an event; the queue must have room for it. */
void strait_event_queue_add(struct strait_event_queue *queue, double time_s, int kind, int id);
/* Removes the next event; returns 0 when there is none. */
int strait_event_queue_next(struct strait_event_queue *queue, strait_event *out);
