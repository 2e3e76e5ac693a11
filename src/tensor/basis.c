#include "tensor/basis.h"

#include "base/alloc.h"

#include <math.h>

static double column_dot(const double *a, const double *b, int64_t d, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < d * k; i += k)
        sum += a[i] * b[i];
    return sum;
}

strait_err strait_basis_orthonormalise(double *q, int64_t d, int64_t k) {
    for (int64_t c = 0; c < k; c++) {
        const double before = column_dot(q + c, q + c, d, k);
        for (int pass = 0; pass < 2; pass++) { // the second takes away what rounding left
            for (int64_t b = 0; b < c; b++) {
                const double factor = column_dot(q + c, q + b, d, k);
                for (int64_t i = 0; i < d * k; i += k)
                    q[i + c] -= factor * q[i + b];
            }
        }
        const double after = column_dot(q + c, q + c, d, k);
        if (!(after > before * 1e-20) || !isfinite(after))
            return STRAIT_FAIL(STRAIT_EDATA,
                               "basis: column %lld of %lld depends on those before it",
                               (long long)c, (long long)k);
        for (int64_t i = 0; i < d * k; i += k)
            q[i + c] /= sqrt(after);
    }
    return STRAIT_OK;
}

strait_err strait_basis_draw(strait_rng rng, int64_t d, int64_t k, float *out) {
    double *q = NULL;
    STRAIT_TRY(strait_alloc((size_t)(d * k), sizeof *q, "basis", (void **)&q));
    strait_rng_normals(rng, 0, out, (size_t)(d * k));
    for (int64_t i = 0; i < d * k; i++)
        q[i] = (double)out[i];
    const strait_err err = strait_basis_orthonormalise(q, d, k);
    for (int64_t i = 0; err == STRAIT_OK && i < d * k; i++)
        out[i] = (float)q[i];
    strait_alloc_free(q);
    return err;
}
