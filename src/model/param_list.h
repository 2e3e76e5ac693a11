/* param_list.h - the list to which the parts of a model add their parameters.
 *
 * Adding a parameter plans three tensors: its f32 value, its gradient (when training) and the
 * rounded copy that layers read (when activations are bf16). The order of the calls is the order of
 * parameters in checkpoints. */
#pragma once

#include "backend/slab.h"
#include "model/shape.h"
#include "tensor/param.h"

struct strait_param_list {
    strait_param *params; // caller's memory
    int n, capacity;
    const strait_shape *shape;
    int is_training;           // plan gradients too
    int sums_grads;            // also gradients of matrices go to sums
    int block;                 // index in the model of the block being listed; -1 outside of blocks
    int64_t residual_out_rows; // of matrices that add to the residual stream
    /* Gradients of matrices are overwritten by the first product of a step; the other gradients are
     * only ever added to, so they lie together and are zeroed at once. */
    struct strait_slab *values, *grads, *sums, *copies;
};

/* Whether a parameter of this role is a factor of one matrix product per microbatch: its gradient
 * is one too. */
int strait_param_list_is_product(strait_role role);

/* Adds a parameter [rows x cols]. In a block its full name is "blocks.N.NAME". *out points into
 * list->params. STRAIT_ENOMEM if a slab cannot grow. */
strait_err strait_param_list_add(struct strait_param_list *list, const char *name, strait_role role,
                                 int64_t rows, int64_t cols, strait_param **out);

/* The same, in memory directly after the previous parameter: strait_layer_join then reads the two
 * as one matrix. */
strait_err strait_param_list_add_adjacent(struct strait_param_list *list, const char *name,
                                          strait_role role, int64_t rows, int64_t cols,
                                          strait_param **out);
