/* The input up to the first zero byte is a tokenizer.json; the rest is text to encode and decode.
 */
#include "base/alloc.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/encoder.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const struct strait_tokenizer *tokenizer, const int32_t *ids, size_t n) {
    unsigned char *out = NULL;
    if (strait_alloc(strait_decoder_bound(tokenizer), 1, "text", (void **)&out) != STRAIT_OK)
        return;
    strait_decoder decoder;
    strait_decoder_init(&decoder, tokenizer);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= strait_tokenizer_vocab(tokenizer)) abort();
        (void)strait_decoder_push(&decoder, ids[i], out);
    }
    (void)strait_decoder_finish(&decoder, out);
    strait_alloc_free(out);
}

static void try_texts(const struct strait_tokenizer *tokenizer, const uint8_t *text, size_t n) {
    static const char mixed[] =
        "Hello  w\xc3\xb6rld's 123\n\n\xe2\x96\x81 \xff\xe2\x96 e\xcc\x81 <s>"
        " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct strait_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t n_ids = 0;
    if (strait_encoder_open(tokenizer, &encoder) != STRAIT_OK) return;
    if (strait_encoder_encode(encoder, mixed, sizeof mixed - 1, STRAIT_ENCODE_TEMPLATE, &ids,
                              &n_ids) == STRAIT_OK)
        decode(tokenizer, ids, n_ids);
    if (strait_encoder_encode(encoder, text, n < 256 ? n : 256, 0, &ids, &n_ids) == STRAIT_OK)
        decode(tokenizer, ids, n_ids);
    strait_encoder_close(&encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = memchr(data, 0, size);
    const size_t n_json = zero == NULL ? size : (size_t)(zero - data);
    const size_t n_text = zero == NULL ? 0 : size - n_json - 1;
    struct strait_tokenizer *tokenizer = NULL;
    if (strait_tokenizer_parse((const char *)data, n_json, &tokenizer) != STRAIT_OK) return 0;
    try_texts(tokenizer, data + size - n_text, n_text);
    strait_tokenizer_close(&tokenizer);
    return 0;
}
