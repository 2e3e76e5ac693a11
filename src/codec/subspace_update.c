/* subspace_turn.c - weights into the subspace, and the subspace to where the gradients are. */
#include "base/alloc.h"
#include "codec/subspace_state.h"
#include "tensor/basis.h"

#include <math.h>

strait_tensor strait_subspace_basis(const struct strait_codec *c) {
    return c->states[BASIS].tensor;
}

strait_tensor strait_subspace_fixed(const struct strait_codec *c) {
    return ((const struct strait_subspace *)c->state)->fixed;
}

int64_t strait_subspace_corrections(const struct strait_codec *c) {
    return ((const struct strait_subspace *)c->state)->book[BOOK_CORRECTIONS];
}

strait_err strait_subspace_write_book(struct strait_codec *c, struct strait_stream *s) {
    struct strait_subspace *st = c->state;
    return c->backend->ops->upload(s, c->states[BOOK].tensor.data, st->book, sizeof st->book);
}

/* Weights that are written anew from themselves, step after step: what rounds them adds up. */
static strait_matmul_params exact(strait_matmul_params how) {
    how.is_exact = 1;
    return how;
}

/* A matrix that has no more columns than there is room for. */
static strait_err narrow_for(const struct strait_codec *c, strait_tensor w, strait_tensor *out) {
    const struct strait_subspace *st = c->state;
    if (w.cols > c->spec.widest)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec subspace: a weight has %lld inputs, widest is %lld",
                           (long long)w.cols, (long long)c->spec.widest);
    *out = (strait_tensor){st->narrow.data, STRAIT_F32, c->spec.keep, w.cols};
    return STRAIT_OK;
}

/* W [d x inputs] = U U' W */
static strait_err project_matrix(struct strait_codec *c, struct strait_stream *s, strait_tensor w) {
    const struct strait_kernels *k = c->backend->kernels;
    const strait_tensor basis = c->states[BASIS].tensor;
    strait_tensor narrow;
    if (w.rows != basis.rows)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec subspace: a weight that writes the stream has "
                           "%lld outputs, the width is %lld",
                           (long long)w.rows, (long long)basis.rows);
    STRAIT_TRY(narrow_for(c, w, &narrow));
    STRAIT_TRY(k->matmul(s, narrow, basis, w, exact(strait_atb)));
    return k->matmul(s, w, basis, narrow, exact(strait_ab));
}

/* Rows from `row` on: on the subspace, or T_fixed and a part in the subspace. */
static strait_err project_part(struct strait_codec *c, struct strait_stream *s, strait_tensor part,
                               int64_t row, strait_subspace_kind kind) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    const strait_tensor basis = c->states[BASIS].tensor;
    const strait_tensor code = strait_tensor_rows(st->code, 0, part.rows);
    STRAIT_TRY(k->matmul(s, code, part, basis, exact(strait_ab)));
    if (kind != STRAIT_SUBSPACE_WEIGHT) return k->matmul(s, part, code, basis, exact(strait_abt));
    const strait_tensor fixed = strait_tensor_rows(st->fixed, row, part.rows);
    STRAIT_TRY(k->matmul(s, code, fixed, basis,
                         (strait_matmul_params){.alpha = -1, .beta = 1, .is_exact = 1}));
    STRAIT_TRY(k->cast(s, part, fixed));
    return k->matmul(s, part, code, basis, exact(strait_add_abt));
}

/* An embedding [vocab x d], as many rows at a time as the code has. */
static strait_err project_rows(struct strait_codec *c, struct strait_stream *s, strait_tensor t,
                               strait_subspace_kind kind) {
    for (int64_t row = 0; row < t.rows; row += c->spec.rows) {
        const int64_t left = t.rows - row, n = left < c->spec.rows ? left : c->spec.rows;
        STRAIT_TRY(project_part(c, s, strait_tensor_rows(t, row, n), row, kind));
    }
    return STRAIT_OK;
}

strait_err strait_subspace_project(struct strait_codec *c, struct strait_stream *s,
                                   strait_role role, strait_subspace_kind kind, strait_tensor t) {
    if (role == STRAIT_ROLE_RESIDUAL_OUT) return project_matrix(c, s, t);
    return role == STRAIT_ROLE_EMBEDDING ? project_rows(c, s, t, kind) : STRAIT_OK;
}

/* Coordinates: Z [k x inputs] = R' Z, E [vocab x k] = E R. */
static strait_err rotate_code(struct strait_codec *c, struct strait_stream *s, strait_role role,
                              strait_tensor t) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    if (role == STRAIT_ROLE_RESIDUAL_OUT) {
        strait_tensor narrow;
        STRAIT_TRY(narrow_for(c, t, &narrow));
        STRAIT_TRY(k->matmul(s, narrow, st->turn, t, exact(strait_atb)));
        return k->cast(s, t, narrow);
    }
    for (int64_t row = 0; row < t.rows; row += c->spec.rows) {
        const int64_t left = t.rows - row, n = left < c->spec.rows ? left : c->spec.rows;
        const strait_tensor part = strait_tensor_rows(t, row, n);
        const strait_tensor code = strait_tensor_rows(st->code, 0, n);
        STRAIT_TRY(k->matmul(s, code, part, st->turn, exact(strait_ab)));
        STRAIT_TRY(k->cast(s, part, code));
    }
    return STRAIT_OK;
}

strait_err strait_subspace_rotate(struct strait_codec *c, struct strait_stream *s, strait_role role,
                                  strait_subspace_kind kind, strait_tensor t) {
    if (role != STRAIT_ROLE_RESIDUAL_OUT && role != STRAIT_ROLE_EMBEDDING) return STRAIT_OK;
    if (strait_codec_is_variant(&c->spec, "full"))
        return strait_subspace_project(c, s, role, kind, t);
    return rotate_code(c, s, role, t);
}

static strait_err fetch(struct strait_stream *s, strait_tensor t, float *out) {
    const struct strait_backend_ops *ops = s->backend->ops;
    STRAIT_TRY(ops->download(s, out, t.data, strait_tensor_bytes(t)));
    return ops->wait(s);
}

/* q = U + rate (I - U U') A k / trace(U' A), then orthonormal. trace(U' A) is ||G U||^2, so the
 * turn does not depend on the scale of the gradients or on how many were seen. */
static strait_err turn(const float *u, const float *a, double *q, const strait_codec_spec *spec) {
    const int64_t d = spec->cols, k = spec->keep;
    double trace = 0;
    for (int64_t i = 0; i < d * k; i++) {
        trace += (double)u[i] * (double)a[i];
        q[i] = (double)a[i];
    }
    if (!isfinite(trace)) { // a gradient that was no number says nothing
        for (int64_t i = 0; i < d * k; i++)
            q[i] = (double)u[i];
        return STRAIT_OK;
    }
    const double step = trace > 0 ? spec->grassmann_rate * (double)k / trace : 0;
    for (int64_t from = 0; from < k; from++) { // a column of U, taken out of every column of A
        for (int64_t c = 0; c < k; c++) {
            double dot = 0;
            for (int64_t i = 0; i < d; i++)
                dot += (double)u[i * k + from] * (double)a[i * k + c];
            for (int64_t i = 0; i < d; i++)
                q[i * k + c] -= dot * (double)u[i * k + from];
        }
    }
    for (int64_t i = 0; i < d * k; i++)
        q[i] = (double)u[i] + step * q[i];
    return strait_basis_orthonormalise(q, d, k);
}

strait_err strait_subspace_update(struct strait_codec *tail, struct strait_stream *s, float *out) {
    if (!strait_subspace_gathers(tail))
        return STRAIT_FAIL(STRAIT_EINVAL, "only the tail of the last boundary turns the basis");
    const size_t n = (size_t)(tail->spec.cols * tail->spec.keep);
    float *u = NULL;
    double *q = NULL;
    strait_err err = strait_alloc(2 * n, sizeof *u, "basis", (void **)&u);
    if (err == STRAIT_OK) err = strait_alloc(n, sizeof *q, "basis", (void **)&q);
    if (err == STRAIT_OK) err = fetch(s, tail->states[BASIS].tensor, u);
    if (err == STRAIT_OK) err = fetch(s, tail->states[GRAM].tensor, u + n);
    if (err == STRAIT_OK) err = turn(u, u + n, q, &tail->spec);
    if (err == STRAIT_OK) err = tail->backend->kernels->fill(s, tail->states[GRAM].tensor, 0.0f);
    for (size_t i = 0; err == STRAIT_OK && i < n; i++)
        out[i] = (float)q[i];
    strait_alloc_free(u);
    strait_alloc_free(q);
    return err;
}

/* The largest entry of U' U - I. */
static double off_orthonormal(const float *u, int64_t d, int64_t k) {
    double worst = 0;
    for (int64_t a = 0; a < k; a++) {
        for (int64_t b = 0; b <= a; b++) {
            double dot = a == b ? -1 : 0;
            for (int64_t i = 0; i < d * k; i += k)
                dot += (double)u[i + a] * (double)u[i + b];
            worst = fabs(dot) <= worst ? worst : fabs(dot);
        }
    }
    return worst;
}

strait_err strait_subspace_adopt(struct strait_codec *c, struct strait_stream *s,
                                 const float *basis, uint32_t version) {
    struct strait_subspace *st = c->state;
    const int64_t d = c->spec.cols, k = c->spec.keep;
    const strait_tensor held = c->states[BASIS].tensor;
    const struct strait_backend_ops *ops = c->backend->ops;
    if (version <= (uint32_t)st->book[BOOK_VERSION])
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "boundary %d: basis version %lu offered, but this stage has version %ld",
                           c->spec.boundary, (unsigned long)version, (long)st->book[BOOK_VERSION]);
    if (!(off_orthonormal(basis, d, k) < 1e-4))
        return STRAIT_FAIL(STRAIT_EDATA, "boundary %d: basis version %lu is not orthonormal",
                           c->spec.boundary, (unsigned long)version);
    float *old = NULL, *turned = NULL;
    strait_err err = strait_alloc((size_t)(d * k), sizeof *old, "basis", (void **)&old);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)(k * k), sizeof *turned, "basis", (void **)&turned);
    if (err == STRAIT_OK) err = fetch(s, held, old);
    for (int64_t i = 0; err == STRAIT_OK && i < k * k; i++) {
        double dot = 0;
        for (int64_t row = 0; row < d * k; row += k)
            dot += (double)old[row + i / k] * (double)basis[row + i % k];
        turned[i] = (float)dot;
    }
    if (err == STRAIT_OK)
        err = ops->upload(s, st->turn.data, turned, strait_tensor_bytes(st->turn));
    if (err == STRAIT_OK) err = ops->upload(s, held.data, basis, strait_tensor_bytes(held));
    if (err == STRAIT_OK) {
        st->book[BOOK_VERSION] = (int32_t)version;
        err = strait_subspace_write_book(c, s);
    }
    if (err == STRAIT_OK) err = strait_codec_refresh(c, s);
    if (err == STRAIT_OK) err = ops->wait(s);
    strait_alloc_free(old);
    strait_alloc_free(turned);
    return err;
}
