/* tokenizers.h - small tokenizers whose ids can be computed by hand. */
#pragma once

#include "base/alloc.h"
#include "check.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/encoder.h"
#include "data/tokenizer/tokenizer.h"

#include <stdio.h>

/* The sections of tokenizer.json that a test replaces; NULL keeps the default. */
typedef struct strait_test_file {
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder, *options, *vocab,
        *merges;
} strait_test_file;

#define BYTE_LEVEL \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"

static inline const char *test_file_text(const strait_test_file *f) {
    static char text[16384];
    (void)snprintf(
        text, sizeof text,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":%s,"
        "\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
        "\"model\":{\"type\":\"BPE\",%s\"vocab\":%s,\"merges\":%s}}",
        f->added ? f->added : "[]", f->normalizer ? f->normalizer : "null",
        f->pre_tokenizer ? f->pre_tokenizer : BYTE_LEVEL,
        f->post_processor ? f->post_processor : "null", f->decoder ? f->decoder : BYTE_LEVEL,
        f->options ? f->options : "",
        f->vocab ? f->vocab
                 : "{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"\\u0120\":4,\"ab\":5,\"cd\":6,\"abcd\":7,"
                   "\"\\u0120a\":8,\"bc\":9}",
        f->merges ? f->merges : "[\"a b\",\"c d\",\"ab cd\",\"\\u0120 a\",\"b c\"]");
    return text;
}

static inline struct strait_tokenizer *open_test_file(const strait_test_file *f) {
    struct strait_tokenizer *tokenizer = NULL;
    const char *text = test_file_text(f);
    CHECK_OK(strait_tokenizer_parse(text, strlen(text), &tokenizer));
    return tokenizer;
}

/* The ids of a text, as "1 2 3". */
static inline const char *ids_of(const struct strait_tokenizer *tokenizer, const char *text,
                                 size_t n, unsigned options) {
    static char out[8192];
    struct strait_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t n_ids = 0;
    CHECK_OK(strait_encoder_open(tokenizer, &encoder));
    for (int run = 0; run < 2; run++) // the second run uses the cache
        CHECK_OK(strait_encoder_encode(encoder, text, n, options, &ids, &n_ids));
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n_ids; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, i == 0 ? "%d" : " %d", ids[i]);
    strait_encoder_close(&encoder);
    return out;
}

#define CHECK_IDS(tokenizer, text, expected) \
    assert_string_equal(ids_of(tokenizer, text, strlen(text), 0), expected)

/* Decoding the ids of a text must restore the text. */
static inline void check_round_trip(const struct strait_tokenizer *tokenizer, const void *text,
                                    size_t n) {
    struct strait_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t n_ids = 0;
    unsigned char *back = NULL;
    CHECK_OK(strait_encoder_open(tokenizer, &encoder));
    CHECK_OK(strait_encoder_encode(encoder, text, n, 0, &ids, &n_ids));
    CHECK_OK(strait_alloc(n + strait_decoder_bound(tokenizer) * 2, 1, "text", (void **)&back));
    strait_decoder decoder;
    strait_decoder_init(&decoder, tokenizer);
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++)
        at += strait_decoder_push(&decoder, ids[i], back + at);
    at += strait_decoder_finish(&decoder, back + at);
    assert_int_equal(at, n);
    assert_memory_equal(back, text, n);
    strait_alloc_free(back);
    strait_encoder_close(&encoder);
}
