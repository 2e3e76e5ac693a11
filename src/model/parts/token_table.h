/* token_table.h - adds a row of a table to the residual stream, chosen by the token id (the option
 * model.anchors): later stages see the token itself, whatever a compressed boundary lost of it.
 *
 * Blocks with local parts have one (strait_shape_has_local), except block 0, whose stream is the
 * embedding already. A table starts as a copy of the embedding's first values. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_token_table {
    strait_param *table; // [V x D], named "anchor" in checkpoints; NULL without
} strait_token_table;

strait_err strait_token_table_add_params(struct strait_param_list *list, strait_token_table *out);

/* stream += table[tokens]; nothing without a table. The gradient of the stream passes through
 * unchanged: there is no backward. */
strait_err strait_token_table_forward(const strait_work *work, const strait_token_table *part,
                                      strait_tensor stream);

/* Adds the rows of d_stream to the gradients of the tokens' rows. */
strait_err strait_token_table_weight_grads(const strait_work *work, const strait_token_table *part,
                                           strait_tensor d_stream);
