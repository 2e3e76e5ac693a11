/* generate.c - sampling text from a trained model, token by token. */
#include "base/alloc.h"
#include "base/rng/rng.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/encoder.h"
#include "infer/model.h"
#include "model/token_sampler.h"

#include <string.h>

/* Everything one generation needs. Zeroed is closed. */
struct generation {
    const strait_generate_params *params;
    struct strait_trained_model *trained;
    struct strait_encoder *encoder;
    struct strait_token_sampler *sampler;
    strait_decoder decoder;
    unsigned char *text; // what one token decodes to
    int32_t *ids;        // all so far: a full context is filled again from them
    int64_t n_ids;
};

static void fini(struct generation *g) {
    strait_token_sampler_close(&g->sampler);
    strait_encoder_close(&g->encoder);
    strait_alloc_free(g->text);
    strait_alloc_free(g->ids);
}

static strait_err init(struct generation *g) {
    const strait_generate_params *p = g->params;
    const strait_token_sampler_params sampling = {(float)p->temperature, p->top_k, (float)p->top_p};
    const struct strait_tokenizer *tokenizer = g->trained->tokenizer;
    if (p->n_tokens < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokens to generate: %lld must not be negative",
                           (long long)p->n_tokens);
    STRAIT_TRY(strait_token_sampler_open(g->trained->plan.shape.vocab, sampling, &g->sampler));
    STRAIT_TRY(strait_encoder_open(tokenizer, &g->encoder));
    strait_decoder_init(&g->decoder, tokenizer);
    return strait_alloc(strait_decoder_bound(tokenizer) + 1, 1, "text", (void **)&g->text);
}

/* Hands decoded text to the caller, who may stop the generation by returning an error. */
static strait_err deliver(struct generation *g, size_t n, int is_prompt) {
    if (g->params->on_text == NULL) return STRAIT_OK;
    return g->params->on_text(g->params->user, (const char *)g->text, n, is_prompt);
}

/* Encodes the prompt; an empty one starts after an end of text, which is not delivered. The prompt
 * goes through the decoder like every token, because spaces of later tokens depend on it. */
static strait_err read_prompt(struct generation *g) {
    const char *prompt = g->params->prompt != NULL ? g->params->prompt : "";
    const int32_t end = strait_tokenizer_end(g->trained->tokenizer);
    const int32_t *ids = NULL;
    size_t n = 0;
    STRAIT_TRY(strait_encoder_encode(g->encoder, prompt, strlen(prompt), 0, &ids, &n));
    STRAIT_TRY(
        strait_alloc(n + (size_t)g->params->n_tokens + 1, sizeof *g->ids, "ids", (void **)&g->ids));
    if (n == 0) g->ids[g->n_ids++] = end >= 0 ? end : 0;
    for (size_t i = 0; i < n; i++) {
        g->ids[g->n_ids++] = ids[i];
        STRAIT_TRY(deliver(g, strait_decoder_push(&g->decoder, ids[i], g->text), 1));
    }
    return STRAIT_OK;
}

/* Feeds ids [from, n_ids); the logits are those after the last. A full context restarts with its
 * newer half, so that most tokens cost one pass instead of a whole context. */
static strait_err feed(struct generation *g, int64_t from, const float **logits) {
    struct strait_staged_model *model = g->trained->stages;
    const int64_t context = g->trained->plan.shape.context;
    if (g->n_ids - from + strait_staged_model_position(model) > context) {
        strait_staged_model_reset(model);
        from = g->n_ids - (context + 1) / 2;
        if (from < 0) from = 0;
    }
    for (int64_t i = from; i < g->n_ids; i++)
        STRAIT_TRY(strait_staged_model_feed(model, g->ids[i], logits));
    return STRAIT_OK;
}

static strait_err generate(struct generation *g) {
    const strait_generate_params *p = g->params;
    const strait_rng rng = {(uint64_t)p->seed, strait_rng_stream("generate")};
    const int32_t end = strait_tokenizer_end(g->trained->tokenizer);
    int64_t fed = 0; // tokens that the model has read
    STRAIT_TRY(read_prompt(g));
    for (int64_t i = 0; i < p->n_tokens; i++) {
        const float *logits = NULL;
        STRAIT_TRY(feed(g, fed, &logits));
        fed = g->n_ids;
        /* Token i uses random number i, so that the same seed gives the same text. */
        const int32_t id = strait_token_sampler_pick(g->sampler, logits,
                                                     strait_rng_uniform(rng, (uint64_t)i));
        if (id == end && !p->ignores_end) break;
        g->ids[g->n_ids++] = id;
        STRAIT_TRY(deliver(g, strait_decoder_push(&g->decoder, id, g->text), 0));
    }
    return deliver(g, strait_decoder_finish(&g->decoder, g->text), 0);
}

strait_err strait_model_generate(struct strait_model *model, const strait_generate_params *params) {
    STRAIT_TRY(strait_model_need_tokenizer(model));
    STRAIT_TRY(strait_trained_model_prepare(model->trained, 0));
    strait_staged_model_reset(model->trained->stages); // an earlier generation may have left tokens
    struct generation g = {.params = params, .trained = model->trained};
    strait_err err = init(&g);
    if (err == STRAIT_OK) err = generate(&g);
    fini(&g);
    return err;
}
