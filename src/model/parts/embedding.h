/* embedding.h - token ids to the residual stream: one row of a table per token. A tied head reads
 * the same table. With a basis (layer.h) the table holds coordinates, which are added to a fixed
 * embedding that is never trained. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_embedding {
    strait_param *table; // [V x D], or [V x k] with a basis; NULL where the stage has none
} strait_embedding;

strait_err strait_embedding_add_params(struct strait_param_list *list, strait_embedding *out);

/* y [N x D]: the rows of tokens [N x 1]. */
strait_err strait_embedding_forward(const strait_work *work, const strait_embedding *embedding,
                                    strait_tensor y, strait_tensor tokens);

/* Adds the rows of d_y to the gradients of the tokens' rows. Ids have no gradient: there is no
 * backward. */
strait_err strait_embedding_weight_grads(const strait_work *work, const strait_embedding *embedding,
                                         strait_tensor d_y, strait_tensor tokens);
