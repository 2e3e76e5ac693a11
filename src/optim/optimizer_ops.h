/* optimizer_ops.h - the table that an optimizer fills in, one const table per file.
 *
 * The framework (optimizer.c) measures and clips gradients, decides which parameters learn at a
 * step and at which learning rate, owns all memory and names the state in checkpoints. An optimizer
 * says which parameters it can update, which state each of them needs, and how one step changes
 * them. To add one: write its file, list it in registry.c, and test it. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "optim/optimizer.h"
#include "tensor/param.h"

enum {
    STRAIT_OPTIM_STATES = 4 // state tensors of one parameter, at most
};

/* A state tensor of one parameter, before it has memory. */
typedef struct strait_optim_state_spec {
    /* Checkpoints name the tensor "PARAMETER.LETTER". Never change one: old checkpoints could not
     * be resumed. */
    char letter;
    strait_dtype dtype;
    int64_t rows, cols;
    /* The tensor is a linear function of past gradients: a change of basis of the weight changes
     * its basis alike. Other state is an average of squared gradients, of the shape of the weight
     * or shared by its rows or columns. */
    int is_linear;
} strait_optim_state_spec;

/* One parameter at one step. While memory is planned, tensors have shapes but no data, and the
 * other fields are 0. */
typedef struct strait_optim_update {
    strait_tensor weight, grad;                // f32, of one shape
    strait_tensor copy;                        // bf16 copy that layers read; absent with f32 layers
    strait_tensor states[STRAIT_OPTIM_STATES]; // in the order of ops->states
    float learning_rate, weight_decay;         // of this step: schedule and group applied
} strait_optim_update;

/* What all updates of one step share. */
typedef struct strait_optim_step {
    struct strait_stream *stream;
    const strait_optim_spec *spec; // for hyperparameters: beta1, momentum, ...
    int64_t step;                  // from 1
    /* [2 x 1] on the device: multiply every gradient by the first value (clipping); the second is
     * the norm of all gradients. */
    strait_tensor scale;
} strait_optim_step;

/* An optimizer. Slots marked optional may be NULL or 0. All calls come from one thread. */
struct strait_optimizer_ops {
    const char *name; // the value of train.optimizer

    /* Optional: the learning rate of a role whose option the run file leaves out, given those of
     * matrices and of the embedding. Without it every role has that of matrices. */
    double (*default_learning_rate)(strait_role role, double matrix, double embedding);

    /* Optional, both or neither: whether this optimizer updates the parameter; those it does not
     * are updated by `fallback`, which must accept every parameter. */
    int (*accepts)(const strait_param *param);
    const struct strait_optimizer_ops *fallback;

    /* Describes the state of a parameter and returns the number of its tensors, at most
     * STRAIT_OPTIM_STATES. They are zero before the first step. */
    int (*states)(const strait_optim_spec *spec, const strait_param *param,
                  strait_optim_state_spec out[STRAIT_OPTIM_STATES]);

    /* Optional: scratch. The framework allocates scratch_size bytes, zeroed, at an address that
     * does not change. `plan` adds device tensors for updates like these n to the slab; `release`
     * frees what plan allocated on the host, also after plan failed. */
    size_t scratch_size;
    strait_err (*plan)(void *scratch, const strait_optim_spec *spec,
                       const strait_optim_update *updates, int n, struct strait_slab *slab);
    void (*release)(void *scratch);

    /* Queues one step for n parameters, n >= 1: reads grad times at->scale[0], changes weight,
     * copy and states. Must not allocate. */
    strait_err (*step)(void *scratch, const strait_optim_step *at,
                       const strait_optim_update *updates, int n);

    /* Whether step itself checks the norm in scale and changes nothing when it is not finite. If 0,
     * the caller downloads scale first and skips the step. */
    int checks_norm;
};
