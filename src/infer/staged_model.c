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
    strait_staged_use use;
    int64_t n_crossings; // so far: each crossing counts as a microbatch of its own
    int64_t n_fed;       // tokens of sequence 0, see strait_staged_model_feed
};

static int generates(const struct strait_staged_model *m) {
    return m->use.n_rows > 0;
}

/* Opens one side of a boundary; leaves *out alone where there is no boundary. */
static strait_err open_codec(struct strait_staged_model *m, int boundary, strait_codec_side side,
                             struct strait_codec **out) {
    if (boundary < 0 || boundary >= m->plan.n_stages - 1) return STRAIT_OK;
    const int n_slots = generates(m) ? (int)m->use.n_sequences : 1;
    const strait_codec_spec spec = strait_run_plan_codec(&m->plan, boundary, n_slots);
    return strait_codec_open(&spec, side, m->backend, out);
}

/* Opens stage i with its codec sides. There is no backward pass: recomputes saves the memory of its
 * activations. */
static strait_err open_stage(struct strait_staged_model *m, int i) {
    struct staged *s = &m->stages[i];
    const strait_stage_spec spec = {.shape = m->plan.shape,
                                    .layers = m->plan.stage_layers[i],
                                    .n_sequences = generates(m) ? m->use.n_rows
                                                                : m->use.n_sequences,
                                    .seq_len = generates(m) ? 1 : m->use.seq_len,
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
    if (!generates(m)) return STRAIT_OK;
    return strait_generator_open(s->stage,
                                 (strait_generator_spec){.n_sequences = m->use.n_sequences,
                                                         .n_positions = m->use.n_positions,
                                                         .n_rows = m->use.n_rows},
                                 &s->generator);
}

static strait_err open_into(struct strait_staged_model *m) {
    m->plan.codec.rows = m->use.n_sequences * m->use.seq_len;
    m->plan.codec.seq_len = m->use.seq_len;
    m->plan.codec.is_stepwise = 0;
    /* Generation sends one token at a time, for which a codec may need another spec. */
    if (generates(m)) m->plan.codec = strait_codec_for_generation(&m->plan.codec);
    if (m->plan.n_stages > 1) {
        STRAIT_TRY(strait_codec_check(&m->plan.codec));
        const size_t bytes = strait_codec_wire_bytes(&m->plan.codec, STRAIT_FORWARD);
        STRAIT_TRY(strait_slab_add(&m->slab, STRAIT_I8, 1, (int64_t)bytes, &m->wire));
        STRAIT_TRY(strait_slab_commit(&m->slab, m->backend));
    }
    for (int i = 0; i < m->plan.n_stages; i++)
        STRAIT_TRY(open_stage(m, i));
    return STRAIT_OK;
}

strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    strait_staged_use use, struct strait_staged_model **out) {
    struct strait_staged_model *m = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *m, "staged model", (void **)&m));
    m->plan = *plan;
    m->backend = backend;
    m->use = use;
    const strait_err err = open_into(m);
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
static strait_err cross(struct strait_staged_model *m, int i, const strait_crossing *what,
                        strait_tensor output, strait_tensor next) {
    strait_crossing at = *what;
    at.stream = strait_stage_stream(m->stages[i].stage);
    at.microbatch = m->n_crossings++;
    at.is_evaluation = 1;
    at.table = strait_stage_token_table(m->stages[i].stage);
    STRAIT_TRY(strait_codec_act_pack(m->stages[i].sender, &at, m->wire, output));
    at.table = strait_stage_token_table(m->stages[i + 1].stage);
    return strait_codec_act_unpack(m->stages[i + 1].receiver, &at, next, m->wire);
}

/* Each stage has a stream of its own: lets that of stage `to` wait for that of stage `from`. */
static strait_err order(struct strait_staged_model *m, int from, int to) {
    return m->backend->ops->order(strait_stage_stream(m->stages[from].stage),
                                  strait_stage_stream(m->stages[to].stage));
}

strait_err strait_staged_model_score(struct strait_staged_model *m, strait_tensor tokens,
                                     strait_tensor targets, strait_tensor *losses) {
    const int last = m->plan.n_stages - 1;
    for (int i = 0; i <= last; i++) {
        struct strait_stage *stage = m->stages[i].stage;
        strait_tensor output;
        STRAIT_TRY(strait_stage_forward(stage, 0, tokens));
        if (i == last) break;
        const strait_crossing at = {.tokens = tokens,
                                    .input = strait_stage_first_block_input(stage, 0)};
        STRAIT_TRY(strait_stage_output(stage, &output));
        STRAIT_TRY(cross(m, i, &at, output, strait_stage_input(m->stages[i + 1].stage, 0)));
        STRAIT_TRY(order(m, i, i + 1));
    }
    STRAIT_TRY(strait_stage_loss(m->stages[last].stage, targets, 0.0f, losses));
    return order(m, last, 0); // on whose stream the losses are downloaded
}

/* Row by row: rows of a payload share a scale, and a row must not depend on the others. The slot is
 * where a codec keeps what it needs of earlier tokens of the sequence. */
static strait_err cross_rows(struct strait_staged_model *m, int i, const strait_token_row *rows,
                             int64_t n) {
    struct strait_generator *g = m->stages[i].generator;
    const strait_tensor input = strait_generator_first_block_input(g);
    const strait_tensor tokens = strait_generator_tokens(g);
    const strait_tensor next = strait_generator_input(m->stages[i + 1].generator);
    strait_tensor output;
    STRAIT_TRY(strait_generator_output(g, &output));
    for (int64_t r = 0; r < n; r++) {
        const strait_crossing at = {.tokens = strait_tensor_rows(tokens, r, 1),
                                    .input = strait_tensor_rows(input, r, 1),
                                    .slot = rows[r].sequence,
                                    .past = rows[r].position};
        STRAIT_TRY(
            cross(m, i, &at, strait_tensor_rows(output, r, 1), strait_tensor_rows(next, r, 1)));
    }
    return order(m, i, i + 1);
}

strait_err strait_staged_model_step(struct strait_staged_model *m, const strait_token_row *rows,
                                    int64_t n) {
    const int last = m->plan.n_stages - 1;
    /* The boundaries of the step before may still read the wire. */
    if (last > 0) STRAIT_TRY(m->backend->ops->wait(strait_stage_stream(m->stages[last].stage)));
    for (int i = 0; i <= last; i++)
        STRAIT_TRY(strait_generator_begin(m->stages[i].generator, rows, n));
    for (int i = 0; i <= last; i++) {
        STRAIT_TRY(strait_generator_run(m->stages[i].generator));
        if (i < last) STRAIT_TRY(cross_rows(m, i, rows, n));
    }
    return STRAIT_OK;
}

static struct strait_generator *last_generator(struct strait_staged_model *m) {
    return m->stages[m->plan.n_stages - 1].generator;
}

strait_err strait_staged_model_sample(struct strait_staged_model *m, const strait_sample_row *how,
                                      int64_t n, int32_t *tokens) {
    return strait_generator_sample(last_generator(m), how, n, tokens);
}

strait_err strait_staged_model_set_seen(struct strait_staged_model *m, int64_t sequence,
                                        const unsigned char *seen) {
    return strait_generator_set_seen(last_generator(m), sequence, seen);
}

strait_err strait_staged_model_feed(struct strait_staged_model *m, int32_t token,
                                    const float **logits) {
    const strait_token_row row = {.token = token, .position = (int32_t)m->n_fed};
    STRAIT_TRY(strait_staged_model_step(m, &row, 1));
    m->n_fed++;
    return strait_generator_logits(last_generator(m), 1, logits);
}
