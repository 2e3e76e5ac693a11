#include "model/head.h"

enum {
    /* Bytes of logits at a time: large enough for matrix products to run at full speed, small
     * enough to stay in the last cache on a cpu. */
    LOGIT_BYTES = 16 << 20,
    CHUNK_MIN = 64
};

static int64_t chunk_rows(const strait_shape *shape, int64_t n, size_t bytes) {
    const size_t row = (size_t)shape->vocab * strait_dtype_bytes(shape->precision);
    int64_t rows = (int64_t)((bytes > 0 ? bytes : LOGIT_BYTES) / row);
    if (rows < CHUNK_MIN) rows = CHUNK_MIN;
    return rows < n ? rows : n;
}

strait_err strait_head_plan(const strait_shape *shape, int64_t n, size_t logit_bytes,
                            int is_training, struct strait_slab *slab, strait_head_scratch *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->x));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    STRAIT_TRY(strait_layer_plan(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, chunk_rows(shape, n, logit_bytes), shape->vocab,
                                      &out->logits));
    if (!is_training) return STRAIT_OK;
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->d_normed);
}

static strait_err loss_of_chunk(const strait_work *work, const strait_head *head,
                                const strait_head_scratch *capacity, const strait_head_pass *pass,
                                int64_t first) {
    const int64_t left = capacity->normed.rows - first;
    const int64_t rows = left < capacity->logits.rows ? left : capacity->logits.rows;
    const strait_tensor normed = strait_tensor_rows(capacity->normed, first, rows);
    const strait_tensor logits = strait_tensor_rows(capacity->logits, 0, rows);
    STRAIT_TRY(strait_layer_linear(work, logits, normed, head->out->compute));
    STRAIT_TRY(work->kernels->cross_entropy(
        work->stream, strait_tensor_rows(capacity->losses, first, rows), logits,
        strait_tensor_rows(pass->targets, first, rows),
        (strait_loss_params){.softcap = work->shape->softcap, .scale = pass->scale}));
    if (pass->scale == 0.0f) return STRAIT_OK;
    STRAIT_TRY(strait_layer_linear_back(work, strait_tensor_rows(capacity->d_normed, first, rows),
                                        logits, head->out->compute));
    return strait_layer_linear_weight(work, head->out->grad, logits, normed);
}

strait_err strait_head_loss(const strait_work *work, const strait_head *head,
                            const strait_head_scratch *capacity, const strait_head_pass *pass) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->rmsnorm(work->stream, capacity->normed, capacity->x, capacity->rstd, pass->x,
                          pass->delta, strait_layer_norm(work, head->norm)));
    strait_work now = *work;
    for (int64_t first = 0; first < capacity->normed.rows; first += capacity->logits.rows) {
        STRAIT_TRY(loss_of_chunk(&now, head, capacity, pass, first));
        now.is_fresh = 0; // the other chunks add to the first
    }
    if (pass->scale == 0.0f) return STRAIT_OK;
    STRAIT_TRY(k->fill(work->stream, pass->d, 0.0f));
    return k->rmsnorm_back(work->stream, pass->d, head->norm->grad, capacity->d_normed, capacity->x,
                           head->norm->value, capacity->rstd);
}

strait_err strait_head_logits(const strait_work *work, const strait_head *head,
                              const strait_head_scratch *capacity, strait_tensor logits,
                              strait_tensor x, strait_tensor delta) {
    const strait_tensor normed = strait_tensor_rows(capacity->normed, 0, x.rows);
    STRAIT_TRY(work->kernels->rmsnorm(work->stream, normed,
                                      strait_tensor_rows(capacity->x, 0, x.rows),
                                      strait_tensor_rows(capacity->rstd, 0, x.rows), x, delta,
                                      strait_layer_norm(work, head->norm)));
    return strait_layer_linear(work, logits, normed, head->out->compute);
}
