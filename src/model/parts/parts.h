/* parts.h - the optional parts of parts.def, all at once: block.c and the generator apply those of
 * a place, shape.c counts them. Arrays have an element per row of parts.def. */
#pragma once

#include "model/parts/part.h"

/* Which parts a block has, or any block of a range. */
typedef struct strait_part_set {
    int has[STRAIT_PARTS];
} strait_part_set;

strait_part_set strait_parts_of_block(const strait_shape *shape, int i);

/* The option of the first part that any block has; NULL if there is none. */
const char *strait_parts_option(const strait_shape *shape);
/* What to change so that no optional part of the model changes the residual stream. */
const char *strait_parts_remedy(const strait_shape *shape);
/* Whether any block has a part that reads token ids; one that needs scratch; one at this place. */
int strait_parts_read_tokens(const strait_shape *shape);
int strait_parts_need_scratch(const strait_shape *shape);
int strait_parts_are_at(const strait_shape *shape, strait_part_place place);

/* STRAIT_ENOTSUP if the backend lacks a kernel of a part that any block has. */
strait_err strait_parts_require(const strait_shape *shape, const struct strait_backend *backend);

/* Parameters of block i's parts; with is_product only factors of matrix products. */
int64_t strait_parts_count(const strait_shape *shape, int i, int is_product);

/* Lists the parameters of the parts at a place that block list->block has. */
strait_err strait_parts_add_params(struct strait_param_list *list, strait_part_place place,
                                   strait_part *parts);

/* Plans inputs and what else they keep. */
strait_err strait_parts_plan_acts(const strait_shape *shape, strait_part_place place,
                                  const strait_part_set *set, int64_t n_tokens,
                                  struct strait_slab *slab, strait_part_acts *acts);
/* Plans what they keep of earlier tokens of so many sequences in generation. */
strait_err strait_parts_plan_pasts(const strait_shape *shape, const strait_part_set *set,
                                   int64_t n_sequences, struct strait_slab *slab,
                                   strait_tensor *pasts);

/* Copies the activations of the parts at a place. */
void strait_parts_copy_acts(strait_part_place place, strait_part_acts *to,
                            const strait_part_acts *from);

int strait_parts_are_present(strait_part_place place, const strait_part *parts);
/* The first input that is kept, among the parts at a place; NULL if none is. */
strait_tensor *strait_parts_kept_input(strait_part_place place, const strait_part *parts,
                                       strait_part_acts *acts);
/* Where the caller writes the tensor that the parts at a place change into `output`: the first
 * input that is kept, or `output` itself. */
strait_tensor strait_parts_input(strait_part_place place, const strait_part *parts,
                                 const strait_part_acts *acts, strait_tensor output);

/* Applies the parts at a place, from strait_parts_input to output; and in reverse order to d, the
 * gradient of the output, which becomes that of the input. */
strait_err strait_parts_forward(const strait_work *work, strait_part_place place,
                                const strait_part *parts, const strait_part_acts *acts,
                                strait_tensor output);
/* strait_parts_forward from x + delta; some part must be at the place. */
strait_err strait_parts_forward_sum(const strait_work *work, strait_part_place place,
                                    const strait_part *parts, const strait_part_acts *acts,
                                    strait_tensor output, strait_tensor x, strait_tensor delta);
strait_err strait_parts_backward(const strait_work *work, strait_part_place place,
                                 const strait_part *parts, const strait_part_acts *acts,
                                 strait_tensor d, strait_tensor scratch);
