#include "model/parts/embedding.h"

strait_err strait_embedding_add_params(struct strait_param_list *list, strait_embedding *out) {
    return strait_param_list_add(list, "embed.table", STRAIT_ROLE_EMBEDDING, list->shape->vocab,
                                 list->residual_out_rows, &out->table);
}

strait_err strait_embedding_forward(const strait_work *work, const strait_embedding *embedding,
                                    strait_tensor y, strait_tensor tokens) {
    const struct strait_kernels *k = work->kernels;
    if (work->basis.data == NULL)
        return k->embed(work->stream, y, embedding->table->compute, tokens);
    const strait_tensor code = strait_layer_code_rows(work, y.rows);
    /* The stored table is only the trained part, as coordinates in the basis. */
    STRAIT_TRY(k->embed(work->stream, y, work->fixed_embedding, tokens));
    STRAIT_TRY(k->embed(work->stream, code, embedding->table->compute, tokens));
    return strait_layer_from_basis(work, y, code, 1.0f);
}

strait_err strait_embedding_weight_grads(const strait_work *work, const strait_embedding *embedding,
                                         strait_tensor d_y, strait_tensor tokens) {
    const struct strait_kernels *k = work->kernels;
    const int is_listed = work->lists.data != NULL && work->table_ids.data == tokens.data;
    if (work->basis.data == NULL && is_listed)
        return strait_layer_table_backward(work, embedding->table->grad, d_y, 0);
    if (work->basis.data == NULL)
        return k->embed_back(work->stream, embedding->table->grad, d_y, tokens);
    const strait_tensor code = strait_layer_code_rows(work, d_y.rows);
    STRAIT_TRY(strait_layer_to_basis(work, code, d_y));
    return k->embed_back(work->stream, embedding->table->grad, code, tokens);
}
