/* normalize.h - Unicode normalisation with utf8proc, and a fast path for text that is already
 * normalised, which is most of it. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

typedef enum strait_form {
    STRAIT_FORM_NFC,
    STRAIT_FORM_NFD,
    STRAIT_FORM_NFKC,
    STRAIT_FORM_NFKD,
} strait_form;

/* Appends the normalised form of text, which must be well-formed UTF-8, to *out. `scratch` is
 * memory that the caller reuses between calls. STRAIT_EDATA: utf8proc rejects the text. */
strait_err strait_normalize(strait_form form, const unsigned char *text, size_t n,
                            strait_ids *scratch, strait_buffer *out);
