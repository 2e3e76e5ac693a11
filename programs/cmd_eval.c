/* cmd_eval.c - strait eval DIR --text FILE | --data FILE.bin */
#include "base/alloc.h"
#include "commands.h"
#include "data/corpus.h"
#include "data/encoder.h"
#include "data/text.h"
#include "infer/trained_model.h"
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ROWS_TOKENS = 2048 // tokens scored at a time, in whole contexts
};

static const char *text_path, *field, *data_path, *tokenizer_path;
static int as_json;
static int64_t threads;

static const strait_flag flags[] = {
    {"text", 0, STRAIT_FLAG_TEXT, &text_path, "FILE",
     "score a text file or JSON Lines, packed or not"},
    {"field", 0, STRAIT_FLAG_TEXT, &field, "KEY",
     "the key of the text in JSON Lines (default text)"},
    {"data", 0, STRAIT_FLAG_TEXT, &data_path, "FILE.bin", "score token shards"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &tokenizer_path, "FILE",
     "tokenizer.json (default: the run folder's)"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "0: one for each core"},
    {"json", 0, STRAIT_FLAG_SWITCH, &as_json, NULL, "print one JSON object"},
    {0},
};

static strait_progress progress;
static int64_t n_total;

static void seen(int64_t n) {
    strait_progress_show(&progress, 0, 0, "scored %lld of %lld tokens", (long long)n,
                         (long long)n_total);
}

static strait_err fetch_ids(void *user, int64_t first, int64_t n, int32_t *out) {
    memcpy(out, (const int32_t *)user + first, (size_t)n * sizeof *out);
    return STRAIT_OK;
}

static strait_err fetch_corpus(void *user, int64_t first, int64_t n, int32_t *out) {
    return strait_corpus_read(user, first, n, out);
}

static strait_err check_length(const char *path) {
    if (n_total >= 2) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: too short: the first token that is scored is the second",
                       path);
}

/* The ids of all documents, with an end of text between two, where the tokenizer has one. */
static strait_err read_ids(struct strait_text *text, struct strait_encoder *encoder, int32_t end,
                           strait_text_piece *piece, strait_ids *out) {
    for (;;) {
        const int32_t *ids = NULL;
        size_t n = 0;
        piece->text.n = 0;
        STRAIT_TRY(strait_text_next(text, piece));
        if (piece->is_over) return STRAIT_OK;
        if (out->n > 0 && end >= 0) STRAIT_TRY(strait_ids_append(out, &end, 1));
        STRAIT_TRY(strait_encoder_encode(encoder, piece->text.data, piece->text.n, 0, &ids, &n));
        STRAIT_TRY(strait_ids_append(out, ids, n));
    }
}

static strait_err score_text(struct strait_trained_model *trained,
                             strait_trained_model_score *out) {
    if (trained->tokenizer == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s has no tokenizer.json beside it: name one with "
                           "--tokenizer FILE",
                           trained->path);
    const strait_text_spec spec = {.paths = &text_path, .n_paths = 1, .field = field};
    struct strait_encoder *encoder = NULL;
    struct strait_text *text = NULL;
    strait_text_piece piece = {.is_over = 0};
    strait_ids ids = {0};
    strait_err err = strait_encoder_open(trained->tokenizer, &encoder);
    if (err == STRAIT_OK) err = strait_text_open(&spec, &text);
    if (err == STRAIT_OK)
        err = read_ids(text, encoder, strait_tokenizer_end(trained->tokenizer), &piece, &ids);
    n_total = (int64_t)ids.n;
    if (err == STRAIT_OK) err = check_length(text_path);
    if (err == STRAIT_OK)
        err = strait_trained_model_evaluate(trained, fetch_ids, ids.data, n_total, seen, out);
    strait_text_close(&text);
    strait_encoder_close(&encoder);
    strait_alloc_free(piece.text.data);
    strait_alloc_free(ids.data);
    return err;
}

static strait_err score_data(struct strait_trained_model *trained,
                             strait_trained_model_score *out) {
    struct strait_corpus *corpus = NULL;
    STRAIT_TRY(strait_corpus_open(data_path, &corpus));
    n_total = corpus->n_tokens;
    const char *print = trained->fingerprint[0] != '\0' ? trained->fingerprint : NULL;
    strait_err err = strait_corpus_expect(corpus, trained->plan.shape.vocab, print);
    if (err == STRAIT_OK) err = check_length(data_path);
    if (err == STRAIT_OK)
        err = strait_trained_model_evaluate(trained, fetch_corpus, corpus, n_total, seen, out);
    strait_corpus_close(&corpus);
    return err;
}

/* JSON has no word for what is not finite. */
static const char *real_or_null(double value, char text[32]) {
    (void)snprintf(text, 32, isfinite(value) ? "%.9g" : "null", value);
    return text;
}

static void print_score(const strait_trained_model_score *score, int64_t step) {
    char numbers[2][32];
    const double loss = score->loss_sum / (double)score->n_tokens;
    if (progress.is_open) strait_progress_show(&progress, 0, 1, "scored");
    if (as_json)
        printf("{\"loss\": %s, \"perplexity\": %s, \"tokens\": %lld, \"step\": %lld}\n",
               real_or_null(loss, numbers[0]), real_or_null(exp(loss), numbers[1]),
               (long long)score->n_tokens, (long long)step);
    else
        printf("loss %.6f\nperplexity %.4f\ntokens %lld\n", loss, exp(loss),
               (long long)score->n_tokens);
}

static strait_err run_eval(int n_words, const char **words) {
    STRAIT_TRY(strait_args_one_word(&strait_cmd_eval, "run or checkpoint folder",
                                    "--text FILE or --data FILE.bin is what it scores", n_words,
                                    words));
    if ((text_path == NULL) == (data_path == NULL))
        return STRAIT_FAIL(STRAIT_ECONFIG, "eval wants either --text FILE or --data FILE.bin");
    STRAIT_TRY(strait_args_check_threads(threads));
    strait_progress_init(&progress);
    struct strait_trained_model *trained = NULL;
    strait_trained_model_score score;
    const strait_backend_spec backend = {.name = "cpu", .n_threads = (int)threads};
    STRAIT_TRY(strait_trained_model_open(words[0], tokenizer_path, backend, ROWS_TOKENS, &trained));
    if (trained->skipped[0] != '\0') strait_progress_say(&progress, "note: %s", trained->skipped);
    strait_err err = text_path != NULL ? score_text(trained, &score) : score_data(trained, &score);
    if (err == STRAIT_OK) print_score(&score, trained->step);
    strait_trained_model_close(&trained);
    return err;
}

const strait_command strait_cmd_eval = {
    .name = "eval",
    .usage = "DIR --text FILE | --data FILE.bin [flags]",
    .summary = "loss and perplexity of a trained model",
    .about = "Scores text or token shards in windows of the model's context, each on its own. DIR\n"
             "is a run's folder, whose newest whole checkpoint is taken, or one checkpoint's.\n"
             "Checkpoints that are damaged are passed over, and that is said.",
    .flags = flags,
    .run = run_eval,
};
