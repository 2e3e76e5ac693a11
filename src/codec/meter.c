#include "codec/meter.h"

strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows) {
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, rows, 3, &meter->stats));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, rows, &meter->ones));
    return strait_slab_add(slab, STRAIT_F32, 2, 3, &meter->totals);
}

strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s) {
    return s->backend->kernels->fill(s, meter->ones, 1.0f);
}

strait_tensor strait_meter_stats(const struct strait_meter *meter, int64_t rows) {
    return strait_tensor_rows(meter->stats, 0, rows);
}

strait_err strait_meter_add(struct strait_meter *meter, struct strait_stream *s, int64_t rows,
                            int which) {
    strait_tensor ones = meter->ones;
    ones.cols = rows;
    return s->backend->kernels->matmul(s, strait_tensor_rows(meter->totals, which, 1), ones,
                                       strait_meter_stats(meter, rows),
                                       (strait_matmul_how){.alpha = 1, .beta = 1});
}

strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s, float out[6]) {
    const struct strait_backend_ops *ops = s->backend->ops;
    STRAIT_TRY(ops->download(s, out, meter->totals.data, strait_tensor_bytes(meter->totals)));
    STRAIT_TRY(ops->wait(s));
    return s->backend->kernels->fill(s, meter->totals, 0.0f);
}
