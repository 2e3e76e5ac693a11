#include "convert/gguf/tokenizer.h"

#include "base/alloc.h"
#include "base/json.h"
#include "data/tokenizer/internal.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES = 256 << 20,
    KIND_NORMAL = 1,
    KIND_CONTROL = 3, // special
    KIND_USER = 4,    // added, not special
    KIND_UNUSED = 5
};

struct words {
    const char **texts; // by id; NULL: none
    int32_t *kinds;
    int64_t n;
};

static strait_err unknown(const char *what) {
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "the tokenizer has %s: GGUF files are written for byte-level BPE with the "
                       "patterns of GPT-2, Llama 3 and Qwen 2",
                       what);
}

/* The name that llama.cpp gives to a split pattern; NULL: it has none. */
static const char *name_of_pattern(const char *pattern) {
    if (pattern == NULL) return NULL;
    if (strcmp(pattern, strait_pattern_gpt2) == 0) return "gpt-2";
    if (strcmp(pattern, strait_pattern_llama3) == 0) return "llama-bpe";
    return strcmp(pattern, strait_pattern_qwen2) == 0 ? "qwen2" : NULL;
}

static int is_type(const json_t *object, const char *type) {
    const char *found = json_string_value(json_object_get(object, "type"));
    return found != NULL && strcmp(found, type) == 0;
}

/* ByteLevel with its own pattern, GPT-2's; or a Split before it. */
static const char *find_pattern(const json_t *pre) {
    if (is_type(pre, "ByteLevel"))
        return json_is_false(json_object_get(pre, "use_regex")) ? NULL : "gpt-2";
    const json_t *steps = json_object_get(pre, "pretokenizers");
    const json_t *split = json_array_get(steps, 0), *bytes = json_array_get(steps, 1);
    if (!is_type(pre, "Sequence") || json_array_size(steps) != 2 || !is_type(split, "Split") ||
        !is_type(bytes, "ByteLevel"))
        return NULL;
    return name_of_pattern(
        json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex")));
}

static strait_err note_word(struct words *words, const char *text, json_int_t id, int32_t kind) {
    if (id < 0 || id >= words->n)
        return STRAIT_FAIL(STRAIT_EDATA, "token %lld is outside the model's vocabulary",
                           (long long)id);
    words->texts[id] = text;
    words->kinds[id] = kind;
    return STRAIT_OK;
}

static strait_err read_words(const json_t *document, struct words *words) {
    const json_t *vocab = NULL, *model = json_object_get(document, "model");
    const char *text;
    json_t *id, *added;
    size_t i;
    STRAIT_TRY(strait_json_object(model, "vocab", &vocab));
    json_object_foreach((json_t *)vocab, text, id)
        STRAIT_TRY(note_word(words, text, json_integer_value(id), KIND_NORMAL));
    json_array_foreach(json_object_get(document, "added_tokens"), i, added) {
        const char *content = NULL;
        STRAIT_TRY(strait_json_string(added, "content", &content));
        const int is_special = json_is_true(json_object_get(added, "special"));
        STRAIT_TRY(note_word(words, content, json_integer_value(json_object_get(added, "id")),
                             is_special ? KIND_CONTROL : KIND_USER));
    }
    return STRAIT_OK;
}

/* Ids without a token, which a model padded to a round number has, get names of their own. */
static strait_err put_words(struct strait_gguf *g, const struct words *words) {
    char unused[32];
    STRAIT_TRY(strait_gguf_texts(g, "tokenizer.ggml.tokens", (uint64_t)words->n));
    for (int64_t i = 0; i < words->n; i++) {
        (void)snprintf(unused, sizeof unused, "[PAD%lld]", (long long)i);
        const char *text = words->texts[i] != NULL ? words->texts[i] : unused;
        STRAIT_TRY(strait_gguf_item_text(g, text, strlen(text)));
    }
    STRAIT_TRY(strait_gguf_numbers(g, "tokenizer.ggml.token_type", (uint64_t)words->n));
    for (int64_t i = 0; i < words->n; i++)
        STRAIT_TRY(
            strait_gguf_item_number(g, words->texts[i] != NULL ? words->kinds[i] : KIND_UNUSED));
    return STRAIT_OK;
}

/* Merges are written "a b" or ["a", "b"]. */
static strait_err put_merges(struct strait_gguf *g, const json_t *model) {
    const json_t *merges = NULL;
    json_t *merge;
    size_t i;
    STRAIT_TRY(strait_json_array(model, "merges", &merges));
    STRAIT_TRY(strait_gguf_texts(g, "tokenizer.ggml.merges", json_array_size(merges)));
    json_array_foreach(merges, i, merge) {
        char text[1024];
        const char *a = json_string_value(json_array_get(merge, 0));
        const char *b = json_string_value(json_array_get(merge, 1));
        if (json_is_string(merge))
            (void)snprintf(text, sizeof text, "%s", json_string_value(merge));
        else if (a != NULL && b != NULL)
            (void)snprintf(text, sizeof text, "%s %s", a, b);
        else
            return STRAIT_FAIL(STRAIT_EDATA, "merge %zu is not a pair", i);
        STRAIT_TRY(strait_gguf_item_text(g, text, strlen(text)));
    }
    return STRAIT_OK;
}

static strait_err put_tokenizer(struct strait_gguf *g, const json_t *document,
                                struct words *words) {
    const json_t *model = json_object_get(document, "model");
    const json_t *normalizer = json_object_get(document, "normalizer");
    const char *pattern = find_pattern(json_object_get(document, "pre_tokenizer"));
    if (!is_type(model, "BPE")) return unknown("another model than BPE");
    if (pattern == NULL) return unknown("another way to split text");
    /* Qwen's; llama.cpp does not normalise, which changes little text. */
    if (json_is_object(normalizer) && !is_type(normalizer, "NFC"))
        return unknown("a normalizer other than NFC");
    STRAIT_TRY(read_words(document, words));
    STRAIT_TRY(strait_gguf_text(g, "tokenizer.ggml.model", "gpt2"));
    STRAIT_TRY(strait_gguf_text(g, "tokenizer.ggml.pre", pattern));
    STRAIT_TRY(put_words(g, words));
    return put_merges(g, model);
}

strait_err strait_gguf_tokenizer(struct strait_gguf *g, const char *path, int64_t vocab,
                                 int32_t end_id) {
    struct words words = {.n = vocab};
    json_t *document = NULL;
    STRAIT_TRY(strait_json_load(path, FILE_BYTES, &document));
    strait_err err = strait_alloc((size_t)vocab, sizeof *words.texts, "tokens",
                                  (void **)&words.texts);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)vocab, sizeof *words.kinds, "tokens", (void **)&words.kinds);
    if (err == STRAIT_OK) err = put_tokenizer(g, document, &words);
    strait_alloc_free((void *)words.texts);
    strait_alloc_free(words.kinds);
    json_decref(document);
    STRAIT_TRY(err);
    if (end_id >= 0) {
        STRAIT_TRY(strait_gguf_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t)end_id));
        STRAIT_TRY(strait_gguf_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t)end_id));
    }
    return strait_gguf_bool(g, "tokenizer.ggml.add_bos_token", 0);
}
