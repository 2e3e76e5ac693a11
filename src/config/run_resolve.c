/* Deriving the options that the user left out, and checking that all options fit together. */
#include "backend/backend.h"
#include "config/run_auto.h"
#include "config/run_rule.h"
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

#define WRONG(...) STRAIT_FAIL(STRAIT_ECONFIG, __VA_ARGS__)

static long long ll(int64_t n) {
    return n;
}

/* Names a run after its file: "runs/big.yaml" is the run "big". */
static strait_err name_after(const char *path, strait_run *run) {
    const char *slash = strrchr(path, '/');
    const char *stem = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(stem, '.');
    const size_t length = dot != NULL && dot != stem ? (size_t)(dot - stem) : strlen(stem);
    if (length >= sizeof run->name)
        return WRONG("name: the file's name is longer than %zu bytes; set name to a shorter one",
                     sizeof run->name - 1);
    memcpy(run->name, stem, length);
    run->name[length] = '\0';
    return STRAIT_OK;
}

static strait_err check_name(const strait_run *run) {
    if (strchr(run->name, '/') != NULL || run->name[0] == '.' || run->name[0] == '\0')
        return WRONG("name: \"%s\" cannot name a folder: expected letters without / or leading dot",
                     run->name);
    return STRAIT_OK;
}

/* Derives sizes that are 0. Later ones depend on earlier ones, so the order matters. */
static strait_err resolve_model(strait_run *run) {
    if (run->model.head_dim == 0) {
        if (run->model.width % run->model.heads != 0)
            return WRONG("model.heads: %lld does not divide model.width %lld; change one or set "
                         "model.head_dim",
                         ll(run->model.heads), ll(run->model.width));
        run->model.head_dim = run->model.width / run->model.heads;
    }
    if (run->model.kv_heads == 0) run->model.kv_heads = run->model.heads;
    /* SwiGLU has three matrices where ReLU^2 has two; 8/3 of the width gives both as many
     * parameters. A multiple of 16 suits vector kernels. */
    if (run->model.ffn == 0)
        run->model.ffn = run->model.activation == STRAIT_RELU2
                             ? 4 * run->model.width
                             : (8 * run->model.width + 47) / 48 * 16;
    if (run->model.attention_scale == 0)
        run->model.attention_scale = 1 / sqrt((double)run->model.head_dim);
    return STRAIT_OK;
}

static strait_err check_model(const strait_run *run) {
    /* Rotary embedding works on pairs; the half rope rotates half of them. */
    const int64_t multiple = run->model.rope == STRAIT_ROPE_HALF ? 4 : 2;
    if (run->model.head_dim % multiple != 0)
        return WRONG("model.head_dim: %lld is not a multiple of %lld, which model.rope needs",
                     ll(run->model.head_dim), ll(multiple));
    if (run->model.heads % run->model.kv_heads != 0)
        return WRONG("model.kv_heads: %lld does not divide model.heads %lld",
                     ll(run->model.kv_heads), ll(run->model.heads));
    if (run->model.qk_gain && !run->model.qk_norm)
        return WRONG("model.qk_gain: needs model.qk_norm");
    return STRAIT_OK;
}

/* Replaces -1 by the value of another key. Other negative values are errors that the bounds of the
 * option, which include -1, cannot find. */
static strait_err derive(const char *key, double *value, double other) {
    if (*value < 0 && *value != -1) return WRONG("%s: %g is neither -1 nor 0 or more", key, *value);
    if (*value < 0) *value = other;
    return STRAIT_OK;
}

/* What the optimizer proposes for a role whose learning rate the run file leaves out. */
static double default_learning_rate(const strait_run *run, strait_role role) {
    return strait_optimizer_default_learning_rate(strait_optimizers[run->train.optimizer], role,
                                                  run->train.learning_rate,
                                                  run->train.embedding_learning_rate);
}

/* Derives learning rates and weight decays. For some keys 0 means "keep the first values", so these
 * use -1 for "derive"; the others use 0. */
static strait_err resolve_train(strait_run *run) {
    const double rate = run->train.learning_rate;
    if (run->train.embedding_learning_rate == 0)
        run->train.embedding_learning_rate = default_learning_rate(run, STRAIT_ROLE_EMBEDDING);
    if (run->train.head_learning_rate == 0)
        run->train.head_learning_rate = default_learning_rate(run, STRAIT_ROLE_HEAD);
    if (run->train.gain_learning_rate == 0)
        run->train.gain_learning_rate = default_learning_rate(run, STRAIT_ROLE_GAIN);
    if (run->train.conv_learning_rate == 0)
        run->train.conv_learning_rate = run->train.gain_learning_rate;
    STRAIT_TRY(derive("train.mixing_learning_rate", &run->train.mixing_learning_rate,
                      run->train.gain_learning_rate));
    if (run->train.residual_out_learning_rate == 0) run->train.residual_out_learning_rate = rate;
    if (run->train.boundary_learning_rate == 0) run->train.boundary_learning_rate = rate;
    if (run->train.gate_learning_rate == 0) run->train.gate_learning_rate = rate;
    STRAIT_TRY(derive("train.encoder_basis_learning_rate", &run->train.encoder_basis_learning_rate,
                      run->train.boundary_learning_rate));
    if (run->train.value_learning_rate == 0)
        run->train.value_learning_rate = default_learning_rate(run, STRAIT_ROLE_VALUES);
    STRAIT_TRY(derive("train.anchor_learning_rate", &run->train.anchor_learning_rate,
                      run->train.embedding_learning_rate));
    STRAIT_TRY(derive("train.embedding_weight_decay", &run->train.embedding_weight_decay,
                      run->train.weight_decay));
    if (run->train.lora.rank > 0 && run->train.lora.alpha == 0)
        run->train.lora.alpha = (double)(2 * run->train.lora.rank);
    if (run->train.warmup < 0)
        run->train.warmup = run->train.steps / 20 < 1000 ? run->train.steps / 20 : 1000;
    return STRAIT_OK;
}

static strait_err check_schedule(const strait_run *run) {
    if (run->train.decay_steps > 0 && run->train.schedule != STRAIT_LR_CONSTANT)
        return WRONG("train.decay_steps: needs train.schedule constant");
    if (run->train.warmup + run->train.decay_steps > run->train.steps)
        return WRONG("train.warmup %lld and train.decay_steps %lld exceed train.steps "
                     "%lld",
                     ll(run->train.warmup), ll(run->train.decay_steps), ll(run->train.steps));
    return STRAIT_OK;
}

/* Adapters of random weights would be of no use. */
static strait_err check_lora(const strait_run *run) {
    if (run->train.lora.rank == 0 || run->train.init_from[0] != '\0') return STRAIT_OK;
    return WRONG("train.lora: needs train.init_from, the model to adapt");
}

/* A step must consist of whole microbatches of whole sequences, so that no token is padded. */
static strait_err check_batch(const strait_run *run) {
    const int64_t context = run->model.context;
    const int64_t piece = run->stages.microbatch > 0 ? run->stages.microbatch * context : context;
    const int64_t batch = run->train.batch_tokens;
    if (batch % context != 0)
        return WRONG("train.batch_tokens: %lld is not a multiple of model.context %lld; try %lld",
                     ll(batch), ll(context), ll((batch / context + 1) * context));
    if (batch % piece != 0)
        return WRONG("stages.microbatch: %lld sequences of model.context %lld do not divide "
                     "train.batch_tokens %lld",
                     ll(run->stages.microbatch), ll(context), ll(batch));
    /* A sequence needs one more token than its length: the last target. */
    if (run->data.valid_tokens > 0 && run->data.valid_tokens <= context)
        return WRONG("data.valid_tokens: %lld is not more than model.context %lld",
                     ll(run->data.valid_tokens), ll(context));
    return STRAIT_OK;
}

static strait_err check_ordinals(const strait_run *run) {
    const int n = run->device.ordinal.n;
    if (n <= 1 || n == run->stages.count) return STRAIT_OK;
    return WRONG("device.ordinal: %d devices for %lld stage%s; expected one for all stages, one "
                 "per stage, or auto",
                 n, ll(run->stages.count), run->stages.count == 1 ? "" : "s");
}

/* Checks names that only another module knows. They are checked even where this run does not use
 * them, such as the codec of a run without boundaries, so that a typing error is found at once. */
static strait_err check_parts(const strait_run *run) {
    const strait_err err = strait_backend_check_name(run->device.kind);
    if (err != STRAIT_OK) strait_err_prefix("device.kind");
    STRAIT_TRY(err);
    STRAIT_TRY(check_ordinals(run));
    if (strait_run_is_auto(run)) return STRAIT_OK;
    return strait_codec_check_name(run->link.codec.name, run->link.codec.variant);
}

/* Checks follow what they depend on: a check of derived sizes comes after their derivation. */
strait_err strait_run_resolve(const char *path, strait_run *run) {
    if (run->name[0] == '\0') STRAIT_TRY(name_after(path, run));
    run->is_given[0] = 1; // the name, which run.yaml must keep although that file has another name
    STRAIT_TRY(check_name(run));
    STRAIT_TRY(resolve_model(run));
    STRAIT_TRY(check_model(run));
    STRAIT_TRY(resolve_train(run));
    STRAIT_TRY(check_schedule(run));
    STRAIT_TRY(check_lora(run));
    STRAIT_TRY(strait_run_resolve_codec(run));
    STRAIT_TRY(strait_run_check_rule(run));
    STRAIT_TRY(check_parts(run));
    return check_batch(run);
}
