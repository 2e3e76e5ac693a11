/* builder.c - planning and initial values, shared by all codecs. */
#include "codec/builder.h"

#include "backend/random_fill.h"
#include "base/alloc.h"
#include "tensor/basis.h"

#include <stdio.h>
#include <string.h>

strait_err strait_codec_add_typed(struct strait_codec *c, strait_dtype dtype,
                                  const strait_codec_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++)
        STRAIT_TRY(
            strait_slab_add(&c->slab, dtype, tensors[i].rows, tensors[i].cols, tensors[i].where));
    return STRAIT_OK;
}

strait_err strait_codec_add(struct strait_codec *c, const strait_codec_tensor *tensors, size_t n) {
    return strait_codec_add_typed(c, STRAIT_F32, tensors, n);
}

int64_t strait_codec_slot_rows(const struct strait_codec *c) {
    return c->spec.rows * c->spec.n_slots;
}

/* Gradients of weights may be computed much later only in a split backward pass. Otherwise one slot
 * is enough, because each microbatch finishes before the next one starts. */
int64_t strait_codec_grad_slot_rows(const struct strait_codec *c) {
    return c->spec.can_defer ? strait_codec_slot_rows(c) : c->spec.rows;
}

strait_tensor strait_codec_slot(const struct strait_codec *c, strait_tensor slots, int slot) {
    return strait_tensor_rows(slots, slot * c->spec.rows, c->spec.rows);
}

strait_tensor strait_codec_grad_slot(const struct strait_codec *c, strait_tensor slots, int slot) {
    return strait_codec_slot(c, slots, c->spec.can_defer ? slot : 0);
}

/* "head" and "tail" are older words for sender and receiver. They stay: initial values are drawn
 * from the parameter's name, and checkpoints store tensors under it. */
static void full_name(const struct strait_codec *c, const char *name, char out[STRAIT_PARAM_NAME]) {
    (void)snprintf(out, STRAIT_PARAM_NAME, "boundary.%d.%s.%s", c->spec.boundary,
                   c->side == STRAIT_SENDER ? "head" : "tail", name);
}

strait_err strait_codec_add_param(struct strait_codec *c, const char *name, strait_role role,
                                  int64_t rows, int64_t cols) {
    if (c->n_params == STRAIT_CODEC_PARAMS)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec %s: parameter %s exceeds the limit of %d parameters per side",
                           c->ops->name, name, STRAIT_CODEC_PARAMS);
    strait_param *p = &c->params[c->n_params++];
    full_name(c, name, p->name);
    p->role = role;
    p->is_deferred = 1; // param_grads may come late
    const strait_codec_tensor tensors[] = {{&p->value, rows, cols}, {&p->grad, rows, cols}};
    return strait_codec_add(c, tensors, 2);
}

/* State is saved with checkpoints but not trained. */
strait_err strait_codec_add_state(struct strait_codec *c, const char *name, strait_dtype dtype,
                                  int64_t rows, int64_t cols) {
    if (c->n_states == STRAIT_CODEC_STATES)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "codec %s: state %s exceeds the limit of %d states per side",
                           c->ops->name, name, STRAIT_CODEC_STATES);
    strait_codec_state *state = &c->states[c->n_states++];
    full_name(c, name, state->name);
    return strait_slab_add(&c->slab, dtype, rows, cols, &state->tensor);
}

static strait_err upload(struct strait_stream *s, strait_tensor t, const float *values) {
    const struct strait_backend_ops *ops = s->backend->ops;
    STRAIT_TRY(ops->upload(s, t.data, values, strait_tensor_bytes(t)));
    return ops->wait(s); // the caller frees the values next
}

strait_err strait_codec_draw(struct strait_codec *c, struct strait_stream *s,
                             const strait_param *param, double std) {
    return strait_codec_draw_cols(c, s, param, std, param->value.cols);
}

/* The stream of random numbers has the name of the parameter, so both sides of a boundary and every
 * split into stages draw the same values. */
strait_err strait_codec_draw_cols(struct strait_codec *c, struct strait_stream *s,
                                  const strait_param *param, double std, int64_t cols) {
    const strait_rng rng = {c->spec.seed, strait_rng_stream(param->name)};
    return strait_random_fill_once(
        s, param->value,
        (strait_random_fill_params){.rng = rng, .deviation = (float)std, .cols = cols});
}

strait_err strait_codec_set_identity(struct strait_stream *s, strait_tensor t) {
    float *values = NULL; // zeroed
    STRAIT_TRY(strait_alloc((size_t)(t.rows * t.cols), sizeof *values, "initial values",
                            (void **)&values));
    for (int64_t i = 0; i < t.rows; i++)
        values[i * t.cols + i] = 1.0f;
    const strait_err err = upload(s, t, values);
    strait_alloc_free(values);
    return err;
}

/* The basis is drawn without padding and then placed, so that padded and plain layouts hold the
 * same values. */
strait_err strait_codec_draw_basis(struct strait_codec *c, struct strait_stream *s, strait_tensor t,
                                   strait_codec_basis_init init) {
    const int64_t d = init.is_transposed ? t.cols : t.rows, k = init.k;
    const strait_rng rng = {c->spec.seed, strait_rng_stream(init.name)};
    float *basis = NULL, *values = NULL; // zeroed
    STRAIT_TRY(strait_alloc((size_t)(d * k), sizeof *basis, "basis", (void **)&basis));
    strait_err err = strait_alloc((size_t)(t.rows * t.cols), sizeof *values, "basis",
                                  (void **)&values);
    if (err == STRAIT_OK) err = strait_basis_draw(rng, d, k, basis);
    for (int64_t i = 0; err == STRAIT_OK && i < d * k; i++)
        values[init.is_transposed ? i % k * d + i / k : i / k * t.cols + i % k] =
            (float)(init.gain * (double)basis[i]);
    if (err == STRAIT_OK) err = upload(s, t, values);
    strait_alloc_free(basis);
    strait_alloc_free(values);
    return err;
}

/* An evaluation must not change the residual that training reports. */
strait_tensor strait_codec_stats(const struct strait_codec *c, const strait_crossing *at,
                                 int64_t rows, int which) {
    if (at->is_evaluation && which == STRAIT_METER_PACK) return (strait_tensor){0};
    return strait_meter_stats(&c->meter, which, rows);
}

strait_err strait_codec_add_copy(struct strait_codec *c, const strait_tensor *value,
                                 const strait_tensor *to, int64_t row,
                                 strait_regroup_params layout) {
    if (c->n_copies == STRAIT_CODEC_PARAMS)
        return STRAIT_FAIL(STRAIT_EINVAL, "codec %s: more than %d copies of parameters",
                           c->ops->name, STRAIT_CODEC_PARAMS);
    c->copies[c->n_copies++] = (strait_codec_copy){value, to, row, layout};
    return STRAIT_OK;
}

strait_err strait_codec_save_grad(struct strait_codec *c, const strait_crossing *at,
                                  strait_codec_saved_grad *grad, strait_tensor d) {
    grad->borrowed = d;
    if (!c->spec.can_defer) return STRAIT_OK;
    return c->backend->kernels->cast(at->stream, strait_codec_grad_slot(c, grad->saved, at->slot),
                                     d);
}

strait_tensor strait_codec_saved_grad_at(const struct strait_codec *c, const strait_crossing *at,
                                         const strait_codec_saved_grad *grad) {
    return c->spec.can_defer ? strait_codec_grad_slot(c, grad->saved, at->slot) : grad->borrowed;
}

/* From the columns of a copy back to those of its original, adding to them. */
static strait_regroup_params reversed(strait_regroup_params layout) {
    return (strait_regroup_params){.n_groups = layout.n_groups,
                                   .to = layout.from,
                                   .to_cols = layout.from_cols,
                                   .from = layout.to,
                                   .from_cols = layout.to_cols,
                                   .alpha = 1,
                                   .adds = 1};
}

strait_err strait_codec_gather(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor grad, strait_tensor product,
                               strait_regroup_params layout) {
    return c->backend->kernels->regroup_cols(
        at->stream, grad, strait_tensor_rows(product, 0, grad.rows), reversed(layout));
}

/* A product of the right shape is added in place; a padded one goes through scratch. */
strait_err strait_codec_add_gradient(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor grad, strait_tensor a, strait_tensor b,
                                     strait_tensor scratch, strait_regroup_params layout) {
    const struct strait_kernels *k = c->backend->kernels;
    if (grad.rows == a.cols && grad.cols == b.cols)
        return k->matmul(at->stream, grad, a, b, strait_add_atb);
    const strait_tensor product = {scratch.data, STRAIT_F32, a.cols, b.cols};
    STRAIT_TRY(k->matmul(at->stream, product, a, b, strait_atb));
    return strait_codec_gather(c, at, grad, product, layout);
}

strait_err strait_codec_join_codes(struct strait_codec *c) {
    const strait_codec_spec *spec = &c->spec;
    const struct strait_codec *peer = c->peer;
    const int at_end = c->side == STRAIT_SENDER ? spec->boundary == 0
                                                : spec->boundary == spec->n_boundaries - 1;
    if (peer == NULL && !at_end)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "boundary %d: codec %s needs both sides on a middle stage",
                           spec->boundary, spec->name);
    /* Each side reads the other's tensors, whose widths depend on keep and padding. */
    if (peer != NULL && (peer->ops != c->ops || peer->spec.keep != spec->keep ||
                         peer->spec.is_padded != spec->is_padded))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "boundaries %d and %d: codec %s needs the same variant, keep and "
                           "precision at both",
                           spec->boundary, peer->spec.boundary, spec->name);
    return STRAIT_OK;
}

int strait_codec_is_variant(const strait_codec_spec *spec, const char *variant) {
    return strcmp(spec->variant, variant) == 0;
}

/* A default is capped, so that small models work without setting the option. */
strait_err strait_codec_need(const strait_codec_spec *spec, const char *key, int64_t *value,
                             int64_t otherwise, int64_t most) {
    if (*value == 0) *value = otherwise < most ? otherwise : most;
    if (*value < 1 || *value > most)
        return STRAIT_FAIL(
            STRAIT_ECONFIG, "codec %s: %s is %lld, but must be from 1 to %lld for width %lld",
            spec->name, key, (long long)*value, (long long)most, (long long)spec->cols);
    return STRAIT_OK;
}

strait_err strait_codec_need_vocab(const strait_codec_spec *spec) {
    if (spec->vocab < 1)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "codec %s: vocab is %lld, but the codec needs the size of the vocabulary", spec->name,
            (long long)spec->vocab);
    return STRAIT_OK;
}

/* The output of a transparent codec is its input plus an error, which a later step can send as a
 * correction. The output of other codecs is no such sum. */
strait_err strait_codec_refuse_feedback(const strait_codec_spec *spec) {
    if (!spec->has_feedback) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "codec %s: feedback works with transparent codecs only; set "
                       "link.codec.feedback to false",
                       spec->name);
}
