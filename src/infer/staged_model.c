/* staged_model.c - opens the stages, loads them, and sends activations from one to the next. */
#include "infer/staged_model.h"

#include "base/alloc.h"
#include "codec/basis.h"
#include "stage/runner_state.h"

/* One stage and the codec sides at its two ends. */
struct staged {
    struct strait_stage *stage;
    struct strait_generator *generator;     // only when generating
    struct strait_codec *receiver, *sender; // NULL at the ends of the model
};

struct strait_staged_model {
    strait_run_plan plan; // its codec spec is adapted to scoring or generating
    struct strait_backend *backend;
    struct staged stages[STRAIT_RUN_STAGES];
    struct strait_slab slab; // owns wire
    strait_tensor wire;      // bytes of one crossing; all boundaries use it in turn
    int generates;
    int64_t n_crossings; // so far: each crossing counts as a microbatch of its own
};

/* Opens one side of a boundary; leaves *out alone where there is no boundary. */
static strait_err open_codec(struct strait_staged_model *m, int boundary, strait_codec_side side,
                             struct strait_codec **out) {
    if (boundary < 0 || boundary >= m->plan.n_stages - 1) return STRAIT_OK;
    const strait_codec_spec spec = strait_run_plan_codec(&m->plan, boundary, 1);
    return strait_codec_open(&spec, side, m->backend, out);
}

/* Opens stage i with its codec sides. There is no backward pass: recomputes saves the memory of its
 * activations. */
static strait_err open_stage(struct strait_staged_model *m, int i, int64_t n_sequences) {
    struct staged *s = &m->stages[i];
    const strait_stage_spec spec = {.shape = m->plan.shape,
                                    .layers = m->plan.stage_layers[i],
                                    .n_sequences = m->generates ? 1 : n_sequences,
                                    .seq_len = m->generates ? 1 : m->plan.shape.context,
                                    .n_slots = 1,
                                    .recomputes = 1,
                                    .logit_bytes = m->plan.logit_bytes};
    STRAIT_TRY(strait_stage_open(&spec, m->backend, &s->stage));
    STRAIT_TRY(open_codec(m, i - 1, STRAIT_RECEIVER, &s->receiver));
    STRAIT_TRY(open_codec(m, i, STRAIT_SENDER, &s->sender));
    if (s->receiver != NULL || s->sender != NULL)
        STRAIT_TRY(strait_codec_join(s->receiver, s->sender));
    /* The last stage has no sender: its weights are not constrained to the subspace. */
    if (s->sender != NULL && m->plan.shape.subspace > 0) {
        strait_tensor basis, fixed;
        STRAIT_TRY(strait_codec_basis_view(s->sender, &basis, &fixed));
        STRAIT_TRY(strait_stage_set_basis(s->stage, basis, fixed));
    }
    if (!m->generates) return STRAIT_OK;
    return strait_generator_open(s->stage, &s->generator);
}

static strait_err open_into(struct strait_staged_model *m, int64_t n_sequences) {
    m->plan.codec.rows = n_sequences * m->plan.shape.context;
    m->plan.codec.seq_len = m->plan.shape.context;
    m->plan.codec.is_stepwise = 0;
    /* Generation sends one token at a time, for which a codec may need another spec. */
    if (m->generates) m->plan.codec = strait_codec_for_generation(&m->plan.codec);
    if (m->plan.n_stages > 1) {
        STRAIT_TRY(strait_codec_check(&m->plan.codec));
        const size_t bytes = strait_codec_wire_bytes(&m->plan.codec, STRAIT_FORWARD);
        STRAIT_TRY(strait_slab_add(&m->slab, STRAIT_I8, 1, (int64_t)bytes, &m->wire));
        STRAIT_TRY(strait_slab_commit(&m->slab, m->backend));
    }
    for (int i = 0; i < m->plan.n_stages; i++)
        STRAIT_TRY(open_stage(m, i, n_sequences));
    return STRAIT_OK;
}

strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    int64_t n_sequences, struct strait_staged_model **out) {
    struct strait_staged_model *m = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *m, "staged model", (void **)&m));
    m->plan = *plan;
    m->backend = backend;
    m->generates = n_sequences == 0;
    const strait_err err = open_into(m, n_sequences);
    if (err != STRAIT_OK) {
        strait_staged_model_close(&m);
        return err;
    }
    *out = m;
    return STRAIT_OK;
}

void strait_staged_model_close(struct strait_staged_model **model) {
    struct strait_staged_model *m = *model;
    if (m == NULL) return;
    for (int i = 0; i < m->plan.n_stages; i++) {
        struct staged *s = &m->stages[i];
        strait_codec_close(&s->receiver);
        strait_codec_close(&s->sender);
        strait_generator_close(&s->generator);
        strait_stage_close(&s->stage);
    }
    strait_slab_fini(&m->slab);
    strait_alloc_free(m);
    *model = NULL;
}

strait_err strait_staged_model_load(struct strait_staged_model *m,
                                    struct strait_checkpoint *checkpoint) {
    for (int i = 0; i < m->plan.n_stages; i++) {
        struct staged *s = &m->stages[i];
        struct strait_stream *stream = strait_stage_stream(s->stage);
        STRAIT_TRY(strait_runner_state_read_stage(checkpoint, s->stage));
        if (s->receiver != NULL)
            STRAIT_TRY(strait_runner_state_read_codec(checkpoint, s->receiver, stream));
        if (s->sender != NULL)
            STRAIT_TRY(strait_runner_state_read_codec(checkpoint, s->sender, stream));
        STRAIT_TRY(strait_stage_refresh(s->stage)); // bf16 copies of the weights
    }
    return STRAIT_OK;
}

struct strait_stream *strait_staged_model_stream(struct strait_staged_model *model) {
    return strait_stage_stream(model->stages[0].stage);
}

/* Sends the output of stage i to the input of stage i + 1, through both sides of their codec. */
static strait_err cross(struct strait_staged_model *m, int i, strait_tensor tokens,
                        strait_tensor output, strait_tensor input, strait_tensor next) {
    const strait_crossing at = {
        .stream = strait_stage_stream(m->stages[i].stage),
        .step = 0,
        .microbatch = m->n_crossings++,
        .tokens = tokens,
        .input = input,
        .past = m->generates ? strait_generator_position(m->stages[i].generator) - 1 : 0,
        .is_evaluation = 1};
    STRAIT_TRY(strait_codec_act_pack(m->stages[i].sender, &at, m->wire, output));
    STRAIT_TRY(strait_codec_act_unpack(m->stages[i + 1].receiver, &at, next, m->wire));
    /* Stage i + 1 reads its input and the tokens on a stream of its own, which does not wait for
     * this one. */
    return m->backend->ops->wait(at.stream);
}

strait_err strait_staged_model_score(struct strait_staged_model *m, strait_tensor tokens,
                                     strait_tensor targets, strait_tensor *losses) {
    const int last = m->plan.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_stage *stage = m->stages[i].stage;
        strait_tensor output;
        STRAIT_TRY(strait_stage_forward(stage, 0, tokens));
        if (i == last) return strait_stage_loss(stage, targets, 0.0f, losses);
        STRAIT_TRY(strait_stage_output(stage, &output));
        STRAIT_TRY(cross(m, i, tokens, output, strait_stage_first_block_input(stage, 0),
                         strait_stage_input(m->stages[i + 1].stage, 0)));
    }
    return STRAIT_OK;
}

strait_err strait_staged_model_feed(struct strait_staged_model *m, int32_t token,
                                    const float **logits) {
    const int last = m->plan.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_generator *g = m->stages[i].generator;
        strait_tensor output;
        STRAIT_TRY(strait_generator_embed(g, token));
        STRAIT_TRY(strait_generator_run(g));
        if (i == last) return strait_generator_logits(g, logits);
        STRAIT_TRY(strait_generator_output(g, &output));
        STRAIT_TRY(cross(m, i, strait_generator_token(g), output,
                         strait_generator_first_block_input(g),
                         strait_generator_input(m->stages[i + 1].generator)));
    }
    return STRAIT_OK;
}

void strait_staged_model_reset(struct strait_staged_model *model) {
    for (int i = 0; i < model->plan.n_stages; i++)
        strait_generator_reset(model->stages[i].generator);
}

int64_t strait_staged_model_position(const struct strait_staged_model *model) {
    return strait_generator_position(model->stages[0].generator);
}
