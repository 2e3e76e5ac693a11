/* head.h - last norm, logits and loss.
 *
 * Logits are made for a few tokens at a time, so that no buffer of tokens x vocabulary exists, and
 * their gradient is made while they are warm: on the last stage the backward pass follows the
 * forward pass at once in every schedule. */
#pragma once

#include "model/layer.h"

typedef struct strait_head {
    strait_param *norm, *out; // out is the embedding table when tied
} strait_head;

typedef struct strait_head_scratch {
    strait_tensor x, normed, rstd; // [N x D], [N x D], [N x 1]
    strait_tensor logits;          // [chunk x V]
    strait_tensor d_normed;        // [N x D]; absent when not training
    strait_tensor losses;          // [N x 1]; f32, planned by the caller, whose it is afterwards
} strait_head_scratch;

/* `logit_bytes` are made at a time; 0: what suits the caches of a cpu. What is planned is used
 * within a call below, and not looked at after it. */
strait_err strait_head_plan(const strait_shape *shape, int64_t n_tokens, size_t logit_bytes,
                            int is_training, struct strait_slab *slab, strait_head_scratch *out);

/* What a microbatch brings to the head, and what it asks for. */
typedef struct strait_head_pass {
    strait_tensor x, delta; // [N x D]: the stream is their sum
    strait_tensor targets;  // [N x 1]
    float scale;            // gradients of scale times the sum of losses; 0: none
    strait_tensor d;        // [N x D]: gets the gradient of the stream; with scale only
} strait_head_pass;

/* Makes room->losses and, with pass->scale, the gradients of the stream and of the weights. */
strait_err strait_head_loss(const strait_work *work, const strait_head *head,
                            const strait_head_scratch *capacity, const strait_head_pass *pass);

/* The logits of x + delta, soft-capped or not as the kernels leave them: raw. At most as many rows
 * as room->logits has. */
strait_err strait_head_logits(const strait_work *work, const strait_head *head,
                              const strait_head_scratch *capacity, strait_tensor logits,
                              strait_tensor x, strait_tensor delta);
