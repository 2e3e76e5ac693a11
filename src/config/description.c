#include "config/description.h"

#include "base/alloc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_kind {
    FIELD_INT,
    FIELD_INT64,
    FIELD_FLOAT,
    FIELD_DOUBLE,
    FIELD_TEXT // char[STRAIT_CODEC_NAME]
};

typedef struct field {
    const char *key;
    size_t offset; // in a strait_run_plan
    enum field_kind kind;
    int is_shape; // decides which weights fit
    int is_late;  // earlier manifests do not have it and mean 0
} field;

/* The kind of a member of a plan, by its type. Enums are unsigned ints here. */
#define KIND(member) \
    _Generic(((strait_run_plan *)0)->member, int               \
             : FIELD_INT, unsigned                             \
             : FIELD_INT, int64_t                              \
             : FIELD_INT64, uint64_t                           \
             : FIELD_INT64, float                              \
             : FIELD_FLOAT, double                             \
             : FIELD_DOUBLE, char *                            \
             : FIELD_TEXT)
#define FIELD(name, member, shape, late)          \
    {.key = (name),                               \
     .offset = offsetof(strait_run_plan, member), \
     .kind = KIND(member),                        \
     .is_shape = (shape),                         \
     .is_late = (late)},

#define FIELD_SAVED(name, member, shape) FIELD(name, member, shape, 0)
#define FIELD_LATE(name, member, shape)  FIELD(name, member, shape, 1)
#define FIELD_UNSAVED(name, member, shape)

/* The options of the run file that the table marks as saved, by their keys, and what a plan adds to
 * them. */
static const field fields[] = {FIELD_SAVED("subspace", shape.subspace, 1)
                                   FIELD_LATE("lora_rank", shape.lora_rank, 1)
                                       FIELD_LATE("lora_alpha", shape.lora_alpha, 1)
                                           FIELD_LATE("lora_targets", shape.lora_targets, 1)
                                               FIELD_SAVED("codec.seed", codec.seed, 0)
#define SHAPE(key, member, saved, kind, initial, help) FIELD_##saved(#key, shape.member, 1)
#define CODEC(key, member, saved, kind, initial, help) FIELD_##saved("codec." #key, codec.member, 0)
#include "config/run_options.def"
};
enum {
    N_FIELDS = sizeof fields / sizeof *fields
};
_Static_assert((int)N_FIELDS + 1 <= (int)STRAIT_DESCRIBE_PAIRS, "every field has its pair");
/* read_field stores enums through an int. */
_Static_assert(sizeof(strait_activation) == sizeof(int), "choices are read as int");

/* Writes one field as text. Floats have as many digits as it takes to read back the same bits. */
static void print_field(const field *f, const strait_run_plan *plan, char *text) {
    const void *at = (const char *)plan + f->offset;
    const size_t capacity = STRAIT_DESCRIBE_TEXT;
    switch (f->kind) {
    case FIELD_INT: (void)snprintf(text, capacity, "%d", *(const int *)at); break;
    case FIELD_INT64:
        (void)snprintf(text, capacity, "%lld", (long long)*(const int64_t *)at);
        break;
    case FIELD_FLOAT: (void)snprintf(text, capacity, "%.9g", (double)*(const float *)at); break;
    case FIELD_DOUBLE: (void)snprintf(text, capacity, "%.17g", *(const double *)at); break;
    case FIELD_TEXT: (void)snprintf(text, capacity, "%s", (const char *)at); break;
    }
}

/* "3,3,1,1": layers of each stage. */
static void print_stages(const strait_run_plan *plan, char *text) {
    int n = 0;
    for (int i = 0; i < plan->n_stages; i++)
        n += snprintf(text + n, STRAIT_DESCRIBE_TEXT - (size_t)n, "%s%d", i == 0 ? "" : ",",
                      plan->stage_layers[i].last - plan->stage_layers[i].first);
}

void strait_describe(const strait_run_plan *plan, strait_description *out) {
    out->n = 0;
    for (int i = 0; i < N_FIELDS; i++) {
        if (!fields[i].is_shape && plan->n_stages == 1) continue; // one stage uses no codec
        print_field(&fields[i], plan, out->texts[out->n]);
        out->pairs[out->n] = (strait_safetensors_pair){fields[i].key, out->texts[out->n]};
        out->n++;
    }
    print_stages(plan, out->texts[out->n]);
    out->pairs[out->n] = (strait_safetensors_pair){"stages", out->texts[out->n]};
    out->n++;
}

static strait_err unusable(const struct strait_checkpoint *checkpoint, const char *key) {
    return STRAIT_FAIL(STRAIT_EDATA, "%s: its manifest has no usable model.%s",
                       strait_checkpoint_path(checkpoint), key);
}

/* Reads one field. Checkpoints may come from strangers, so every number is checked before it is
 * converted. */
static strait_err read_field(const struct strait_checkpoint *checkpoint, const field *f,
                             strait_run_plan *plan) {
    const char *text = strait_checkpoint_model(checkpoint, f->key);
    void *at = (char *)plan + f->offset;
    char *end = NULL;
    if (text == NULL && f->is_late) return STRAIT_OK;
    if (text == NULL) return unusable(checkpoint, f->key);
    if (f->kind == FIELD_TEXT) {
        const int n = snprintf(at, STRAIT_CODEC_NAME, "%s", text);
        return n < STRAIT_CODEC_NAME ? STRAIT_OK : unusable(checkpoint, f->key);
    }
    errno = 0;
    const double number = strtod(text, &end);
    /* Doubles hold whole numbers exactly up to 2^53. */
    const double most = f->kind == FIELD_INT ? 2147483647.0 : 9007199254740992.0;
    if (errno != 0 || end == text || *end != '\0' || !(number >= 0.0 && number <= most))
        return unusable(checkpoint, f->key);
    switch (f->kind) {
    case FIELD_INT: *(int *)at = (int)number; break;
    case FIELD_INT64: *(int64_t *)at = (int64_t)number; break;
    case FIELD_FLOAT: *(float *)at = (float)number; break;
    default: *(double *)at = number; break;
    }
    return STRAIT_OK;
}

/* Reads the layers of each stage, which must add up to all layers of the shape. */
static strait_err read_stages(const struct strait_checkpoint *checkpoint, strait_run_plan *plan) {
    const char *text = strait_checkpoint_model(checkpoint, "stages");
    int first = 0;
    plan->n_stages = 0;
    while (text != NULL && *text != '\0') {
        char *end = NULL;
        const long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > plan->shape.layers - first ||
            plan->n_stages == STRAIT_RUN_STAGES)
            return unusable(checkpoint, "stages");
        plan->stage_layers[plan->n_stages++] = (strait_layer_range){first, first + (int)n};
        first += (int)n;
        text = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0') return unusable(checkpoint, "stages");
    }
    return first == plan->shape.layers ? STRAIT_OK : unusable(checkpoint, "stages");
}

strait_err strait_describe_read(const struct strait_checkpoint *checkpoint, strait_run_plan *out) {
    strait_run_plan plan = {0};
    for (int i = 0; i < N_FIELDS; i++)
        if (fields[i].is_shape) STRAIT_TRY(read_field(checkpoint, &fields[i], &plan));
    STRAIT_TRY(strait_shape_check(&plan.shape));
    STRAIT_TRY(read_stages(checkpoint, &plan));
    for (int i = 0; i < N_FIELDS && plan.n_stages > 1; i++)
        if (!fields[i].is_shape) STRAIT_TRY(read_field(checkpoint, &fields[i], &plan));
    plan.codec.cols = plan.shape.width;
    plan.codec.vocab = plan.shape.vocab;
    plan.codec.table_rows = plan.shape.table_rows;
    plan.codec.n_boundaries = plan.n_stages - 1;
    plan.codec.n_slots = 1;
    STRAIT_TRY(strait_run_plan_fit_codec(&plan));
    *out = plan;
    return STRAIT_OK;
}

/* Whether the stages together compute another function than the model without codecs. */
static int has_code(const strait_run_plan *plan) {
    const unsigned part_of_model = STRAIT_CODEC_TRAINED | STRAIT_CODEC_CONFINES |
                                   STRAIT_CODEC_TOKENS | STRAIT_CODEC_CODE;
    return plan->n_stages > 1 && (strait_codec_traits(&plan->codec) & part_of_model) != 0;
}

static int is_late(const char *key) {
    for (int i = 0; i < N_FIELDS; i++)
        if (strcmp(fields[i].key, key) == 0) return fields[i].is_late;
    return 0;
}

/* Compares one pair of our description with the manifest's. */
static strait_err check_pair(const struct strait_checkpoint *checkpoint,
                             const strait_safetensors_pair *ours) {
    const char *theirs = strait_checkpoint_model(checkpoint, ours->key);
    const char *part = strncmp(ours->key, "codec.", 6) == 0  ? "link"
                       : strncmp(ours->key, "lora_", 5) == 0 ? "train"
                                                             : "model";
    if (theirs == NULL) theirs = is_late(ours->key) ? "0" : "unknown";
    if (strcmp(theirs, ours->value) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s was saved with %s.%s %s, the run has %s: use the run file it was "
                       "trained with, or another folder",
                       strait_checkpoint_path(checkpoint), part, ours->key, theirs, ours->value);
}

/* Another variant of a codec has another model. This check comes first because its error is clearer
 * than one about the options that follow from the variant. */
static strait_err check_variant(const struct strait_checkpoint *checkpoint,
                                const strait_run_plan *saved, const strait_run_plan *plan) {
    const strait_codec_spec *theirs = &saved->codec, *ours = &plan->codec;
    if (saved->n_stages == 1 || plan->n_stages == 1 || strcmp(theirs->name, ours->name) != 0 ||
        strcmp(theirs->variant, ours->variant) == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s was saved with variant %s of codec %s, the run has %s: to continue, set "
                       "link.codec.variant to %s, or use another folder",
                       strait_checkpoint_path(checkpoint), theirs->variant, theirs->name,
                       ours->variant, theirs->variant);
}

strait_err strait_describe_check(const struct strait_checkpoint *checkpoint,
                                 const strait_run_plan *plan, const char *tokenizer) {
    static _Thread_local strait_description ours; // too large for the stack
    strait_run_plan saved;
    STRAIT_TRY(strait_describe_read(checkpoint, &saved));
    const int must_match_split = has_code(plan) || has_code(&saved);
    if (must_match_split) STRAIT_TRY(check_variant(checkpoint, &saved, plan));
    strait_describe(plan, &ours);
    for (int i = 0; i < ours.n; i++) {
        const int is_split = strncmp(ours.pairs[i].key, "codec.", 6) == 0 ||
                             strcmp(ours.pairs[i].key, "stages") == 0;
        if (!is_split || must_match_split) STRAIT_TRY(check_pair(checkpoint, &ours.pairs[i]));
    }
    const char *print = strait_checkpoint_tokenizer(checkpoint);
    if (print[0] != '\0' && tokenizer[0] != '\0' && strcmp(print, tokenizer) != 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s was trained with the tokenizer %s, not with %s: use the tokenizer "
                           "of the checkpoint",
                           strait_checkpoint_path(checkpoint), print, tokenizer);
    return STRAIT_OK;
}

strait_err strait_checkpoint_describe(const struct strait_checkpoint *checkpoint,
                                      void (*visit)(void *user, const char *key, const char *value),
                                      void *user, int64_t *parameters) {
    strait_run_plan plan;
    strait_description *description = NULL;
    STRAIT_TRY(strait_describe_read(checkpoint, &plan));
    STRAIT_TRY(strait_run_plan_params(&plan, parameters));
    if (visit == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *description, "description", (void **)&description));
    strait_describe(&plan, description);
    for (int i = 0; i < description->n; i++)
        visit(user, description->pairs[i].key, description->pairs[i].value);
    strait_alloc_free(description);
    return STRAIT_OK;
}
