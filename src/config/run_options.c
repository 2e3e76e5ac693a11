/* The table of all options, generated from the rows of run_options.def, with the names of choices,
 * the presets and the keys that were renamed. */
#include "backend/kernels.h"
#include "config/run.h"
#include "optim/optimizer.h"

#include <assert.h>

/* The names of each choice, by the value of its enum. */
static const char *const families[] = {
    [STRAIT_RUN_LLAMA] = "llama", [STRAIT_RUN_YARDSTICK] = "yardstick", NULL};
static const char *const activations[] = {
    [STRAIT_SWIGLU] = "swiglu", [STRAIT_RELU2] = "relu2", NULL};
static const char *const ropes[] = {[STRAIT_ROPE_FULL] = "full", [STRAIT_ROPE_HALF] = "half", NULL};
static const char *const rope_scalings[] = {[STRAIT_ROPE_UNSCALED] = "none",
                                            [STRAIT_ROPE_LINEAR] = "linear",
                                            [STRAIT_ROPE_LLAMA3] = "llama3",
                                            NULL};
static const char *const inits[] = {
    [STRAIT_INIT_LLAMA] = "llama", [STRAIT_INIT_YARDSTICK] = "yardstick", NULL};
static const char *const schedules[] = {[STRAIT_LR_LINEAR] = "linear",
                                        [STRAIT_LR_COSINE] = "cosine",
                                        [STRAIT_LR_CONSTANT] = "constant",
                                        NULL};
static const char *const row_moments[] = {
    [STRAIT_ROWS_CONSTRAINED] = "constrained", [STRAIT_ROWS_ALL] = "all", NULL};
static const char *const corpus_formats[] = {[STRAIT_CORPUS_SHARD] = "shard",
                                             [STRAIT_CORPUS_UINT16] = "uint16",
                                             [STRAIT_CORPUS_UINT32] = "uint32",
                                             NULL};
static const char *const pipelines[] = {[STRAIT_RUN_PIPELINE_AUTO] = "auto",
                                        [STRAIT_RUN_FILL_DRAIN] = "fill-drain",
                                        [STRAIT_RUN_1F1B] = "1f1b",
                                        [STRAIT_RUN_1F1B_WINDOW] = "1f1b-window",
                                        [STRAIT_RUN_1F1B_SPLIT] = "1f1b-split",
                                        NULL};
static const char *const places[] = {
    [STRAIT_PLACE_PACK] = "pack", [STRAIT_PLACE_SPREAD] = "spread", NULL};
static const char *const transports[] = {
    [STRAIT_RUN_TLS] = "tls", [STRAIT_RUN_INPROC] = "inproc", NULL};
static const char *const roundings[] = {[STRAIT_ROUND_AUTO] = "auto",
                                        [STRAIT_ROUND_NEAREST] = "nearest",
                                        [STRAIT_ROUND_STOCHASTIC] = "stochastic",
                                        NULL};
static const char *const outer_states[] = {[STRAIT_OUTER_NONE] = "none",
                                           [STRAIT_OUTER_MOMENTS] = "moments",
                                           [STRAIT_OUTER_MOMENTUM_ONLY] = "momentum",
                                           NULL};
static const char *const precisions[] = {[STRAIT_RUN_PRECISION_AUTO] = "auto",
                                         [STRAIT_RUN_FP32] = "fp32",
                                         [STRAIT_RUN_BF16] = "bf16",
                                         [STRAIT_RUN_FP8] = "fp8",
                                         NULL};

/* For each kind of option: the fields of its row. */
#define ROW_INT(low, high)      .kind = STRAIT_OPTION_INT, .min = (low), .max = (high)
#define ROW_REAL(low, high)     .kind = STRAIT_OPTION_REAL, .min = (low), .max = (high)
#define ROW_BOOL                .kind = STRAIT_OPTION_BOOL
#define ROW_TEXT(bytes)         .kind = STRAIT_OPTION_TEXT
#define ROW_TEXTS(bytes)        .kind = STRAIT_OPTION_TEXTS
#define ROW_PATH                .kind = STRAIT_OPTION_PATH
#define ROW_PATHS               .kind = STRAIT_OPTION_PATHS
#define ROW_CHOICE(type, names) .kind = STRAIT_OPTION_CHOICE, .choices = (names)
#define ROW_INTS(low, high)     .kind = STRAIT_OPTION_INTS, .min = (low), .max = (high)
#define ROW_DURATION(low, high) .kind = STRAIT_OPTION_DURATION, .min = (low), .max = (high)
#define ROW_RATE(low, high)     .kind = STRAIT_OPTION_RATE, .min = (low), .max = (high)

#define FIELD(path) \
    .offset = offsetof(strait_run, path), .capacity = sizeof(((strait_run *)0)->path)

// NOLINTBEGIN(bugprone-macro-parentheses): `section.name` is a member, not an expression
static const strait_option rows[] = {
#define ROOT(name, type, value, text) \
    {.key = #name, FIELD(name), .initial = (value), .help = (text), ROW_##type},
#define OPTION(section, name, type, value, text) \
    {.key = #section "." #name,                  \
     FIELD(section.name),                        \
     .initial = (value),                         \
     .help = (text),                             \
     ROW_##type},
#include "config/run_options.def"
};
// NOLINTEND(bugprone-macro-parentheses)

/* base/options stores a choice through an int. */
static_assert(sizeof(strait_run_family) == sizeof(int), "a choice must have the size of an int");

/* The defaults that distinguish the yardstick family of models (docs/research/README.md). */
static const char *const yardstick[] = {"model.activation=relu2",     "model.rope=half",
                                        "model.qk_norm=true",         "model.softcap=15",
                                        "model.attention_scale=0.12", "model.init=yardstick",
                                        "model.norm_epsilon=1e-06",   NULL};
/* Muon's updates have a fixed scale, so its learning rates are larger than AdamW's, and clipping
 * and warmup are off. */
static const char *const muon[] = {"train.learning_rate=0.02",
                                   "train.weight_decay=0.05",
                                   "train.embedding_weight_decay=0.001",
                                   "train.beta1=0.8",
                                   "train.epsilon=1e-10",
                                   "train.clip=0",
                                   "train.warmup=0",
                                   "train.schedule=linear",
                                   "train.final_learning_rate=0",
                                   NULL};

/* The additions to the model that variant context of strait was tuned with, and under Muon the
 * learning rates that were found for it (docs/research). What depends on the ratio is in
 * run_rule.c. */
static const char *const context[] = {"model.conv=4", "model.qkv_conv=true", "model.anchors=true",
                                      "model.value_tables=true", NULL};
static const char *const context_rates[] = {
    "train.boundary_learning_rate=0.004", "train.value_learning_rate=0.03",
    "train.embedding_learning_rate=0.3",  "train.head_learning_rate=0.003",
    "train.gain_learning_rate=0.01",      "train.conv_learning_rate=0.02",
    "train.mixing_learning_rate=0.001",   NULL};

/* In order: a later preset overrides an earlier one, so the most specific comes last. */
static const strait_option_preset presets[] = {
    {"model.family", "yardstick", yardstick, NULL, NULL},
    {"train.optimizer", "muon", muon, NULL, NULL},
    {"link.codec.variant", "context", context, NULL, NULL},
    {"link.codec.variant", "context", context_rates, "train.optimizer", "muon"},
};

/* Keys of earlier versions. An error names the new key; nothing reads the old one. */
static const strait_option_rename renames[] = {
    {"train.rate", "train.learning_rate"},
    {"train.embedding_rate", "train.embedding_learning_rate"},
    {"train.head_rate", "train.head_learning_rate"},
    {"train.gain_rate", "train.gain_learning_rate"},
    {"train.conv_rate", "train.conv_learning_rate"},
    {"train.mixing_rate", "train.mixing_learning_rate"},
    {"train.writer_rate", "train.residual_out_learning_rate"},
    {"train.boundary_rate", "train.boundary_learning_rate"},
    {"train.frame_rate", "train.encoder_basis_learning_rate"},
    {"train.value_rate", "train.value_learning_rate"},
    {"train.anchor_rate", "train.anchor_learning_rate"},
    {"train.final_rate", "train.final_learning_rate"},
    {"train.decay", "train.weight_decay"},
    {"train.embedding_decay", "train.embedding_weight_decay"},
    {"train.keep", "train.keep_checkpoints"},
    {"stages.conductor", "stages.coordinator"},
    {"link.codec.frame", "link.codec.encoder_basis"},
    {"link.emulate.cut_after", "link.emulate.drop_after"},
};

static const strait_options table = {
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .presets = presets,
    .n_presets = sizeof presets / sizeof *presets,
    .renames = renames,
    .n_renames = sizeof renames / sizeof *renames,
    .chooser = "link.codec.name",
};

const strait_options *strait_run_options(void) {
    return &table;
}
