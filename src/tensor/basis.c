#include "tensor/basis.h"

#include "base/alloc.h"

#include <math.h>

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Gram-Schmidt on k contiguous columns of d values each. The sums run in a fixed order: two
 * machines that draw one basis must get the same bits. */
static strait_err orthonormalise(double *columns, int64_t d, int64_t k) {
    for (int64_t c = 0; c < k; c++) {
        double *column = columns + c * d;
        const double before = dot(column, column, d);
        for (int pass = 0; pass < 2; pass++) { // the second removes what rounding left
            for (const double *other = columns; other < column; other += d) {
                const double factor = dot(column, other, d);
                for (int64_t i = 0; i < d; i++)
                    column[i] -= factor * other[i];
            }
        }
        const double after = dot(column, column, d);
        if (!(after > before * 1e-20) || !isfinite(after))
            return STRAIT_FAIL(STRAIT_EDATA,
                               "basis: column %lld of %lld depends on earlier columns",
                               (long long)c, (long long)k);
        for (int64_t i = 0; i < d; i++)
            column[i] /= sqrt(after);
    }
    return STRAIT_OK;
}

/* Works on a transposed copy: consecutive values of a column of a wide basis are too far apart for
 * the cache. q is written only on success. */
strait_err strait_basis_orthonormalise(double *q, int64_t d, int64_t k) {
    double *columns = NULL;
    STRAIT_TRY(strait_alloc((size_t)(d * k), sizeof *columns, "basis", (void **)&columns));
    for (int64_t i = 0; i < d * k; i++)
        columns[i % k * d + i / k] = q[i];
    const strait_err err = orthonormalise(columns, d, k);
    for (int64_t i = 0; err == STRAIT_OK && i < d * k; i++)
        q[i] = columns[i % k * d + i / k];
    strait_alloc_free(columns);
    return err;
}

/* Orthonormalised in double precision and rounded once, so that columns are orthonormal to f32. */
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
