#include "base/alloc.h"
#include "data/tokenizer/alphabet.h"
#include "data/tokenizer/internal.h"

#include <string.h>

/* Decoders are applied once, to every token of the vocabulary, instead of at each decoding. Only
 * the removal of spaces at the start of a text depends on the position and stays (n_strip). */
struct decoder_context {
    struct strait_tokenizer *t;
    struct strait_text_step_scratch scratch;
    strait_buffer bytes;
    int is_fused; // after Fuse: later decoders see the whole text, not single tokens
    int depth;    // of nested sequences
};

/* Writes the new output of one token to r->bytes. */
typedef strait_err (*token_transform)(struct decoder_context *r, const void *arg,
                                      const unsigned char *old, size_t n);

/* Applies a transform to the output of every token. */
static strait_err transform_tokens(struct decoder_context *r, token_transform transform,
                                   const void *arg) {
    struct strait_vocab *vocab = &r->t->vocab;
    for (size_t id = 0; id < vocab->n_ids; id++) {
        const strait_span span = vocab->tokens[id].out;
        const unsigned char *old = strait_vocab_at(vocab, span);
        r->bytes.n = 0;
        STRAIT_TRY(transform(r, arg, old, span.n));
        if (r->bytes.n == span.n && memcmp(old, r->bytes.data, span.n) == 0) continue;
        STRAIT_TRY(strait_vocab_set_out(vocab, (int32_t)id, r->bytes.data, r->bytes.n));
    }
    return STRAIT_OK;
}

static strait_err apply_replace(struct decoder_context *r, const void *arg,
                                const unsigned char *old, size_t n) {
    return strait_text_step_transform(arg, &r->scratch, old, n, 0, &r->bytes);
}

static int hex(unsigned char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0xC3>" becomes the byte 0xC3. */
static strait_err apply_byte_fallback(struct decoder_context *r, const void *arg,
                                      const unsigned char *old, size_t n) {
    (void)arg;
    const int is_form = n == 6 && memcmp(old, "<0x", 3) == 0 && old[5] == '>';
    const int high = is_form ? hex(old[3]) : -1;
    const int low = is_form ? hex(old[4]) : -1;
    if (high < 0 || low < 0) return strait_buffer_append(&r->bytes, old, n);
    const unsigned char byte = (unsigned char)(high << 4 | low);
    return strait_buffer_append(&r->bytes, &byte, 1);
}

/* Text in the byte-level alphabet becomes bytes; other text stays. */
static strait_err apply_byte_level(struct decoder_context *r, const void *arg,
                                   const unsigned char *old, size_t n) {
    (void)arg;
    STRAIT_TRY(strait_buffer_reserve((void **)&r->bytes.data, &r->bytes.capacity, n + 1, 1));
    const int64_t count = strait_alphabet_decode((const char *)old, n, r->bytes.data);
    if (count < 0) return strait_buffer_append(&r->bytes, old, n);
    r->bytes.n = (size_t)count;
    return STRAIT_OK;
}

static strait_err read_replace(struct decoder_context *r, const json_t *object) {
    strait_text_step step = {.kind = STRAIT_TEXT_STEP_REPLACE};
    strait_err err = strait_read_text(object, "content", &step.content);
    if (err == STRAIT_OK) err = strait_read_pattern(object, &step);
    if (err == STRAIT_OK) err = transform_tokens(r, apply_replace, &step);
    strait_text_step_fini(&step);
    return err;
}

/* The space that encoding put in front of a text is removed again. */
static strait_err read_metaspace(struct decoder_context *r, const json_t *object) {
    strait_text_step step = {.kind = STRAIT_TEXT_STEP_REPLACE};
    int has_prefix = 0;
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    strait_err err = strait_read_flag(object, "add_prefix_space", 1, &has_prefix);
    if (scheme != NULL) has_prefix = strcmp(scheme, "never") != 0;
    if (has_prefix) r->t->n_strip = 1;
    if (err == STRAIT_OK) err = strait_read_text(object, "replacement", &step.find);
    if (err == STRAIT_OK) err = strait_buffer_append(&step.content, " ", 1);
    if (err == STRAIT_OK) err = transform_tokens(r, apply_replace, &step);
    strait_text_step_fini(&step);
    return err;
}

/* Other forms would need the whole text, while tokens are decoded one by one. */
static strait_err read_strip(struct decoder_context *r, const json_t *object) {
    const char *content = NULL;
    int64_t start = 0;
    int64_t stop = 0;
    STRAIT_TRY(strait_json_string(object, "content", &content));
    STRAIT_TRY(strait_json_int(object, "start", &start));
    STRAIT_TRY(strait_json_int(object, "stop", &stop));
    if (!r->is_fused || strcmp(content, " ") != 0 || stop != 0 || start < 0 || start > 100)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "only spaces at the start of the whole text, after Fuse, are supported");
    r->t->n_strip = (int)start;
    return STRAIT_OK;
}

/* Outputs of byte-level tokenizers are bytes from the start. */
static strait_err read_byte_level(struct decoder_context *r, const json_t *object) {
    (void)object;
    return r->t->is_byte_level ? STRAIT_OK : transform_tokens(r, apply_byte_level, NULL);
}

static strait_err read_byte_fallback(struct decoder_context *r, const json_t *object) {
    (void)object;
    return transform_tokens(r, apply_byte_fallback, NULL);
}

/* Fuse itself changes nothing: tokens are joined anyway. */
static strait_err read_fuse(struct decoder_context *r, const json_t *object) {
    (void)object;
    r->is_fused = 1;
    return STRAIT_OK;
}

static strait_err read_one(struct decoder_context *r, const json_t *object);

/* The depth is bounded, since the file decides how deep this recursion goes. */
static strait_err read_sequence(struct decoder_context *r, const json_t *object) {
    const json_t *list = NULL;
    STRAIT_TRY(strait_json_array(object, "decoders", &list));
    if (++r->depth > 8) return STRAIT_FAIL(STRAIT_EDATA, "sequences nested more than 8 deep");
    for (size_t i = 0; i < json_array_size(list); i++)
        STRAIT_TRY(read_one(r, json_array_get(list, i)));
    r->depth--;
    return STRAIT_OK;
}

static strait_err read_one(struct decoder_context *r, const json_t *object) {
    static const struct {
        const char *type;
        strait_err (*read)(struct decoder_context *r, const json_t *object);
        int is_for_bytes; // supported for byte-level tokenizers, whose outputs are bytes already
        const char *keys[6];
    } readers[] = {
        {"Sequence", read_sequence, 1, {"decoders"}},
        {"ByteLevel", read_byte_level, 1, {"add_prefix_space", "trim_offsets", "use_regex"}},
        {"Fuse", read_fuse, 1, {NULL}},
        {"ByteFallback", read_byte_fallback, 0, {NULL}},
        {"Replace", read_replace, 0, {"pattern", "content"}},
        {"Strip", read_strip, 0, {"content", "start", "stop"}},
        {"Metaspace",
         read_metaspace,
         0,
         {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}},
    };
    const char *type = NULL;
    STRAIT_TRY(strait_read_type(object, "decoder", &type));
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(readers[i].type, type) != 0) continue;
        if (r->t->is_byte_level && !readers[i].is_for_bytes)
            return STRAIT_FAIL(STRAIT_EDATA,
                               "type \"%s\" with a ByteLevel pre_tokenizer is not supported", type);
        const char *known[8] = {"type"};
        memcpy(known + 1, readers[i].keys, sizeof readers[i].keys);
        STRAIT_TRY(strait_read_check_keys(object, "decoder", known));
        return readers[i].read(r, object);
    }
    return STRAIT_FAIL(STRAIT_EDATA, "type \"%.60s\" is not supported", type);
}

/* Files without a decoder join tokens as they are. */
strait_err strait_read_decoder(struct strait_tokenizer *t, const json_t *document) {
    const json_t *decoder = json_object_get(document, "decoder");
    if (decoder == NULL || json_is_null(decoder)) return STRAIT_OK;
    struct decoder_context r = {.t = t};
    strait_err err = strait_matcher_open(&r.scratch.matcher);
    if (err == STRAIT_OK) err = read_one(&r, decoder);
    if (err != STRAIT_OK) strait_err_prefix("\"decoder\"");
    strait_matcher_close(&r.scratch.matcher);
    strait_alloc_free(r.scratch.codepoints.data);
    strait_alloc_free(r.bytes.data);
    return err;
}
