#include "data/tokenizer/normalize.h"

#include "base/text/utf8.h"

#include <utf8proc.h>

static utf8proc_option_t options_of(strait_form form) {
    const int is_composed = form == STRAIT_FORM_NFC || form == STRAIT_FORM_NFKC;
    const int is_compatible = form == STRAIT_FORM_NFKC || form == STRAIT_FORM_NFKD;
    return (utf8proc_option_t)(UTF8PROC_STABLE |
                               (is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                               (is_compatible ? UTF8PROC_COMPAT : 0));
}

/* Characters that normalisation does not change and that never combine with the character before
 * them. The ranges cover most written text; a character that is missing here is only slower. */
static int is_plain(strait_form form, uint32_t c) {
    static const uint32_t ranges[][2] = {
        {0x388, 0x482},   {0x2010, 0x2027}, {0x3001, 0x3029}, {0x3041, 0x3096},   {0x30a0, 0x30ff},
        {0x3400, 0x9fff}, {0xac00, 0xd7a3}, {0xff01, 0xff60}, {0x1f300, 0x1faff},
    };
    if (c < 0x80) return 1;
    if (form != STRAIT_FORM_NFC) return 0;
    if (c < 0x300) return 1;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c <= ranges[i][1]) return c >= ranges[i][0];
    return 0;
}

/* Normalises text with utf8proc. */
static strait_err normalize_run(strait_form form, const unsigned char *text, size_t n,
                                strait_ids *scratch, strait_buffer *out) {
    const utf8proc_option_t options = options_of(form);
    utf8proc_ssize_t count = 0;
    for (;;) {
        count = utf8proc_decompose(text, (utf8proc_ssize_t)n, scratch->data,
                                   (utf8proc_ssize_t)scratch->capacity, options);
        if (count < 0)
            return STRAIT_FAIL(STRAIT_EDATA, "cannot normalise text: %s", utf8proc_errmsg(count));
        if ((size_t)count <= scratch->capacity) break;
        STRAIT_TRY(strait_buffer_reserve((void **)&scratch->data, &scratch->capacity, (size_t)count,
                                         sizeof *scratch->data));
    }
    count = utf8proc_normalize_utf32(scratch->data, count, options);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        unsigned char c[4];
        const size_t length = strait_utf8_encode((uint32_t)scratch->data[i], c);
        STRAIT_TRY(strait_buffer_append(out, c, length));
    }
    return STRAIT_OK;
}

/* Copies plain characters; passes a run of others to utf8proc together with the plain character
 * before it, which may take part in a composition. */
strait_err strait_normalize(strait_form form, const unsigned char *text, size_t n,
                            strait_ids *scratch, strait_buffer *out) {
    size_t copied = 0; // text[0..copied) is done
    size_t last = 0;   // start of the last plain character
    for (size_t at = 0; at < n;) {
        const size_t length = strait_utf8_length(text + at, n - at);
        if (is_plain(form, strait_utf8_decode(text + at))) {
            last = at;
            at += length;
            continue;
        }
        size_t end = at + length;
        while (end < n && !is_plain(form, strait_utf8_decode(text + end)))
            end += strait_utf8_length(text + end, n - end);
        if (last < copied) last = copied;
        STRAIT_TRY(strait_buffer_append(out, text + copied, last - copied));
        STRAIT_TRY(normalize_run(form, text + last, end - last, scratch, out));
        copied = last = at = end;
    }
    return strait_buffer_append(out, text + copied, n - copied);
}
