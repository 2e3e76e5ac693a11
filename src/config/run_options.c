/* Every option of a run file. Adding one is adding a field to strait_run and a row here. What run.c
 * derives from other options must lie within the bounds of its own. */
#include "backend/kernels.h"
#include "config/run.h"
#include "optim/optimizer.h"

#include <assert.h>

#define FIELD(field)    STRAIT_OPTION_FIELD(strait_run, field)
#define INT(field)      STRAIT_OPTION_INT, FIELD(field)
#define REAL(field)     STRAIT_OPTION_REAL, FIELD(field)
#define BOOL(field)     STRAIT_OPTION_BOOL, FIELD(field)
#define TEXT(field)     STRAIT_OPTION_TEXT, FIELD(field)
#define PATH(field)     STRAIT_OPTION_PATH, FIELD(field)
#define PATHS(field)    STRAIT_OPTION_PATHS, FIELD(field)
#define CHOICE(field)   STRAIT_OPTION_CHOICE, FIELD(field)
#define INTS(field)     STRAIT_OPTION_INTS, FIELD(field)
#define BITRATE(field)  STRAIT_OPTION_RATE, FIELD(field)
#define DURATION(field) STRAIT_OPTION_DURATION, FIELD(field)

static_assert(sizeof(strait_run_family) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(strait_run_counts) == sizeof(strait_option_ints), "a list is a list");
static_assert(offsetof(strait_run_counts, n) == offsetof(strait_option_ints, n), "laid out alike");

/* In the order of the enums of the public header. */
static const char *const families[] = {"llama", "yardstick", NULL};
static const char *const activations[] = {"swiglu", "relu2", NULL};
static const char *const ropes[] = {"full", "half", NULL};
static const char *const inits[] = {"llama", "yardstick", NULL};
static const char *const schedules[] = {"linear", "cosine", "constant", NULL};

static const char *const pipelines[] = {"auto",        "fill-drain", "1f1b",
                                        "1f1b-window", "1f1b-split", NULL};
static const char *const transports[] = {"tls", "inproc", NULL};
static const char *const roundings[] = {"auto", "nearest", "stochastic", NULL};
static const char *const precisions[] = {"auto", "fp32", "bf16", NULL};

static const strait_option rows[] = {
    {"name", TEXT(name), 0, 0, "", NULL, "names the run and its folder; empty: the file's name"},

    {"model.family", CHOICE(model.family), 0, 0, "llama", families,
     "sets the defaults of the keys below that make a kind of model"},
    {"model.width", INT(model.width), 1, 65536, "256", NULL, "features of the residual stream"},
    {"model.layers", INT(model.layers), 1, 4096, "4", NULL, "blocks of attention and mlp"},
    {"model.heads", INT(model.heads), 1, 1024, "4", NULL, "query heads"},
    {"model.kv_heads", INT(model.kv_heads), 0, 1024, "0", NULL,
     "key and value heads, each shared by neighbouring query heads; 0: as many as heads"},
    {"model.head_dim", INT(model.head_dim), 0, 65536, "0", NULL,
     "features of a head; 0: width / heads"},
    {"model.ffn", INT(model.ffn), 0, 1048576, "0", NULL,
     "hidden features of the mlp; 0: 8/3 width rounded up to 16 (swiglu), 4 width (relu2)"},
    {"model.vocab", INT(model.vocab), 0, 16777216, "0", NULL,
     "tokens; 0: as the tokenizer or the shards have it"},
    {"model.context", INT(model.context), 1, 1048576, "256", NULL, "tokens of a sequence"},
    {"model.activation", CHOICE(model.activation), 0, 0, "swiglu", activations, "of the mlp"},
    {"model.qk_norm", BOOL(model.has_qk_norm), 0, 0, "false", NULL,
     "normalise queries and keys in each head"},
    {"model.qk_gain", BOOL(model.has_qk_gain), 0, 0, "false", NULL,
     "a trained gain in that normalisation"},
    {"model.rope", CHOICE(model.rope), 0, 0, "full", ropes,
     "which rotary pairs turn: all, or the faster half"},
    {"model.rope_theta", REAL(model.rope_theta), 1, 1e9, "10000", NULL,
     "wavelengths of the full rope grow to 2 pi times this; the half rope has its own"},
    {"model.attention_scale", REAL(model.attention_scale), 0, 100, "0", NULL,
     "factor on query times key; 0: 1 / sqrt(head_dim)"},
    {"model.softcap", REAL(model.softcap), 0, 10000, "0", NULL,
     "bound that logits approach but never pass; 0: none"},
    {"model.tied", BOOL(model.is_tied), 0, 0, "false", NULL, "the head is the embedding table"},
    {"model.norm_epsilon", REAL(model.norm_epsilon), 1e-12, 0.1, "1e-05", NULL,
     "added to the mean square in a norm"},
    {"model.init", CHOICE(model.init), 0, 0, "llama", inits, "first weights"},
    {"model.conv", INT(model.conv), 0, STRAIT_CONV_TAPS, "0", NULL,
     "taps of causal convolutions before attention, mlp and local blocks; 0: none"},
    {"model.qkv_conv", BOOL(model.has_qkv_conv), 0, 0, "false", NULL,
     "convolve queries, keys and values too, with as many taps as model.conv has"},
    {"model.anchors", BOOL(model.has_anchors), 0, 0, "false", NULL,
     "a table's row for the token is added to the stream before local blocks but the first"},
    {"model.value_tables", BOOL(model.has_value_tables), 0, 0, "false", NULL,
     "a table's row for the token is added to the values of local blocks' attention"},
    {"model.local_every", INT(model.local_every), 1, 4096, "1", NULL,
     "local blocks are the first and every so many from there: the layers of a stage"},

    {"data.train", PATHS(data.train), 0, 0, "", NULL, "token shards to train on"},
    {"data.valid", PATHS(data.valid), 0, 0, "", NULL,
     "token shards to validate on; empty: no validation"},
    {"data.tokenizer", PATH(data.tokenizer), 0, 0, "", NULL, "the shards' tokenizer.json"},
    {"data.valid_tokens", INT(data.valid_tokens), 0, 1e15, "0", NULL,
     "validate on this many tokens, rounded up to whole sequences; 0: all"},

    {"train.steps", INT(train.steps), 1, 1e9, "1000", NULL, "optimizer updates"},
    {"train.batch_tokens", INT(train.batch_tokens), 1, 1073741824, "8192", NULL,
     "tokens of a step: a multiple of model.context"},
    {"train.optimizer", CHOICE(train.optimizer), 0, 0, "adamw", strait_optimizer_names,
     "sets the defaults of the keys below that belong to it"},
    {"train.learning_rate", REAL(train.learning_rate), 1e-12, 100, "0.001", NULL,
     "learning rate of matrices"},
    {"train.embedding_learning_rate", REAL(train.embedding_learning_rate), 0, 10000, "0", NULL,
     "of the embedding; 0: rate (muon: 15 rate)"},
    {"train.head_learning_rate", REAL(train.head_learning_rate), 0, 10000, "0", NULL,
     "of the head; 0: rate (muon: 0.15 rate)"},
    {"train.gain_learning_rate", REAL(train.gain_learning_rate), 0, 10000, "0", NULL,
     "of the norms' gains; 0: rate (muon: 0.5 rate)"},
    {"train.conv_learning_rate", REAL(train.conv_learning_rate), 0, 10000, "0", NULL,
     "of convolutions; 0: gain_learning_rate"},
    {"train.mixing_learning_rate", REAL(train.mixing_learning_rate), -1, 10000, "-1", NULL,
     "of the matrices that carry strait's code; 0: they stay the identity; -1: gain_learning_rate"},
    {"train.residual_out_learning_rate", REAL(train.residual_out_learning_rate), 0, 100, "0", NULL,
     "of what writes the stream, in stages before the last; 0: rate"},
    {"train.boundary_learning_rate", REAL(train.boundary_learning_rate), 0, 100, "0", NULL,
     "of the codecs' matrices; 0: rate"},
    {"train.encoder_basis_learning_rate", REAL(train.encoder_basis_learning_rate), -1, 100, "-1",
     NULL,
     "of the matrices that strait writes its code by; 0: they stay as drawn; -1: "
     "boundary_learning_rate"},
    {"train.value_learning_rate", REAL(train.value_learning_rate), 0, 10000, "0", NULL,
     "of value tables and of a codec's gains; 0: rate (muon: a tenth of embedding_learning_rate)"},
    {"train.anchor_learning_rate", REAL(train.anchor_learning_rate), -1, 10000, "-1", NULL,
     "of anchors; 0: they stay as drawn; -1: embedding_learning_rate"},
    {"train.anchor_steps", INT(train.anchor_steps), 0, 1e9, "0", NULL,
     "steps over which the anchors' rate falls to nothing, for good, such as one pass over the "
     "data takes; 0: only the schedule's way"},
    {"train.weight_decay", REAL(train.weight_decay), 0, 10, "0.1", NULL,
     "weight decay of matrices, times train.learning_rate, also for those with a rate of their "
     "own"},
    {"train.embedding_weight_decay", REAL(train.embedding_weight_decay), -1, 10, "-1", NULL,
     "weight decay of embedding, head, anchors, value tables and a codec's gains, times their "
     "rates; -1: decay"},
    {"train.beta1", REAL(train.beta1), 0, 0.999999, "0.9", NULL, "AdamW, first moment"},
    {"train.beta2", REAL(train.beta2), 0, 0.999999, "0.95", NULL, "AdamW, second moment"},
    {"train.epsilon", REAL(train.epsilon), 1e-20, 0.1, "1e-08", NULL,
     "AdamW, added to the root of the second moment"},
    {"train.momentum", REAL(train.momentum), 0, 0.999999, "0.95", NULL, "Muon"},
    {"train.momentum_start", REAL(train.momentum_start), 0, 0.999999, "0.85", NULL,
     "Muon, at the first step"},
    {"train.momentum_warmup", INT(train.momentum_warmup), 0, 1e9, "300", NULL,
     "Muon, steps from momentum_start to momentum"},
    {"train.clip", REAL(train.clip), 0, 1e9, "1", NULL,
     "largest norm of all gradients together, which are made smaller to have it; 0: none"},
    {"train.warmup", INT(train.warmup), -1, 1e9, "-1", NULL,
     "steps to the full rate; -1: a twentieth of steps, at most 1000 (muon: 0)"},
    {"train.schedule", CHOICE(train.schedule), 0, 0, "cosine", schedules,
     "of the rate after the warm-up"},
    {"train.decay_steps", INT(train.decay_steps), 0, 1e9, "0", NULL,
     "last steps of the constant schedule, in which the rate falls; 0: it never does"},
    {"train.final_learning_rate", REAL(train.final_learning_rate), 0, 1, "0.1", NULL,
     "where the rate ends, as a fraction of it"},
    {"train.seed", INT(train.seed), 0, 9007199254740992.0, "1", NULL,
     "of first weights and of the order of the data"},
    {"train.recompute", BOOL(train.is_recomputed), 0, 0, "false", NULL,
     "forget activations and compute them again: less memory, more time"},
    {"train.valid_every", INT(train.valid_every), 0, 1e9, "100", NULL,
     "steps between validations; 0: only at the end"},
    {"train.save_every", INT(train.save_every), 0, 1e9, "200", NULL,
     "steps between checkpoints; 0: only at the end"},
    {"train.keep_checkpoints", INT(train.keep_checkpoints), 1, 1e6, "2", NULL, "checkpoints kept"},
    {"train.log_every", INT(train.log_every), 1, 1e9, "1", NULL, "steps between progress lines"},

    {"stages.count", INT(stages.count), 1, STRAIT_RUN_STAGES, "1", NULL,
     "parts the model is cut into, up to one a layer"},
    {"stages.split", INTS(stages.split), 1, 4096, "", NULL,
     "layers of each stage, [3, 3, 1, 1]; empty: balanced, embedding and head counted in, "
     "each stage begun with a local block"},
    {"stages.microbatch", INT(stages.microbatch), 0, 1048576, "0", NULL,
     "sequences computed at a time; 0: a divisor of the step's, up to 2048 tokens (16384 on a "
     "GPU), that leaves four microbatches a stage"},
    {"stages.schedule", CHOICE(stages.schedule), 0, 0, "auto", pipelines,
     "order of forward and backward passes; auto: 1f1b-split, or 1f1b-window when recomputing"},
    {"stages.window", INT(stages.window), 0, 65535, "0", NULL,
     "microbatches in flight on every stage, but not of fill-drain; 0: from measured times and "
     "delays"},

    {"stages.launch", TEXT(stages.launch), 0, 0, "", NULL,
     "words before the command of a stage, \"ip netns exec s{stage}\"; empty: none"},
    {"stages.address", TEXT(stages.address), 0, 0, "127.0.0.1", NULL,
     "where a stage listens for its neighbour, \"10.0.{stage}.1\""},
    {"stages.coordinator", TEXT(stages.coordinator), 0, 0, "127.0.0.1", NULL,
     "where the coordinator listens for its stages"},

    {"link.transport", CHOICE(link.transport), 0, 0, "tls", transports,
     "tls: stages are processes; inproc: threads of one process"},
    {"link.codec.name", TEXT(link.codec.name), 0, 0, "none", NULL,
     "what makes a boundary smaller: none, int8, int4, topk, lowrank, subspace, resbm, strait"},
    {"link.codec.variant", TEXT(link.codec.variant), 0, 0, "", NULL,
     "of the codec; empty: its own (strait's: context)"},
    {"link.codec.keep", INT(link.codec.keep), 0, 65536, "0", NULL,
     "values kept of each token; 0: the codec's default"},
    {"link.codec.bits", INT(link.codec.bits), 0, 32, "0", NULL,
     "of a value on the wire: 32, 16, 8 or 4; 0: the codec's default"},
    {"link.codec.grad_bits", INT(link.codec.grad_bits), 0, 32, "0", NULL,
     "the same for gradients; 0: as bits"},
    {"link.codec.hidden", INT(link.codec.hidden), 0, 65536, "0", NULL,
     "inner width of resbm and strait; 0: the codec's default"},
    {"link.codec.anchors", INT(link.codec.anchors), 0, 65536, "0", NULL,
     "width of strait's token tables; 0: the codec's default"},
    {"link.codec.context", INT(link.codec.context), 0, 64, "0", NULL,
     "tokens whose codes strait's variant context reads; 0: 4"},
    {"link.codec.encoder", INT(link.codec.encoder), 0, 65536, "0", NULL,
     "inner width of the encoder of strait's variant context; 0: 256"},
    {"link.codec.encoder_basis", REAL(link.codec.encoder_basis), 0, 1000, "0", NULL,
     "gain of one frame that strait's variant context starts every boundary from; 0: each from "
     "its own numbers"},
    {"link.codec.gains", BOOL(link.codec.has_gains), 0, 0, "false", NULL,
     "gains of tokens on both sides of strait's variant context"},
    {"link.codec.rank", INT(link.codec.rank), 0, 65536, "0", NULL, "of lowrank; 0: its default"},
    {"link.codec.tile", INT(link.codec.tile), 0, 65536, "0", NULL,
     "values that share a scale in int4; 0: its default"},
    {"link.codec.rounding", CHOICE(link.codec.rounding), 0, 0, "auto", roundings,
     "of gradients; auto: stochastic at 8 and 4 bits"},
    {"link.codec.feedback", BOOL(link.codec.has_feedback), 0, 0, "false", NULL,
     "add what a crossing lost to the next one (transparent codecs)"},
    {"link.codec.confine_every", INT(link.codec.confine_every), 0, 1e9, "0", NULL,
     "subspace with full weights: project them every so many steps; 0: on a leak"},
    {"link.codec.leak_limit", REAL(link.codec.leak_limit), 0, 1, "0", NULL,
     "subspace with full weights: largest leak left alone; 0: the codec's default"},
    {"link.codec.grassmann_every", INT(link.codec.grassmann_every), 0, 1e9, "0", NULL,
     "subspace: steps between turns of the basis; 0: never"},
    {"link.codec.grassmann_rate", REAL(link.codec.grassmann_rate), 0, 1e9, "0", NULL,
     "subspace: how far a turn goes; 0: the codec's default"},
    {"link.emulate.rate", BITRATE(link.emulate.rate), 0, 1e13, "0", NULL,
     "of each direction of a link, \"80mbit\"; 0: as fast as it goes"},
    {"link.emulate.delay", DURATION(link.emulate.delay), 0, 60, "0", NULL, "one way, \"25ms\""},
    {"link.emulate.jitter", DURATION(link.emulate.jitter), 0, 60, "0", NULL,
     "added to the delay, between nothing and this"},
    {"link.emulate.loss", REAL(link.emulate.loss), 0, 0.5, "0", NULL,
     "share of packets that are sent twice"},
    {"link.emulate.drop_after", DURATION(link.emulate.drop_after), 0, 1e6, "0", NULL,
     "pull the cable after this long; 0: never"},
    {"link.meter.rate", BITRATE(link.meter.rate), 0, 1e13, "0", NULL,
     "also count every step on the meter of Protocol NanoGPT at this rate, \"200mbit\"; 0: no"},
    {"link.meter.delay", DURATION(link.meter.delay), 0, 60, "50ms", NULL, "of that meter, one way"},
    {"link.streams", INT(link.streams), 0, 64, "0", NULL,
     "TCP streams of a link; 0: one where BBR is allowed, else four"},
    {"link.deadline", DURATION(link.deadline), 0.1, 86400, "60s", NULL,
     "how long a stage may wait for its neighbour before the run is given up"},

    {"device.kind", TEXT(device.kind), 0, 0, "cpu", NULL, "what computes: cpu or cuda"},
    {"device.ordinal", INT(device.ordinal), 0, 1023, "0", NULL, "which one of its kind, from 0"},
    {"device.threads", INT(device.threads), 0, 4096, "0", NULL, "0: one for each core"},
    {"device.precision", CHOICE(device.precision), 0, 0, "auto", precisions,
     "of activations and products; auto: bf16 on a gpu that has it, else fp32"},
};

static const char *const yardstick[] = {"model.activation=relu2",     "model.rope=half",
                                        "model.qk_norm=true",         "model.softcap=15",
                                        "model.attention_scale=0.12", "model.init=yardstick",
                                        "model.norm_epsilon=1e-06",   NULL};
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

/* What strait's variant context was found with (docs/research). */
static const char *const context[] = {"model.conv=4",          "model.qkv_conv=true",
                                      "model.anchors=true",    "model.value_tables=true",
                                      "link.codec.gains=true", NULL};
static const char *const context_rates[] = {
    "train.learning_rate=0.045",          "train.residual_out_learning_rate=0.0045",
    "train.boundary_learning_rate=0.004", "train.value_learning_rate=0.03",
    "train.embedding_learning_rate=0.3",  "train.head_learning_rate=0.003",
    "train.gain_learning_rate=0.01",      "train.conv_learning_rate=0.02",
    "train.mixing_learning_rate=0.001",   NULL};

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
};

const strait_options *strait_run_options(void) {
    return &table;
}
