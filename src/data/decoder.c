#include "data/decoder.h"

#include "data/tokenizer/parts.h"
#include "data/tokenizer/utf8.h"

#include <string.h>

void strait_decoder_init(strait_decoder *decoder, const struct strait_tokenizer *tokenizer) {
    *decoder = (strait_decoder){.tokenizer = tokenizer, .n_strip = tokenizer->n_strip};
}

size_t strait_decoder_bound(const struct strait_tokenizer *tokenizer) {
    return tokenizer->longest_out + sizeof((strait_decoder *)NULL)->held;
}

size_t strait_decoder_push(strait_decoder *decoder, int32_t id, unsigned char *out) {
    size_t n = 0;
    const unsigned char *bytes = strait_tokenizer_bytes(decoder->tokenizer, id, &n);
    if (bytes == NULL) return 0;
    if (decoder->skips_special && strait_tokenizer_is_special(decoder->tokenizer, id)) return 0;
    for (; n > 0 && decoder->n_strip > 0 && *bytes == ' '; bytes++, n--)
        decoder->n_strip--;
    if (n > 0) decoder->n_strip = 0; // the start of the text is over
    memcpy(out, decoder->held, decoder->n_held);
    memcpy(out + decoder->n_held, bytes, n);
    n += decoder->n_held;
    decoder->n_held = strait_utf8_incomplete(out, n);
    n -= decoder->n_held;
    memcpy(decoder->held, out + n, decoder->n_held);
    return n;
}

size_t strait_decoder_finish(strait_decoder *decoder, unsigned char *out) {
    const size_t n = decoder->n_held;
    memcpy(out, decoder->held, n);
    decoder->n_held = 0;
    return n;
}
