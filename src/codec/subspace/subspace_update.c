/* subspace_update.c - updates of the shared basis: proposed from the gradients, adopted by all. */
#include "base/alloc.h"
#include "codec/subspace/subspace.h"
#include "tensor/basis.h"

#include <math.h>
#include <string.h>

/* The counters are state: a resumed run must continue with the version it had. */
strait_err strait_subspace_write_counters(struct strait_codec *c, struct strait_stream *s) {
    struct strait_subspace *st = c->state;
    return c->backend->ops->upload(s, c->states[SUBSPACE_COUNTERS].tensor.data, st->counters,
                                   sizeof st->counters);
}

static strait_err fetch(struct strait_stream *s, strait_tensor t, float *out) {
    const struct strait_backend_ops *ops = s->backend->ops;
    STRAIT_TRY(ops->download(s, out, t.data, strait_tensor_bytes(t)));
    return ops->wait(s);
}

/* Relative rounding of f32. A step below it would only replace the last bits of U by others. */
#define ROUNDING 0x1p-24

static strait_err keep(const float *u, double *q, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        q[i] = (double)u[i];
    return STRAIT_OK;
}

/* q = U + rate (I - U U^T) A k / trace(U^T A), made orthonormal: one step of Riemannian descent on
 * ||G - G U U^T||^2, where A = G^T G U. trace(U^T A) is ||G U||^2, so the step depends neither on
 * the scale of the gradients nor on how many were seen. */
static strait_err descend(const float *u, const float *a, double *q,
                          const strait_codec_spec *spec) {
    const int64_t d = spec->cols, k = spec->keep;
    double trace = 0;
    for (int64_t i = 0; i < d * k; i++) {
        trace += (double)u[i] * (double)a[i];
        q[i] = (double)a[i];
    }
    if (!isfinite(trace)) return keep(u, q, d * k); // a non-finite gradient
    const double step = trace > 0 ? spec->grassmann_rate * (double)k / trace : 0;
    for (int64_t from = 0; from < k; from++) { // project each column of U out of A
        for (int64_t c = 0; c < k; c++) {
            double dot = 0;
            for (int64_t i = 0; i < d; i++)
                dot += (double)u[i * k + from] * (double)a[i * k + c];
            for (int64_t i = 0; i < d; i++)
                q[i * k + c] -= dot * (double)u[i * k + from];
        }
    }
    double moved = 0;
    for (int64_t i = 0; i < d * k; i++)
        moved += step * step * q[i] * q[i];
    if (!(moved > (double)k * ROUNDING * ROUNDING)) return keep(u, q, d * k);
    for (int64_t i = 0; i < d * k; i++)
        q[i] = (double)u[i] + step * q[i];
    return strait_basis_orthonormalise(q, d, k);
}

strait_err strait_subspace_propose(struct strait_codec *receiver, struct strait_stream *s,
                                   float *out) {
    const struct strait_subspace *st = receiver->state;
    if (!st->has_gram)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "boundary %d: only the receiver of the last boundary proposes a basis",
                           receiver->spec.boundary);
    const size_t n = (size_t)(receiver->spec.cols * receiver->spec.keep);
    float *u = NULL;
    double *q = NULL;
    strait_err err = strait_alloc(2 * n, sizeof *u, "basis", (void **)&u);
    if (err == STRAIT_OK) err = strait_alloc(n, sizeof *q, "basis", (void **)&q);
    if (err == STRAIT_OK) err = fetch(s, receiver->states[SUBSPACE_BASIS].tensor, u);
    if (err == STRAIT_OK) err = fetch(s, receiver->states[SUBSPACE_GRAM].tensor, u + n);
    if (err == STRAIT_OK) err = descend(u, u + n, q, &receiver->spec);
    if (err == STRAIT_OK)
        err = receiver->backend->kernels->fill(s, receiver->states[SUBSPACE_GRAM].tensor, 0.0f);
    for (size_t i = 0; err == STRAIT_OK && i < n; i++)
        out[i] = (float)q[i];
    strait_alloc_free(u);
    strait_alloc_free(q);
    return err;
}

/* The largest entry of U^T U - I; infinite if any value of U is not finite. */
static double off_orthonormal(const float *u, int64_t d, int64_t k) {
    double worst = 0;
    for (int64_t a = 0; a < k; a++) {
        for (int64_t b = 0; b <= a; b++) {
            double dot = a == b ? -1 : 0;
            for (int64_t i = 0; i < d * k; i += k)
                dot += (double)u[i + a] * (double)u[i + b];
            if (!isfinite(dot)) return INFINITY;
            worst = fmax(worst, fabs(dot));
        }
    }
    return worst;
}

strait_err strait_subspace_measure_basis(struct strait_codec *c, struct strait_stream *s) {
    struct strait_subspace *st = c->state;
    const int64_t d = c->spec.cols, k = c->spec.keep;
    float *u = NULL;
    STRAIT_TRY(strait_alloc((size_t)(d * k), sizeof *u, "basis", (void **)&u));
    const strait_err err = fetch(s, c->states[SUBSPACE_BASIS].tensor, u);
    if (err == STRAIT_OK) st->error = off_orthonormal(u, d, k);
    strait_alloc_free(u);
    return err;
}

/* R = U^T U_new and the squares of its entries. */
static strait_err write_rotation(struct strait_codec *c, struct strait_stream *s, const float *old,
                                 const float *basis) {
    const struct strait_subspace *st = c->state;
    const struct strait_backend_ops *ops = c->backend->ops;
    const int64_t d = c->spec.cols, k = c->spec.keep;
    const size_t bytes = strait_tensor_bytes(st->rotation);
    float *rotation = NULL;
    STRAIT_TRY(strait_alloc((size_t)(2 * k * k), sizeof *rotation, "basis", (void **)&rotation));
    for (int64_t i = 0; i < k * k; i++) {
        double dot = 0;
        for (int64_t row = 0; row < d * k; row += k)
            dot += (double)old[row + i / k] * (double)basis[row + i % k];
        rotation[i] = (float)dot;
        rotation[k * k + i] = (float)(dot * dot);
    }
    strait_err err = ops->upload(s, st->rotation.data, rotation, bytes);
    if (err == STRAIT_OK) err = ops->upload(s, st->squares.data, rotation + k * k, bytes);
    if (err == STRAIT_OK) err = ops->wait(s); // before the memory it reads is freed
    strait_alloc_free(rotation);
    return err;
}

strait_err strait_subspace_adopt(struct strait_codec *c, struct strait_stream *s,
                                 const float *basis, uint32_t version) {
    struct strait_subspace *st = c->state;
    const int64_t d = c->spec.cols, k = c->spec.keep;
    const strait_tensor held = c->states[SUBSPACE_BASIS].tensor;
    const struct strait_backend_ops *ops = c->backend->ops;
    /* A repeated or late command must not replace a newer basis. */
    if (version <= (uint32_t)st->counters[COUNTER_VERSION])
        return STRAIT_FAIL(
            STRAIT_EPROTO, "boundary %d: basis version %lu offered, but this stage has version %ld",
            c->spec.boundary, (unsigned long)version, (long)st->counters[COUNTER_VERSION]);
    /* The basis comes from another machine. One that is not orthonormal would damage all weights.
     */
    const double error = off_orthonormal(basis, d, k);
    if (!(error < 1e-4))
        return STRAIT_FAIL(STRAIT_EDATA, "boundary %d: basis version %lu is not orthonormal",
                           c->spec.boundary, (unsigned long)version);
    float *old = NULL;
    strait_err err = strait_alloc((size_t)(d * k), sizeof *old, "basis", (void **)&old);
    if (err == STRAIT_OK) err = fetch(s, held, old);
    if (err == STRAIT_OK) err = write_rotation(c, s, old, basis);
    if (err == STRAIT_OK) err = strait_basis_angles(old, basis, d, k, &st->angle, &st->mean_angle);
    if (err == STRAIT_OK) err = ops->upload(s, held.data, basis, strait_tensor_bytes(held));
    if (err == STRAIT_OK) {
        st->error = error;
        st->is_same_basis = memcmp(old, basis, strait_tensor_bytes(held)) == 0;
        st->counters[COUNTER_VERSION] = (int32_t)version;
        err = strait_subspace_write_counters(c, s);
    }
    if (err == STRAIT_OK) err = strait_codec_refresh(c, s);
    if (err == STRAIT_OK) err = ops->wait(s);
    strait_alloc_free(old);
    return err;
}
