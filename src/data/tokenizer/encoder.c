#include "data/tokenizer/encoder.h"

#include "base/alloc.h"
#include "base/text/utf8.h"
#include "data/tokenizer/added.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/cache.h"
#include "data/tokenizer/internal.h"

#include <string.h>

/* What precedes a section of text. It decides whether a prefix such as "_" is prepended. */
typedef enum place {
    AT_START,      // nothing: it is the start of the text
    AFTER_TOKEN,   // an added token: prefixes are added, but not those for the start only
    AFTER_INVALID, // bytes that are not UTF-8: the section continues, no prefix is added
} place;

struct strait_encoder {
    const struct strait_tokenizer *t;
    struct strait_text_step_scratch scratch;
    struct strait_bpe bpe;
    struct strait_cache cache;
    strait_ids out;                              // ids of the text so far
    strait_ids word;                             // ids of the current word
    strait_buffer normalized[2];                 // outputs of normalizers, used alternately
    strait_buffer pieces[STRAIT_TEXT_STEPS_MAX]; // output of each pre-tokenizer that changes text
    place place;
    const unsigned char *all_marks, *marks; // of the text and of the section; NULL: none
    int64_t n_dropped;                      // characters without a token
    strait_encoder_visitor visit;           // NULL: encode words
    void *visit_arg;
};

strait_err strait_encoder_open(const struct strait_tokenizer *tokenizer,
                               struct strait_encoder **out) {
    struct strait_encoder *encoder = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *encoder, "encoder", (void **)&encoder));
    encoder->t = tokenizer;
    strait_err err = strait_matcher_open(&encoder->scratch.matcher);
    if (err == STRAIT_OK) err = strait_cache_init(&encoder->cache);
    if (err == STRAIT_OK)
        *out = encoder;
    else
        strait_encoder_close(&encoder);
    return err;
}

void strait_encoder_close(struct strait_encoder **encoder) {
    struct strait_encoder *e = *encoder;
    if (e == NULL) return;
    strait_matcher_close(&e->scratch.matcher);
    strait_alloc_free(e->scratch.codepoints.data);
    strait_bpe_fini(&e->bpe);
    strait_cache_fini(&e->cache);
    strait_alloc_free(e->out.data);
    strait_alloc_free(e->word.data);
    for (int i = 0; i < 2; i++)
        strait_alloc_free(e->normalized[i].data);
    for (int i = 0; i < STRAIT_TEXT_STEPS_MAX; i++)
        strait_alloc_free(e->pieces[i].data);
    strait_alloc_free(e);
    *encoder = NULL;
}

int64_t strait_encoder_dropped(const struct strait_encoder *encoder) {
    return encoder->n_dropped;
}

/* Appends the tokens of a character that is not in the vocabulary: those of its bytes if all of
 * them exist, else the unknown token, else nothing. */
static strait_err add_unknown(struct strait_encoder *e, const unsigned char *character, size_t n) {
    const struct strait_tokenizer *t = e->t;
    int has_bytes = t->has_byte_fallback && !t->is_byte_level;
    for (size_t i = 0; i < n; i++)
        has_bytes = has_bytes && t->byte_ids[character[i]] >= 0;
    if (has_bytes) {
        for (size_t i = 0; i < n; i++)
            STRAIT_TRY(strait_ids_append(&e->word, &t->byte_ids[character[i]], 1));
        return STRAIT_OK;
    }
    if (t->unk < 0) {
        e->n_dropped++;
        return STRAIT_OK;
    }
    if (t->fuses_unk && e->word.n > 0 && e->word.data[e->word.n - 1] == t->unk) return STRAIT_OK;
    return strait_ids_append(&e->word, &t->unk, 1);
}

/* Sets e->word to the initial symbols of a word: one for each byte or character. */
static strait_err split_into_symbols(struct strait_encoder *e, const unsigned char *word,
                                     size_t n) {
    const struct strait_tokenizer *t = e->t;
    e->word.n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = 1;
        int32_t id;
        if (t->is_byte_level) {
            id = t->byte_ids[word[at]];
        } else {
            length = strait_utf8_length(word + at, n - at);
            id = strait_vocab_find(&t->vocab, word + at, length);
        }
        STRAIT_TRY(id >= 0 ? strait_ids_append(&e->word, &id, 1)
                           : add_unknown(e, word + at, length));
        at += length;
    }
    return STRAIT_OK;
}

/* Computes the ids of a word into e->word. */
static strait_err compute_ids(struct strait_encoder *e, const unsigned char *word, size_t n) {
    const int32_t whole = e->t->ignores_merges ? strait_vocab_find(&e->t->vocab, word, n) : -1;
    if (whole >= 0) {
        e->word.n = 0;
        return strait_ids_append(&e->word, &whole, 1);
    }
    STRAIT_TRY(split_into_symbols(e, word, n));
    if (e->word.n < 2) return STRAIT_OK;
    return strait_bpe_merge(&e->bpe, &e->t->merges, e->word.data, &e->word.n);
}

static strait_err encode_word(struct strait_encoder *e, const unsigned char *word, size_t n) {
    const uint64_t hash = n <= STRAIT_CACHE_WORD_MAX ? strait_buffer_hash(word, n) : 0;
    if (n <= STRAIT_CACHE_WORD_MAX) {
        size_t n_ids = 0;
        const int32_t *ids = strait_cache_find(&e->cache, word, n, hash, &n_ids);
        if (ids != NULL) return strait_ids_append(&e->out, ids, n_ids);
    }
    /* A word with dropped characters is not cached, so that n_dropped counts every occurrence. */
    const int64_t n_dropped = e->n_dropped;
    STRAIT_TRY(compute_ids(e, word, n));
    STRAIT_TRY(strait_ids_append(&e->out, e->word.data, e->word.n));
    if (n > STRAIT_CACHE_WORD_MAX || e->n_dropped != n_dropped) return STRAIT_OK;
    return strait_cache_put(&e->cache, word, n, hash, e->word.data, e->word.n);
}

/* Without a pre-tokenizer (LLaMA-2), the whole text is one word. If no merge joins a character with
 * a metaspace U+2581 that follows it, splitting before each run of metaspaces gives the same ids,
 * and the short words can be cached. */
static strait_err encode_metaspaced(struct strait_encoder *e, const unsigned char *text, size_t n) {
    static const unsigned char metaspace[] = {0xe2, 0x96, 0x81};
    size_t start = 0;
    for (size_t i = 1; i + 3 <= n; i++) {
        if (text[i] != metaspace[0] || memcmp(text + i, metaspace, 3) != 0) continue;
        if (i >= 3 && memcmp(text + i - 3, metaspace, 3) == 0) continue;
        STRAIT_TRY(encode_word(e, text + start, i - start));
        start = i;
    }
    return encode_word(e, text + start, n - start);
}

static strait_err process_word(struct strait_encoder *e, const unsigned char *word, size_t n) {
    if (e->visit != NULL) return e->visit(e->visit_arg, word, n);
    return e->t->splits_at_metaspace ? encode_metaspaced(e, word, n) : encode_word(e, word, n);
}

/* A piece of text to which the pre-tokenizers from `index` on are still to be applied. */
struct pending {
    struct strait_encoder *e;
    int index;
};

/* Whether a step that adds a prefix is left out, because the section continues a word. */
static int is_skipped(const struct strait_encoder *e, const strait_text_step *step) {
    return e->place == AFTER_INVALID &&
           (step->kind == STRAIT_TEXT_STEP_PREFIX || step->kind == STRAIT_TEXT_STEP_PREPEND);
}

/* Applies the next pre-tokenizer and recurses; after the last one, the piece is a word. The depth
 * is at most STRAIT_TEXT_STEPS_MAX. */
static strait_err process_piece(void *arg, const unsigned char *text, size_t n) {
    const struct pending *p = arg;
    struct strait_encoder *e = p->e;
    struct pending next = {e, p->index + 1};
    if (n == 0) return STRAIT_OK;
    if (p->index == e->t->pre_tokenizers.n) return process_word(e, text, n);
    const strait_text_step *step = &e->t->pre_tokenizers.items[p->index];
    if (step->kind == STRAIT_TEXT_STEP_SPLIT)
        return strait_text_step_split(step, &e->scratch, text, n, process_piece, &next);
    if (is_skipped(e, step)) return process_piece(&next, text, n);
    strait_buffer *changed = &e->pieces[p->index];
    STRAIT_TRY(
        strait_text_step_transform(step, &e->scratch, text, n, e->place == AT_START, changed));
    return process_piece(&next, changed->data, changed->n);
}

/* Whether a special token would consist of bytes that must stay text. */
static int is_marked(const struct strait_encoder *e, const strait_added_match *match) {
    if (e->marks == NULL || !strait_tokenizer_is_special(e->t, match->id)) return 0;
    return memchr(e->marks + match->first, 1, match->last - match->first) != NULL;
}

/* Processes normalised text, which may contain added tokens that are matched after normalisation.
 * Its bytes have no marks any more: where there are some, special tokens are not recognised. */
static strait_err process_normalized(struct strait_encoder *e, const unsigned char *text,
                                     size_t n) {
    struct pending first = {e, 0};
    size_t start = 0, from = 0;
    strait_added_match match;
    while (strait_added_find(e->t, 1, text, n, from, &match)) {
        from = match.first + 1;
        if (e->marks != NULL && strait_tokenizer_is_special(e->t, match.id)) continue;
        STRAIT_TRY(process_piece(&first, text + start, match.start - start));
        if (e->visit == NULL) STRAIT_TRY(strait_ids_append(&e->out, &match.id, 1));
        e->place = AFTER_TOKEN;
        start = from = match.end;
    }
    return process_piece(&first, text + start, n - start);
}

static strait_err normalize(struct strait_encoder *e, const unsigned char *text, size_t n) {
    int buffer = 0;
    for (int i = 0; i < e->t->normalizers.n; i++) {
        const strait_text_step *step = &e->t->normalizers.items[i];
        if (is_skipped(e, step)) continue;
        strait_buffer *next = &e->normalized[buffer];
        STRAIT_TRY(
            strait_text_step_transform(step, &e->scratch, text, n, e->place == AT_START, next));
        text = next->data;
        n = next->n;
        buffer = !buffer;
    }
    return process_normalized(e, text, n);
}

/* Processes well-formed UTF-8, which may contain added tokens that are matched as written. */
static strait_err process_valid(struct strait_encoder *e, const unsigned char *text, size_t n) {
    size_t start = 0, from = 0;
    strait_added_match match;
    while (strait_added_find(e->t, 0, text, n, from, &match)) {
        from = match.first + 1;
        if (is_marked(e, &match)) continue;
        if (match.start > start) STRAIT_TRY(normalize(e, text + start, match.start - start));
        if (e->visit == NULL) STRAIT_TRY(strait_ids_append(&e->out, &match.id, 1));
        e->place = AFTER_TOKEN;
        start = from = match.end;
    }
    return n > start ? normalize(e, text + start, n - start) : STRAIT_OK;
}

/* Encodes bytes that are not UTF-8: as they are if every byte has a token, else as U+FFFD. */
static strait_err encode_invalid(struct strait_encoder *e, const unsigned char *bytes, size_t n) {
    const struct strait_tokenizer *t = e->t;
    if (t->is_byte_level) return process_word(e, bytes, n);
    if (e->visit != NULL || !t->has_byte_fallback)
        return process_word(e, (const unsigned char *)"\xef\xbf\xbd", 3);
    e->word.n = 0;
    for (size_t i = 0; i < n; i++)
        STRAIT_TRY(add_unknown(e, bytes + i, 1));
    return strait_ids_append(&e->out, e->word.data, e->word.n);
}

/* Splits any bytes into well-formed sections and runs of invalid bytes. */
static strait_err process_text(struct strait_encoder *e, const unsigned char *text, size_t n) {
    if (n > INT32_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "a text of %zu bytes; at most %d can be encoded at once",
                           n, INT32_MAX);
    e->place = AT_START;
    for (size_t at = 0; at < n;) {
        const size_t valid = strait_utf8_valid(text + at, n - at);
        e->marks = e->all_marks != NULL ? e->all_marks + at : NULL;
        if (valid > 0) STRAIT_TRY(process_valid(e, text + at, valid));
        at += valid;
        const size_t start = at;
        while (at < n && strait_utf8_length(text + at, n - at) == 0)
            at++;
        if (at == start) break;
        STRAIT_TRY(encode_invalid(e, text + start, at - start));
        e->place = AFTER_INVALID;
    }
    return STRAIT_OK;
}

strait_err strait_encoder_encode(struct strait_encoder *encoder, const void *text, size_t n,
                                 unsigned options, const int32_t **ids, size_t *n_ids) {
    const struct strait_tokenizer *t = encoder->t;
    const int has_template = (options & STRAIT_ENCODE_TEMPLATE) != 0;
    encoder->out.n = 0;
    encoder->visit = NULL;
    encoder->all_marks = NULL;
    if (has_template) STRAIT_TRY(strait_ids_append(&encoder->out, t->before.data, t->before.n));
    STRAIT_TRY(process_text(encoder, text, n));
    if (has_template) STRAIT_TRY(strait_ids_append(&encoder->out, t->after.data, t->after.n));
    *ids = encoder->out.data;
    *n_ids = encoder->out.n;
    return STRAIT_OK;
}

strait_err strait_encoder_encode_marked(struct strait_encoder *encoder, const void *text,
                                        const unsigned char *marks, size_t n, const int32_t **ids,
                                        size_t *n_ids) {
    encoder->out.n = 0;
    encoder->visit = NULL;
    encoder->all_marks = marks;
    STRAIT_TRY(process_text(encoder, text, n));
    *ids = encoder->out.data;
    *n_ids = encoder->out.n;
    return STRAIT_OK;
}

strait_err strait_encoder_visit_words(struct strait_encoder *encoder, const void *text, size_t n,
                                      strait_encoder_visitor visit, void *arg) {
    encoder->visit = visit;
    encoder->all_marks = NULL;
    encoder->visit_arg = arg;
    return process_text(encoder, text, n);
}
