/* worker.h - one stage at work: its blocks, its optimizer, its share of the data.
 *
 * A step has two halves, because gradients are clipped by their norm over all stages: forward and
 * backward of every microbatch, then, once everyone's sums of squares are known, the update. One
 * thread uses a worker; nothing is allocated between open and close except by save and load. */
#pragma once

#include "pipeline/feed.h"
#include "pipeline/recipe.h"
#include "store/checkpoint.h"

struct strait_worker;

typedef struct strait_worker_memory {
    size_t weights, gradients, optimizer, activations, data;
} strait_worker_memory;

strait_err strait_worker_plan(const strait_run *run, const strait_recipe *recipe,
                              strait_worker_memory *out);

/* Opens the device, makes the stage with its first weights. Keeps `feed`, which it prepares. */
strait_err strait_worker_open(const strait_run *run, const strait_recipe *recipe,
                              struct strait_feed *feed, struct strait_worker **out);
void strait_worker_close(struct strait_worker **worker); // accepts NULL

/* What the computing device calls itself. Borrowed. */
const char *strait_worker_device(const struct strait_worker *worker);

/* Forward and backward of all microbatches of `step` (from 0). The sum of the losses of all
 * tokens, in an order that does not depend on the cut. */
strait_err strait_worker_gradients(struct strait_worker *worker, int64_t step, double *loss_sum);

/* One sum of squares for each parameter, in the order of the model; borrowed. */
const float *strait_worker_squares(const struct strait_worker *worker, int *n);

/* The update that ends `step`, gradients multiplied by `factor`. */
strait_err strait_worker_update(struct strait_worker *worker, int64_t step, float factor);

/* Mean loss over the validation tokens. STRAIT_EINVAL when the run has none. */
strait_err strait_worker_validate(struct strait_worker *worker, double *loss);

struct strait_stage *strait_worker_stage(struct strait_worker *worker);
struct strait_optimizer *strait_worker_optimizer(struct strait_worker *worker);
