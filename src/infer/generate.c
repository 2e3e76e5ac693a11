/* generate.c - sampling text from a trained model: prompts become sequences of an engine, their
 * tokens text. */
#include "base/alloc.h"
#include "data/tokenizer/encoder.h"
#include "infer/completion.h"
#include "infer/engine.h"
#include "infer/model.h"

#include <string.h>

enum {
    LEAST_POSITIONS = 256 // of the caches, so that short prompts of any length use the same ones
};

/* One prompt and its text. Zeroed is closed. */
struct generation {
    const strait_generate_params *params;
    const struct strait_tokenizer *tokenizer;
    struct strait_completion completion;
    int32_t *ids;
    int64_t n_ids, n_drawn;
    int is_ended;
    strait_err err; // of the caller's callback, which ends everything
};

/* All prompts of a call. */
struct batch {
    struct generation *all;
    int n, n_started;
    struct strait_engine *engine;
};

static strait_sampling sampling_of(const strait_generate_params *p) {
    return (strait_sampling){.temperature = p->temperature,
                             .top_p = p->top_p,
                             .min_p = p->min_p,
                             .penalty = p->repetition_penalty != 0 ? p->repetition_penalty : 1.0,
                             .top_k = p->top_k,
                             .seed = (uint64_t)p->seed};
}

/* Encodes the prompt; an empty one starts after an end of text. */
static strait_err read_prompt(struct generation *g, struct strait_encoder *encoder) {
    const char *prompt = g->params->prompt != NULL ? g->params->prompt : "";
    const int32_t end = strait_tokenizer_end(g->tokenizer);
    const int32_t *ids = NULL;
    size_t n = 0;
    STRAIT_TRY(strait_encoder_encode(encoder, prompt, strlen(prompt), 0, &ids, &n));
    STRAIT_TRY(strait_alloc(n + 1, sizeof *g->ids, "ids", (void **)&g->ids));
    g->n_ids = n > 0 ? (int64_t)n : 1;
    g->ids[0] = end >= 0 ? end : 0;
    if (n > 0) memcpy(g->ids, ids, n * sizeof *ids);
    return STRAIT_OK;
}

static strait_err prepare(struct generation *g, struct strait_encoder *encoder,
                          const strait_generate_params *params,
                          const struct strait_tokenizer *tokenizer) {
    const strait_sampling sampling = sampling_of(params);
    g->params = params;
    g->tokenizer = tokenizer;
    if (params->n_tokens < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokens to generate: %lld must not be negative",
                           (long long)params->n_tokens);
    STRAIT_TRY(strait_sampling_check(&sampling));
    STRAIT_TRY(strait_completion_open(&g->completion, tokenizer, params->stops, params->n_stops));
    return read_prompt(g, encoder);
}

/* Hands text to the caller, who may stop the generation by returning an error. */
static void deliver(struct generation *g, strait_completion_text text, int is_prompt) {
    if (g->params->on_text == NULL || g->err != STRAIT_OK) return;
    g->err = g->params->on_text(g->params->user, text.bytes, text.n, is_prompt);
}

static void end(struct generation *g, strait_generate_end why) {
    deliver(g, strait_completion_finish(&g->completion), 0);
    g->is_ended = 1;
    if (g->params->on_end == NULL || g->err != STRAIT_OK) return;
    g->err = g->params->on_end(g->params->user, why, g->n_drawn);
}

/* The engine removes a sequence that does not go on, or that has all its tokens. */
static int take_token(void *user, int32_t token) {
    struct generation *g = user;
    if (token == strait_tokenizer_end(g->tokenizer) && !g->params->ignores_end) {
        end(g, STRAIT_GENERATE_STOPPED);
        return 0;
    }
    g->n_drawn++;
    const strait_completion_text text = strait_completion_push(&g->completion, token);
    deliver(g, text, 0);
    if (text.is_stopped)
        end(g, STRAIT_GENERATE_STOPPED);
    else if (g->n_drawn == g->params->n_tokens)
        end(g, STRAIT_GENERATE_FULL);
    return !g->is_ended && g->err == STRAIT_OK;
}

/* Delivers the prompt and adds it to the engine. The text of an end of text that stands for an
 * empty prompt is not delivered, but decoded. */
static strait_err start(struct batch *b, struct generation *g) {
    const strait_generate_params *p = g->params;
    const int is_empty = p->prompt == NULL || p->prompt[0] == '\0';
    int slot = -1;
    for (int64_t i = 0; !is_empty && i < g->n_ids; i++)
        deliver(g, strait_completion_prompt(&g->completion, g->ids[i]), 1);
    if (p->n_tokens == 0) end(g, STRAIT_GENERATE_FULL);
    if (g->is_ended || g->err != STRAIT_OK) return g->err;
    const strait_engine_request request = {.ids = g->ids,
                                           .n_ids = g->n_ids,
                                           .n_tokens = p->n_tokens,
                                           .sampling = sampling_of(p),
                                           .on_token = take_token,
                                           .user = g};
    return strait_engine_add(b->engine, &request, &slot);
}

static strait_err run(struct batch *b, int n_at_once) {
    while (b->n_started < b->n || strait_engine_count(b->engine) > 0) {
        while (b->n_started < b->n && strait_engine_count(b->engine) < n_at_once)
            STRAIT_TRY(start(b, &b->all[b->n_started++]));
        STRAIT_TRY(strait_engine_step(b->engine));
        for (int i = 0; i < b->n_started; i++)
            STRAIT_TRY(b->all[i].err);
    }
    return STRAIT_OK;
}

/* The most tokens that a prompt and its text have, rounded up. */
static int64_t positions_of(const struct batch *b) {
    int64_t most = LEAST_POSITIONS;
    for (int i = 0; i < b->n; i++)
        while (most < b->all[i].n_ids + b->all[i].params->n_tokens && most < INT32_MAX)
            most *= 2;
    return most;
}

static strait_err generate(struct strait_model *model, struct batch *b,
                           const strait_generate_params *params, int n_at_once) {
    const struct strait_tokenizer *tokenizer = model->trained->tokenizer;
    struct strait_encoder *encoder = NULL;
    STRAIT_TRY(strait_encoder_open(tokenizer, &encoder));
    strait_err err = STRAIT_OK;
    for (int i = 0; err == STRAIT_OK && i < b->n; i++)
        err = prepare(&b->all[i], encoder, &params[i], tokenizer);
    strait_encoder_close(&encoder);
    if (err == STRAIT_OK)
        err = strait_engine_open(
            model->trained,
            (strait_engine_spec){.n_sequences = n_at_once, .n_positions = positions_of(b)},
            &b->engine);
    if (err == STRAIT_OK) err = run(b, n_at_once);
    strait_engine_close(&b->engine);
    return err;
}

strait_err strait_model_generate_batch(struct strait_model *model,
                                       const strait_generate_params *params, int n, int n_at_once) {
    struct batch b = {.n = n};
    STRAIT_TRY(strait_model_need_tokenizer(model));
    if (n < 1 || n_at_once < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%d prompts, %d at a time: expected at least 1", n,
                           n_at_once);
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *b.all, "prompts", (void **)&b.all));
    const strait_err err = generate(model, &b, params, n_at_once < n ? n_at_once : n);
    for (int i = 0; i < n; i++) {
        strait_completion_close(&b.all[i].completion);
        strait_alloc_free(b.all[i].ids);
    }
    strait_alloc_free(b.all);
    return err;
}

strait_err strait_model_generate(struct strait_model *model, const strait_generate_params *params) {
    return strait_model_generate_batch(model, params, 1, 1);
}
