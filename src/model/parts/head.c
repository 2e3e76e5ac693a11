#include "model/parts/head.h"

enum {
    /* Large enough for matrix products to run at full speed, small enough to stay in the last-level
     * cache of a cpu. */
    LOGIT_BYTES = 16 << 20,
    /* Every chunk reads the head's matrix and adds to its gradient: with fewer tokens, memory
     * limits the products of a large vocabulary. */
    CHUNK_MIN = 256
};

/* Tokens whose logits are computed at a time. */
static int64_t chunk_rows(const strait_shape *shape, int64_t n, size_t bytes) {
    const size_t row = (size_t)shape->vocab * strait_dtype_bytes(shape->precision);
    int64_t rows = (int64_t)((bytes > 0 ? bytes : LOGIT_BYTES) / row);
    if (rows < CHUNK_MIN) rows = CHUNK_MIN;
    return rows < n ? rows : n;
}

strait_err strait_head_add_params(struct strait_param_list *list, strait_param *tied_table,
                                  strait_head *out) {
    const strait_shape *s = list->shape;
    STRAIT_TRY(strait_param_list_add(list, "head.norm", STRAIT_ROLE_GAIN, 1, s->width, &out->norm));
    out->out = tied_table;
    if (tied_table != NULL) return STRAIT_OK;
    return strait_param_list_add(list, "head.out", STRAIT_ROLE_HEAD, s->vocab, s->width, &out->out);
}

strait_err strait_head_plan_scratch(const strait_shape *shape, int64_t n, size_t logit_bytes,
                                    int is_training, struct strait_slab *slab,
                                    strait_head_scratch *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->x));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, chunk_rows(shape, n, logit_bytes), shape->vocab,
                                      &out->logits));
    if (!is_training) return STRAIT_OK;
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->d_normed);
}

/* Computes logits and losses of a chunk of tokens and, with a scale, its gradients: the kernel
 * replaces the logits by their gradient, so that both products read it at once. */
static strait_err chunk_loss(const strait_work *work, const strait_head *head,
                             const strait_head_scratch *scratch, const strait_head_pass *pass,
                             int64_t first) {
    const int64_t left = scratch->normed.rows - first;
    const int64_t rows = left < scratch->logits.rows ? left : scratch->logits.rows;
    const strait_tensor normed = strait_tensor_rows(scratch->normed, first, rows);
    const strait_tensor logits = strait_tensor_rows(scratch->logits, 0, rows);
    STRAIT_TRY(strait_layer_linear(work, logits, normed, head->out->compute));
    STRAIT_TRY(work->kernels->cross_entropy(
        work->stream, strait_tensor_rows(scratch->losses, first, rows), logits,
        strait_tensor_rows(pass->targets, first, rows),
        (strait_loss_params){.softcap = work->shape->softcap, .scale = pass->scale}));
    if (pass->scale == 0.0f) return STRAIT_OK;
    STRAIT_TRY(strait_layer_linear_backward(
        work, strait_tensor_rows(scratch->d_normed, first, rows), logits, head->out->compute));
    if (head->out->is_idle) return STRAIT_OK;
    return strait_layer_linear_weight_grad(work, head->out->grad, logits, normed);
}

strait_err strait_head_loss(const strait_work *work, const strait_head *head,
                            const strait_head_scratch *scratch, const strait_head_pass *pass) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->rmsnorm(work->stream, scratch->normed, scratch->x, scratch->rstd, pass->x,
                          pass->delta, strait_layer_norm(work, head->norm)));
    strait_work context = strait_layer_without_fp8(work);
    for (int64_t first = 0; first < scratch->normed.rows; first += scratch->logits.rows) {
        STRAIT_TRY(chunk_loss(&context, head, scratch, pass, first));
        context.overwrites_grads = 0; // later chunks add to the first
    }
    if (pass->scale == 0.0f) return STRAIT_OK;
    STRAIT_TRY(k->fill(work->stream, pass->d, 0.0f));
    return k->rmsnorm_back(work->stream, pass->d, head->norm->grad, scratch->d_normed, scratch->x,
                           head->norm->value, scratch->rstd);
}

strait_err strait_head_logits(const strait_work *work, const strait_head *head,
                              const strait_head_scratch *scratch, strait_tensor logits,
                              strait_tensor x, strait_tensor delta) {
    const strait_tensor normed = strait_tensor_rows(scratch->normed, 0, x.rows);
    STRAIT_TRY(work->kernels->rmsnorm(work->stream, normed,
                                      strait_tensor_rows(scratch->x, 0, x.rows),
                                      strait_tensor_rows(scratch->rstd, 0, x.rows), x, delta,
                                      strait_layer_norm(work, head->norm)));
    const strait_work context = strait_layer_without_fp8(work);
    return strait_layer_linear(&context, logits, normed, head->out->compute);
}
