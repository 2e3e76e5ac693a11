#include "infer/engine.h"

#include "base/alloc.h"
#include "base/rng/rng.h"

#include <string.h>

enum {
    ROWS = 32,      // of a step: a device reads the weights once for all of them
    PROMPT_ROWS = 8 // of these, as many as prompts need, even where every row could draw a token
};

struct sequence {
    int is_used;
    int32_t *ids; // all so far: a full context is filled again from them
    int64_t n_ids, n_given;
    int64_t n_tokens; // to draw, at most
    int64_t base;     // number of the token at position 0
    int64_t n_fed;    // tokens that the model has read
    strait_sampling sampling;
    strait_engine_on_token on_token;
    void *user;
};

struct strait_engine {
    struct strait_trained_model *trained;
    struct sequence *sequences;
    unsigned char *seen; // scratch, one byte per token of the vocabulary
    int n_sequences, n_used;
    int next; // whose turn it is where a step has no row for everybody
    int64_t n_positions;
};

/* The rows of one step: those after which a token is drawn come first. */
struct step {
    strait_token_row rows[ROWS];
    strait_sample_row how[ROWS];
    int slots[ROWS]; // of the rows to sample
    int64_t n, n_sampled;
};

strait_err strait_sampling_check(const strait_sampling *s) {
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return STRAIT_FAIL(STRAIT_ECONFIG, "temperature must be between 0 and 100");
    if (s->top_k < 0 || s->top_k > INT32_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "top-k must not be negative");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return STRAIT_FAIL(STRAIT_ECONFIG, "top-p must be above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return STRAIT_FAIL(STRAIT_ECONFIG, "min-p must be between 0 and 1");
    if (!(s->penalty >= 0.01 && s->penalty <= 100))
        return STRAIT_FAIL(STRAIT_ECONFIG, "the repetition penalty must be between 0.01 and 100");
    return STRAIT_OK;
}

/* Caches that are larger than needed serve as well: loading the weights again would take longer. */
static strait_err prepare(struct strait_engine *e) {
    const strait_staged_use *now = &e->trained->use;
    const int is_enough = e->trained->stages != NULL && now->n_rows == ROWS &&
                          now->n_sequences >= e->n_sequences && now->n_positions >= e->n_positions;
    if (!is_enough)
        STRAIT_TRY(strait_trained_model_prepare(
            e->trained, (strait_staged_use){.n_sequences = e->n_sequences,
                                            .n_rows = ROWS,
                                            .n_positions = e->n_positions}));
    e->n_positions = e->trained->use.n_positions;
    return STRAIT_OK;
}

strait_err strait_engine_open(struct strait_trained_model *trained, strait_engine_spec spec,
                              struct strait_engine **out) {
    const strait_shape *shape = &trained->plan.shape;
    struct strait_engine *e = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *e, "engine", (void **)&e));
    e->trained = trained;
    e->n_sequences = (int)spec.n_sequences;
    e->n_positions = spec.n_positions > 0 && spec.n_positions < shape->context ? spec.n_positions
                                                                               : shape->context;
    strait_err err = strait_alloc((size_t)spec.n_sequences, sizeof *e->sequences, "sequences",
                                  (void **)&e->sequences);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)shape->vocab, 1, "tokens seen", (void **)&e->seen);
    if (err == STRAIT_OK) err = prepare(e);
    if (err != STRAIT_OK) {
        strait_engine_close(&e);
        return err;
    }
    *out = e;
    return STRAIT_OK;
}

void strait_engine_close(struct strait_engine **engine) {
    struct strait_engine *e = *engine;
    if (e == NULL) return;
    for (int i = 0; e->sequences != NULL && i < e->n_sequences; i++)
        strait_engine_remove(e, i);
    strait_alloc_free(e->sequences);
    strait_alloc_free(e->seen);
    strait_alloc_free(e);
    *engine = NULL;
}

static strait_err check_ids(const struct strait_engine *e, const strait_engine_request *request) {
    const int64_t vocab = e->trained->plan.shape.vocab;
    for (int64_t i = 0; i < request->n_ids; i++)
        if (request->ids[i] < 0 || request->ids[i] >= vocab)
            return STRAIT_FAIL(STRAIT_EDATA, "token %d is outside the model's vocabulary of %lld",
                               (int)request->ids[i], (long long)vocab);
    if (request->n_ids < 1 || request->n_tokens < 0)
        return STRAIT_FAIL(STRAIT_EINVAL, "engine: %lld tokens after a prompt of %lld",
                           (long long)request->n_tokens, (long long)request->n_ids);
    return strait_sampling_check(&request->sampling);
}

/* With a penalty the device must know which tokens the prompt has. */
static strait_err mark_seen(struct strait_engine *e, const strait_engine_request *request,
                            int slot) {
    memset(e->seen, 0, (size_t)e->trained->plan.shape.vocab);
    for (int64_t i = 0; request->sampling.penalty != 1.0 && i < request->n_ids; i++)
        e->seen[request->ids[i]] = 1;
    return strait_staged_model_set_seen(e->trained->stages, slot, e->seen);
}

/* Starts reading at the tokens that fit, as after a full context. */
static void rebase(const struct strait_engine *e, struct sequence *s) {
    s->base = s->n_ids > e->n_positions ? s->n_ids - (e->n_positions + 1) / 2 : 0;
    s->n_fed = s->base;
}

strait_err strait_engine_add(struct strait_engine *e, const strait_engine_request *request,
                             int *slot) {
    int free_slot = 0;
    STRAIT_TRY(check_ids(e, request));
    while (free_slot < e->n_sequences && e->sequences[free_slot].is_used)
        free_slot++;
    *slot = -1;
    if (free_slot == e->n_sequences) return STRAIT_OK;
    struct sequence *s = &e->sequences[free_slot];
    STRAIT_TRY(mark_seen(e, request, free_slot));
    STRAIT_TRY(strait_alloc((size_t)(request->n_ids + request->n_tokens), sizeof *s->ids, "ids",
                            (void **)&s->ids));
    memcpy(s->ids, request->ids, (size_t)request->n_ids * sizeof *s->ids);
    s->n_ids = s->n_given = request->n_ids;
    s->n_tokens = request->n_tokens;
    s->sampling = request->sampling;
    s->on_token = request->on_token;
    s->user = request->user;
    s->is_used = 1;
    rebase(e, s);
    e->n_used++;
    *slot = free_slot;
    return STRAIT_OK;
}

void strait_engine_remove(struct strait_engine *e, int slot) {
    struct sequence *s = &e->sequences[slot];
    if (!s->is_used) return;
    strait_alloc_free(s->ids);
    *s = (struct sequence){0};
    e->n_used--;
}

int strait_engine_count(const struct strait_engine *e) {
    return e->n_used;
}

/* Token i of a sequence uses random number i, so that the same seed gives the same text. */
static strait_sample_row sampling_of(const struct sequence *s, int slot) {
    const strait_rng rng = {s->sampling.seed, strait_rng_stream("generate")};
    return (strait_sample_row){.temperature = (float)s->sampling.temperature,
                               .top_p = (float)s->sampling.top_p,
                               .min_p = (float)s->sampling.min_p,
                               .penalty = (float)s->sampling.penalty,
                               .random = strait_rng_uniform(rng, (uint64_t)(s->n_ids - s->n_given)),
                               .top_k = (int32_t)s->sampling.top_k,
                               .sequence = slot};
}

static void add_row(struct step *step, struct sequence *s, int slot) {
    step->rows[step->n++] = (strait_token_row){
        .token = s->ids[s->n_fed], .sequence = slot, .position = (int32_t)(s->n_fed - s->base)};
    s->n_fed++;
}

static int64_t rows_for_prompts(const struct strait_engine *e) {
    int64_t n = 0;
    for (int i = 0; i < e->n_sequences && n < PROMPT_ROWS; i++)
        if (e->sequences[i].is_used) n += e->sequences[i].n_ids - e->sequences[i].n_fed - 1;
    return n < PROMPT_ROWS ? n : PROMPT_ROWS;
}

/* The last token of each sequence, after which the next is drawn. */
static void add_last_tokens(struct strait_engine *e, struct step *step) {
    const int64_t most = ROWS - rows_for_prompts(e);
    for (int i = 0; i < e->n_sequences && step->n < most; i++) {
        const int slot = (e->next + i) % e->n_sequences;
        struct sequence *s = &e->sequences[slot];
        if (!s->is_used || s->n_ids - s->n_fed != 1) continue;
        step->how[step->n] = sampling_of(s, slot);
        step->slots[step->n] = slot;
        add_row(step, s, slot);
    }
    step->n_sampled = step->n;
}

/* Earlier tokens of prompts; not the last one, which a later step samples after. A sequence that
 * was in this step already has none. */
static void add_prompts(struct strait_engine *e, struct step *step) {
    for (int i = 0; i < e->n_sequences; i++) {
        const int slot = (e->next + i) % e->n_sequences;
        struct sequence *s = &e->sequences[slot];
        while (s->is_used && step->n < ROWS && s->n_ids - s->n_fed > 1)
            add_row(step, s, slot);
    }
}

/* The sequence goes on, unless its consumer or its limit ends it. */
static void deliver(struct strait_engine *e, int slot, int32_t token) {
    struct sequence *s = &e->sequences[slot];
    s->ids[s->n_ids++] = token;
    const int goes_on = s->on_token(s->user, token);
    if (!goes_on || s->n_ids - s->n_given >= s->n_tokens) {
        strait_engine_remove(e, slot);
        return;
    }
    if (s->n_fed - s->base >= e->n_positions) rebase(e, s);
}

strait_err strait_engine_step(struct strait_engine *e) {
    struct step step = {.n = 0};
    int32_t tokens[ROWS];
    for (int i = 0; i < e->n_sequences; i++) // nothing to draw
        if (e->sequences[i].is_used && e->sequences[i].n_tokens == 0) strait_engine_remove(e, i);
    if (e->n_used == 0) return STRAIT_OK;
    add_last_tokens(e, &step);
    add_prompts(e, &step);
    e->next = (e->next + 1) % e->n_sequences;
    STRAIT_TRY(strait_staged_model_step(e->trained->stages, step.rows, step.n));
    if (step.n_sampled == 0) return STRAIT_OK;
    STRAIT_TRY(strait_staged_model_sample(e->trained->stages, step.how, step.n_sampled, tokens));
    for (int64_t i = 0; i < step.n_sampled; i++)
        deliver(e, step.slots[i], tokens[i]);
    return STRAIT_OK;
}
