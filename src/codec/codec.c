#include "codec/codec.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int has_variant(const struct strait_codec_ops *ops, const char *variant) {
    for (int i = 0; ops->variants != NULL && ops->variants[i] != NULL; i++)
        if (strcmp(ops->variants[i], variant) == 0) return 1;
    return ops->variants == NULL && variant[0] == '\0';
}

/* A codec may have several tables, with variants of their own; "" finds the first. */
static const struct strait_codec_ops *find(const char *name, const char *variant) {
    for (int i = 0; strait_codecs[i] != NULL; i++)
        if (strcmp(strait_codecs[i]->name, name) == 0 &&
            (variant[0] == '\0' || has_variant(strait_codecs[i], variant)))
            return strait_codecs[i];
    return NULL;
}

static const struct strait_codec_ops *ops_of(const strait_codec_spec *spec) {
    return find(spec->name, spec->variant);
}

static strait_err check_variant(const char *name, const char *variant) {
    if (find(name, variant) != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: there is no variant '%.*s'; the default is '%s'",
                       name, STRAIT_CODEC_NAME - 1, variant, strait_codec_own_variant(name));
}

strait_err strait_codec_check_name(const char *name, const char *variant) {
    if (find(name, "") != NULL) return check_variant(name, variant);
    char known[160] = "";
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        const size_t used = strlen(known);
        if (find(strait_codecs[i]->name, "") != strait_codecs[i]) continue;
        (void)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                       strait_codecs[i]->name);
    }
    return STRAIT_FAIL(STRAIT_ECONFIG, "codec '%.*s': there is none of that name; choose one of %s",
                       STRAIT_CODEC_NAME - 1, name, known);
}

const char *strait_codec_own_variant(const char *name) {
    const struct strait_codec_ops *ops = find(name, "");
    return ops != NULL && ops->variants != NULL ? ops->variants[0] : "";
}

static strait_err check_place(const strait_codec_spec *spec) {
    if (spec->rows < 1 || spec->cols < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: %lld tokens of width %lld cannot cross",
                           spec->name, (long long)spec->rows, (long long)spec->cols);
    if (spec->n_slots < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: %d slots, but a microbatch needs one",
                           spec->name, spec->n_slots);
    if (spec->boundary < 0 || spec->boundary >= spec->n_boundaries)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: boundary %d of %d does not exist", spec->name,
                           spec->boundary, spec->n_boundaries);
    return STRAIT_OK;
}

strait_err strait_codec_check(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_check_name(spec->name, spec->variant));
    if (spec->variant[0] == '\0')
        (void)snprintf(spec->variant, sizeof spec->variant, "%s",
                       strait_codec_own_variant(spec->name));
    STRAIT_TRY(check_place(spec));
    const struct strait_codec_ops *ops = ops_of(spec);
    const int can_pad = ops->padded != NULL && (ops->can_pad == NULL || ops->can_pad(spec));
    spec->is_padded = can_pad && (spec->is_padded || spec->precision == STRAIT_BF16);
    return ops->check != NULL ? ops->check(spec) : STRAIT_OK;
}

unsigned strait_codec_traits(const strait_codec_spec *spec) {
    const struct strait_codec_ops *ops = ops_of(spec);
    return ops->traits != NULL ? ops->traits(spec) : 0;
}

size_t strait_codec_wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    return ops_of(spec)->wire_bytes(spec, direction);
}

int64_t strait_codec_width(const strait_codec_spec *spec) {
    return strait_codec_traits(spec) & STRAIT_CODEC_CODE ? spec->keep : spec->cols;
}

uint64_t strait_codec_fingerprint(const strait_codec_spec *spec) {
    char text[512];
    (void)snprintf(
        text, sizeof text,
        "%s %s %lld %lld %lld %lld %lld %lld %lld %lld %d %d %d %d %lld %a %lld %a %d "
        "%d %llu %lld %lld %lld %a %d",
        spec->name, spec->variant, (long long)spec->rows, (long long)spec->cols,
        (long long)spec->vocab, (long long)spec->keep, (long long)spec->rank, (long long)spec->tile,
        (long long)spec->hidden, (long long)spec->anchors, spec->bits, spec->grad_bits,
        (int)spec->rounding, spec->has_feedback, (long long)spec->confine_every, spec->leak_limit,
        (long long)spec->grassmann_every, spec->grassmann_rate, spec->boundary, spec->n_boundaries,
        (unsigned long long)spec->seed, (long long)spec->context, (long long)spec->encoder,
        (long long)spec->seq_len, spec->frame, spec->has_gains);
    return strait_rng_stream(text);
}

/* Codecs that are not padded compute in f32, whatever the stream is made of. */
static strait_err plan_wide(struct strait_codec *c) {
    const strait_codec_spec *spec = &c->spec;
    STRAIT_TRY(
        strait_slab_add(&c->slab, STRAIT_F32, spec->rows, strait_codec_width(spec), &c->wide));
    if ((strait_codec_traits(spec) & STRAIT_CODEC_INPUT) == 0 || c->side != STRAIT_SENDER)
        return STRAIT_OK;
    return strait_slab_add(&c->slab, STRAIT_F32, spec->rows, spec->cols, &c->wide_input);
}

/* Everything up to the first tensor: checked, and every tensor planned. */
static strait_err plan(const strait_codec_spec *spec, strait_codec_side side,
                       struct strait_backend *be, struct strait_codec **out) {
    strait_codec_spec checked = *spec;
    STRAIT_TRY(strait_codec_check(&checked));
    const struct strait_codec_ops *ops = ops_of(&checked);
    struct strait_codec *c = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *c, "codec", (void **)&c));
    *c = (struct strait_codec){.ops = ops, .spec = checked, .side = side, .backend = be};
    strait_err err = STRAIT_OK;
    if (ops->state_size > 0) err = strait_alloc(1, ops->state_size, "codec", &c->state);
    if (err == STRAIT_OK) err = ops->plan(c);
    if (err == STRAIT_OK && checked.precision != STRAIT_F32 && !checked.is_padded)
        err = plan_wide(c);
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

strait_err strait_codec_open_dry(const strait_codec_spec *spec, strait_codec_side side,
                                 struct strait_codec **out) {
    return plan(spec, side, NULL, out);
}

/* Where the padded way has first values of its own. */
static strait_err start_padded(struct strait_codec *c, struct strait_stream *s) {
    const struct strait_codec_ops *padded = c->ops->padded;
    const int has_own = c->spec.is_padded && padded != NULL && padded != c->ops;
    return has_own && padded->start != NULL ? padded->start(c, s) : STRAIT_OK;
}

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
    return strait_backend_require(c->backend, c->ops->needs, user);
}

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
    strait_alloc_free(*c);
    *c = NULL;
}

strait_err strait_codec_join(struct strait_codec *tail, struct strait_codec *head) {
    if (tail != NULL && head != NULL && head->spec.boundary != tail->spec.boundary + 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "boundaries %d and %d do not enclose a stage",
                           tail->spec.boundary, head->spec.boundary);
    if (tail != NULL) tail->peer = head;
    if (head != NULL) head->peer = tail;
    if (tail != NULL && tail->ops->join != NULL) STRAIT_TRY(tail->ops->join(tail));
    if (head != NULL && head->ops->join != NULL) STRAIT_TRY(head->ops->join(head));
    return STRAIT_OK;
}

strait_err strait_codec_get_param(const struct strait_codec *c, int i, strait_param *out) {
    if (i < 0 || i >= c->n_params) return STRAIT_FAIL(STRAIT_EINVAL, "no parameter %d", i);
    *out = c->params[i];
    return STRAIT_OK;
}

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
    for (int i = 0; i < c->n_copies; i++) {
        const strait_codec_copy *copy = &c->copies[i];
        STRAIT_TRY(c->backend->kernels->regroup_cols(
            s, strait_tensor_rows(*copy->to, copy->row, copy->value->rows), *copy->value,
            copy->how));
    }
    return STRAIT_OK;
}

strait_err strait_codec_restored(struct strait_codec *c, struct strait_stream *s) {
    if (c->ops->restored != NULL) STRAIT_TRY(c->ops->restored(c, s));
    return strait_codec_refresh(c, s);
}

strait_err strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                     strait_codec_metrics *out) {
    float totals[6];
    STRAIT_TRY(strait_meter_read(&c->meter, s, totals));
    const double size = (double)totals[1];
    *out = (strait_codec_metrics){.residual = size > 0 ? sqrt((double)totals[0] / size) : 0,
                                  .spoiled = (double)totals[2],
                                  .refused = (double)totals[5]};
    return c->ops->metrics != NULL ? c->ops->metrics(c, s, out) : STRAIT_OK;
}

uint32_t strait_codec_version(const struct strait_codec *c) {
    return c->ops->version != NULL ? c->ops->version(c) : 0;
}

strait_err strait_codec_check_version(const struct strait_codec *c, uint32_t version) {
    /* A frame has two bytes for it. */
    if ((uint16_t)version == (uint16_t)strait_codec_version(c)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "boundary %d: a frame of basis version %lu, but this stage has version %lu; "
                       "it is refused, the sender must adopt the new basis first",
                       c->spec.boundary, (unsigned long)version,
                       (unsigned long)strait_codec_version(c));
}
