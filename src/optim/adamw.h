/* adamw.h - the step of AdamW, for the optimizers that differ in the shape of the second moment.
 *
 *   w *= 1 - rate decay                                decoupled weight decay
 *   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
 *   w -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
 *
 * The arithmetic is in the backend's kernel, which updates all parameters in one call. */
#pragma once

#include "optim/optimizer_ops.h"

/* For optimizers that leave some parameters to AdamW. */
extern const struct strait_optimizer_ops strait_optimizer_adamw;

/* Host memory of the kernel's arguments, so that a step allocates nothing. */
struct strait_adamw_scratch {
    strait_adamw_item *items; // one per parameter
};

/* The slots of the table with these names; states[0] is m, states[1] is v. */
strait_err strait_adamw_plan(void *scratch, const strait_optim_spec *spec,
                             const strait_optim_update *updates, int n, struct strait_slab *slab);
void strait_adamw_release(void *scratch);
strait_err strait_adamw_step(void *scratch, const strait_optim_step *at,
                             const strait_optim_update *updates, int n);
