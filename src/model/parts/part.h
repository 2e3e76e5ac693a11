/* part.h - what every part of the model provides, and in which order.
 *
 * The parts are: embedding, token table, local convolution, attention, mlp, bottleneck, head; one
 * .h and .c each. block.c composes those of one transformer layer, stage.c adds embedding and head.
 * A part X declares, as far as it applies:
 *
 *   strait_X                 pointers to its parameters; NULL where this block has none
 *   strait_X_acts            activations of one microbatch that the backward pass needs
 *   strait_X_scratch         memory that all blocks use in turn
 *
 *   strait_X_add_params      lists its parameters: name, role, shape (param_list.h)
 *   strait_X_plan_acts       plans the activations of n_tokens tokens into a slab
 *   strait_X_forward         computes its output and fills the activations
 *   strait_X_backward        turns the gradient of the output into that of the input
 *   strait_X_weight_grads    adds the gradients of its matrices
 *
 * Rules that all of them keep:
 * - Nothing allocates: memory is planned into slabs once, before the first pass.
 * - Calls only queue work on work->stream. One thread uses a stage.
 * - A tensor without data ("absent") means that the optional input is not there.
 * - backward comes after forward of the same microbatch and may overwrite its activations.
 * - weight_grads is separate from backward so that a schedule can send the input gradient first and
 *   compute the weight gradients later ("deferred"). Gradients of gains and of convolutions, which
 *   their kernels compute together with the input gradient, are added by backward itself.
 * - Names of parameters are part of the checkpoint format and never change. */
#pragma once

#include "model/layer.h"
#include "model/param_list.h"
