/* head.h - the language-model head: last norm, logits, cross-entropy loss, and their backward pass.
 *
 * Logits are computed for a few tokens at a time, so that no buffer of tokens x vocabulary exists,
 * and their gradient is computed while they are in the cache: on the last stage the backward pass
 * follows the forward pass at once in every schedule. So loss is forward, backward and
 * weight_grads in one. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_head {
    strait_param *norm, *out; // out is the embedding table when tied; both NULL without a head
} strait_head;

typedef struct strait_head_scratch {
    strait_tensor x, normed, rstd; // [N x D], [N x D], [N x 1]
    strait_tensor logits;          // [chunk x V]
    strait_tensor d_normed;        // [N x D]; absent when not training
    strait_tensor losses;          // [N x 1] f32; planned by the caller, who reads it afterwards
} strait_head_scratch;

/* tied_table: the embedding table if the head shares it, else NULL. */
strait_err strait_head_add_params(struct strait_param_list *list, strait_param *tied_table,
                                  strait_head *out);

/* Computes at most logit_bytes of logits at a time; 0: what suits the caches of a cpu. Everything
 * but `losses` is used only within one call below, so that other scratch may share its memory. */
strait_err strait_head_plan_scratch(const strait_shape *shape, int64_t n_tokens, size_t logit_bytes,
                                    int is_training, struct strait_slab *slab,
                                    strait_head_scratch *out);

/* The input of the head for one microbatch, and what to compute. */
typedef struct strait_head_pass {
    strait_tensor x, delta; // [N x D]: the residual stream is their sum
    strait_tensor targets;  // [N x 1]
    float scale;            // gradients are of scale times the sum of losses; 0: no gradients
    strait_tensor d;        // [N x D]: gets the gradient of the stream; with scale only
} strait_head_pass;

/* Computes scratch->losses and, with pass->scale, the gradients of the stream and of the weights.
 */
strait_err strait_head_loss(const strait_work *work, const strait_head *head,
                            const strait_head_scratch *scratch, const strait_head_pass *pass);

/* The logits of x + delta, before the soft cap. At most as many rows as scratch->logits has. */
strait_err strait_head_logits(const strait_work *work, const strait_head *head,
                              const strait_head_scratch *scratch, strait_tensor logits,
                              strait_tensor x, strait_tensor delta);
