#include "base/text/text.h"

#include "base/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* Format characters change how their neighbours are shown; only the two joiners are part of words,
 * of Persian and Hindi for example. */
static int is_shown(uint32_t codepoint) {
    switch (utf8proc_category((utf8proc_int32_t)codepoint)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return 0;
    case UTF8PROC_CATEGORY_CF: return codepoint == 0x200c || codepoint == 0x200d;
    default: return 1;
    }
}

void strait_text_tame(char *text) {
    unsigned char *at = (unsigned char *)text;
    for (size_t left = strlen(text); left > 0;) {
        size_t n = strait_utf8_length(at, left);
        if (n == 0 || !is_shown(strait_utf8_decode(at))) {
            n = n > 0 ? n : 1;
            memset(at, '?', n);
        }
        at += n;
        left -= n;
    }
}

void strait_text_copy(char *out, size_t capacity, const char *text) {
    size_t n = strlen(text);
    if (n >= capacity) {
        n = capacity - 1;
        n -= strait_utf8_incomplete((const unsigned char *)text, n);
    }
    memcpy(out, text, n);
    out[n] = '\0';
}

/* The bytes of the character at the start of a text of n > 0 bytes, and its columns. */
static size_t next(const char *text, size_t n, int *columns) {
    const unsigned char *at = (const unsigned char *)text;
    const size_t length = strait_utf8_length(at, n);
    *columns = length == 0 ? 1 : utf8proc_charwidth((utf8proc_int32_t)strait_utf8_decode(at));
    return length > 0 ? length : 1;
}

int strait_text_columns(const char *text) {
    int total = 0, columns = 0;
    for (size_t left = strlen(text), n; left > 0; left -= n, text += n) {
        n = next(text, left, &columns);
        total += columns;
    }
    return total;
}

size_t strait_text_fit(const char *text, int columns) {
    size_t used = 0;
    int wide = 0;
    for (size_t left = strlen(text), n; left > 0; left -= n, used += n) {
        n = next(text + used, left, &wide);
        if (wide > columns) break;
        columns -= wide;
    }
    return used;
}

void strait_text_cell(char *out, size_t capacity, const char *text, int columns) {
    strait_text_copy(out, capacity, text);
    size_t n = strait_text_fit(out, columns);
    out[n] = '\0';
    for (int left = columns - strait_text_columns(out); left > 0 && n + 1 < capacity; left--)
        out[n++] = ' ';
    out[n] = '\0';
}
