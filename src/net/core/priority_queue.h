/* lanes.h - messages that wait, the most urgent first, in order within a priority.
 * Zeroed is empty. Not locked. */
#pragma once

#include "net/core/msg.h"

struct strait_priority_queue {
    struct strait_msg *first[STRAIT_N_PRIORITIES], *last[STRAIT_N_PRIORITIES];
    size_t bytes[STRAIT_N_PRIORITIES]; // of bodies
    size_t n_messages;
    size_t n_bytes; // of bodies, all lanes
};

void strait_priority_queue_push(struct strait_priority_queue *queue,
                                struct strait_msg **msg); // takes *msg
void strait_priority_queue_push_front(struct strait_priority_queue *queue,
                                      struct strait_msg **msg); // takes *msg
struct strait_msg *strait_priority_queue_pop(
    struct strait_priority_queue *queue);                              // NULL when empty
void strait_priority_queue_clear(struct strait_priority_queue *queue); // closes what is inside

/* Whether more than `limit` bytes wait, or more than that share of the messages a queue may have:
 * 1 for all of them, 2 for half. */
int strait_priority_queue_is_over(const struct strait_priority_queue *queue, size_t limit,
                                  int share);

/* Whether `msg` would find more than `limit` bytes ahead of it or with it. Less urgent ones do not
 * count, so they cannot keep it out; and an empty lane takes a message of any size. */
int strait_priority_queue_is_full(const struct strait_priority_queue *queue,
                                  const struct strait_msg *msg, size_t limit);
