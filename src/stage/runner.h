/* worker.h - one stage at work: its blocks, its optimizer, its boundaries, its share of the data.
 *
 * A step has two halves, because gradients are clipped by their norm over all stages: forward and
 * backward of every microbatch (play.c), then, once everyone's sums of squares are known, the
 * update. One thread uses a worker; nothing is allocated between open and close except by save,
 * load and the pool of messages, which soon has all it needs. */
#pragma once

#include "config/run_plan.h"
#include "metrics/trace.h"
#include "plan/step_times.h"
#include "stage/boundary.h"
#include "stage/loader.h"

typedef struct strait_runner_memory {
    size_t weights, gradients, optimizer;
    size_t activations; // with what kernels keep partial results in
    size_t codecs;      // all that its boundaries have: weights, gradients, what they keep
    size_t data;        // ids, on the device and on the host
    size_t device;      // all of it that lies on the device
    int n_params;       // that the optimizer has, the codecs' among them
} strait_runner_memory;

struct strait_runner {
    strait_run_plan plan;
    int stage, n_slots;
    struct strait_backend *backend;
    struct strait_stage *model;
    struct strait_boundary *receiver, *sender; // NULL on the first and on the last stage
    struct strait_optimizer *optimizer;
    strait_param *params; // of tail, stage and head, in this order
    int n_params;
    struct strait_loader *loader; // borrowed
    int needs_tokens;
    float *losses;                // of a step's tokens, on the host; last stage only
    float *squares;               // one a parameter, on the host
    struct strait_event measured; // losses and squares are on the host
    int64_t updated_step;         // whose update is queued already; -1: none
    struct strait_mesh *mesh;     // borrowed; NULL when there is one stage
    int deadline_ms;
    strait_step_times times;
    double *bill;               // which of them the last move counts for
    int is_untouched;           // since its weights were drawn: nothing was learned or restored
    struct strait_trace *trace; // NULL: nobody asked for one
    /* Messages that are not crossings go here. */
    strait_err (*on_message)(void *user, struct strait_msg **msg);
    /* Called between moves and, while waiting, several times a second; an error ends the work at
     * hand. NULL: nobody wants to. */
    strait_err (*on_poll)(void *user);
    int is_waiting; // for a neighbour, at this moment
    strait_schedule_action_kind
        last_action; // the latest of the step at hand; STRAIT_ACTION_WAIT: none
    void *user;
};

strait_err strait_runner_plan(const strait_run_plan *plan, int stage, int n_slots,
                              strait_runner_memory *out);

/* Opens the device and makes the stage, whose weights are 0. Keeps `feed`, which it prepares. */
strait_err strait_runner_open(const strait_run *run, const strait_run_plan *plan, int stage,
                              int n_slots, struct strait_loader *loader,
                              struct strait_runner **out);
void strait_runner_close(struct strait_runner **worker); // accepts NULL

/* The first weights of a run. The codecs have theirs since open. */
strait_err strait_runner_init_weights(struct strait_runner *worker, uint64_t seed);

/* Joins the boundaries to the neighbours of a mesh; -1 where there is none. */
void strait_runner_connect(struct strait_runner *worker, struct strait_mesh *mesh, int prev,
                           int next);

/* After the stage was restored to `step`: drops everything its boundaries have received. */
void strait_runner_reset(struct strait_runner *worker, int64_t step);

/* What the computing device calls itself. Borrowed. */
const char *strait_runner_device(const struct strait_runner *worker);

/* Bytes taken on a device that is not the host, and those that nobody there has; 0 on the host. */
size_t strait_runner_device_bytes(const struct strait_runner *worker);
size_t strait_runner_device_spare(const struct strait_runner *worker);

/* Forward and backward of all microbatches of `step` (from 0). On the last stage the sum of the
 * losses of all tokens, in an order that does not depend on the cut; 0 elsewhere. */
strait_err strait_runner_gradients(struct strait_runner *worker, int64_t step, double *loss_sum);

/* One sum of squares for each parameter; borrowed. */
const float *strait_runner_squares(const struct strait_runner *worker, int *n);

/* Whether gradients queue the update that follows from them by themselves: where the model is one
 * stage on a device that is not the host, and the optimizer needs nobody to look at the norm first.
 * Then the device clips by its own figures, and nobody calls update. */
int strait_runner_updates_itself(const struct strait_runner *worker);

/* The update that ends `step`, gradients multiplied by `factor`. A device may still be at it when
 * this returns: whatever comes next is queued behind. */
strait_err strait_runner_update(struct strait_runner *worker, int64_t step, float factor);

/* The same with what the optimizer's clip left as the factor. */
strait_err strait_runner_update_by_scale(struct strait_runner *worker, int64_t step);

/* This stage's part in a validation. On the last stage the sum of the losses; 0 elsewhere. */
strait_err strait_runner_validate(struct strait_runner *worker, int64_t step, double *loss_sum);

/* Runs `n` microbatches on its own, as if alone: how long do the passes take? That is the same for
 * weights that were not drawn. */
strait_err strait_runner_time_passes(struct strait_runner *worker, int n, strait_step_times *out);

/* Subspace codec, between steps: where the last stage would turn the basis [width x keep], and
 * taking a turned one, with all that is written in it. */
strait_err strait_runner_propose_basis(struct strait_runner *worker, float *out);
strait_err strait_runner_adopt_basis(struct strait_runner *worker, const float *basis,
                                     uint32_t version);

/* Keeps spans of what the worker does from now on; then writes them as a trace of this stage. */
strait_err strait_runner_trace_begin(struct strait_runner *worker);
strait_err strait_runner_trace_end(struct strait_runner *worker, const char *path);

/* on_poll, while `worker` waits for a neighbour to take what it sends. */
strait_err strait_runner_poll_waiting(void *worker);

/* Hands a message to the boundary it is for, or to on_message. */
strait_err strait_runner_route(struct strait_runner *worker, struct strait_msg **msg);
