#include "pipeline/recipe.h"

enum {
    /* Where the run file leaves the microbatch out: enough tokens for matrix products to run at
     * full speed, few enough for their activations to stay near the processor. */
    MICROBATCH_TOKENS = 2048
};

static strait_shape make_shape(const strait_run *run, int64_t vocab) {
    return (strait_shape){
        .vocab = run->model.vocab > 0 ? run->model.vocab : vocab,
        .context = run->model.context,
        .layers = (int)run->model.layers,
        .width = (int)run->model.width,
        .heads = (int)run->model.heads,
        .kv_heads = (int)run->model.kv_heads,
        .head_dim = (int)run->model.head_dim,
        .ffn = (int)run->model.ffn,
        .activation = run->model.activation == STRAIT_RUN_SWIGLU ? STRAIT_SWIGLU : STRAIT_RELU2,
        .rope = run->model.rope == STRAIT_RUN_ROPE_FULL ? STRAIT_ROPE_FULL : STRAIT_ROPE_HALF,
        .rope_theta = (float)run->model.rope_theta,
        .has_qk_norm = run->model.has_qk_norm,
        .has_qk_gain = run->model.has_qk_gain,
        .attention_scale = (float)run->model.attention_scale,
        .softcap = (float)run->model.softcap,
        .is_tied = run->model.is_tied,
        .norm_epsilon = (float)run->model.norm_epsilon,
        .init = run->model.init == STRAIT_RUN_INIT_LLAMA ? STRAIT_INIT_LLAMA
                                                         : STRAIT_INIT_YARDSTICK,
    };
}

static strait_optim_spec make_optim(const strait_run *run) {
    static const strait_optim_kind kinds[] = {[STRAIT_RUN_ADAMW] = STRAIT_OPTIM_ADAMW,
                                              [STRAIT_RUN_ADAMW_ROWS] = STRAIT_OPTIM_ADAMW_ROWS,
                                              [STRAIT_RUN_MUON] = STRAIT_OPTIM_MUON};
    const float decay = (float)run->train.decay;
    const float table_decay = (float)run->train.embedding_decay;
    return (strait_optim_spec){
        .kind = kinds[run->train.optimizer],
        .beta1 = (float)run->train.beta1,
        .beta2 = (float)run->train.beta2,
        .epsilon = (float)run->train.epsilon,
        .momentum = (float)run->train.momentum,
        .momentum_start = (float)run->train.momentum_start,
        .momentum_warmup = run->train.momentum_warmup,
        .max_norm = (float)run->train.clip,
        .groups = {[STRAIT_ROLE_MATRIX] = {(float)run->train.rate, decay},
                   [STRAIT_ROLE_WRITES_RESIDUAL] = {(float)run->train.rate, decay},
                   [STRAIT_ROLE_EMBEDDING] = {(float)run->train.embedding_rate, table_decay},
                   [STRAIT_ROLE_HEAD] = {(float)run->train.head_rate, table_decay},
                   [STRAIT_ROLE_GAIN] = {(float)run->train.gain_rate, 0.0f}},
    };
}

static strait_rate make_rate(const strait_run *run) {
    static const strait_rate_shape shapes[] = {[STRAIT_RUN_LINEAR] = STRAIT_RATE_LINEAR,
                                               [STRAIT_RUN_COSINE] = STRAIT_RATE_COSINE,
                                               [STRAIT_RUN_CONSTANT] = STRAIT_RATE_CONSTANT};
    return (strait_rate){.shape = shapes[run->train.schedule],
                         .steps = run->train.steps,
                         .warmup = run->train.warmup,
                         .decay_steps = run->train.decay_steps,
                         .final = (float)run->train.final_rate};
}

/* The largest divisor of `sequences` that keeps a microbatch within MICROBATCH_TOKENS. */
static int64_t choose_microbatch(int64_t sequences, int64_t context) {
    int64_t best = 1;
    for (int64_t n = 1; n <= sequences && n * context <= MICROBATCH_TOKENS; n++)
        if (sequences % n == 0) best = n;
    return best;
}

strait_err strait_recipe_make(const strait_run *run, int64_t vocab, strait_recipe *out) {
    strait_recipe recipe = {
        .shape = make_shape(run, vocab),
        .optim = make_optim(run),
        .rate = make_rate(run),
        .sequences = run->train.batch_tokens / run->model.context,
    };
    STRAIT_TRY(strait_shape_check(&recipe.shape));
    STRAIT_TRY(strait_rate_check(&recipe.rate));
    if (recipe.sequences < 1 || run->train.batch_tokens % run->model.context != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.batch_tokens (%lld) must be a multiple of model.context (%lld)",
                           (long long)run->train.batch_tokens, (long long)run->model.context);
    recipe.microbatch = run->stages.microbatch > 0
                            ? run->stages.microbatch
                            : choose_microbatch(recipe.sequences, run->model.context);
    if (recipe.sequences % recipe.microbatch != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.microbatch (%lld) must divide the %lld sequences of a step",
                           (long long)recipe.microbatch, (long long)recipe.sequences);
    recipe.n_microbatches = recipe.sequences / recipe.microbatch;
    *out = recipe;
    return STRAIT_OK;
}

strait_backend_spec strait_recipe_backend(const strait_run *run) {
    return (strait_backend_spec){.name = run->device.kind,
                                 .ordinal = (int)run->device.ordinal,
                                 .n_threads = (int)run->device.threads};
}

strait_stage_spec strait_recipe_stage(const strait_recipe *recipe, int recomputes) {
    return (strait_stage_spec){.shape = recipe->shape,
                               .part = {0, recipe->shape.layers},
                               .n_sequences = recipe->microbatch,
                               .seq_len = recipe->shape.context,
                               .n_slots = 1,
                               .is_training = 1,
                               .recomputes = recomputes};
}
