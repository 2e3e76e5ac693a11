/* codec.c - the life of one side: planned, opened, joined, saved, measured, closed. */
#include "codec/codec.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

/* Codecs without padding compute in f32, whatever the type of the stream. */
static strait_err plan_wide(struct strait_codec *c) {
    const strait_codec_spec *spec = &c->spec;
    STRAIT_TRY(
        strait_slab_add(&c->slab, STRAIT_F32, spec->rows, strait_codec_width(spec), &c->wide));
    if ((strait_codec_traits(spec) & STRAIT_CODEC_INPUT) == 0 || c->side != STRAIT_SENDER)
        return STRAIT_OK;
    return strait_slab_add(&c->slab, STRAIT_F32, spec->rows, spec->cols, &c->wide_input);
}

/* The table of the padded implementation, where it has state, tensors and initial values of its
 * own; NULL where this side is not padded or its own table does both. */
static const struct strait_codec_ops *own_padded(const struct strait_codec *c) {
    const int is_own = c->spec.is_padded && c->ops->padded != c->ops;
    return is_own ? c->ops->padded : NULL;
}

static strait_err plan_all(struct strait_codec *c) {
    const struct strait_codec_ops *padded = own_padded(c);
    if (c->ops->state_size > 0) STRAIT_TRY(strait_alloc(1, c->ops->state_size, "codec", &c->state));
    if (padded != NULL) STRAIT_TRY(strait_alloc(1, padded->state_size, "codec", &c->padded_state));
    STRAIT_TRY(c->ops->plan(c));
    if (padded != NULL) STRAIT_TRY(padded->plan(c));
    const int is_wide = c->spec.precision != STRAIT_F32 && !c->spec.is_padded;
    return is_wide ? plan_wide(c) : STRAIT_OK;
}

/* Checks the spec and plans every tensor, without device memory. `be` may be NULL. */
static strait_err plan(const strait_codec_spec *spec, strait_codec_side side,
                       struct strait_backend *be, struct strait_codec **out) {
    strait_codec_spec checked = *spec;
    STRAIT_TRY(strait_codec_check(&checked));
    struct strait_codec *c = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *c, "codec", (void **)&c));
    *c = (struct strait_codec){.ops = strait_codec_find(checked.name, checked.variant),
                               .spec = checked,
                               .side = side,
                               .backend = be};
    const strait_err err = plan_all(c);
    if (err != STRAIT_OK) {
        strait_codec_close(&c);
        return err;
    }
    *out = c;
    return STRAIT_OK;
}

strait_err strait_codec_plan_bytes(const strait_codec_spec *spec, strait_codec_side side,
                                   size_t *out) {
    struct strait_codec *c = NULL;
    STRAIT_TRY(plan(spec, side, NULL, &c));
    *out = c->slab.bytes;
    strait_codec_close(&c);
    return STRAIT_OK;
}

/* Without a backend nothing can be computed, but names and shapes are complete. */
strait_err strait_codec_open_dry(const strait_codec_spec *spec, strait_codec_side side,
                                 struct strait_codec **out) {
    return plan(spec, side, NULL, out);
}

static strait_err start_padded(struct strait_codec *c, struct strait_stream *s) {
    const struct strait_codec_ops *padded = own_padded(c);
    return padded != NULL && padded->start != NULL ? padded->start(c, s) : STRAIT_OK;
}

/* Initial values are written on a stream of its own, which is closed again: crossings use the
 * stage's stream. */
static strait_err start(struct strait_codec *c) {
    struct strait_stream s;
    STRAIT_TRY(strait_slab_commit(&c->slab, c->backend));
    STRAIT_TRY(c->backend->ops->stream_open(c->backend, &s));
    strait_err err = strait_meter_start(&c->meter, &s);
    if (err == STRAIT_OK && c->ops->start != NULL) err = c->ops->start(c, &s);
    if (err == STRAIT_OK) err = start_padded(c, &s);
    if (err == STRAIT_OK) err = strait_codec_refresh(c, &s);
    if (err == STRAIT_OK) err = c->backend->ops->wait(&s);
    c->backend->ops->stream_close(&s);
    return err;
}

/* Refuses a backend that lacks kernels this codec calls. */
static strait_err require_kernels(const struct strait_codec *c) {
    char user[STRAIT_CODEC_NAME + 8];
    (void)snprintf(user, sizeof user, "codec %s", c->ops->name);
    const unsigned kernels = c->ops->kernels != NULL ? c->ops->kernels(&c->spec) : 0;
    return strait_backend_require(c->backend, kernels, user);
}

/* The spec is checked before the device is touched. */
strait_err strait_codec_open(const strait_codec_spec *spec, strait_codec_side side,
                             struct strait_backend *be, struct strait_codec **out) {
    struct strait_codec *c = NULL;
    STRAIT_TRY(plan(spec, side, be, &c));
    strait_err err = require_kernels(c);
    if (err == STRAIT_OK) err = start(c);
    if (err != STRAIT_OK) {
        strait_codec_close(&c);
        return err;
    }
    *out = c;
    return STRAIT_OK;
}

void strait_codec_close(struct strait_codec **c) {
    if (c == NULL || *c == NULL) return;
    strait_slab_fini(&(*c)->slab);
    strait_alloc_free((*c)->state);
    strait_alloc_free((*c)->padded_state);
    strait_alloc_free(*c);
    *c = NULL;
}

strait_err strait_codec_join(struct strait_codec *receiver, struct strait_codec *sender) {
    if (receiver != NULL && sender != NULL && sender->spec.boundary != receiver->spec.boundary + 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "boundaries %d and %d do not enclose a stage",
                           receiver->spec.boundary, sender->spec.boundary);
    /* Both know each other before either join runs, which may read the other's state. */
    if (receiver != NULL) receiver->peer = sender;
    if (sender != NULL) sender->peer = receiver;
    if (receiver != NULL && receiver->ops->join != NULL) STRAIT_TRY(receiver->ops->join(receiver));
    if (sender != NULL && sender->ops->join != NULL) STRAIT_TRY(sender->ops->join(sender));
    return STRAIT_OK;
}

strait_err strait_codec_get_param(const struct strait_codec *c, int i, strait_param *out) {
    if (i < 0 || i >= c->n_params) return STRAIT_FAIL(STRAIT_EINVAL, "no parameter %d", i);
    *out = c->params[i];
    return STRAIT_OK;
}

/* Gradients are summed over the microbatches of a step, which starts here. */
strait_err strait_codec_zero_gradients(struct strait_codec *c, struct strait_stream *s) {
    for (int i = 0; i < c->n_params; i++)
        STRAIT_TRY(c->backend->kernels->fill(s, c->params[i].grad, 0.0f));
    return STRAIT_OK;
}

strait_err strait_codec_get_state(const struct strait_codec *c, int i, strait_codec_state *out) {
    if (i < 0 || i >= c->n_states) return STRAIT_FAIL(STRAIT_EINVAL, "no state %d", i);
    *out = c->states[i];
    return STRAIT_OK;
}

strait_err strait_codec_refresh(struct strait_codec *c, struct strait_stream *s) {
    c->n_refreshed++;
    for (int i = 0; i < c->n_copies; i++) {
        const strait_codec_copy *copy = &c->copies[i];
        STRAIT_TRY(c->backend->kernels->regroup_cols(
            s, strait_tensor_rows(*copy->to, copy->row, copy->value->rows), *copy->value,
            copy->layout));
    }
    return STRAIT_OK;
}

/* A codec may derive more than copies from what was read, and the copies may read that. */
strait_err strait_codec_restored(struct strait_codec *c, struct strait_stream *s) {
    if (c->ops->restored != NULL) STRAIT_TRY(c->ops->restored(c, s));
    return strait_codec_refresh(c, s);
}

strait_err strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                     strait_codec_metrics *out) {
    float totals[STRAIT_METER_KINDS][3]; // squared error, squared size, non-finite
    STRAIT_TRY(strait_meter_read(&c->meter, s, totals));
    const float *packed = totals[STRAIT_METER_PACK], *leak = totals[STRAIT_METER_LEAK];
    /* Where a leak was measured, the whole is the stream and not its code. What leaks is orthogonal
     * to what is packed, so that squared errors add. */
    const double size = (double)(leak[1] > 0 ? leak[1] : packed[1]);
    const double lost = (double)packed[0] + (double)leak[0];
    *out = (strait_codec_metrics){.residual = size > 0 ? sqrt(lost / size) : 0,
                                  .non_finite = (double)packed[2] + (double)leak[2],
                                  .rejected = (double)totals[STRAIT_METER_UNPACK][2],
                                  .basis = {.leak = size > 0 ? sqrt((double)leak[0] / size) : 0}};
    return c->ops->metrics != NULL ? c->ops->metrics(c, s, out) : STRAIT_OK;
}

/* Codecs without a basis never change and have version 0. */
uint32_t strait_codec_version(const struct strait_codec *c) {
    return c->ops->version != NULL ? c->ops->version(c) : 0;
}

strait_err strait_codec_check_version(const struct strait_codec *c, uint32_t version) {
    /* A frame carries only the low two bytes of the version. */
    if ((uint16_t)version == (uint16_t)strait_codec_version(c)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "boundary %d: rejected a frame of basis version %lu, this stage has version "
                       "%lu; the sender must adopt the new basis first",
                       c->spec.boundary, (unsigned long)version,
                       (unsigned long)strait_codec_version(c));
}
