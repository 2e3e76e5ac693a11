/* run_plan_codec.c - the codec of a run plan: from the options of a run, and what it asks of the
 * model. */
#include "config/run_auto.h"
#include "config/run_plan.h"
#include "config/run_rule.h"
#include "model/parts/parts.h"

#include <stdio.h>

strait_err strait_run_plan_fit_codec(strait_run_plan *plan) {
    const strait_codec_spec *codec = &plan->codec;
    strait_codec_requirements needs = {0};
    if (plan->n_stages > 1) STRAIT_TRY(strait_codec_get_requirements(codec, &needs));
    if (needs.has_code_stream)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "link.codec.variant \"%s\" of %s needs a model that keeps its residual "
                           "stream in coordinates, and no model of this program does; choose "
                           "another variant",
                           codec->variant, codec->name);
    plan->shape.subspace = (int)needs.subspace;
    plan->shape.bottleneck = (int)needs.bottleneck;
    plan->shape.drops_identity = needs.drops_identity;
    const char *part = strait_parts_option(&plan->shape);
    if (needs.is_closed && part != NULL)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "codec %s keeps the residual stream in a subspace, which %s would leave: %s",
            codec->name, part, strait_parts_remedy(&plan->shape));
    return strait_shape_check(&plan->shape);
}

/* How an option of a kind is copied: numbers by assignment, texts byte by byte. */
#define ASSIGN(to, from)        ((to) = (__typeof__(to))(from))
#define PRINT(to, from)         ((void)snprintf((to), sizeof(to), "%s", (from)))
#define COPY_INT(min, max)      ASSIGN
#define COPY_REAL(min, max)     ASSIGN
#define COPY_BOOL               ASSIGN
#define COPY_CHOICE(type, name) ASSIGN
#define COPY_TEXT(bytes)        PRINT

/* Copies every option that the table names a member of the spec for. */
static void copy_codec(const strait_run *run, strait_codec_spec *codec) {
#define CODEC(key, member, saved, kind, initial, help) \
    COPY_##kind(codec->member, run->link.codec.key);
#include "config/run_options.def"
}

/* A run whose codec is not chosen yet is planned with codec none. */
static void set_first(strait_codec_spec *codec) {
    int n = 0;
    (void)snprintf(codec->name, sizeof codec->name, "%s", strait_codec_ladder(&n)->name);
}

/* Where the rule of the codec says that the stream itself crosses, another codec sends it. */
static void take_stream(const strait_run *run, strait_codec_spec *codec) {
    const char *stream = strait_run_rule_stream(run);
    if (stream == NULL) return;
    (void)snprintf(codec->name, sizeof codec->name, "%s", stream);
    codec->variant[0] = '\0';
}

/* The width of the code that a ratio asks for. Token ids cross with the codes in a swarm only and
 * are not part of the ratio. */
static strait_err fit_codec(const strait_run *run, strait_codec_spec *codec) {
    const double ratio = run->link.codec.ratio, bytes = run->link.codec.bytes_per_token;
    if (strait_run_is_auto(run) || (ratio == 0 && bytes == 0)) return STRAIT_OK;
    if ((ratio > 0) + (bytes > 0) + (codec->keep > 0 || codec->rank > 0) > 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "link.codec: ratio, bytes_per_token and keep (or rank) "
                                           "exclude each other");
    if (strait_run_rule_stream(run) != NULL) return STRAIT_OK; // its scales come on top
    return strait_codec_fit(codec, bytes > 0 ? bytes : 2.0 * (double)codec->cols / ratio);
}

/* Codecs that read the stage's token table need one in every stage but the first, which has the
 * embedding. */
static strait_err check_tables(const strait_run_plan *plan) {
    if (plan->n_stages < 2 || (strait_codec_traits(&plan->codec) & STRAIT_CODEC_TABLE) == 0)
        return STRAIT_OK;
    for (int i = 1; i < plan->n_stages; i++) {
        int n = 0;
        for (int l = plan->stage_layers[i].first; l < plan->stage_layers[i].last; l++)
            n += plan->shape.has_token_tables && strait_shape_has_local(&plan->shape, l);
        if (n == 0)
            return STRAIT_FAIL(
                STRAIT_ECONFIG,
                "link.codec.gate_width: stage %d has no token table to compute gates "
                "from; set model.anchors, and model.local_every so that every stage "
                "has a local block",
                i);
    }
    return STRAIT_OK;
}

strait_err strait_run_plan_make_codec(const strait_run *run, strait_run_plan *plan) {
    strait_codec_spec codec = {
        .rows = plan->microbatch * plan->shape.context,
        .cols = plan->shape.width,
        .vocab = plan->shape.vocab,
        .table_rows = plan->shape.table_rows,
        .seq_len = plan->shape.context,
        .widest = plan->shape.ffn > strait_shape_attention_cols(&plan->shape)
                      ? plan->shape.ffn
                      : strait_shape_attention_cols(&plan->shape),
        .n_boundaries = plan->n_stages - 1,
        .n_slots = 1,
        .precision = plan->shape.precision,
        .can_defer = plan->schedule == STRAIT_SCHEDULE_SPLIT,
        .seed = (uint64_t)run->train.seed,
    };
    copy_codec(run, &codec);
    if (strait_run_is_auto(run)) set_first(&codec);
    take_stream(run, &codec);
    if (codec.encodes_input < 0)
        codec.encodes_input = plan->n_stages > 1 && !plan->shape.has_token_tables;
    if (plan->n_stages > 1) {
        STRAIT_TRY(fit_codec(run, &codec));
        STRAIT_TRY(strait_codec_check(&codec));
    }
    plan->codec = codec;
    STRAIT_TRY(check_tables(plan));
    return strait_run_plan_fit_codec(plan);
}
