/* completion.h - the text side of a generated sequence: tokens become text, and stop strings end
 * it.
 *
 * Text that may be the beginning of a stop string is held back until later tokens decide. */
#pragma once

#include "data/tokenizer/decoder.h"
#include "data/tokenizer/tokenizer.h"

enum {
    STRAIT_STOPS_MAX = 16,      // stop strings
    STRAIT_STOP_BYTES_MAX = 256 // of each
};

/* Zeroed is closed. One thread at a time. */
struct strait_completion {
    strait_decoder decoder;
    const char *const *stops; // borrowed
    int n_stops;
    unsigned char *text; // [delivered | held back]
    size_t n_delivered, n_held;
};

/* Text that may be delivered, valid until the next call. */
typedef struct strait_completion_text {
    const char *bytes;
    size_t n;
    int is_stopped; // a stop string follows, which is not part of the text
} strait_completion_text;

/* STRAIT_ECONFIG for an empty stop string, one that is too long, or too many. Borrows `tokenizer`
 * and `stops` until close. */
strait_err strait_completion_open(struct strait_completion *c,
                                  const struct strait_tokenizer *tokenizer,
                                  const char *const *stops, int n_stops);
void strait_completion_close(struct strait_completion *c);

/* Adds a token of the prompt, whose text is delivered as it is: the spaces of later tokens depend
 * on it. Adds a token that was drawn. Ends the text: what is still held back. */
strait_completion_text strait_completion_prompt(struct strait_completion *c, int32_t token);
strait_completion_text strait_completion_push(struct strait_completion *c, int32_t token);
strait_completion_text strait_completion_finish(struct strait_completion *c);
