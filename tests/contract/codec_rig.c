#include "codec_rig.h"

#include "base/rng/rng.h"

struct strait_codec *chain_side(struct chain *chain, int i) {
    return i % 2 == 0 ? chain->sender[i / 2] : chain->receiver[i / 2];
}

void chain_open_specs(struct chain *chain, struct rig *rig, const strait_codec_spec *specs) {
    *chain = (struct chain){.rig = rig, .cols = strait_codec_width(&specs[0]), .step = 3};
    for (int b = 0; b < CHAIN_BOUNDARIES; b++) {
        chain->spec[b] = specs[b];
        CHECK_OK(strait_codec_open(&specs[b], STRAIT_SENDER, rig->be, &chain->sender[b]));
        CHECK_OK(strait_codec_open(&specs[b], STRAIT_RECEIVER, rig->be, &chain->receiver[b]));
        for (int direction = 0; direction < 2; direction++)
            chain->wire[b][direction] = rig_bytes(
                rig, (int64_t)strait_codec_wire_bytes(&specs[b], (strait_direction)direction));
    }
    CHECK_OK(strait_codec_join(NULL, chain->sender[0]));
    CHECK_OK(strait_codec_join(chain->receiver[0], chain->sender[1]));
    CHECK_OK(strait_codec_join(chain->receiver[1], NULL));
    CHECK(specs[0].precision == rig->be->precision);
    for (int slot = 0; slot < CHAIN_SLOTS; slot++)
        for (int stage = 0; stage < CHAIN_STAGES; stage++)
            chain->x[slot][stage] = rig_act(rig, CHAIN_ROWS, chain->cols, 10 * slot + stage);
    chain->y = rig_act_output(rig, CHAIN_ROWS, chain->cols);
    chain->d = rig_act_output(rig, CHAIN_ROWS, chain->cols);
    for (int b = 0; b < CHAIN_BOUNDARIES; b++)
        chain->d_sent[b] = rig_act_output(rig, CHAIN_ROWS, chain->cols);
    chain->v = rig_act(rig, CHAIN_ROWS, chain->cols, 99);
    chain->tokens = rig_tokens(rig, CHAIN_ROWS, CHAIN_VOCAB, 5);
    const int64_t table_rows = specs[0].table_rows > 0 ? specs[0].table_rows : specs[0].vocab;
    chain->table = rig_act(rig, table_rows, chain->cols, 77);
}

void chain_open(struct chain *chain, struct rig *rig, const codec_case *which) {
    const strait_codec_spec specs[CHAIN_BOUNDARIES] = {case_spec(which, 0), case_spec(which, 1)};
    (void)snprintf(rig->about, sizeof rig->about, "%s", which->label);
    chain_open_specs(chain, rig, specs);
}

void chain_close(struct chain *chain) {
    for (int b = 0; b < CHAIN_BOUNDARIES; b++) {
        strait_codec_close(&chain->sender[b]);
        strait_codec_close(&chain->receiver[b]);
    }
    rig_check(chain->rig);
}

strait_crossing chain_at(struct chain *chain, int slot) {
    return (strait_crossing){.stream = &chain->rig->stream,
                             .step = chain->step,
                             .microbatch = slot,
                             .slot = slot,
                             .tokens = chain->tokens,
                             .lists = chain->lists,
                             .table = chain->table};
}

enum {
    VALUES = CHAIN_ROWS * CHAIN_COLS
};

/* y = x + sin(x) / 2 stands for the blocks of a stage. */
static void stage_forward(struct chain *chain, strait_tensor x) {
    float values[VALUES];
    rig_read(chain->rig, x, values);
    for (int64_t i = 0; i < x.rows * x.cols; i++)
        values[i] += 0.5f * sinf(values[i]);
    rig_write(chain->rig, chain->y, values);
}

static void stage_backward(struct chain *chain, strait_tensor x) {
    float values[VALUES], d[VALUES];
    rig_read(chain->rig, x, values);
    rig_read(chain->rig, chain->d, d);
    for (int64_t i = 0; i < x.rows * x.cols; i++)
        d[i] *= 1 + 0.5f * cosf(values[i]);
    rig_write(chain->rig, chain->d, d);
}

void chain_forward(struct chain *chain, int slot) {
    strait_crossing at = chain_at(chain, slot);
    for (int stage = 0; stage < CHAIN_STAGES; stage++) {
        stage_forward(chain, chain->x[slot][stage]);
        if (stage == CHAIN_BOUNDARIES) break;
        const strait_tensor wire = chain->wire[stage][STRAIT_FORWARD];
        at.input = chain->x[slot][stage];
        CHECK_OK(strait_codec_act_pack(chain->sender[stage], &at, wire, chain->y));
        if (chain->on_wire != NULL) chain->on_wire(chain, stage);
        CHECK_OK(
            strait_codec_act_unpack(chain->receiver[stage], &at, chain->x[slot][stage + 1], wire));
    }
}

void chain_backward(struct chain *chain, int slot) {
    const strait_crossing at = chain_at(chain, slot);
    float v[VALUES];
    rig_read(chain->rig, chain->v, v);
    rig_write(chain->rig, chain->d, v);
    stage_backward(chain, chain->x[slot][CHAIN_BOUNDARIES]);
    for (int b = CHAIN_BOUNDARIES - 1; b >= 0; b--) {
        const strait_tensor wire = chain->wire[b][STRAIT_BACKWARD];
        CHECK_OK(chain->rig->k->cast(&chain->rig->stream, chain->d_sent[b], chain->d));
        CHECK_OK(strait_codec_grad_pack(chain->receiver[b], &at, wire, chain->d_sent[b]));
        CHECK_OK(strait_codec_grad_unpack(chain->sender[b], &at, chain->d, wire));
        stage_backward(chain, chain->x[slot][b]);
        CHECK_OK(strait_codec_input_grad(chain->sender[b], &at, chain->d));
    }
}

void chain_param_grads(struct chain *chain, int slot) {
    const strait_crossing at = chain_at(chain, slot);
    for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++)
        CHECK_OK(strait_codec_param_grads(chain_side(chain, i), &at));
}

void chain_run(struct chain *chain, int steps) {
    for (int i = 0; i < steps; i++) {
        chain->step++;
        for (int slot = 0; slot < CHAIN_SLOTS; slot++) {
            chain_forward(chain, slot);
            chain_backward(chain, slot);
            chain_param_grads(chain, slot);
        }
    }
}

void chain_shake(struct chain *chain) {
    strait_param p;
    for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) {
        for (int j = 0; strait_codec_get_param(chain_side(chain, i), j, &p) == STRAIT_OK; j++) {
            const size_t n = (size_t)(p.value.rows * p.value.cols);
            float *values = malloc(n * sizeof *values);
            assert_non_null(values);
            strait_rng_normals((strait_rng){11, strait_rng_stream(p.name)}, 0, values, n);
            for (size_t v = 0; v < n; v++)
                values[v] *= 0.3f;
            rig_write(chain->rig, p.value, values);
            free(values);
        }
        CHECK_OK(strait_codec_refresh(chain_side(chain, i), &chain->rig->stream));
    }
}

unsigned char *read_bytes(struct rig *rig, strait_tensor t) {
    unsigned char *bytes = malloc(strait_tensor_bytes(t) + 1);
    assert_non_null(bytes);
    rig_read(rig, t, (float *)(void *)bytes);
    return bytes;
}
