/* normalize.h - Unicode normalisation. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

typedef enum strait_form {
    STRAIT_FORM_NFC,
    STRAIT_FORM_NFD,
    STRAIT_FORM_NFKC,
    STRAIT_FORM_NFKD,
} strait_form;

/* Appends the normalised form of well-formed text. `scratch` is memory to reuse. */
strait_err strait_normalize(strait_form form, const unsigned char *text, size_t n,
                            strait_ids *scratch, strait_buffer *out);
