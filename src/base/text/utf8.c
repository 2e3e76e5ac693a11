#include "base/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* Whether text[from..to) are continuation bytes. */
static int follows(const unsigned char *text, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return 1;
}

size_t strait_utf8_length(const unsigned char *text, size_t n) {
    if (n == 0) return 0;
    const unsigned char c = text[0];
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    const size_t length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (length > n || !follows(text, 1, length)) return 0;
    /* Overlong forms, surrogates, and code points over 0x10ffff. */
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) ||
        (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

size_t strait_utf8_valid(const unsigned char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t word;
        while (n - at >= sizeof word) { // eight ASCII bytes at a time
            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) != 0) break;
            at += sizeof word;
        }
        if (at == n) break;
        const size_t length = strait_utf8_length(text + at, n - at);
        if (length == 0) break;
        at += length;
    }
    return at;
}

/* Only for text that strait_utf8_length accepted: it does not check anything. */
uint32_t strait_utf8_decode(const unsigned char *text) {
    const uint32_t c = text[0];
    if (c < 0x80) return c;
    if (c < 0xe0) return (c & 0x1f) << 6 | (text[1] & 0x3fu);
    if (c < 0xf0) return (c & 0x0f) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
    return (c & 0x07) << 18 | (text[1] & 0x3fu) << 12 | (text[2] & 0x3fu) << 6 | (text[3] & 0x3fu);
}

size_t strait_utf8_encode(uint32_t codepoint, unsigned char *out) {
    if (codepoint < 0x80) {
        out[0] = (unsigned char)codepoint;
        return 1;
    }
    const size_t length = codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, codepoint >>= 6)
        out[i] = (unsigned char)(0x80 | (codepoint & 0x3f));
    out[0] = (unsigned char)((0xf00u >> length & 0xffu) | codepoint);
    return length;
}

/* Bytes that can never become a character are not incomplete: holding them back would hold them
 * back forever. */
size_t strait_utf8_incomplete(const unsigned char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = text[n - back];
        if ((c & 0xc0) == 0x80) continue;
        if (c < 0xc2 || c > 0xf4) return 0;
        const size_t length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (back >= length) return 0;
        unsigned char whole[4] = {c, 0x80, 0x80,
                                  0x80}; // complete it with bytes that are valid if any are
        if (c == 0xe0) whole[1] = 0xa0;
        if (c == 0xf0) whole[1] = 0x90;
        memcpy(whole, text + n - back, back);
        return strait_utf8_length(whole, length) != 0 ? back : 0;
    }
    return 0;
}

int strait_utf8_is_space(uint32_t codepoint) {
    if (codepoint < 0x80) return codepoint == ' ' || (codepoint >= 9 && codepoint <= 13);
    if (codepoint == 0x85) return 1;
    switch (utf8proc_category((utf8proc_int32_t)codepoint)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return 1;
    default: return 0;
    }
}

/* The definition of \w in Unicode, which Hugging Face uses. */
int strait_utf8_is_word(uint32_t codepoint) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)codepoint);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || codepoint == 0x200c || codepoint == 0x200d;
}
