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

enum {
    POWER_STEPS = 100 // of the power iteration below: largest sines that are closer mix, unnoticed
};

/* The columns of b without their parts in the span of a, as contiguous columns. The sines of the
 * principal angles are its singular values; unlike cosines they are exact for small angles. */
static void remove_span(const float *a, const float *b, int64_t d, int64_t k, double *out) {
    for (int64_t c = 0; c < k; c++) {
        double *column = out + c * d;
        for (int64_t i = 0; i < d; i++)
            column[i] = (double)b[i * k + c];
        for (int64_t from = 0; from < k; from++) {
            double factor = 0;
            for (int64_t i = 0; i < d; i++)
                factor += (double)a[i * k + from] * (double)b[i * k + c];
            for (int64_t i = 0; i < d; i++)
                column[i] -= factor * (double)a[i * k + from];
        }
    }
}

/* The largest eigenvalue of a symmetric matrix [k x k] without negative ones; x and y are scratch.
 * The first vector has a part in every direction that the diagonal shows. */
static double largest_eigenvalue(const double *gram, int64_t k, double *x, double *y) {
    double value = 0;
    for (int64_t i = 0; i < k; i++)
        x[i] = gram[i * k + i];
    for (int step = 0; step < POWER_STEPS; step++) {
        const double length = sqrt(dot(x, x, k));
        if (length == 0) return 0;
        for (int64_t i = 0; i < k; i++)
            x[i] /= length;
        for (int64_t i = 0; i < k; i++)
            y[i] = dot(gram + i * k, x, k);
        value = dot(x, y, k);
        for (int64_t i = 0; i < k; i++)
            x[i] = y[i];
    }
    return value;
}

strait_err strait_basis_angles(const float *a, const float *b, int64_t d, int64_t k,
                               double *largest, double *mean) {
    double *rest = NULL;
    const size_t n = (size_t)(d * k), n_gram = (size_t)(k * k);
    STRAIT_TRY(strait_alloc(n + n_gram + 2 * (size_t)k, sizeof *rest, "angles of a basis",
                            (void **)&rest));
    double *gram = rest + n, *x = gram + n_gram, sum = 0;
    remove_span(a, b, d, k, rest);
    for (int64_t i = 0; i < k * k; i++)
        gram[i] = dot(rest + i / k * d, rest + i % k * d, d);
    for (int64_t i = 0; i < k; i++)
        sum += gram[i * k + i];
    *largest = asin(sqrt(fmin(1, largest_eigenvalue(gram, k, x, x + k))));
    *mean = asin(sqrt(fmin(1, sum / (double)k)));
    strait_alloc_free(rest);
    return STRAIT_OK;
}
