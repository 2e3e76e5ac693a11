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
#include "stage/boundary.h"
#include "stage/loader.h"

/* Bytes of memory that a runner takes, by purpose. */
typedef struct strait_runner_memory {
    size_t weights, gradients, optimizer;
    size_t activations; // with the scratch memory of kernels
    size_t codecs;      // weights, gradients, state and staging buffers of its boundaries
    size_t data;        // token ids, on the device and on the host
    size_t device;      // sum of everything that is on the device
    int n_params;       // parameters of the optimizer, those of codecs included
} strait_runner_memory;

struct strait_runner {
    strait_run_plan plan;
    int stage, n_slots;
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
    float *squares;               // sum of squared gradients per parameter, on the host
    struct strait_event measured; // reached when losses and squares are on the host
    struct strait_mesh *mesh;     // borrowed; NULL when there is one stage
    int deadline_ms;              // link.deadline: how long to wait for a neighbour
    strait_step_times times;      // of the current or last step
    double *action_time;          // the field of `times` that the last action counts towards
    int has_initial_weights;      // as drawn from the seed: no step and no restore since
    struct strait_trace *trace;   // NULL: no trace was requested
    /* Receives messages that are not crossings; takes ownership as strait_boundary_deliver does. */
    strait_err (*on_message)(void *user, struct strait_msg **msg);
    /* Called between actions and, while waiting, several times per second; an error aborts the
     * current command. NULL: not wanted. */
    strait_err (*on_poll)(void *user);
    int is_waiting; // whether the runner is waiting for a neighbour at this moment
    int side; // which neighbour it deals with: -1 previous, 1 next, 0 none; an error leaves it
    strait_schedule_action_kind last_action; // in the current step; STRAIT_ACTION_WAIT: none yet
    void *user;                              // argument of both callbacks
};

/* Computes the memory of a stage without allocating it. */
strait_err strait_runner_plan(const strait_run_plan *plan, int stage, int n_slots,
                              strait_runner_memory *out);

/* Opens the device and allocates the stage; its weights are 0. Borrows `loader` until close and
 * prepares it, which requires strait_loader_configure. */
strait_err strait_runner_open(const strait_run *run, const strait_run_plan *plan, int stage,
                              int n_slots, struct strait_loader *loader,
                              struct strait_runner **out);

/* Waits for queued work, then frees everything and releases the loader's buffers. Accepts NULL. */
void strait_runner_close(struct strait_runner **runner);

/* Draws the initial weights from the seed. Codecs have drawn theirs at open. */
strait_err strait_runner_init_weights(struct strait_runner *runner, uint64_t seed);

/* Connects the boundaries to the peers of a mesh, which is borrowed; -1: no such neighbour. */
void strait_runner_connect(struct strait_runner *runner, struct strait_mesh *mesh, int prev,
                           int next);

/* Drops every message that the boundaries have received or not sent yet. Call it after the stage
 * was restored to `step`. */
void strait_runner_reset(struct strait_runner *runner, int64_t step);

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
 * stages or microbatches; 0 elsewhere. STRAIT_ETIMEDOUT, naming the neighbour, step and microbatch,
 * when nothing arrives within link.deadline; errors of on_poll are passed on. */
strait_err strait_runner_gradients(struct strait_runner *runner, int64_t step, double *loss_sum);

/* The sum of squared gradients of each parameter; borrowed, valid until the next step. */
const float *strait_runner_squares(const struct strait_runner *runner, int *n);

/* Whether strait_runner_gradients also queues the update. That is so for a single stage on a device
 * other than the host, if the optimizer checks the norm itself: the device then clips without a
 * round trip to the host, and the caller must not call update. */
int strait_runner_updates_itself(const struct strait_runner *runner);

/* Queues the update that ends `step`, with gradients multiplied by `factor`. A device may not have
 * finished when this returns; later work is ordered behind it. */
strait_err strait_runner_update(struct strait_runner *runner, int64_t step, float factor);

/* The same, with the factor that the optimizer's clip has left on the device. */
strait_err strait_runner_update_by_scale(struct strait_runner *runner, int64_t step);

/* Zeroes the gradients of the stage and of its codecs. */
strait_err strait_runner_zero_gradients(struct strait_runner *runner);

/* Runs this stage's part of a validation. `loss_sum` as for strait_runner_gradients. */
strait_err strait_runner_validate(struct strait_runner *runner, int64_t step, double *loss_sum);

/* Measures the passes of one microbatch without neighbours: runs `n` and reports the last. The
 * values of the weights do not matter. Leaves gradients zeroed. */
strait_err strait_runner_time_passes(struct strait_runner *runner, int n, strait_step_times *out);

/* Subspace codec, between steps. The last stage proposes an updated basis [width x keep], written
 * to `out`; every stage adopts it and rewrites the weights and moments that are stored in it.
 * STRAIT_EINVAL for a proposal of the first stage. */
strait_err strait_runner_propose_basis(struct strait_runner *runner, float *out);
strait_err strait_runner_adopt_basis(struct strait_runner *runner, const float *basis,
                                     uint32_t version);

/* Starts recording spans of the runner's actions; end writes them to `path` as a trace. */
strait_err strait_runner_trace_begin(struct strait_runner *runner);
strait_err strait_runner_trace_end(struct strait_runner *runner, const char *path);

/* Calls on_poll while a boundary waits for space in a neighbour's queue; `user` is a runner.
 */
strait_err strait_runner_poll_waiting(void *user);

/* Passes a message to the boundary it belongs to, or to on_message. Ownership as for
 * strait_boundary_deliver. */
strait_err strait_runner_route(struct strait_runner *runner, struct strait_msg **msg);
