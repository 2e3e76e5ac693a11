#include "codec/meter.h"

/* One row per token, because kernels add to rows without synchronisation. */
strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows) {
    for (int i = 0; i < STRAIT_METER_BANKS * STRAIT_METER_KINDS; i++)
        STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, rows, 3,
                                   &meter->stats[i / STRAIT_METER_KINDS][i % STRAIT_METER_KINDS]));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, rows, &meter->ones));
    return strait_slab_add(slab, STRAIT_F32, STRAIT_METER_KINDS, 3, &meter->totals);
}

strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s) {
    return s->backend->kernels->fill(s, meter->ones, 1.0f);
}

void strait_meter_select(struct strait_meter *meter, int bank) {
    meter->bank = bank;
}

strait_tensor strait_meter_stats(const struct strait_meter *meter, int which, int64_t rows) {
    return strait_tensor_rows(meter->stats[meter->bank][which], 0, rows);
}

/* Reading resets the statistics: each report covers the crossings since the last. */
strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s,
                             float out[STRAIT_METER_KINDS][3]) {
    const struct strait_backend_ops *ops = s->backend->ops;
    const struct strait_kernels *k = s->backend->kernels;
    for (int i = 0; i < STRAIT_METER_KINDS; i++) {
        /* The sum over rows as a product with ones, which every backend has. */
        STRAIT_TRY(k->matmul(s, strait_tensor_rows(meter->totals, i, 1), meter->ones,
                             meter->stats[meter->bank][i], (strait_matmul_params){.alpha = 1}));
        STRAIT_TRY(k->fill(s, meter->stats[meter->bank][i], 0.0f));
    }
    STRAIT_TRY(ops->download(s, out, meter->totals.data, strait_tensor_bytes(meter->totals)));
    return ops->wait(s);
}
