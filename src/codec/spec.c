/* spec.c - what follows from a spec alone, before any memory is allocated. */
#include "base/rng/rng.h"
#include "codec/codec.h"

#include <assert.h>
#include <stdio.h>

/* The name was checked when the spec was; unknown ones never get here. */
static const struct strait_codec_ops *ops_of(const strait_codec_spec *spec) {
    return strait_codec_find(spec->name, spec->variant);
}

/* These come from the planner, not from a user, but a peer's spec is checked with them, too. */
static strait_err check_place(const strait_codec_spec *spec) {
    if (spec->rows < 1 || spec->cols < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec %s: a microbatch of %lld tokens of width %lld is empty",
                           spec->name, (long long)spec->rows, (long long)spec->cols);
    if (spec->n_slots < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: n_slots is %d, but must be at least 1",
                           spec->name, spec->n_slots);
    if (spec->boundary < 0 || spec->boundary >= spec->n_boundaries)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: boundary %d of %d does not exist", spec->name,
                           spec->boundary, spec->n_boundaries);
    return STRAIT_OK;
}

/* Entries of a table tell variants apart by name, so an empty one becomes the default first. */
static strait_err resolve_variant(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_check_name(spec->name, spec->variant));
    if (spec->variant[0] == '\0')
        (void)snprintf(spec->variant, sizeof spec->variant, "%s",
                       strait_codec_default_variant(spec->name));
    return STRAIT_OK;
}

strait_err strait_codec_check(strait_codec_spec *spec) {
    STRAIT_TRY(resolve_variant(spec));
    STRAIT_TRY(check_place(spec));
    const struct strait_codec_ops *ops = ops_of(spec);
    const int can_pad = ops->padded != NULL && (ops->can_pad == NULL || ops->can_pad(spec));
    spec->is_padded = can_pad && (spec->is_padded || spec->precision == STRAIT_BF16);
    if (ops->check != NULL) STRAIT_TRY(ops->check(spec));
    /* A model without token tables asks every codec for it; those that do not read the input of
     * their stage have no use for it. */
    if ((strait_codec_traits(spec) & STRAIT_CODEC_INPUT) == 0) spec->encodes_input = 0;
    return STRAIT_OK;
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

/* Products with parameters are counted from their shapes elsewhere. */
double strait_codec_fixed_flops(const strait_codec_spec *spec, strait_direction direction) {
    const struct strait_codec_ops *ops = ops_of(spec);
    return ops->fixed_flops != NULL ? ops->fixed_flops(spec, direction) : 0;
}

/* What the codec demands of the model is known before the shape is final. */
strait_err strait_codec_get_requirements(const strait_codec_spec *spec,
                                         strait_codec_requirements *out) {
    strait_codec_spec resolved = *spec;
    STRAIT_TRY(resolve_variant(&resolved));
    const struct strait_codec_ops *ops = ops_of(&resolved);
    *out = (strait_codec_requirements){0};
    if (ops->requirements != NULL) ops->requirements(&resolved, out);
    return STRAIT_OK;
}

strait_codec_spec strait_codec_for_generation(const strait_codec_spec *spec) {
    const struct strait_codec_ops *ops = ops_of(spec);
    strait_codec_spec one = *spec;
    one.rows = 1;
    one.seq_len = 1;
    one.is_stepwise = 1;
    if (ops != NULL && ops->for_generation != NULL) ops->for_generation(&one);
    return one;
}

/* Chains one more line of text to the hash. */
static uint64_t extend(uint64_t hash, const char *line) {
    char text[STRAIT_PARAM_NAME + 512];
    (void)snprintf(text, sizeof text, "%016llx %s", (unsigned long long)hash, line);
    return strait_rng_stream(text);
}

/* Every setting that changes values or bytes. A field added to the spec belongs in
 * STRAIT_CODEC_SETTINGS unless two machines may differ in it. Real numbers are written in
 * hexadecimal, which loses no bit. */
static uint64_t hash_spec(const strait_codec_spec *spec) {
    char text[1024];
    int used = snprintf(
        text, sizeof text,
        "%s %s %lld %lld %lld %lld %lld %lld %lld %lld %d %d %d %d %lld %a %lld %a %d "
        "%d %llu",
        spec->name, spec->variant, (long long)spec->rows, (long long)spec->cols,
        (long long)spec->vocab, (long long)spec->keep, (long long)spec->rank, (long long)spec->tile,
        (long long)spec->hidden, (long long)spec->table_width, spec->bits, spec->grad_bits,
        (int)spec->rounding, spec->has_feedback, (long long)spec->confine_every, spec->leak_limit,
        (long long)spec->grassmann_every, spec->grassmann_rate, spec->boundary, spec->n_boundaries,
        (unsigned long long)spec->seed);
#define PRINT(type, member, format) \
    used += snprintf(text + used, sizeof text - (size_t)used, " %" format, spec->member);
    STRAIT_CODEC_SETTINGS(PRINT)
#undef PRINT
    assert(used < (int)sizeof text); // a longer text would leave settings out
    return strait_rng_stream(text);
}

/* A tensor of another name or shape changes the hash, even if the settings are the same. */
static uint64_t hash_tensor(uint64_t hash, const char *name, int role, strait_tensor t) {
    char line[STRAIT_PARAM_NAME + 64];
    (void)snprintf(line, sizeof line, "%s %d %d %lld %lld", name, role, (int)t.dtype,
                   (long long)t.rows, (long long)t.cols);
    return extend(hash, line);
}

/* The shapes also differ where two builds of the program disagree on a default or on what a codec
 * holds, although their specs look alike. */
static uint64_t hash_side(uint64_t hash, const struct strait_codec *c) {
    for (int i = 0; i < c->n_params; i++)
        hash = hash_tensor(hash, c->params[i].name, (int)c->params[i].role, c->params[i].value);
    for (int i = 0; i < c->n_states; i++)
        hash = hash_tensor(hash, c->states[i].name, -1, c->states[i].tensor);
    return hash;
}

strait_err strait_codec_fingerprint(const strait_codec_spec *spec, uint64_t *out) {
    uint64_t hash = hash_spec(spec);
    for (int side = STRAIT_SENDER; side <= STRAIT_RECEIVER; side++) {
        struct strait_codec *c = NULL;
        STRAIT_TRY(strait_codec_open_dry(spec, (strait_codec_side)side, &c));
        hash = hash_side(hash, c);
        strait_codec_close(&c);
    }
    *out = hash;
    return STRAIT_OK;
}
