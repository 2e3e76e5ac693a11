#include "infer/staged_model.h"

#include "base/alloc.h"
#include "codec/basis.h"
#include "stage/runner_state.h"

struct link {
    struct strait_stage *stage;
    struct strait_generator *generator;     // only when generating
    struct strait_codec *receiver, *sender; // NULL at the ends
};

struct strait_staged_model {
    strait_run_plan plan;
    struct strait_backend *backend;
    struct link links[STRAIT_RUN_STAGES];
    struct strait_slab capacity;
    strait_tensor wire; // bytes between two stages
    int generates;
    int64_t crossing; // so many were made
};

static strait_err open_codec(struct strait_staged_model *c, int boundary, strait_codec_side side,
                             struct strait_codec **out) {
    if (boundary < 0 || boundary >= c->plan.n_stages - 1) return STRAIT_OK;
    const strait_codec_spec spec = strait_run_plan_codec(&c->plan, boundary, 1);
    return strait_codec_open(&spec, side, c->backend, out);
}

static strait_err open_link(struct strait_staged_model *c, int i, int64_t n_sequences) {
    struct link *link = &c->links[i];
    const strait_stage_spec spec = {.shape = c->plan.shape,
                                    .layers = c->plan.parts[i],
                                    .n_sequences = c->generates ? 1 : n_sequences,
                                    .seq_len = c->generates ? 1 : c->plan.shape.context,
                                    .n_slots = 1,
                                    .recomputes = 1,
                                    .logit_bytes = c->plan.logit_bytes};
    STRAIT_TRY(strait_stage_open(&spec, c->backend, &link->stage));
    STRAIT_TRY(open_codec(c, i - 1, STRAIT_RECEIVER, &link->receiver));
    STRAIT_TRY(open_codec(c, i, STRAIT_SENDER, &link->sender));
    if (link->receiver != NULL || link->sender != NULL)
        STRAIT_TRY(strait_codec_join(link->receiver, link->sender));
    if (link->sender != NULL && c->plan.shape.subspace > 0) {
        strait_tensor basis, fixed;
        STRAIT_TRY(strait_codec_basis_view(link->sender, &basis, &fixed));
        STRAIT_TRY(strait_stage_set_basis(link->stage, basis, fixed));
    }
    if (!c->generates) return STRAIT_OK;
    return strait_generator_open(link->stage, &link->generator);
}

static strait_err open_into(struct strait_staged_model *c, int64_t n_sequences) {
    c->plan.codec.rows = n_sequences * c->plan.shape.context;
    c->plan.codec.seq_len = c->plan.shape.context;
    c->plan.codec.is_stepwise = 0;
    if (c->generates) c->plan.codec = strait_codec_for_generation(&c->plan.codec);
    if (c->plan.n_stages > 1) {
        STRAIT_TRY(strait_codec_check(&c->plan.codec));
        const size_t bytes = strait_codec_wire_bytes(&c->plan.codec, STRAIT_FORWARD);
        STRAIT_TRY(strait_slab_add(&c->capacity, STRAIT_I8, 1, (int64_t)bytes, &c->wire));
        STRAIT_TRY(strait_slab_commit(&c->capacity, c->backend));
    }
    for (int i = 0; i < c->plan.n_stages; i++)
        STRAIT_TRY(open_link(c, i, n_sequences));
    return STRAIT_OK;
}

strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    int64_t n_sequences, struct strait_staged_model **out) {
    struct strait_staged_model *c = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *c, "chain of stages", (void **)&c));
    c->plan = *plan;
    c->backend = backend;
    c->generates = n_sequences == 0;
    const strait_err err = open_into(c, n_sequences);
    if (err != STRAIT_OK) {
        strait_staged_model_close(&c);
        return err;
    }
    *out = c;
    return STRAIT_OK;
}

void strait_staged_model_close(struct strait_staged_model **chain) {
    struct strait_staged_model *c = *chain;
    if (c == NULL) return;
    for (int i = 0; i < c->plan.n_stages; i++) {
        struct link *link = &c->links[i];
        strait_codec_close(&link->receiver);
        strait_codec_close(&link->sender);
        strait_generator_close(&link->generator);
        strait_stage_close(&link->stage);
    }
    strait_slab_fini(&c->capacity);
    strait_alloc_free(c);
    *chain = NULL;
}

strait_err strait_staged_model_load(struct strait_staged_model *c,
                                    struct strait_checkpoint *checkpoint) {
    for (int i = 0; i < c->plan.n_stages; i++) {
        struct link *link = &c->links[i];
        struct strait_stream *stream = strait_stage_stream(link->stage);
        STRAIT_TRY(strait_runner_state_read_stage(checkpoint, link->stage));
        if (link->receiver != NULL)
            STRAIT_TRY(strait_runner_state_read_codec(checkpoint, link->receiver, stream));
        if (link->sender != NULL)
            STRAIT_TRY(strait_runner_state_read_codec(checkpoint, link->sender, stream));
        STRAIT_TRY(strait_stage_refresh(link->stage));
    }
    return STRAIT_OK;
}

struct strait_stream *strait_staged_model_stream(struct strait_staged_model *chain) {
    return strait_stage_stream(chain->links[0].stage);
}

/* What stage i made goes into the input of stage i + 1, through both halves of their codec. */
static strait_err cross(struct strait_staged_model *c, int i, strait_tensor tokens,
                        strait_tensor made, strait_tensor input, strait_tensor next) {
    const strait_crossing at = {
        .stream = strait_stage_stream(c->links[i].stage),
        .step = 0,
        .microbatch = c->crossing++,
        .tokens = tokens,
        .input = input,
        .past = c->generates ? strait_generator_position(c->links[i].generator) - 1 : 0,
        .is_evaluation = 1};
    STRAIT_TRY(strait_codec_act_pack(c->links[i].sender, &at, c->wire, made));
    STRAIT_TRY(c->backend->ops->wait(at.stream));
    return strait_codec_act_unpack(c->links[i + 1].receiver, &at, next, c->wire);
}

strait_err strait_staged_model_score(struct strait_staged_model *c, strait_tensor tokens,
                                     strait_tensor targets, strait_tensor *losses) {
    const int last = c->plan.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_stage *stage = c->links[i].stage;
        strait_tensor made;
        STRAIT_TRY(strait_stage_forward(stage, 0, tokens));
        if (i == last) return strait_stage_loss(stage, targets, 0.0f, losses);
        STRAIT_TRY(strait_stage_output(stage, &made));
        STRAIT_TRY(cross(c, i, tokens, made, strait_stage_first_block_input(stage, 0),
                         strait_stage_input(c->links[i + 1].stage, 0)));
    }
    return STRAIT_OK;
}

strait_err strait_staged_model_feed(struct strait_staged_model *c, int32_t token,
                                    const float **logits) {
    const int last = c->plan.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_generator *g = c->links[i].generator;
        strait_tensor made;
        STRAIT_TRY(strait_generator_embed(g, token));
        STRAIT_TRY(strait_generator_run(g));
        if (i == last) return strait_generator_logits(g, logits);
        STRAIT_TRY(strait_generator_output(g, &made));
        STRAIT_TRY(cross(c, i, strait_generator_token(g), made,
                         strait_generator_first_block_input(g),
                         strait_generator_input(c->links[i + 1].generator)));
    }
    return STRAIT_OK;
}

void strait_staged_model_reset(struct strait_staged_model *chain) {
    for (int i = 0; i < chain->plan.n_stages; i++)
        strait_generator_reset(chain->links[i].generator);
}

int64_t strait_staged_model_position(const struct strait_staged_model *chain) {
    return strait_generator_position(chain->links[0].generator);
}
