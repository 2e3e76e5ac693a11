#include "infer/completion.h"

#include "base/alloc.h"

#include <string.h>

static strait_err check_stops(const char *const *stops, int n) {
    if (n > STRAIT_STOPS_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%d stop strings: at most %d are supported", n,
                           STRAIT_STOPS_MAX);
    for (int i = 0; i < n; i++) {
        const size_t bytes = strlen(stops[i]);
        if (bytes < 1 || bytes > STRAIT_STOP_BYTES_MAX)
            return STRAIT_FAIL(STRAIT_ECONFIG, "a stop string of %zu bytes: expected 1 to %d",
                               bytes, STRAIT_STOP_BYTES_MAX);
    }
    return STRAIT_OK;
}

strait_err strait_completion_open(struct strait_completion *c,
                                  const struct strait_tokenizer *tokenizer,
                                  const char *const *stops, int n_stops) {
    STRAIT_TRY(check_stops(stops, n_stops));
    c->stops = stops;
    c->n_stops = n_stops;
    strait_decoder_init(&c->decoder, tokenizer);
    /* What is held back is shorter than a stop string. */
    return strait_alloc(STRAIT_STOP_BYTES_MAX + strait_decoder_bound(tokenizer) + 1, 1, "text",
                        (void **)&c->text);
}

void strait_completion_close(struct strait_completion *c) {
    strait_alloc_free(c->text);
    *c = (struct strait_completion){0};
}

static int is_at(const unsigned char *text, size_t n, const char *stop, size_t n_stop) {
    return n >= n_stop && memcmp(text, stop, n_stop) == 0;
}

/* Where the first stop string begins; n if there is none. */
static size_t find_stop(const struct strait_completion *c, size_t n) {
    for (size_t at = 0; at < n; at++)
        for (int i = 0; i < c->n_stops; i++)
            if (is_at(c->text + at, n - at, c->stops[i], strlen(c->stops[i]))) return at;
    return n;
}

/* Where text begins that may become a stop string: an end of the text that begins one. */
static size_t find_beginning(const struct strait_completion *c, size_t n) {
    for (size_t at = 0; at < n; at++)
        for (int i = 0; i < c->n_stops; i++)
            if (strlen(c->stops[i]) > n - at && memcmp(c->text + at, c->stops[i], n - at) == 0)
                return at;
    return n;
}

static strait_completion_text text_of(const struct strait_completion *c, int is_stopped) {
    return (strait_completion_text){(const char *)c->text, c->n_delivered, is_stopped};
}

/* Removes what was delivered; what was held back moves to the front. */
static void drop_delivered(struct strait_completion *c) {
    memmove(c->text, c->text + c->n_delivered, c->n_held);
    c->n_delivered = 0;
}

strait_completion_text strait_completion_prompt(struct strait_completion *c, int32_t token) {
    c->n_delivered = strait_decoder_push(&c->decoder, token, c->text);
    return text_of(c, 0);
}

/* Divides n bytes of text into what is delivered and what is held back. */
static strait_completion_text divide(struct strait_completion *c, size_t n, int is_last) {
    const size_t stop = find_stop(c, n);
    c->n_delivered = stop < n || is_last ? stop : find_beginning(c, n);
    c->n_held = stop < n ? 0 : n - c->n_delivered;
    return text_of(c, stop < n);
}

strait_completion_text strait_completion_push(struct strait_completion *c, int32_t token) {
    drop_delivered(c);
    return divide(c, c->n_held + strait_decoder_push(&c->decoder, token, c->text + c->n_held), 0);
}

strait_completion_text strait_completion_finish(struct strait_completion *c) {
    drop_delivered(c);
    return divide(c, c->n_held + strait_decoder_finish(&c->decoder, c->text + c->n_held), 1);
}
