#include <strait/tokenizer.h>

#include "base/alloc.h"
#include "data/text/chunks.h"
#include "data/tokenizer/encoder.h"
#include "data/tokenizer/train/builder.h"
#include "data/tokenizer/train/pairs.h"
#include "data/tokenizer/train/word_counts.h"

#include <string.h>

enum {
    PIECE_BYTES = 1 << 17,
    MIN_COUNT = 2,        // a pair that occurs once is not worth a token
    REPORT_EVERY = 1 << 8 // tokens
};

struct training {
    const strait_tokenizer_train_spec *spec;
    struct strait_tokenizer_builder builder;
    struct strait_tokenizer *splitter; // without merges: splits text into words
    struct strait_encoder **encoders;  // one per worker
    struct strait_word_counts *words;  // one per worker
    struct strait_pairs *pairs;
    int n_workers;
};

static strait_err count_word(void *arg, const unsigned char *word, size_t n) {
    return strait_word_counts_add(arg, word, n, 1);
}

/* Counts the words of a chunk in the worker's own table: no locks. */
static strait_err count_chunk(void *arg, int worker, strait_chunk *chunk) {
    struct training *t = arg;
    size_t start = 0;
    for (size_t i = 0; i < chunk->n_ends; i++) {
        STRAIT_TRY(strait_encoder_visit_words(t->encoders[worker], chunk->text.data + start,
                                              chunk->ends[i].at - start, count_word,
                                              &t->words[worker]));
        start = chunk->ends[i].at;
    }
    return STRAIT_OK;
}

/* Progress is optional, as everywhere in the public interface. */
static void report(const struct training *t, int is_learning, int64_t done, int64_t total) {
    if (t->spec->progress == NULL) return;
    const strait_tokenizer_progress progress = {is_learning, done, total};
    t->spec->progress(t->spec->arg, &progress);
}

static strait_err report_chunk(void *arg, strait_chunk *chunk, int64_t bytes_read, int64_t total) {
    (void)chunk;
    report(arg, 0, bytes_read, total);
    return STRAIT_OK;
}

/* The splitter has no merges yet, so its words are what the merges are learned from. */
static strait_err start_counting(struct training *t) {
    const size_t n = (size_t)t->n_workers;
    STRAIT_TRY(strait_tokenizer_builder_open(&t->builder, &t->splitter));
    STRAIT_TRY(strait_alloc(n, sizeof(struct strait_encoder *), "encoders", (void **)&t->encoders));
    STRAIT_TRY(strait_alloc(n, sizeof *t->words, "word counts", (void **)&t->words));
    for (int i = 0; i < t->n_workers; i++)
        STRAIT_TRY(strait_encoder_open(t->splitter, &t->encoders[i]));
    return STRAIT_OK;
}

/* Counts the words of all files. Sums of counts do not depend on which worker counted a word, so
 * the result is the same for any number of threads. */
static strait_err count_words(struct training *t) {
    STRAIT_TRY(start_counting(t));
    strait_chunks_spec chunks = {.text = t->spec->text,
                                 .n_threads = t->n_workers,
                                 .limit_bytes = t->spec->limit_bytes,
                                 .work = count_chunk,
                                 .after = report_chunk,
                                 .arg = t};
    chunks.piece_bytes = strait_tokenizer_can_split_lines(t->splitter) ? PIECE_BYTES : 0;
    STRAIT_TRY(strait_chunks_run(&chunks));
    for (int i = 1; i < t->n_workers; i++) {
        STRAIT_TRY(strait_word_counts_join(&t->words[0], &t->words[i]));
        strait_word_counts_fini(&t->words[i]);
    }
    if (t->words[0].n_used == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "the input files contain no text to train on");
    return STRAIT_OK;
}

/* Adds the most frequent pair as a token until the vocabulary is full. */
static strait_err learn(struct training *t) {
    const size_t want = (size_t)t->spec->vocab;
    STRAIT_TRY(strait_pairs_open(&t->words[0], t->builder.byte_ids, &t->pairs));
    while (t->builder.vocab.n_ids < want) {
        strait_pair best;
        int32_t id = 0;
        STRAIT_TRY(strait_pairs_best(t->pairs, &best));
        if (best.count < MIN_COUNT) break;
        STRAIT_TRY(strait_tokenizer_builder_merge(&t->builder, best.left, best.right, &id));
        STRAIT_TRY(strait_pairs_merge(t->pairs, best, id));
        if (t->builder.vocab.n_ids % REPORT_EVERY == 0)
            report(t, 1, (int64_t)t->builder.vocab.n_ids, (int64_t)want);
    }
    report(t, 1, (int64_t)t->builder.vocab.n_ids, (int64_t)want);
    return STRAIT_OK;
}

static strait_err train(struct training *t, const char *path) {
    const strait_tokenizer_train_spec *spec = t->spec;
    STRAIT_TRY(strait_tokenizer_builder_init(&t->builder, spec->pattern, spec->specials,
                                             spec->n_specials));
    if (spec->vocab < (int32_t)t->builder.vocab.n_ids || spec->vocab > STRAIT_VOCAB_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "a vocabulary of %d: expected %zu (bytes and special "
                           "tokens) to %d",
                           spec->vocab, t->builder.vocab.n_ids, STRAIT_VOCAB_MAX);
    STRAIT_TRY(count_words(t));
    STRAIT_TRY(learn(t));
    return strait_tokenizer_builder_write(&t->builder, path);
}

strait_err strait_tokenizer_train(const strait_tokenizer_train_spec *spec, const char *path,
                                  int32_t *n_tokens) {
    struct training t = {.spec = spec, .n_workers = strait_chunks_workers(spec->n_threads)};
    const strait_err err = train(&t, path);
    if (err == STRAIT_OK) *n_tokens = (int32_t)t.builder.vocab.n_ids;
    strait_pairs_close(&t.pairs);
    for (int i = 0; i < t.n_workers; i++) {
        if (t.encoders != NULL) strait_encoder_close(&t.encoders[i]);
        if (t.words != NULL) strait_word_counts_fini(&t.words[i]);
    }
    strait_alloc_free(t.encoders);
    strait_alloc_free(t.words);
    strait_tokenizer_close(&t.splitter);
    strait_tokenizer_builder_fini(&t.builder);
    return err;
}
