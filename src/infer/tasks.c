/* tasks.c - multiple choice by log-likelihood, as lm-evaluation-harness computes it: each choice is
 * scored as the continuation of its context, and the likeliest counts as the model's answer. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/buffer.h"
#include "data/tokenizer/encoder.h"
#include "infer/model.h"

#include <math.h>
#include <string.h>

enum {
    FILE_MAX = 1 << 30, // bytes
    BATCH_TOKENS = 2048,
    DEVICE_BATCH = 32768,
    ROUNDING = 16 // of the length of a batch's sequences
};

/* One choice: the tokens that the model reads, and how many of their successors are the choice. */
struct choice {
    size_t first;      // in the ids of all choices
    int64_t n_ids;     // of context and choice
    int64_t n_choice;  // the last ones
    size_t n_bytes;    // of its text
    double likelihood; // log, in nats
};

/* One line of the file. */
struct question {
    size_t first_choice;
    int n_choices, answer;
};

/* Everything that was read. Zeroed is closed. */
struct tasks {
    const char *path;
    struct strait_encoder *encoder;
    int32_t start; // stands before a choice without a context
    strait_buffer text;
    strait_ids ids;
    struct choice *choices;
    struct question *questions;
    size_t n_choices, n_questions, choice_capacity, question_capacity;
};

static void tasks_close(struct tasks *t) {
    strait_encoder_close(&t->encoder);
    strait_alloc_free(t->text.data);
    strait_alloc_free(t->ids.data);
    strait_alloc_free(t->choices);
    strait_alloc_free(t->questions);
}

/* Spaces at the end of a context belong to the choice: tokens begin with a space. */
static size_t without_spaces(const char *text) {
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\n\r\f\v", text[n - 1]) != NULL)
        n--;
    return n;
}

/* The choice's tokens are what encoding both together has beyond the context's own tokens. */
static strait_err encode(struct tasks *t, const char *context, const char *delimiter,
                         const char *text, struct choice *out) {
    const size_t n_context = without_spaces(context);
    const int32_t *ids = NULL;
    size_t n_before = 0, n = 0;
    t->text.n = 0;
    STRAIT_TRY(strait_buffer_append(&t->text, context, strlen(context)));
    STRAIT_TRY(strait_buffer_append(&t->text, delimiter, strlen(delimiter)));
    STRAIT_TRY(strait_buffer_append(&t->text, text, strlen(text)));
    out->first = t->ids.n;
    out->n_bytes = strlen(text);
    if (n_context > 0)
        STRAIT_TRY(strait_encoder_encode(t->encoder, context, n_context, 0, &ids, &n_before));
    else
        STRAIT_TRY(strait_ids_append(&t->ids, &t->start, 1));
    STRAIT_TRY(strait_encoder_encode(t->encoder, t->text.data, t->text.n, 0, &ids, &n));
    if (n <= n_before)
        return STRAIT_FAIL(STRAIT_EDATA, "the choice \"%.40s\" adds no token to its context", text);
    STRAIT_TRY(strait_ids_append(&t->ids, ids, n));
    out->n_ids = (int64_t)(t->ids.n - out->first);
    out->n_choice = (int64_t)(n - n_before);
    return STRAIT_OK;
}

static strait_err read_choices(struct tasks *t, const json_t *line, const json_t *choices,
                               struct question *q) {
    const json_t *joint = json_object_get(line, "delimiter");
    const char *context = NULL, *delimiter = " ";
    STRAIT_TRY(strait_json_string(line, "context", &context));
    if (joint != NULL) STRAIT_TRY(strait_json_string(line, "delimiter", &delimiter));
    q->first_choice = t->n_choices;
    q->n_choices = (int)json_array_size(choices);
    STRAIT_TRY(strait_buffer_reserve((void **)&t->choices, &t->choice_capacity,
                                     t->n_choices + (size_t)q->n_choices, sizeof *t->choices));
    for (size_t i = 0; i < (size_t)q->n_choices; i++) {
        const char *text = json_string_value(json_array_get(choices, i));
        if (text == NULL || text[0] == '\0')
            return STRAIT_FAIL(STRAIT_EDATA, "choice %zu is %s", i,
                               text == NULL ? "not a text" : "empty");
        t->choices[t->n_choices] = (struct choice){0};
        STRAIT_TRY(encode(t, context, delimiter, text, &t->choices[t->n_choices]));
        t->n_choices++;
    }
    return STRAIT_OK;
}

static strait_err read_line(struct tasks *t, const json_t *line) {
    const json_t *choices = NULL;
    struct question q = {0};
    int64_t answer = 0;
    if (!json_is_object(line)) return STRAIT_FAIL(STRAIT_EDATA, "expected an object");
    STRAIT_TRY(strait_json_array(line, "choices", &choices));
    STRAIT_TRY(strait_json_int(line, "answer", &answer));
    const size_t n = json_array_size(choices);
    if (n < 2 || n > 1000) return STRAIT_FAIL(STRAIT_EDATA, "%zu choices: expected 2 to 1000", n);
    if (answer < 0 || answer >= (int64_t)n)
        return STRAIT_FAIL(STRAIT_EDATA, "answer %lld: expected 0 to %zu", (long long)answer,
                           n - 1);
    q.answer = (int)answer;
    STRAIT_TRY(read_choices(t, line, choices, &q));
    STRAIT_TRY(strait_buffer_reserve((void **)&t->questions, &t->question_capacity,
                                     t->n_questions + 1, sizeof *t->questions));
    t->questions[t->n_questions++] = q;
    return STRAIT_OK;
}

static strait_err parse_line(struct tasks *t, const char *text, size_t n) {
    json_t *line = NULL;
    STRAIT_TRY(strait_json_parse_line(text, n, &line));
    const strait_err err = read_line(t, line);
    json_decref(line);
    return err;
}

/* Empty lines are skipped, but counted. */
static strait_err read_lines(struct tasks *t, const char *text, size_t n) {
    const char *end = text + n;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3; // a byte order mark
    for (int number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t length = (size_t)((newline != NULL ? newline : end) - text);
        const int is_blank = strspn(text, " \t\r") >= length;
        const strait_err err = is_blank ? STRAIT_OK : parse_line(t, text, length);
        if (err != STRAIT_OK) {
            strait_err_prefix("%s: line %d", t->path, number);
            return err;
        }
        text += length + 1;
    }
    if (t->n_questions > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: has no questions", t->path);
}

static strait_err tasks_open(struct tasks *t, const char *path,
                             const struct strait_tokenizer *tokenizer) {
    char *text = NULL;
    size_t n = 0;
    const int32_t end = strait_tokenizer_end(tokenizer);
    t->path = path;
    t->start = end >= 0 ? end : 0;
    STRAIT_TRY(strait_encoder_open(tokenizer, &t->encoder));
    STRAIT_TRY(strait_file_read(path, FILE_MAX, &text, &n));
    const strait_err err = read_lines(t, text, n);
    strait_alloc_free(text);
    return err;
}

/* A batch of choices, one per sequence. */
struct batch {
    int32_t *tokens, *targets;
    float *losses;
};

/* Fills sequence `row`: the last tokens of the choice that fit, of which the choice's own have
 * targets. */
static void fill(struct batch *b, const struct tasks *t, const struct choice *c, int64_t row,
                 int64_t seq_len) {
    const int64_t n = c->n_ids - 1 < seq_len ? c->n_ids - 1 : seq_len;
    const int32_t *ids = t->ids.data + c->first + (c->n_ids - 1 - n);
    for (int64_t i = 0; i < seq_len; i++) {
        b->tokens[row * seq_len + i] = i < n ? ids[i] : 0;
        b->targets[row * seq_len + i] = i < n && i >= n - c->n_choice ? ids[i + 1] : -1;
    }
}

static strait_err score(struct strait_trained_model *model, struct tasks *t, struct batch *b,
                        strait_model_progress progress, void *user) {
    const int64_t rows = model->use.n_sequences, seq_len = model->use.seq_len;
    const struct choice none = {.n_ids = 1};
    for (size_t first = 0; first < t->n_choices; first += (size_t)rows) {
        for (int64_t row = 0; row < rows; row++) {
            const size_t i = first + (size_t)row;
            fill(b, t, i < t->n_choices ? &t->choices[i] : &none, row, seq_len);
        }
        STRAIT_TRY(strait_trained_model_score(model, b->tokens, b->targets, b->losses));
        for (int64_t i = 0; i < rows * seq_len; i++) {
            const size_t at = first + (size_t)(i / seq_len);
            if (at < t->n_choices) t->choices[at].likelihood -= (double)b->losses[i];
        }
        const size_t done = first + (size_t)rows;
        if (progress != NULL)
            progress(user, (int64_t)(done < t->n_choices ? done : t->n_choices),
                     (int64_t)t->n_choices);
    }
    return STRAIT_OK;
}

static strait_err score_all(struct strait_trained_model *model, struct tasks *t,
                            strait_model_progress progress, void *user) {
    const int64_t context = model->plan.shape.context;
    int64_t longest = 1;
    struct batch b = {0};
    for (size_t i = 0; i < t->n_choices; i++)
        if (t->choices[i].n_ids - 1 > longest) longest = t->choices[i].n_ids - 1;
    longest = (longest + ROUNDING - 1) / ROUNDING * ROUNDING;
    STRAIT_TRY(strait_trained_model_prepare(
        model,
        strait_trained_model_scoring(model->backend->ops->is_host ? BATCH_TOKENS : DEVICE_BATCH,
                                     longest < context ? longest : context)));
    const size_t n = (size_t)(model->use.n_sequences * model->use.seq_len);
    strait_err err = strait_alloc(n, sizeof *b.tokens, "ids", (void **)&b.tokens);
    if (err == STRAIT_OK) err = strait_alloc(n, sizeof *b.targets, "ids", (void **)&b.targets);
    if (err == STRAIT_OK) err = strait_alloc(n, sizeof *b.losses, "losses", (void **)&b.losses);
    if (err == STRAIT_OK) err = score(model, t, &b, progress, user);
    strait_alloc_free(b.tokens);
    strait_alloc_free(b.targets);
    strait_alloc_free(b.losses);
    return err;
}

/* Whether the answer is the likeliest choice; the first of equals is chosen. */
static int is_right(const struct tasks *t, const struct question *q, int by_byte) {
    int best = 0;
    double most = -INFINITY;
    for (int i = 0; i < q->n_choices; i++) {
        const struct choice *c = &t->choices[q->first_choice + (size_t)i];
        const double value = by_byte ? c->likelihood / (double)c->n_bytes : c->likelihood;
        if (value > most) most = value, best = i;
    }
    return best == q->answer;
}

/* The standard error of the mean of n values that are 0 or 1. */
static double standard_error(double mean, size_t n) {
    return n > 1 ? sqrt(mean * (1 - mean) / (double)(n - 1)) : 0.0;
}

static strait_model_accuracy count(const struct tasks *t) {
    const double n = (double)t->n_questions;
    int64_t n_right = 0, n_right_by_byte = 0;
    for (size_t i = 0; i < t->n_questions; i++) {
        n_right += is_right(t, &t->questions[i], 0);
        n_right_by_byte += is_right(t, &t->questions[i], 1);
    }
    strait_model_accuracy a = {.acc = (double)n_right / n,
                               .acc_norm = (double)n_right_by_byte / n,
                               .n_questions = (int64_t)t->n_questions};
    a.acc_error = standard_error(a.acc, t->n_questions);
    a.acc_norm_error = standard_error(a.acc_norm, t->n_questions);
    return a;
}

strait_err strait_model_evaluate_tasks(struct strait_model *model, const char *path,
                                       strait_model_progress progress, void *user,
                                       strait_model_accuracy *out) {
    struct tasks t = {0};
    STRAIT_TRY(strait_model_need_tokenizer(model));
    strait_err err = tasks_open(&t, path, model->trained->tokenizer);
    if (err == STRAIT_OK) err = score_all(model->trained, &t, progress, user);
    if (err == STRAIT_OK) *out = count(&t);
    tasks_close(&t);
    return err;
}
