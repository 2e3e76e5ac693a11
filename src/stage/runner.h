/* runner.h - runs one stage of a training run: its blocks, optimizer, boundaries and data.
 *
 * A step has two parts, because gradients are clipped by their norm over all stages: first forward
 * and backward of every microbatch (step_loop.c), then, once the sums of squares of all stages are
 * known, the update. A runner is used by one thread. It allocates nothing between open and close,
 * except for reading and writing its state and in the message pool, which soon stops growing. */
#pragma once

#include "config/run_plan.h"
#include "metrics/trace.h"
#include "plan/step_times.h"
#include "stage/boundary/boundary.h"
#include "stage/late/late.h"
#include "stage/loader.h"
#include "stage/outer/outer.h"
#include "stage/replicas/gradient_sums.h"
#include "stage/replicas/link_progress.h"
#include "stage/replicas/links.h"
#include "stage/replicas/reduction.h"

/* Bytes of memory that a runner takes, by purpose. */
typedef struct strait_runner_memory {
    size_t weights, gradients, optimizer;
    size_t sums;        // of gradients, over the groups of a step, and residuals of sending them
    size_t activations; // with the scratch memory of kernels
    size_t codecs;      // weights, gradients, state and staging buffers of its boundaries
    size_t data;        // token ids, on the device and on the host
    size_t kept;        // crossings for neighbours that compute steps again, and copies of codecs'
                        // state, on the host; only in a swarm (strait_runner_keep_crossings)
    size_t device;      // sum of everything that is on the device
    int n_params;       // parameters of the optimizer, those of codecs included
    size_t outer;       // anchor, momentum and residuals of the outer step, on the host
    int64_t n_values;   // of all of them
    double reduced;     // bytes that a replica sends to the others in a step; 0: it is the only one
    strait_outer_bytes_sent averaged; // the same in one exchange of weights (train.outer)
    double exchanged; // most bytes that it sends and receives in one, whoever takes part
} strait_runner_memory;

/* Which step the state of a runner belongs to; live_state.c. */
struct strait_runner_live_state {
    int is_kept;        // strait_runner_keep_crossings was called
    int64_t applied;    // steps that the state has applied; -1: not that of any step
    int64_t complete;   // the step whose gradients are complete and not applied; -1: none
    int awaits_basis;   // the update after `applied` steps was applied, its new basis was not
    int has_proposed;   // a basis was proposed since that update
    int is_begun;       // the copies below are from before a step that was not applied yet
    int64_t begun_step; // that step; -1: none
    void *undo[2][STRAIT_CODEC_STATES]; // the state of receiver and sender, on the host
};

/* The command of the next step, if it has come while a step is computed: late updates only. */
typedef struct strait_next_step {
    int64_t update_step; // an update that comes with it; -1: none
    float factor;        // of that update; 0: it is skipped
} strait_next_step;

/* Where a runner with late updates is; late/late_steps.c. */
struct strait_runner_ahead {
    int is_allowed;    // the next step may begin
    int n_forward;     // forward passes of the next step that are done
    int n_begun;       // forward passes of the current step that were done before it began
    int64_t n_updates; // applied so far, those before a checkpoint included
    int64_t complete;  // step whose gradients are complete and wait for memory aside; -1: none
    int64_t kept;      // step whose gradients are kept aside for the update; -1: none
};

struct strait_runner {
    strait_run_plan plan;
    int stage, replica, n_slots;
    int *microbatches;       // that this replica computes in a step, in their order
    int n_microbatches;      // of them
    double *sequence_losses; // sums per sequence of a step; last stage only
    strait_group_owners owners[STRAIT_SIDES]; // of the groups, in this stage and its neighbours
    struct strait_gradient_sums sums;
    struct strait_reduction *reduction; // NULL: this stage has one replica, or `outer`
    struct strait_sums_hash *work;      // of the sums of gradients; NULL: they are not hashed
    strait_group_owners audited;        // of the groups, in the step that is audited
    struct strait_outer *outer;         // NULL: replicas sum their gradients in every step
    struct strait_backend *backend;
    struct strait_stage *model;
    struct strait_boundary *receiver, *sender; // NULL on the first and on the last stage
    struct strait_optimizer *optimizer;
    strait_param
        *params; // of the receiver's codec, the stage and the sender's codec, in this order
    int n_params;
    struct strait_loader *loader; // borrowed
    int needs_tokens;             // whether this stage reads token ids at all
    float *losses;                // per token of a step, on the host; last stage only
    int64_t n_targets;            // of the current step; last stage only
    float *squares;               // sum of squared gradients per parameter, on the host
    struct strait_event measured; // reached when losses and squares are on the host
    struct strait_mesh *mesh;     // borrowed; NULL when there is one stage
    int deadline_ms;              // link.deadline: how long to wait for a neighbour
    strait_step_times times;      // of the current or last step
    double *action_time;          // the field of `times` that the last action counts towards
    int has_initial_weights;      // as drawn from the seed: no step and no restore since
    struct strait_runner_live_state live;
    struct strait_late *late; // NULL: updates are not late
    struct strait_runner_ahead ahead;
    struct strait_trace *trace; // NULL: no trace was requested
    /* Receives messages that are not crossings; takes ownership as strait_boundary_deliver does. */
    strait_err (*on_message)(void *user, struct strait_msg **msg);
    /* Called between actions and, while waiting, several times per second; an error aborts the
     * current command. NULL: not wanted. */
    strait_err (*on_poll)(void *user);
    /* Whether the command of the step after the current one has come, and what it says. NULL: a
     * step ends before the next begins. */
    int (*on_next)(void *user, int64_t step, strait_next_step *out);
    strait_link_progress progress; // what moves while it waits
    int is_waiting;                // whether the runner is waiting for a neighbour at this moment
    int awaited_replica;           // in an average: its number, from 1; 0: it waits for none
    int side; // which neighbour it deals with: -1 previous, 1 next, 0 none; an error leaves it
    strait_schedule_action_kind last_action; // in the current step; STRAIT_ACTION_WAIT: none yet
    void *user;                              // argument of the callbacks
};

/* Which part of a run a runner is. */
typedef struct strait_runner_place {
    int stage, replica;
    int n_slots; // microbatches in flight
} strait_runner_place;

/* Computes the memory of a stage without allocating it. */
strait_err strait_runner_plan(const strait_run_plan *plan, int stage, int n_slots,
                              strait_runner_memory *out);

/* Opens the device and allocates the stage; its weights are 0. Borrows `loader` until close and
 * prepares it, which requires strait_loader_configure. */
strait_err strait_runner_open(const strait_run *run, const strait_run_plan *plan,
                              const strait_runner_place *place, struct strait_loader *loader,
                              struct strait_runner **out);

/* Waits for queued work, then frees everything and releases the loader's buffers. Accepts NULL. */
void strait_runner_close(struct strait_runner **runner);

/* Draws the initial weights from the seed. Codecs have drawn theirs at open. */
strait_err strait_runner_init_weights(struct strait_runner *runner, uint64_t seed);

/* From now on computes digests of what crosses the boundaries and, where the stage has several
 * replicas in the plan, of what they sum. An auditor computes alone what n_audited replicas did,
 * and sets `audited` before each step; 0: it is none. Call it again after
 * strait_runner_set_replicas. */
strait_err strait_runner_hash_work(struct strait_runner *runner, int n_audited);

/* Which replica of its stage the runner is from now on, and how many there are in this plan, which
 * is copied. What it computes keeps its bits. Allocates; not within a step. STRAIT_ENOMEM. */
strait_err strait_runner_set_replicas(struct strait_runner *runner, const strait_run_plan *plan,
                                      int replica);

/* Connects boundaries and reduction to the peers of a mesh, which is borrowed. */
void strait_runner_connect(struct strait_runner *runner, const strait_stage_links *links);

/* Drops every message that the boundaries have received or not sent yet, and what the codecs have
 * measured. Call it after the stage was restored to `step`. */
strait_err strait_runner_reset(struct strait_runner *runner, int64_t step);

/* ---- live_state.c: stages whose neighbours may be replaced ---- */

/* From now on the runner keeps the crossings that it sends, of as many steps as its share of memory
 * holds, and a copy of the codecs' state from the beginning of each step. Allocates. */
strait_err strait_runner_keep_crossings(struct strait_runner *runner);

/* What a stage can continue with. */
typedef struct strait_runner_live {
    int64_t step;       // steps that its state has applied; -1: it is not that of any step. A new
                        // basis that follows the last of them may be missing: it is sent again
    int is_pending;     // gradients of `step` are complete
    int64_t first_kept; // from this step on, all crossings up to `step` are kept, those of a
                        // pending one included
} strait_runner_live;
strait_runner_live strait_runner_describe_live(const struct strait_runner *runner);

/* Instead of strait_runner_reset, for a stage that was not restored: it continues with the state it
 * has. `step` is its step; or the one after, if an update is pending that the caller sends next. A
 * step that was begun is undone. STRAIT_EPROTO: the state belongs to another step. */
strait_err strait_runner_keep_live(struct strait_runner *runner, int64_t step);

/* Whether crossings of the next gradients are kept without being sent (strait_boundary_mute). */
void strait_runner_mute(struct strait_runner *runner, int mutes_prev, int mutes_next);

/* Sends neighbours the kept crossings of a step once more. STRAIT_EPROTO: they are not complete, or
 * there is no such neighbour. */
strait_err strait_runner_resend(struct strait_runner *runner, int64_t step, int to_prev,
                                int to_next);

/* Whether the update that ends `step` was applied: it may be sent again. */
int strait_runner_has_applied(const struct strait_runner *runner, int64_t step);

/* For runner.c, step_loop.c, basis_update.c and the service: a step begins, its gradients are
 * complete, its update or its new basis was applied, or failed halfway, so that the state is not
 * that of any step; the memory of strait_runner_keep_crossings,
 * and its size: of one log, and of everything. */
strait_err strait_runner_begin_live(struct strait_runner *runner, int64_t step);
void strait_runner_end_live(struct strait_runner *runner, int64_t step);
void strait_runner_note_update(struct strait_runner *runner, int64_t step);
void strait_runner_note_basis(struct strait_runner *runner, uint32_t version);
void strait_runner_lose_live(struct strait_runner *runner);
void strait_runner_drop_kept(struct strait_runner *runner);
size_t strait_runner_log_bytes(const strait_runner_memory *memory);
size_t strait_runner_kept_bytes(const strait_run_plan *plan, int stage,
                                const strait_runner_memory *memory,
                                const struct strait_codec *receiver,
                                const struct strait_codec *sender);

/* Counts bytes of token ids that the stage received for a training step: they are part of what its
 * boundary costs. The first stage has no boundary before it and counts none. */
void strait_runner_count_ids(struct strait_runner *runner, uint64_t bytes);

/* Name of the computing device. Borrowed. */
const char *strait_runner_device(const struct strait_runner *runner);

/* Peak bytes allocated on the device, and bytes that are free on it; both 0 on the host. */
size_t strait_runner_device_bytes(const struct strait_runner *runner);
size_t strait_runner_device_spare(const struct strait_runner *runner);

/* Runs forward and backward of all microbatches of `step` (from 0). `loss_sum` is the sum of the
 * losses of all tokens on the last stage, added in an order that does not depend on the number of
 * stages, microbatches or replicas; 0 elsewhere. STRAIT_ETIMEDOUT, naming the neighbour, step and
 * microbatch, when nothing arrives within link.deadline; errors of on_poll are passed on. */
strait_err strait_runner_gradients(struct strait_runner *runner, int64_t step, double *loss_sum);

/* The sum of squared gradients of each parameter; borrowed, valid until the next step. */
const float *strait_runner_squares(const struct strait_runner *runner, int *n);

/* Whether strait_runner_gradients also queues the update. That is so for a single stage on a device
 * other than the host, if the optimizer checks the norm itself: the device then clips without a
 * round trip to the host, and the caller must not call update. */
int strait_runner_updates_itself(const struct strait_runner *runner);

/* Queues the update that ends `step`, with gradients multiplied by `factor`; does nothing if it was
 * applied already. A factor of 0 skips a step whose gradients are not finite: only late weights
 * must know. A device may not have finished when this returns; later work is ordered behind
 * it. */
strait_err strait_runner_update(struct strait_runner *runner, int64_t step, float factor);

/* The same, with the factor that the optimizer's clip has left on the device. */
strait_err strait_runner_update_by_scale(struct strait_runner *runner, int64_t step);

/* ---- late/late_steps.c: updates that are one step late; nothing to do where they are not ---- */

/* Bytes that late updates add to a stage, given its parameters. */
strait_err strait_runner_late_memory(const strait_run_plan *plan, int stage,
                                     const strait_param *params, int n,
                                     strait_runner_memory *memory);

/* Opens the late weights. Before the optimizer, which takes strait_late_params then. */
strait_err strait_runner_open_late(struct strait_runner *runner);

/* The state is that of `step`, drawn or read; with_versions: late weights were read, too. */
strait_err strait_runner_start_late(struct strait_runner *runner, int64_t step, int with_versions);

/* In a step: it begins, before gradients are zeroed; the next one may begin, if its command has
 * come; the microbatch of an action, which may be of the next step, and
 * its step, whose weights are then read; the gradients are complete. */
strait_err strait_runner_begin_late(struct strait_runner *runner);
strait_err strait_runner_look_ahead(struct strait_runner *runner, int64_t step);
strait_err strait_runner_enter(struct strait_runner *runner, int *microbatch, int64_t *step);
strait_err strait_runner_end_late(struct strait_runner *runner, int64_t step, int n_forward);

/* strait_runner_update of a runner with late updates. Does nothing where it was applied. */
strait_err strait_runner_update_late(struct strait_runner *runner, int64_t step, float factor);

/* The update of a stage that is not late in a run whose first stages are (train.late_stages), after
 * the gradients of `step`. Skipped if its gradients are not finite, or with is_usable 0. */
strait_err strait_runner_update_at_once(struct strait_runner *runner, int64_t step, int is_usable);

/* ---- replicas/share.c: the part of a step that this replica computes ---- */

/* Chooses the microbatches of the next steps: those of the groups that owners[STRAIT_SIDE_SAME]
 * gives to this replica; the others say which replica of a neighbour computes them. A runner that
 * opens has all groups, if it is replica 0. STRAIT_EPROTO: no group is left for this one, or a
 * replica does not exist. */
strait_err strait_runner_share(struct strait_runner *runner,
                               const strait_group_owners owners[STRAIT_SIDES]);

/* The gradients of a kind (strait_param.is_deferred) of the i-th microbatch are complete: after the
 * last of a group, puts their sum aside. */
strait_err strait_runner_sum_gradients(struct strait_runner *runner, int i, int is_deferred);

/* Sums the gradients, and the losses, over the replicas of the stage. Another replica may still be
 * computing: STRAIT_ETIMEDOUT, naming the one that is missing, when nothing moves for link.deadline
 * and as long again as this one has computed the step. */
strait_err strait_runner_reduce(struct strait_runner *runner, int64_t step, double computed_s);

/* The messages of it: until all sums are here and ours are posted. STRAIT_ETIMEDOUT also when
 * another replica takes nothing of what is for it. */
strait_err strait_runner_exchange_sums(struct strait_runner *runner, int64_t step, int timeout_ms);

/* Adds up the losses of the microbatches of this replica, sequence by sequence; and of all. */
void strait_runner_sum_losses(struct strait_runner *runner);
/* For step_loop.c: all groups of an audited step are summed. */
strait_err strait_runner_end_audited(struct strait_runner *runner);
double strait_runner_add_losses(const struct strait_runner *runner);

/* The outer step of a stage with these parameters and their optimizer; without train.outer it has
 * no weights. The caller fills in replica and threads. */
strait_outer_spec strait_runner_outer_spec(const strait_run_plan *plan, int stage,
                                           const strait_param *params, int n_params,
                                           const struct strait_optimizer *optimizer);

/* ---- outer/outer_command.c: replicas that train on their own (train.outer) ---- */

/* Goes on with an exchange that is under way, between the actions of a step. */
strait_err strait_runner_average(struct strait_runner *runner);

/* strait_runner_validate, of the averaged weights where there are some. */
strait_err strait_runner_validate_average(struct strait_runner *runner, int64_t step,
                                          double *loss_sum);

/* Zeroes the gradients of the stage and of its codecs. */
strait_err strait_runner_zero_gradients(struct strait_runner *runner);

/* Runs this stage's part of a validation. `loss_sum` as for strait_runner_gradients. */
strait_err strait_runner_validate(struct strait_runner *runner, int64_t step, double *loss_sum);

/* Measures the passes of one microbatch without neighbours: runs `n` and reports the last. The
 * values of the weights do not matter. Leaves gradients zeroed. */
strait_err strait_runner_time_passes(struct strait_runner *runner, int n, strait_step_times *out);

/* Half a round trip to the next stage, in seconds; waits up to two seconds for the first to be
 * measured. 0: there is no next stage, or it is not known. */
double strait_runner_next_delay(const struct strait_runner *runner);

/* Subspace codec, between steps. The last stage proposes an updated basis [width x keep], written
 * to `out`, which is kept if the same was proposed since the last update; every stage adopts it and
 * rewrites the weights and moments that are stored in it. Adopting the version that a stage has
 * already does nothing. STRAIT_EINVAL for a proposal of the first stage. */
strait_err strait_runner_propose_basis(struct strait_runner *runner, float *out);
strait_err strait_runner_adopt_basis(struct strait_runner *runner, const float *basis,
                                     uint32_t version);

/* Starts recording spans of the runner's actions; end writes them to `path` as a trace. */
strait_err strait_runner_trace_begin(struct strait_runner *runner);
strait_err strait_runner_trace_end(struct strait_runner *runner, const char *path);

/* Calls on_poll while a boundary waits for space in a neighbour's queue; `user` is a runner.
 */
strait_err strait_runner_poll_waiting(void *user);

/* ---- replicas/messages.c: what arrives while a command is executed ---- */

/* Passes a message to the boundary it belongs to, or to on_message. Ownership as for
 * strait_boundary_deliver. */
strait_err strait_runner_route(struct strait_runner *runner, struct strait_msg **msg);

/* Calls on_poll, where it is set. */
strait_err strait_runner_poll(const struct strait_runner *runner);

/* Waits for the next message in short slices, so that a runner whose neighbour is silent still
 * reacts to events. STRAIT_ETIMEDOUT: nothing has moved on its links, or beyond them, for
 * timeout_ms (link_progress.h). */
strait_err strait_runner_receive(struct strait_runner *runner, int timeout_ms,
                                 struct strait_msg **out);

/* Routes all messages that have arrived; waits up to timeout_ms for the first of them. */
strait_err strait_runner_drain(struct strait_runner *runner, int timeout_ms);
