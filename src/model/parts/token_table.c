#include "model/parts/token_table.h"

strait_err strait_token_table_add_params(struct strait_param_list *list, strait_token_table *out) {
    const strait_shape *s = list->shape;
    if (!s->has_token_tables || list->block == 0 || !strait_shape_has_local(s, list->block))
        return STRAIT_OK;
    return strait_param_list_add(list, "anchor", STRAIT_ROLE_TOKEN_TABLE, s->vocab, s->width,
                                 &out->table);
}

strait_err strait_token_table_forward(const strait_work *work, const strait_token_table *part,
                                      strait_tensor stream) {
    strait_tensor rows;
    if (part->table == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_layer_lookup(work, part->table->compute, &rows));
    return work->kernels->add(work->stream, stream, stream, rows);
}

strait_err strait_token_table_weight_grads(const strait_work *work, const strait_token_table *part,
                                           strait_tensor d_stream) {
    if (part->table == NULL) return STRAIT_OK;
    return work->kernels->embed_back(work->stream, part->table->grad, d_stream, work->tokens);
}
