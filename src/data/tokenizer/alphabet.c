#include "data/tokenizer/alphabet.h"

#include "base/text/utf8.h"

enum {
    FIRST_MOVED = 0x100, // code point of the first byte that is not written as itself
    N_MOVED = 68         // how many such bytes there are
};

/* The alphabet of GPT-2: visible characters of Latin-1 stand for themselves. */
static int is_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* The moved bytes are 0..32, 127..160 and 173. */
uint32_t strait_alphabet_of_byte(unsigned char byte) {
    if (is_itself(byte)) return byte;
    if (byte <= 32) return FIRST_MOVED + (uint32_t)byte;
    if (byte <= 160) return FIRST_MOVED + 33 + (uint32_t)byte - 127;
    return FIRST_MOVED + N_MOVED - 1;
}

static int byte_of(uint32_t codepoint) {
    if (codepoint < FIRST_MOVED) return is_itself(codepoint) ? (int)codepoint : -1;
    const uint32_t moved = codepoint - FIRST_MOVED;
    if (moved >= N_MOVED) return -1;
    return moved <= 32 ? (int)moved : moved < N_MOVED - 1 ? (int)moved - 33 + 127 : 173;
}

int64_t strait_alphabet_decode(const char *text, size_t n, unsigned char *out) {
    int64_t count = 0;
    for (size_t at = 0; at < n;) {
        const unsigned char *c = (const unsigned char *)text + at;
        const size_t length = strait_utf8_length(c, n - at);
        const int byte = length == 0 ? -1 : byte_of(strait_utf8_decode(c));
        if (byte < 0) return -1;
        out[count++] = (unsigned char)byte;
        at += length;
    }
    return count;
}

size_t strait_alphabet_encode(const unsigned char *bytes, size_t n, char *out) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += strait_utf8_encode(strait_alphabet_of_byte(bytes[i]),
                                    (unsigned char *)out + count);
    return count;
}
