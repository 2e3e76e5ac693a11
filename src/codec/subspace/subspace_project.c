/* subspace_project.c - keeps weights in the subspace, and carries them over to a new one. */
#include "codec/subspace/subspace.h"

/* Weights are rewritten from themselves step after step, so rounding errors would add up: these
 * products do not use reduced precision. */
static strait_matmul_params exact(strait_matmul_params params) {
    params.is_exact = 1;
    return params;
}

/* Scratch [k x inputs] for a weight with at most spec.widest inputs. */
static strait_err narrow_for(const struct strait_codec *c, strait_tensor w, strait_tensor *out) {
    const struct strait_subspace *st = c->state;
    if (w.cols > c->spec.widest)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec subspace: a weight has %lld inputs, widest is %lld",
                           (long long)w.cols, (long long)c->spec.widest);
    *out = (strait_tensor){st->narrow.data, STRAIT_F32, c->spec.keep, w.cols};
    return STRAIT_OK;
}

/* W [d x inputs] = U U^T W */
static strait_err project_matrix(struct strait_codec *c, struct strait_stream *s, strait_tensor w) {
    const struct strait_kernels *k = c->backend->kernels;
    const strait_tensor basis = c->states[SUBSPACE_BASIS].tensor;
    strait_tensor narrow;
    if (w.rows != basis.rows)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec subspace: a residual output projection has %lld outputs, "
                           "the width is %lld",
                           (long long)w.rows, (long long)basis.rows);
    STRAIT_TRY(narrow_for(c, w, &narrow));
    STRAIT_TRY(k->matmul(s, narrow, basis, w, exact(strait_atb)));
    return k->matmul(s, w, basis, narrow, exact(strait_ab));
}

/* Projects the rows of an embedding from `row` on. Moments and gradients lie in the subspace
 * entirely; weights are T_fixed plus a part in the subspace. */
static strait_err project_part(struct strait_codec *c, struct strait_stream *s, strait_tensor part,
                               int64_t row, strait_codec_basis_kind kind) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    const strait_tensor basis = c->states[SUBSPACE_BASIS].tensor;
    const strait_tensor code = strait_tensor_rows(st->code, 0, part.rows);
    STRAIT_TRY(k->matmul(s, code, part, basis, exact(strait_ab)));
    if (kind != STRAIT_BASIS_WEIGHT) return k->matmul(s, part, code, basis, exact(strait_abt));
    const strait_tensor fixed = strait_tensor_rows(st->fixed, row, part.rows);
    STRAIT_TRY(k->matmul(s, code, fixed, basis,
                         (strait_matmul_params){.alpha = -1, .beta = 1, .is_exact = 1}));
    STRAIT_TRY(k->cast(s, part, fixed));
    return k->matmul(s, part, code, basis, exact(strait_add_abt));
}

/* An embedding [vocab x d], in chunks of as many rows as the scratch for a code has. */
static strait_err project_rows(struct strait_codec *c, struct strait_stream *s, strait_tensor t,
                               strait_codec_basis_kind kind) {
    for (int64_t row = 0; row < t.rows; row += c->spec.rows) {
        const int64_t left = t.rows - row, n = left < c->spec.rows ? left : c->spec.rows;
        STRAIT_TRY(project_part(c, s, strait_tensor_rows(t, row, n), row, kind));
    }
    return STRAIT_OK;
}

strait_err strait_subspace_project(struct strait_codec *c, struct strait_stream *s,
                                   strait_role role, strait_codec_basis_kind kind,
                                   strait_tensor t) {
    if (role == STRAIT_ROLE_RESIDUAL_OUT) return project_matrix(c, s, t);
    return role == STRAIT_ROLE_EMBEDDING ? project_rows(c, s, t, kind) : STRAIT_OK;
}

/* Coordinates: Z [k x inputs] = R^T Z, E [vocab x k] = E R. */
static strait_err rotate_code(struct strait_codec *c, struct strait_stream *s, strait_role role,
                              strait_tensor rotation, strait_tensor t) {
    const struct strait_kernels *k = c->backend->kernels;
    const struct strait_subspace *st = c->state;
    if (role == STRAIT_ROLE_RESIDUAL_OUT) {
        strait_tensor narrow;
        STRAIT_TRY(narrow_for(c, t, &narrow));
        STRAIT_TRY(k->matmul(s, narrow, rotation, t, exact(strait_atb)));
        return k->cast(s, t, narrow);
    }
    for (int64_t row = 0; row < t.rows; row += c->spec.rows) {
        const int64_t left = t.rows - row, n = left < c->spec.rows ? left : c->spec.rows;
        const strait_tensor part = strait_tensor_rows(t, row, n);
        const strait_tensor code = strait_tensor_rows(st->code, 0, n);
        STRAIT_TRY(k->matmul(s, code, part, rotation, exact(strait_ab)));
        STRAIT_TRY(k->cast(s, part, code));
    }
    return STRAIT_OK;
}

/* Second moments. Those of full weights belong to channels of the stream, which an update leaves
 * alone; those that all coordinates of an input share are squared lengths, which a rotation keeps.
 * One per coordinate: a new coordinate is a sum of old ones with weights R, and the expected square
 * of a sum of uncorrelated values is the sum of theirs, with squared weights. */
static strait_err carry_squares(struct strait_codec *c, struct strait_stream *s, strait_role role,
                                strait_tensor t) {
    const struct strait_subspace *st = c->state;
    const int64_t coordinates = role == STRAIT_ROLE_RESIDUAL_OUT ? t.rows : t.cols;
    if (strait_codec_is_variant(&c->spec, "full") || coordinates != c->spec.keep) return STRAIT_OK;
    return rotate_code(c, s, role, st->squares, t);
}

strait_err strait_subspace_carry_over(struct strait_codec *c, struct strait_stream *s,
                                      strait_role role, strait_codec_basis_kind kind,
                                      strait_tensor t) {
    const struct strait_subspace *st = c->state;
    if (st->is_same_basis) return STRAIT_OK;
    if (kind == STRAIT_BASIS_SQUARE) return carry_squares(c, s, role, t);
    if (strait_codec_is_variant(&c->spec, "full"))
        return strait_subspace_project(c, s, role, kind, t);
    return rotate_code(c, s, role, st->rotation, t);
}
