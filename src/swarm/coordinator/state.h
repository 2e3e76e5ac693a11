/* state.h - functions that the files of the coordinator share: coordinator.c handles
 * events, phase.c moves from phase to phase, restore.c chooses what stages
 * are restored from, boundaries.c who is replaced after failures, pairs.c
 * who may be placed side by side, limits.c how long everything may take,
 * replies.c and suspects.c handle replies and invalid values, and replay.c decides which stages
 * keep their state. standing.c says whose word counts, arrivals.c which snapshots go on arriving.
 */
#pragma once

#include "swarm/coordinator/coordinator.h"

/* A link between neighbours often breaks because one of them died. Waiting this long lets the
 * coordinator notice the death before it assigns the stages again. */
#define GRACE_NS INT64_C(200000000)

/* Points of suspicion: the owner at fault gets FULL_POINTS per failure, those that may have misled
 * the coordinator about it get PART_POINTS. At LIMIT_POINTS a worker loses its stage. */
enum {
    PART_POINTS = 1,
    FULL_POINTS = 2,
    LIMIT_POINTS = STRAIT_SWARM_FAILURES * FULL_POINTS
};

/* Appends an action without a stage, with an empty reason. */
strait_swarm_action *strait_coordinator_act(strait_swarm_actions *out,
                                            strait_swarm_action_kind kind, int worker);

/* Appends a log line about a worker and the stage it owns now. `reason` is static text. */
strait_swarm_action *strait_coordinator_log(const struct strait_coordinator *c,
                                            strait_swarm_actions *out, int worker,
                                            const char *reason);

/* Returns whether a stage may be assigned to the worker. */
int strait_coordinator_can_own(const struct strait_coordinator *c, int slot);

/* Returns whether the owner of a stage lacks its state, which others may have: it was away, or is
 * new. */
int strait_coordinator_has_lost_state(const struct strait_coordinator *c, int stage);

/* Returns the best spare for a stage; -1: there is none. */
int strait_coordinator_spare_for(const struct strait_coordinator *c, int stage);

/* Makes `worker` the owner of the stage. The previous owner becomes a spare, or is disconnected if
 * it asked to leave. */
void strait_coordinator_assign(struct strait_coordinator *c, int stage, int worker,
                               strait_swarm_actions *out);

/* Frees the slot of a worker that is gone. A worker with violations, penalties, disputes or losses
 * keeps it: reconnecting must not clear them. */
void strait_coordinator_forget(struct strait_coordinator *c, int worker);

/* Returns the newest step that the current owners can restore. */
int64_t strait_coordinator_best_step(const struct strait_coordinator *c);

/* Abandons the current generation: all stages return to `waiting`. The next generation begins after
 * `delay_ns` at the earliest, later after repeated failures. */
void strait_coordinator_abandon(struct strait_coordinator *c, int64_t now_ns, int64_t delay_ns);

/* Begins a phase that is a barrier and sends its commands. */
void strait_coordinator_enter(struct strait_coordinator *c, strait_swarm_phase phase,
                              int64_t now_ns, strait_swarm_actions *out);

/* Moves on to the next phase for as long as no reply is outstanding. */
void strait_coordinator_advance(struct strait_coordinator *c, int64_t now_ns,
                                strait_swarm_actions *out);

/* ---- replies.c ---- */

/* Handles the event REPLY. */
void strait_coordinator_reply(struct strait_coordinator *c, const strait_swarm_event *e,
                              int64_t now, strait_swarm_actions *out);

/* ---- boundaries.c ---- */

/* The boundary between stages `boundary` and `boundary` + 1 failed: suspects both owners. */
void strait_coordinator_charge_boundary(struct strait_coordinator *c, int boundary);

/* The owner of `stage` failed, and no neighbour was involved: suspects it. */
void strait_coordinator_charge_owner(struct strait_coordinator *c, int stage);

/* The owner of `stage` got nothing from its neighbour on `side` in time: suspects those it waited
 * for, directly or through others. */
void strait_coordinator_charge_timeout(struct strait_coordinator *c, int stage, int side);

/* The owner of `stage` was lost before the next generation began: that explains the failure that
 * ended the last one, so the others are suspected no longer. */
void strait_coordinator_excuse(struct strait_coordinator *c, int stage);

/* Before a new generation: replaces the owner that is suspected most, if it failed too often, and
 * separates pairs that cannot connect. */
void strait_coordinator_settle(struct strait_coordinator *c, strait_swarm_actions *out);

/* Counts a penalty against a worker and records it. */
void strait_coordinator_penalise(struct strait_coordinator *c, int slot, strait_swarm_actions *out);

/* ---- pairs.c ---- */

/* Remembers for some hours that the owners of the two stages at a boundary cannot connect. */
void strait_coordinator_remember_pair(struct strait_coordinator *c, int boundary);

/* Returns whether the workers in two slots are known to be unable to connect. */
int strait_coordinator_is_bad_pair(const struct strait_coordinator *c, int slot, int other);

/* Returns with how many owners of neighbouring stages the worker cannot connect. */
int strait_coordinator_count_bad(const struct strait_coordinator *c, int slot, int stage);

/* Exchanges the stage with that of another owner, so that another worker computes it; of several
 * the one with which the fewest steps are lost. Returns 0 if there is none. */
int strait_coordinator_exchange_stage(struct strait_coordinator *c, int stage);

/* Replaces owners that cannot connect to a neighbour, by spares or by exchanging two stages. */
void strait_coordinator_separate(struct strait_coordinator *c, strait_swarm_actions *out);

/* ---- averages.c ---- */

/* If a worker has not replied to an average in time, and says that another one does not send it
 * what it needs, which has replied or says the same of a third: leaves out one of the two. Returns
 * whether it was that. */
int strait_coordinator_settle_average(struct strait_coordinator *c, int64_t now,
                                      strait_swarm_actions *out);

/* Returns whether replicas exchange their weights and the worker does not say which one it lacks
 * something from: nobody else keeps it from replying, whatever it claims to wait for. */
int strait_coordinator_names_nobody(const struct strait_coordinator *c, int slot);

/* ---- limits.c ---- */

/* Returns why the lease or the progress of a worker has run out; NULL: it has not. */
const char *strait_coordinator_fault(const struct strait_coordinator *c, int slot, int64_t now_ns);

/* Notes how long the goal took that has just been reached. */
void strait_coordinator_note_goal(struct strait_coordinator *c, int64_t now_ns);

/* Returns whether a stage is sending its snapshot for a checkpoint. */
int strait_coordinator_is_saving(const struct strait_coordinator *c);

/* Returns whether the time that the phase allows for a reply of a replica of `stage`, the worker in
 * `slot`, is over. */
int strait_coordinator_is_late(const struct strait_coordinator *c, int slot, int stage,
                               int64_t now_ns);

/* Returns whether the owner of `stage` has had all the time that the phase allows for a reply. */
int strait_coordinator_is_overdue(const struct strait_coordinator *c, int stage, int64_t now_ns);

/* ---- restore.c ---- */

/* Records the digests of snapshots that the owner of a stage took in this generation. A second
 * digest of one snapshot is a violation. */
void strait_coordinator_record(struct strait_coordinator *c, int slot,
                               const strait_snapshot_set *own, int64_t now,
                               strait_swarm_actions *out);

/* Whether the driver has a checkpoint of this step that it can give to any stage. */
int strait_coordinator_is_saved(const struct strait_coordinator *c, int64_t step);

/* From now on step 0 is the driver's checkpoint: ends the generation, so that all restore it. */
void strait_coordinator_restore_first(struct strait_coordinator *c, int64_t now);
void strait_coordinator_begin_anew(struct strait_coordinator *c, int64_t now);

/* Chooses the newest step that every stage can restore, and enters the phase. */
void strait_coordinator_begin_restore(struct strait_coordinator *c, int64_t now,
                                      strait_swarm_actions *out);

/* Adds step, source and digest to the command of one stage. */
void strait_coordinator_fill_restore(const struct strait_coordinator *c, int stage,
                                     strait_swarm_action *action);

/* All stages are at the chosen step. */
void strait_coordinator_finish_restore(struct strait_coordinator *c, int64_t now,
                                       strait_swarm_actions *out);

/* The worker found that the snapshot it was to restore is not the recorded one. */
void strait_coordinator_bad_source(struct strait_coordinator *c, int slot, int64_t now,
                                   strait_swarm_actions *out);

/* Returns where the owner of `stage` can get the snapshot of `step` from; -1: from nowhere. */
int strait_coordinator_source(const struct strait_coordinator *c, int stage, int64_t step);

/* ---- replay.c ---- */

/* Decides how the generation continues: with the live states of the owners that have them, or, if
 * that saves nothing or is not possible, by rolling all stages back to step `rollback`. */
void strait_coordinator_plan_replay(const struct strait_coordinator *c, int64_t rollback,
                                    strait_swarm_replay *out);

/* Returns whether a worker of a stage can continue at step `until` with the state that it has, at
 * once or after an update that it has gradients for. */
int strait_coordinator_is_live(const struct strait_coordinator *c, int slot, int stage,
                               int64_t until);

/* Returns whether some stages compute steps again that the others have done. */
int strait_coordinator_is_replaying(const struct strait_coordinator *c);

/* Values are in doubt, or a replay failed: the next generation rolls all stages back. */
void strait_coordinator_block_replay(struct strait_coordinator *c);

/* ---- replicas.c ---- */

/* Before a generation: sends replicas away that may have caused a failure, and gives numbers to the
 * others. */
void strait_coordinator_seat_replicas(struct strait_coordinator *c, strait_swarm_actions *out);

/* Sends the commands of a phase to the further replicas of a stage. */
void strait_coordinator_command_replicas(struct strait_coordinator *c, int stage,
                                         strait_swarm_actions *out);

/* Returns whether a further replica of any stage has to reply in this phase. */
int strait_coordinator_awaits_replicas(const struct strait_coordinator *c);

/* Chooses what further replicas restore. Returns 0 if one cannot: it was sent away, and another
 * generation has to begin. */
int strait_coordinator_restore_replicas(struct strait_coordinator *c, int64_t now,
                                        strait_swarm_actions *out);

/* Returns the replicas of a stage that its owner sends its snapshot to, as bits. */
int strait_coordinator_given_replicas(const struct strait_coordinator *c, int stage);

/* Notes which stage every worker has, now that all stages are ready. */
void strait_coordinator_note_served(struct strait_coordinator *c);

/* Returns whether the worker owns no stage and has the newest state of this one, of which it was a
 * replica when all stages were ready last, though it may have been sent away since. */
int strait_coordinator_holds(const struct strait_coordinator *c, int slot, int stage);

/* Returns a further replica of the stage that can take it over with the state that it has, or a
 * spare that was one; -1: there is none. */
int strait_coordinator_successor(const struct strait_coordinator *c, int stage);
/* Returns a further replica of the stage that has its state, but asked to leave; -1: none. */
int strait_coordinator_leaver(const struct strait_coordinator *c, int stage);

/* Returns whether a spare becomes a replica, or one leaves, before the next step; and does that. */
int strait_coordinator_replicas_change(const struct strait_coordinator *c);
void strait_coordinator_change_replicas(struct strait_coordinator *c, strait_swarm_actions *out);

/* The worker takes part no longer. */
void strait_coordinator_end_help(struct strait_coordinator *c, int slot);

/* Something failed at `stage`. If there are further replicas there or beside it, they are sent away
 * before the next generation, unless a loss explains the failure, and nobody else is suspected.
 * Returns whether there are. */
int strait_coordinator_doubt_replicas(struct strait_coordinator *c, int stage);

/* Handles the reply of a further replica. */
void strait_coordinator_replica_reply(struct strait_coordinator *c, const strait_swarm_event *e,
                                      int64_t now, strait_swarm_actions *out);

/* Disconnects further replicas that took too long in this phase and wait for nobody. Returns how
 * many; if others wait, *waiting is the stage of one of them. */
int strait_coordinator_end_overdue_replicas(struct strait_coordinator *c, int64_t now, int *waiting,
                                            strait_swarm_actions *out);

/* A further replica reported its snapshots: they must be those of the owner. */
void strait_coordinator_compare_replica(struct strait_coordinator *c, int slot,
                                        const strait_snapshot_set *own, int64_t now,
                                        strait_swarm_actions *out);

/* Handles the events HELP and IN_DOUBT. */
void strait_coordinator_help(struct strait_coordinator *c, int slot, int stage, int pipeline,
                             strait_swarm_actions *out);
void strait_coordinator_in_doubt(struct strait_coordinator *c, int64_t now,
                                 strait_swarm_actions *out);

/* Notes that a step was computed by the replicas of this generation. */
void strait_coordinator_note_shared(struct strait_coordinator *c, int64_t step);

/* ---- away.c ---- */

/* A further replica left, was lost, or has a new link: each costs a generation, and so does taking
 * it back. It may come back at once the first time, then after a while that doubles. Where most
 * workers are lost within two seconds, the link of the host is at fault, and none is counted. */
void strait_coordinator_count_loss(struct strait_coordinator *c, int slot);

/* Makes a further replica a spare that comes back after a while: whether it was at fault is not
 * known. One that is leaving is let go. `reason` is static text. */
void strait_coordinator_send_away(struct strait_coordinator *c, int slot, const char *reason,
                                  strait_swarm_actions *out);

/* Tells a further replica that has asked to leave that nothing more is expected of it, and counts
 * that as a loss if it took part as this `replica`; 0: it did not. */
void strait_coordinator_let_leave(struct strait_coordinator *c, int slot, int replica,
                                  strait_swarm_actions *out);

/* A new step was committed: every STRAIT_SWARM_CALM_STEPS of them that a further replica takes part
 * in undo one time that it was sent away. */
void strait_coordinator_forgive_replicas(struct strait_coordinator *c);

/* ---- pipelines.c ---- */

/* Gives numbers to the replicas of all complete pipelines; those of others become spares. */
void strait_coordinator_seat_pipelines(struct strait_coordinator *c, strait_swarm_actions *out);

/* Returns the worker of the stage in the pipeline that can take the place of the owners; -1. */
int strait_coordinator_pipeline_successor(const struct strait_coordinator *c, int stage);

/* The workers of that pipeline become the owners of all stages, and what is left of the old ones
 * spares. */
void strait_coordinator_promote_pipeline(struct strait_coordinator *c, strait_swarm_actions *out);

/* Ends the pipeline of a worker for a while. Returns 0 if it is the only one. */
int strait_coordinator_leave_out(struct strait_coordinator *c, int slot, const char *reason,
                                 int64_t now, strait_swarm_actions *out);
/* Handles the event BAD_VALUES. */
void strait_coordinator_bad_values(struct strait_coordinator *c, int slot, int64_t now,
                                   strait_swarm_actions *out);

/* ---- coordinator.c ---- */

/* Closes the link of a worker and handles its loss. `fault` is static text. */
void strait_coordinator_disconnect(struct strait_coordinator *c, int slot, int64_t now,
                                   const char *fault, strait_swarm_actions *out);

/* ---- suspects.c ---- */

/* A replayed step gave other values than the first time: the stages that were restored from copies
 * go to spares; if that does not help, to other snapshots, to older ones, to the checkpoint. */
void strait_coordinator_replay_differs(struct strait_coordinator *c, int64_t now,
                                       strait_swarm_actions *out);

/* The worker rejected the snapshot it was to restore, which came from worker `giver`: itself, or
 * the owner of a neighbouring stage. One of the two loses its stage, or else the snapshot is not
 * used again. */
void strait_coordinator_reject(struct strait_coordinator *c, int slot, int giver,
                               const strait_digest *digest, int64_t now, strait_swarm_actions *out);

/* `accuser` reports that it rejected values from the owner of stage `blamed`. Replaces the accuser
 * by a spare, or the one of the two that a second worker contradicts. A stage that is not its
 * neighbour is a violation. */
void strait_coordinator_blame(struct strait_coordinator *c, int accuser, int blamed, int64_t now,
                              strait_swarm_actions *out);

/* The driver found invalid data from a worker: counts a violation. */
void strait_coordinator_invalid_data(struct strait_coordinator *c, int slot, int64_t now,
                                     strait_swarm_actions *out);

/* A worker reported non-finite or implausible values: the step is recomputed, on a spare if there
 * is one. */
void strait_coordinator_nonfinite(struct strait_coordinator *c, int slot, int64_t now,
                                  strait_swarm_actions *out);

/* The recomputed step has no such values at `stage`, which the worker owned: counts a violation
 * against it, or against a neighbour that was beside another such worker before. */
void strait_coordinator_contradicted(struct strait_coordinator *c, int slot, int stage, int64_t now,
                                     strait_swarm_actions *out);

/* Another worker computed the same: the report was true. */
void strait_coordinator_confirmed(struct strait_coordinator *c, int slot);

/* Remembers that two workers of which further replicas may be one contradict each other. Returns
 * the one of much more standing (standing.c), of whom it is not; -1: they have about the same. */
int strait_coordinator_contradict(struct strait_coordinator *c, int slot, int other);
/* The same, and the run goes back for it: the one that others contradict too loses its stage. */
void strait_coordinator_dispute(struct strait_coordinator *c, int a, int b,
                                strait_swarm_actions *out);

/* Bans a worker from the run and takes its stage. `reason` is static text. */
void strait_coordinator_ban(struct strait_coordinator *c, int slot, const char *reason,
                            strait_swarm_actions *out);

/* ---- standing.c ---- */

/* Returns which of two workers has taken part in so many more steps that the word of the other does
 * not count against it; -1: neither has. */
int strait_coordinator_senior(const struct strait_coordinator *c, int a, int b);

/* Leaves the worker without further replicas at and beside its stage for a while, in which it does
 * not become one either; and returns whether a stage is left so. */
void strait_coordinator_isolate(struct strait_coordinator *c, int slot);
int strait_coordinator_is_alone(const struct strait_coordinator *c, int stage);

/* A new step was committed. */
void strait_coordinator_count_step(struct strait_coordinator *c, strait_swarm_actions *out);

/* ---- audits.c ---- */

/* Returns whether the owner of the stage gives nothing to audits, and a spare can take the stage.
 */
int strait_coordinator_must_replace(const struct strait_coordinator *c, int stage);

/* Such an owner has given no copy of its stage in time: its stage moves without. */
void strait_coordinator_end_patience(struct strait_coordinator *c, int stage);

/* Before a new generation, when all stages have owners: moves the stages of such owners to spares.
 * Where that would lose steps, such as because a neighbour's only copy is there, the owner keeps
 * its stage, but only for a bounded number of generations. Returns how many stages moved. */
int strait_coordinator_replace_withholders(struct strait_coordinator *c, strait_swarm_actions *out);

/* Handles the events CONFIRMED, REPLAY_DIFFERS, GUILTY, WITHHELD and DISPUTE. */
void strait_coordinator_verified(struct strait_coordinator *c, const strait_swarm_event *e,
                                 int64_t now, strait_swarm_actions *out);
