/* handover.h - stages that move between two steps without loss: from a worker that leaves to a
 * spare, and from a slow one to a faster.
 *
 * Before the step all stages take a snapshot. When the neighbours of those that move have copies of
 * it, they lose their owners, and the next generation restores them from the copies. What counts
 * are copies at neighbours that stay: of two beside each other only one goes at a time. */
#pragma once

#include "swarm/coordinator/state.h"

/* What a worker that asked to leave waits for. */
typedef enum strait_swarm_stay {
    STRAIT_STAY_FOR_COPY,
    STRAIT_STAY_FOR_NEIGHBOUR,
    STRAIT_STAY_FOR_WORKERS,
    STRAIT_STAY_UNTIL_READY
} strait_swarm_stay;

/* Logs why a worker that asked to leave stays, and tells it, unless that was the last that it was
 * told; and the same for all such owners of stages that are not kept for their copies. */
void strait_coordinator_say_why(struct strait_coordinator *c, int slot, strait_swarm_stay why,
                                strait_swarm_actions *out);
void strait_coordinator_say_why_owners(struct strait_coordinator *c, strait_swarm_stay why,
                                       strait_swarm_actions *out);

/* Handles the events LEAVE and REASSIGN: what they ask for is done before the next step. A worker
 * without a stage leaves at once. */
void strait_coordinator_leave(struct strait_coordinator *c, int slot, strait_swarm_actions *out);
void strait_coordinator_reassign(struct strait_coordinator *c, int slot, int successor,
                                 strait_swarm_actions *out);

/* A spare is gone. If a stage was to move to it, the stage stays, and the spare is remembered to
 * have put a step off: it is not chosen for that again. */
void strait_coordinator_lose_successor(struct strait_coordinator *c, int slot,
                                       strait_swarm_actions *out);

/* Returns whether stages change owners before the step begins. If a worker leaves, moves to faster
 * spares wait: a successor may need a copy that only the leaving neighbour holds. */
int strait_coordinator_must_hand_over(struct strait_coordinator *c);

/* Waits until every stage that moves has a copy at a neighbour, or the time for copies is over;
 * then changes the owners and begins a new generation, before which those that give nothing to
 * audits are replaced. A run with one stage has no neighbour: its stage is restored from the
 * checkpoint. */
void strait_coordinator_hand_over(struct strait_coordinator *c, int64_t now,
                                  strait_swarm_actions *out);

/* A stage has moved to a faster spare, and the neighbour that had the copy for it is gone: the
 * worker that it moved from still has the state, and takes the stage back before it is chosen for
 * another. */
void strait_coordinator_take_back(struct strait_coordinator *c, strait_swarm_actions *out);
