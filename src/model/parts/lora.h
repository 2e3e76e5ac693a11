/* lora.h - low-rank adapters (LoRA) on the matrices of blocks.
 *
 * An adapter of a matrix W [outputs x inputs] is a pair of trained matrices, A [rank x inputs] and
 * B [outputs x rank]; layers read W + (alpha / rank) B A. W itself stays as it is. The sum is
 * computed once per step, into the copy that layers read (strait_param.compute), so that forward
 * and backward passes are those of the model without adapters, on every device. The gradients of A
 * and B follow from that of the sum:
 *
 *   d B = (alpha / rank) dW A^T       d A = (alpha / rank) B^T dW
 *
 * B starts as zeros: a run begins with the model that it adapts. Merging costs the gradient of W,
 * which a product with A and B for every token would not need; it saves the moments of W. */
#pragma once

#include "backend/slab.h"
#include "model/param_list.h"

/* The matrices that can have an adapter: bits of strait_shape.lora_targets. */
enum {
    STRAIT_LORA_TARGETS = 7
};

typedef struct strait_lora_target {
    const char *name, *hf_name; // "q" and "q_proj": both are accepted in run files
    const char *param;          // "attention.q": the end of the parameter's name
} strait_lora_target;

extern const strait_lora_target strait_lora_targets[STRAIT_LORA_TARGETS];

/* Reads a list such as "q,v" into bits. STRAIT_ECONFIG names a word that is no target. */
strait_err strait_lora_parse_targets(const char *text, int *out);

/* Which target a parameter is, by its name: an index of strait_lora_targets, or -1. */
int strait_lora_target_of(const strait_shape *shape, const char *name);

/* Values of all adapters of one block. */
int64_t strait_lora_count(const strait_shape *shape);

/* The factor alpha / rank. */
float strait_lora_scale(const strait_shape *shape);

/* An adapter. Pointers are into the list of parameters. */
typedef struct strait_lora {
    strait_param *matrix, *a, *b;
} strait_lora;

/* Adds the parameters "NAME.lora_a" and "NAME.lora_b" of every target among the parameters from
 * `first` on, and appends to adapters[*n]. */
strait_err strait_lora_add_params(struct strait_param_list *list, int first, strait_lora *adapters,
                                  int *n);

/* Marks the matrices whose gradient nobody needs (strait_param.is_idle): those without an adapter,
 * unless one product computes it together with that of a matrix that has one. */
void strait_lora_mark_idle(const strait_shape *shape, strait_param *params, int n);

/* Plans what apply needs to round the sum: nothing where layers read f32. */
strait_err strait_lora_plan(const strait_shape *shape, const strait_lora *adapters, int n,
                            struct strait_slab *slab, strait_tensor *scratch);

/* Writes W + scale B A to what layers read, for every adapter. */
strait_err strait_lora_apply(const strait_shape *shape, const strait_lora *adapters, int n,
                             strait_tensor scratch, struct strait_stream *stream);

/* Computes the gradients of all A and B from those of the matrices, which must be complete. */
strait_err strait_lora_gradients(const strait_shape *shape, const strait_lora *adapters, int n,
                                 struct strait_stream *stream);
