#include "codec_rig.h"

#include "base/rng/rng.h"

static const codec_case listed[] = {
    {"none fp32", {.name = "none", .variant = "fp32"}, 1e-6},
    {"none bf16", {.name = "none"}, 2e-2},
    {"none bf16 feedback", {.name = "none", .has_feedback = 1}, 0},
    {"none bf16 stochastic", {.name = "none", .rounding = STRAIT_ROUND_STOCHASTIC}, 4e-2},
    {"int8", {.name = "int8"}, 0},
    {"int8 nearest", {.name = "int8", .rounding = STRAIT_ROUND_NEAREST}, 0},
    {"int8 feedback", {.name = "int8", .has_feedback = 1}, 0},
    {"int4", {.name = "int4"}, 0},
    {"int4 feedback", {.name = "int4", .has_feedback = 1, .rounding = STRAIT_ROUND_NEAREST}, 0},
    {"int4 back 16", {.name = "int4", .grad_bits = 16}, 0},
    {"topk", {.name = "topk"}, 0},
    {"topk feedback", {.name = "topk", .has_feedback = 1, .rounding = STRAIT_ROUND_STOCHASTIC}, 0},
    {"lowrank", {.name = "lowrank"}, 0},
    {"lowrank 32 feedback", {.name = "lowrank", .bits = 32, .has_feedback = 1}, 0},
    {"lowrank 8", {.name = "lowrank", .bits = 8}, 0},
    {"subspace exact", {.name = "subspace", .bits = 32, .grassmann_every = 10}, 1e-6},
    {"subspace", {.name = "subspace"}, 2e-2},
    {"subspace factored", {.name = "subspace", .variant = "factored", .bits = 32}, 1e-6},
    {"subspace 4", {.name = "subspace", .variant = "factored", .bits = 4}, 0.3},
    {"subspace code", {.name = "subspace", .variant = "code", .bits = 32}, 0},
    {"subspace code 8", {.name = "subspace", .variant = "code", .bits = 8}, 0},
    {"resbm exact", {.name = "resbm", .bits = 32}, 0},
    {"resbm exact deferred", {.name = "resbm", .bits = 32, .can_defer = 1}, 0},
    {"resbm", {.name = "resbm"}, 0},
    {"resbm 4 back 8", {.name = "resbm", .bits = 4, .grad_bits = 8}, 0},
    {"resbm b", {.name = "resbm", .variant = "b", .bits = 32}, 0},
    {"resbm b 4 back 8", {.name = "resbm", .variant = "b", .bits = 4, .grad_bits = 8}, 0},
    {"strait exact", {.name = "strait", .variant = "tied", .bits = 32}, 0},
    {"strait exact deferred", {.name = "strait", .variant = "tied", .bits = 32, .can_defer = 1}, 0},
    {"strait free", {.name = "strait", .variant = "free", .bits = 32}, 0},
    {"strait 16", {.name = "strait", .variant = "tied", .bits = 16}, 0},
    {"strait 8 back 16", {.name = "strait", .variant = "tied", .bits = 8, .grad_bits = 16}, 0},
    {"strait", {.name = "strait", .variant = "tied"}, 0},
    {"context exact", {.name = "strait", .variant = "context", .bits = 32, .seq_len = 3}, 0},
    {"context exact deferred",
     {.name = "strait", .variant = "context", .bits = 32, .can_defer = 1},
     0},
    {"context of 2 back 16",
     {.name = "strait", .variant = "context", .context = 2, .seq_len = 2, .grad_bits = 16},
     0},
    {"context 8", {.name = "strait", .variant = "context", .bits = 8}, 0},
    {"context nearest",
     {.name = "strait", .variant = "context", .rounding = STRAIT_ROUND_NEAREST, .keep = 6},
     0},
    {"context", {.name = "strait", .variant = "context", .seq_len = 3}, 0},
    {"context input",
     {.name = "strait", .variant = "context", .bits = 32, .seq_len = 3, .encodes_input = 1},
     0},
    {"context padded input",
     {.name = "strait", .variant = "context", .bits = 32, .encodes_input = 1, .is_padded = 1},
     0},
    {"context padded input gates",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .encodes_input = 1,
      .has_gates = 1,
      .is_padded = 1},
     0},
    {"resbm without identity", {.name = "resbm", .bits = 32, .drops_identity = 1}, 0},
    {"resbm padded without identity",
     {.name = "resbm", .bits = 32, .drops_identity = 1, .is_padded = 1},
     0},
    {"context gates",
     {.name = "strait", .variant = "context", .bits = 32, .seq_len = 3, .has_gates = 1},
     0},
    {"context gates deferred",
     {.name = "strait", .variant = "context", .bits = 32, .can_defer = 1, .has_gates = 1},
     0},
    {"context gates that share rows",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .can_defer = 1,
      .has_gates = 1,
      .table_rows = 6},
     0},
    {"context gates 4", {.name = "strait", .variant = "context", .has_gates = 1}, 0},
    {"context computed gates",
     {.name = "strait", .variant = "context", .bits = 32, .seq_len = 3, .gate_width = 8},
     0},
    {"context computed gates deferred",
     {.name = "strait", .variant = "context", .bits = 32, .can_defer = 1, .gate_width = 16},
     0},
    {"context computed gates that share rows",
     {.name = "strait", .variant = "context", .bits = 32, .gate_width = 8, .table_rows = 6},
     0},
    {"context kept basis and computed gates",
     {.name = "strait", .variant = "context", .bits = 32, .gate_width = 8, .basis_gain = 1},
     0},
    {"context padded gates that share rows",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .has_gates = 1,
      .table_rows = 6,
      .is_padded = 1},
     0},
    {"context padded computed gates",
     {.name = "strait", .variant = "context", .bits = 32, .gate_width = 8, .is_padded = 1},
     0},
    {"context padded computed gates deferred",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .can_defer = 1,
      .gate_width = 8,
      .is_padded = 1},
     0},
    {"subspace padded",
     {.name = "subspace", .bits = 32, .grassmann_every = 10, .is_padded = 1},
     1e-6},
    {"subspace padded 4",
     {.name = "subspace", .variant = "factored", .bits = 4, .is_padded = 1},
     0.3},
    {"resbm padded", {.name = "resbm", .bits = 32, .is_padded = 1}, 0},
    {"resbm padded deferred", {.name = "resbm", .bits = 32, .can_defer = 1, .is_padded = 1}, 0},
    {"resbm padded 8 back 4",
     {.name = "resbm", .bits = 8, .grad_bits = 4, .keep = 8, .is_padded = 1},
     0},
    {"strait padded", {.name = "strait", .variant = "tied", .bits = 32, .is_padded = 1}, 0},
    {"strait padded deferred",
     {.name = "strait", .variant = "tied", .bits = 32, .can_defer = 1, .is_padded = 1},
     0},
    {"strait padded 4", {.name = "strait", .variant = "tied", .keep = 8, .is_padded = 1}, 0},
    {"context padded",
     {.name = "strait", .variant = "context", .bits = 32, .seq_len = 3, .is_padded = 1},
     0},
    {"context padded deferred",
     {.name = "strait", .variant = "context", .bits = 32, .can_defer = 1, .is_padded = 1},
     0},
    {"context padded 4",
     {.name = "strait", .variant = "context", .seq_len = 3, .keep = 8, .is_padded = 1},
     0},
    {"context padded gates",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .seq_len = 3,
      .has_gates = 1,
      .is_padded = 1},
     0},
    {"context padded gates deferred",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .can_defer = 1,
      .has_gates = 1,
      .is_padded = 1},
     0},
    {"context padded gates 4",
     {.name = "strait", .variant = "context", .keep = 8, .has_gates = 1, .is_padded = 1},
     0},
    {"context padded 8",
     {.name = "strait", .variant = "context", .bits = 8, .context = 2, .is_padded = 1},
     0},
};

enum {
    N_LISTED = COUNT(listed),
    CASES_MAX = 128,
    LABEL_MAX = 64
};

static codec_case cases[CASES_MAX]; // ended by a label of NULL
static char labels[CASES_MAX][LABEL_MAX];
static int n_cases;

static int is_listed(const char *name, const char *variant) {
    for (int i = 0; i < N_LISTED; i++) {
        const strait_codec_spec *spec = &listed[i].spec;
        const char *own = spec->variant[0] != '\0' ? spec->variant
                                                   : strait_codec_default_variant(spec->name);
        if (strcmp(spec->name, name) == 0 && strcmp(own, variant) == 0) return 1;
    }
    return 0;
}

static void place(strait_codec_spec *spec, int b) {
    spec->rows = CHAIN_ROWS;
    spec->cols = CHAIN_COLS;
    spec->vocab = CHAIN_VOCAB;
    spec->n_slots = CHAIN_SLOTS;
    spec->n_boundaries = CHAIN_BOUNDARIES;
    spec->boundary = b;
    spec->seed = 7;
    if (spec->keep == 0) spec->keep = 5;
    if (spec->hidden == 0) spec->hidden = 7;
    if (spec->table_width == 0) spec->table_width = 3;
    if (spec->encoder == 0) spec->encoder = 9;
    if (spec->rank == 0) spec->rank = 3;
    if (spec->tile == 0) spec->tile = 8;
}

/* Adds the case if the codec accepts it. */
static void add_case(strait_codec_spec spec, const char *label) {
    strait_codec_spec placed = spec;
    place(&placed, 0);
    if (strait_codec_check(&placed) != STRAIT_OK || placed.is_padded != spec.is_padded) return;
    CHECK(n_cases < CASES_MAX - 1);
    (void)snprintf(labels[n_cases], LABEL_MAX, "%s %s %s", spec.name, spec.variant, label);
    cases[n_cases] = (codec_case){labels[n_cases], spec, 0};
    n_cases++;
}

static void add_variant(const char *name, const char *variant) {
    if (is_listed(name, variant)) return;
    strait_codec_spec spec = {.name = ""};
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    (void)snprintf(spec.variant, sizeof spec.variant, "%s", variant);
    add_case(spec, "default");
    spec.bits = 32;
    add_case(spec, "exact");
    spec.can_defer = 1;
    add_case(spec, "deferred");
    spec.is_padded = 1;
    add_case(spec, "padded deferred");
    spec.can_defer = 0;
    add_case(spec, "padded");
}

const codec_case *codec_cases(void) {
    if (n_cases > 0) return cases;
    memcpy(cases, listed, sizeof listed);
    n_cases = N_LISTED;
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        const char *const *variants = strait_codecs[i]->variants;
        if (variants == NULL) add_variant(strait_codecs[i]->name, "");
        for (int j = 0; variants != NULL && variants[j] != NULL; j++)
            add_variant(strait_codecs[i]->name, variants[j]);
    }
    return cases;
}

double case_tolerance(const codec_case *which) {
    const strait_codec_spec spec = case_spec(which, 0);
    const int bits = spec.bits < spec.grad_bits ? spec.bits : spec.grad_bits;
    if (which->tolerance > 0) return which->tolerance;
    return bits == 32 ? 1e-6 : bits == 16 ? 2e-2 : bits == 8 ? 5e-2 : 0.3;
}

strait_codec_spec case_spec(const codec_case *which, int b) {
    strait_codec_spec spec = which->spec;
    place(&spec, b);
    CHECK_OK(strait_codec_check(&spec));
    return spec;
}

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
    const int64_t table_rows = specs[0].table_rows > 0 ? specs[0].table_rows : CHAIN_VOCAB;
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
