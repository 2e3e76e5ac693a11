/* agenda.h - the pending events of a simulated swarm, as a heap ordered by time. */
#pragma once

#include "check.h"
#include "swarm/coordinator/coordinator.h"

enum {
    AGENDA_MAX = 1 << 14
};

typedef enum pending_kind {
    ARRIVE,
    ANSWER,
    HEARTBEAT,
    CONNECT,
    LOSE, // the coordinator notices that a link is closed
    WAKE,
    FAULT,
    CLOCK
} pending_kind;

typedef struct pending {
    int64_t at;
    uint64_t number; // of two events at one time the older comes first
    pending_kind kind;
    int worker, life; // number of its link: messages on an earlier link are lost
    strait_swarm_phase phase;
    strait_swarm_action action;
    strait_swarm_goal goal;
    uint32_t generation, sequence;
    strait_err err;
    int is_late;     // in a replay: the stage computes
    uint32_t groups; // with gradients: bit i: the replica computes group i
    int64_t since;   // with an answer: when the command arrived
} pending;

typedef struct agenda {
    pending heap[AGENDA_MAX];
    int n;
    uint64_t n_put;
} agenda;

static inline int agenda_is_before(const pending *a, const pending *b) {
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static inline void agenda_swap(agenda *a, int i, int k) {
    const pending keep = a->heap[i];
    a->heap[i] = a->heap[k];
    a->heap[k] = keep;
}

/* Returns 0 when it is full. */
static inline int agenda_put(agenda *a, pending h, int64_t when) {
    if (a->n == AGENDA_MAX) return 0;
    h.at = when;
    h.number = a->n_put++;
    int i = a->n++;
    a->heap[i] = h;
    for (; i > 0 && agenda_is_before(&a->heap[i], &a->heap[(i - 1) / 2]); i = (i - 1) / 2)
        agenda_swap(a, i, (i - 1) / 2);
    return 1;
}

static inline pending agenda_take(agenda *a) {
    const pending first = a->heap[0];
    a->heap[0] = a->heap[--a->n];
    for (int i = 0;;) {
        int least = i;
        for (int k = 2 * i + 1; k <= 2 * i + 2; k++)
            if (k < a->n && agenda_is_before(&a->heap[k], &a->heap[least])) least = k;
        if (least == i) return first;
        agenda_swap(a, i, least);
        i = least;
    }
}

/* The reply of the worker in `slot` to a command; `side`: of the boundary that failed, if one did.
 */
static inline strait_swarm_event reply_to(const pending *h, int slot, int side) {
    return (strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                .worker = slot,
                                .generation = h->generation,
                                .sequence = h->sequence,
                                .err = h->err,
                                .failed_side = h->err != STRAIT_OK ? side : 0};
}

static int n_feeding; // events that are being handled; a test that failed leaves some

/* Gives the coordinator an event and performs its actions, which may cause further events; calls
 * `then` when the last of them is done. */
static inline void feed_coordinator(struct strait_coordinator *coordinator,
                                    const strait_swarm_event *event, int64_t now,
                                    void (*perform)(const strait_swarm_action *action),
                                    void (*then)(void)) {
    enum {
        DEEPEST = 6
    };
    static strait_swarm_actions actions[DEEPEST];
    CHECK(n_feeding < DEEPEST);
    strait_swarm_actions *out = &actions[n_feeding++];
    strait_coordinator_step(coordinator, event, now, out);
    for (int i = 0; i < out->n; i++)
        perform(&out->items[i]);
    n_feeding--;
    if (n_feeding == 0) then();
}
