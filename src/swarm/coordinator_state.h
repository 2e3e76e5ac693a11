/* coordinator_state.h - what the two files of the coordinator share: events, and phases. */
#pragma once

#include "swarm/coordinator.h"

#define GRACE_NS INT64_C(200000000) // to hear of a death after hearing of a broken link

strait_swarm_action *strait_coordinator_act(strait_swarm_actions *out,
                                            strait_swarm_action_kind kind, int worker);

/* Whether a stage may be given to it. */
int strait_coordinator_can_own(const struct strait_coordinator *c, int at);

/* The best of those who own nothing for a stage, of those that were waited for in vain less than
 * `vain_below` times; -1: there is none. */
int strait_coordinator_spare_for(const struct strait_coordinator *c, int stage, int timeouts_below);

/* The stage is now its, and no longer another's. */
void strait_coordinator_give(struct strait_coordinator *c, int stage, int worker,
                             strait_swarm_actions *out);

/* Its place is free for another, unless something must be remembered of it. */
void strait_coordinator_forget(struct strait_coordinator *c, int worker);

/* Everyone goes back to gather; the next epoch begins `delay_ns` later at the soonest. */
void strait_coordinator_fail(struct strait_coordinator *c, int64_t now_ns, int64_t delay_ns);

/* Begins a phase that is a barrier: orders to those it concerns. */
void strait_coordinator_enter(struct strait_coordinator *c, strait_swarm_phase phase,
                              int64_t now_ns, strait_swarm_actions *out);

/* Goes on to the next phase as long as nothing is awaited. */
void strait_coordinator_advance(struct strait_coordinator *c, int64_t now_ns,
                                strait_swarm_actions *out);

/* Why worker `at` must be given up by now; NULL: it need not. */
const char *strait_coordinator_fault(const struct strait_coordinator *c, int at, int64_t now_ns);
