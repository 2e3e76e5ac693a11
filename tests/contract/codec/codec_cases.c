/* codec_cases.c - the codecs and options that contract tests run on. */
#include "codec_rig.h"

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
    {"context padded computed gates that share rows",
     {.name = "strait",
      .variant = "context",
      .bits = 32,
      .gate_width = 8,
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
      .vocab = 2 * CHAIN_ROWS + 1, // too many to keep the gates of all
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
    if (spec->vocab == 0) spec->vocab = CHAIN_VOCAB;
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
