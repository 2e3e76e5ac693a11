#include "data/tokenizer/decoder.h"

#include "base/alloc.h"
#include "base/text/utf8.h"
#include "data/buffer.h"
#include "data/tokenizer/internal.h"

#include <string.h>

void strait_decoder_init(strait_decoder *decoder, const struct strait_tokenizer *tokenizer) {
    *decoder = (strait_decoder){.tokenizer = tokenizer, .n_strip = tokenizer->n_strip};
}

/* A push may return the bytes that were held back, besides its own. */
size_t strait_decoder_bound(const struct strait_tokenizer *tokenizer) {
    return tokenizer->longest_out + sizeof((strait_decoder *)NULL)->partial;
}

/* A token may end in the middle of a character. A terminal would show the part as garbage, so it is
 * held back until the rest arrives. */
size_t strait_decoder_push(strait_decoder *decoder, int32_t id, unsigned char *out) {
    size_t n = 0;
    const unsigned char *bytes = strait_tokenizer_bytes(decoder->tokenizer, id, &n);
    if (bytes == NULL) return 0;
    if (decoder->skips_special && strait_tokenizer_is_special(decoder->tokenizer, id)) return 0;
    for (; n > 0 && decoder->n_strip > 0 && *bytes == ' '; bytes++, n--)
        decoder->n_strip--;
    if (n > 0) decoder->n_strip = 0; // only leading spaces are removed
    /* Write the bytes held back and the new ones, then hold back an incomplete character again. */
    memcpy(out, decoder->partial, decoder->n_partial);
    memcpy(out + decoder->n_partial, bytes, n);
    n += decoder->n_partial;
    decoder->n_partial = strait_utf8_incomplete(out, n);
    n -= decoder->n_partial;
    memcpy(decoder->partial, out + n, decoder->n_partial);
    return n;
}

size_t strait_decoder_finish(strait_decoder *decoder, unsigned char *out) {
    const size_t n = decoder->n_partial;
    memcpy(out, decoder->partial, n);
    decoder->n_partial = 0;
    return n;
}

strait_err strait_tokenizer_decode(const struct strait_tokenizer *tokenizer, const int32_t *ids,
                                   size_t n, char **out, size_t *n_bytes) {
    const size_t bound = strait_decoder_bound(tokenizer);
    strait_buffer text = {0};
    strait_decoder decoder;
    strait_decoder_init(&decoder, tokenizer);
    for (size_t i = 0; i <= n; i++) { // the last iteration writes the bytes that were held back
        const strait_err err = strait_buffer_reserve((void **)&text.data, &text.capacity,
                                                     text.n + bound + 1, 1);
        if (err != STRAIT_OK) {
            strait_alloc_free(text.data);
            return err;
        }
        text.n += i < n ? strait_decoder_push(&decoder, ids[i], text.data + text.n)
                        : strait_decoder_finish(&decoder, text.data + text.n);
    }
    text.data[text.n] = '\0';
    *out = (char *)text.data;
    *n_bytes = text.n;
    return STRAIT_OK;
}
