#include "data/tokenizer/internal.h"

#include <string.h>

enum {
    DEPTH_MAX = 8 // of nested sequences; bounds the recursion
};

const char strait_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char strait_pattern_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char strait_pattern_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* The list that is being read, and where it goes. */
struct step_context {
    struct strait_tokenizer *t;
    strait_text_steps *steps;
    int depth;
};

typedef strait_err (*read_step)(struct step_context *r, const json_t *object);
typedef struct step_reader {
    const char *type;
    read_step read;
    const char *keys[8]; // all keys that may appear besides "type"
} step_reader;

/* A fixed number of steps: real files have two or three. */
static strait_err new_step(struct step_context *r, strait_text_step_kind kind,
                           strait_text_step **out) {
    if (r->steps->n == STRAIT_TEXT_STEPS_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "more than %d steps", STRAIT_TEXT_STEPS_MAX);
    *out = &r->steps->items[r->steps->n++];
    (*out)->kind = kind;
    return STRAIT_OK;
}

/* Adds a split by a pattern that a named pre-tokenizer implies. */
static strait_err add_split(struct step_context *r, const char *pattern, strait_split split,
                            int is_inverted) {
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_SPLIT, &step));
    step->split = split;
    step->is_inverted = is_inverted;
    STRAIT_TRY(strait_buffer_append(&step->find, pattern, strlen(pattern)));
    return strait_pattern_open(pattern, strlen(pattern), &step->pattern);
}

/* The reader was chosen by this type, so one of the names matches. */
static strait_err read_nfc(struct step_context *r, const json_t *object) {
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = json_string_value(json_object_get(object, "type"));
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_NORMALIZE, &step));
    while (strcmp(names[step->form], type) != 0)
        step->form++;
    return STRAIT_OK;
}

/* Unlike the prefix of a pre-tokenizer it is added to every text, also where it is there already.
 */
static strait_err read_prepend(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_PREPEND, &step));
    return strait_read_text(object, "prepend", &step->content);
}

/* A literal or a pattern; both are replaced by the same text. */
static strait_err read_replace(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_REPLACE, &step));
    STRAIT_TRY(strait_read_text(object, "content", &step->content));
    return strait_read_pattern(object, step);
}

static strait_err read_behavior(const json_t *object, strait_split *out) {
    static const struct {
        const char *name;
        strait_split split;
    } names[] = {{"Isolated", STRAIT_SPLIT_ISOLATED},
                 {"Removed", STRAIT_SPLIT_REMOVED},
                 {"MergedWithPrevious", STRAIT_SPLIT_WITH_PREVIOUS},
                 {"MergedWithNext", STRAIT_SPLIT_WITH_NEXT},
                 {"Contiguous", STRAIT_SPLIT_CONTIGUOUS}};
    const char *behavior = NULL;
    STRAIT_TRY(strait_json_string(object, "behavior", &behavior));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, behavior) != 0) continue;
        *out = names[i].split;
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_EDATA, "behavior \"%.60s\" is not supported", behavior);
}

/* With "invert" the parts between matches are treated as the matches. */
static strait_err read_split(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_SPLIT, &step));
    STRAIT_TRY(strait_read_flag(object, "invert", 0, &step->is_inverted));
    STRAIT_TRY(read_behavior(object, &step->split));
    return strait_read_pattern(object, step);
}

/* ByteLevel: an optional leading space, GPT-2's split pattern, and words of bytes. */
static strait_err read_byte_level(struct step_context *r, const json_t *object) {
    int has_prefix = 0;
    int has_regex = 0;
    STRAIT_TRY(strait_read_flag(object, "add_prefix_space", 1, &has_prefix));
    STRAIT_TRY(strait_read_flag(object, "use_regex", 1, &has_regex));
    r->t->is_byte_level = 1;
    if (has_prefix) {
        strait_text_step *step = NULL;
        STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_PREFIX, &step));
        STRAIT_TRY(strait_buffer_append(&step->content, " ", 1));
    }
    return has_regex ? add_split(r, strait_pattern_gpt2, STRAIT_SPLIT_ISOLATED, 0) : STRAIT_OK;
}

/* Numbers of all scripts, as in Hugging Face. */
static strait_err read_digits(struct step_context *r, const json_t *object) {
    int is_single = 0;
    STRAIT_TRY(strait_read_flag(object, "individual_digits", 0, &is_single));
    return add_split(r, is_single ? "\\p{N}" : "\\p{N}+", STRAIT_SPLIT_ISOLATED, 0);
}

/* Unicode punctuation, and ASCII symbols, which Unicode does not count as punctuation. */
static strait_err read_punctuation(struct step_context *r, const json_t *object) {
    strait_split split = STRAIT_SPLIT_ISOLATED;
    if (json_object_get(object, "behavior") != NULL) STRAIT_TRY(read_behavior(object, &split));
    return add_split(r, "[\\p{P}\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e]", split, 0);
}

/* Inverted: what matches neither words nor symbols is removed, which is whitespace. */
static strait_err read_whitespace(struct step_context *r, const json_t *object) {
    (void)object;
    return add_split(r, "\\w+|[^\\w\\s]+", STRAIT_SPLIT_REMOVED, 1);
}

static strait_err read_whitespace_split(struct step_context *r, const json_t *object) {
    (void)object;
    return add_split(r, "\\s", STRAIT_SPLIT_REMOVED, 0);
}

/* Reads when the metaspace is prepended to a text: "always", "first" or "never". Older files say
 * it with add_prefix_space. */
static strait_err read_scheme(const json_t *object, const char **out) {
    int has_prefix = 0;
    STRAIT_TRY(strait_read_flag(object, "add_prefix_space", 1, &has_prefix));
    *out = has_prefix ? "always" : "never";
    if (json_object_get(object, "prepend_scheme") == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_json_string(object, "prepend_scheme", out));
    if (strcmp(*out, "always") == 0 || strcmp(*out, "never") == 0 || strcmp(*out, "first") == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "prepend_scheme \"%.60s\" is not supported", *out);
}

/* "first" adds the prefix only at the start of a text, not after an added token. */
static strait_err read_metaspace_prefix(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    const char *scheme = NULL;
    STRAIT_TRY(read_scheme(object, &scheme));
    if (strcmp(scheme, "never") == 0) return STRAIT_OK;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_PREFIX, &step));
    step->is_start_only = strcmp(scheme, "first") == 0;
    return strait_read_text(object, "replacement", &step->content);
}

/* A word begins with its metaspace, as SentencePiece has it. */
static strait_err split_at_metaspace(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_SPLIT, &step));
    step->split = STRAIT_SPLIT_WITH_NEXT;
    return strait_read_text(object, "replacement", &step->find);
}

/* Metaspace: spaces become U+2581, which may be prepended, and words start at each of them. */
static strait_err read_metaspace(struct step_context *r, const json_t *object) {
    strait_text_step *step = NULL;
    int has_split = 0;
    STRAIT_TRY(strait_read_flag(object, "split", 1, &has_split));
    STRAIT_TRY(new_step(r, STRAIT_TEXT_STEP_REPLACE, &step));
    STRAIT_TRY(strait_buffer_append(&step->find, " ", 1));
    STRAIT_TRY(strait_read_text(object, "replacement", &step->content));
    STRAIT_TRY(read_metaspace_prefix(r, object));
    return has_split ? split_at_metaspace(r, object) : STRAIT_OK;
}

static const step_reader normalizers[] = {
    {"NFC", read_nfc, {NULL}},
    {"NFD", read_nfc, {NULL}},
    {"NFKC", read_nfc, {NULL}},
    {"NFKD", read_nfc, {NULL}},
    {"Prepend", read_prepend, {"prepend"}},
    {"Replace", read_replace, {"pattern", "content"}},
    {NULL, NULL, {NULL}},
};

static const step_reader pre_tokenizers[] = {
    {"ByteLevel", read_byte_level, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"Split", read_split, {"pattern", "behavior", "invert"}},
    {"Digits", read_digits, {"individual_digits"}},
    {"Punctuation", read_punctuation, {"behavior"}},
    {"Whitespace", read_whitespace, {NULL}},
    {"WhitespaceSplit", read_whitespace_split, {NULL}},
    {"Metaspace",
     read_metaspace,
     {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}},
    {NULL, NULL, {NULL}},
};

static strait_err read_one(struct step_context *r, const json_t *object, const char *where,
                           const step_reader *readers) {
    const char *type = NULL;
    STRAIT_TRY(strait_read_type(object, where, &type));
    while (readers->type != NULL && strcmp(readers->type, type) != 0)
        readers++;
    if (readers->type == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" of type \"%.60s\" is not supported", where, type);
    /* Steps after ByteLevel would see the byte-level alphabet instead of text. */
    if (r->t->is_byte_level && r->steps == &r->t->pre_tokenizers)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" of type \"%s\" after ByteLevel is not supported",
                           where, type);
    const char *known[10] = {"type"};
    memcpy(known + 1, readers->keys, sizeof readers->keys);
    STRAIT_TRY(strait_read_check_keys(object, where, known));
    const strait_err err = readers->read(r, object);
    if (err != STRAIT_OK) strait_err_prefix("\"%s\" of type \"%s\"", where, type);
    return err;
}

/* Reads one step or a sequence of them, recursively. */
static strait_err read_list(struct step_context *r, const json_t *object, const char *where,
                            const char *items_key, const step_reader *readers) {
    const char *type = NULL;
    if (object == NULL || json_is_null(object)) return STRAIT_OK;
    STRAIT_TRY(strait_read_type(object, where, &type));
    if (strcmp(type, "Sequence") != 0) return read_one(r, object, where, readers);
    const json_t *items = NULL;
    STRAIT_TRY(strait_json_array(object, items_key, &items));
    if (++r->depth > DEPTH_MAX)
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\": sequences nested more than %d deep", where,
                           DEPTH_MAX);
    for (size_t i = 0; i < json_array_size(items); i++)
        STRAIT_TRY(read_list(r, json_array_get(items, i), where, items_key, readers));
    r->depth--;
    return STRAIT_OK;
}

/* Each list has its own set of steps that it may contain. */
strait_err strait_read_steps(struct strait_tokenizer *t, const json_t *document) {
    struct step_context normal = {t, &t->normalizers, 0};
    struct step_context pre = {t, &t->pre_tokenizers, 0};
    STRAIT_TRY(read_list(&normal, json_object_get(document, "normalizer"), "normalizer",
                         "normalizers", normalizers));
    return read_list(&pre, json_object_get(document, "pre_tokenizer"), "pre_tokenizer",
                     "pretokenizers", pre_tokenizers);
}
