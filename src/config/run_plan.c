#include "config/run_plan.h"

#include "config/microbatch.h"
#include "plan/split.h"

#include <stdio.h>
#include <string.h>

enum {
    ROWS_ENOUGH = 65536,            // accepted by any codec, where rows do not matter
    MICROBATCHES_MAX = 65535,       // a frame has 16 bits for the number of a microbatch
    DEVICE_LOGIT_BYTES = 512 << 20, // of logits at a time on a GPU
    DEVICE_GROUP_VALUES = 16 << 20  // of matrices that Muon updates together on a GPU
};

/* Copies every option that the table names a member of the shape for. */
static void copy_shape(const strait_run *run, strait_shape *shape) {
#define SHAPE(key, member, saved, kind, initial, help) \
    shape->member = (__typeof__(shape->member))run->model.key;
#include "config/run_options.def"
}

/* Rows of tables by token id, as in strait_shape. Token gates of both sides of a stage count too.
 */
static int64_t choose_table_rows(const strait_run *run, const strait_shape *shape) {
    const int64_t gates = run->stages.count > 1 && run->link.codec.gains ? 2 * shape->width : 0;
    if (!shape->has_token_tables && !shape->has_value_tables && gates == 0) return 0;
    if (run->model.table_rows == 0) return strait_shape_choose_table_rows(shape, gates);
    return run->model.table_rows < shape->vocab ? run->model.table_rows : 0;
}

static strait_shape make_shape(const strait_run *run, int64_t vocab) {
    strait_shape shape = {0};
    copy_shape(run, &shape);
    /* Options without effect are cleared, so that equal models have equal descriptions in
     * checkpoints. */
    const int has_local = shape.conv > 0 || shape.has_token_tables || shape.has_value_tables ||
                          strait_parts_option(&shape) != NULL;
    if (shape.vocab == 0) shape.vocab = vocab;
    if (shape.conv == 0) shape.has_qkv_conv = shape.has_inner_conv = 0;
    if (!has_local) shape.local_every = 0;
    shape.table_rows = choose_table_rows(run, &shape);
    return shape;
}

/* A group of matrices. Weight decay acts per step by learning rate times decay; it is scaled here
 * so that all matrices decay alike whatever their own learning rates. */
static strait_optim_group matrices_at(const strait_run *run, double rate) {
    if (rate == 0) return (strait_optim_group){0};
    return (strait_optim_group){
        .learning_rate = (float)rate,
        .weight_decay = (float)(run->train.weight_decay * (run->train.learning_rate / rate))};
}

/* Sizes of logits and groups depend on the device; names of other backends count as GPUs. */
static int is_on_cpu(const strait_run *run) {
    return strcmp(run->device.kind, "cpu") == 0;
}

static strait_optim_spec make_optim(const strait_run *run) {
    const float table_decay = (float)run->train.embedding_weight_decay;
    strait_optim_spec spec = {
        .ops = strait_optimizers[run->train.optimizer],
        .max_norm = run->train.clip,
        .group_values = is_on_cpu(run) ? 0 : DEVICE_GROUP_VALUES,
        .groups =
            {[STRAIT_ROLE_MATRIX] = matrices_at(run, run->train.learning_rate),
             [STRAIT_ROLE_RESIDUAL_OUT] = matrices_at(run, run->train.residual_out_learning_rate),
             [STRAIT_ROLE_BOUNDARY] = matrices_at(run, run->train.boundary_learning_rate),
             [STRAIT_ROLE_GATE] = matrices_at(run, run->train.gate_learning_rate),
             [STRAIT_ROLE_ENCODER_BASIS] = matrices_at(run, run->train.encoder_basis_learning_rate),
             [STRAIT_ROLE_VALUES] = {.learning_rate = (float)run->train.value_learning_rate,
                                     .weight_decay = table_decay},
             [STRAIT_ROLE_TOKEN_TABLE] = {.learning_rate = (float)run->train.anchor_learning_rate,
                                          .weight_decay = table_decay,
                                          .steps = run->train.anchor_steps},
             [STRAIT_ROLE_EMBEDDING] = {.learning_rate = (float)run->train.embedding_learning_rate,
                                        .weight_decay = table_decay},
             [STRAIT_ROLE_HEAD] = {.learning_rate = (float)run->train.head_learning_rate,
                                   .weight_decay = table_decay},
             [STRAIT_ROLE_GAIN] = {.learning_rate = (float)run->train.gain_learning_rate},
             [STRAIT_ROLE_BIAS] = {.learning_rate = (float)run->train.gain_learning_rate},
             [STRAIT_ROLE_CONV] = {.learning_rate = (float)run->train.conv_learning_rate},
             [STRAIT_ROLE_MIXING] = {.learning_rate = (float)run->train.mixing_learning_rate}},
    };
    (void)snprintf(spec.freeze, sizeof spec.freeze, "%s", run->train.freeze);
    if (run->train.lora.rank > 0) (void)snprintf(spec.only, sizeof spec.only, "*.lora_a,*.lora_b");
#define OPTIM(key, kind, initial, help) spec.key = (__typeof__(spec.key))run->train.key;
#include "config/run_options.def"
    return spec;
}

/* The schedule counts steps of the whole run, also after it was resumed. */
static strait_lr_schedule make_lr_schedule(const strait_run *run) {
    return (strait_lr_schedule){.shape = run->train.schedule,
                                .steps = run->train.steps,
                                .warmup = run->train.warmup,
                                .decay_steps = run->train.decay_steps,
                                .final = (float)run->train.final_learning_rate};
}

/* The layers of each stage. The head costs a matrix product, measured in layers; the embedding is a
 * look-up and costs nothing. */
static strait_err assign_layers(const strait_run *run, strait_run_plan *plan) {
    int counts[STRAIT_RUN_STAGES] = {0};
    const strait_shape *shape = &plan->shape;
    const double layer = (double)strait_shape_block_params(shape);
    const strait_split_spec split = {.n_layers = shape->layers,
                                     .n_stages = plan->n_stages,
                                     .stride = shape->local_every,
                                     .head_cost = (double)(shape->vocab * shape->width) / layer};
    for (int i = 0; i < run->stages.split.n; i++)
        counts[i] = (int)run->stages.split.items[i];
    if (run->stages.split.n > 0)
        STRAIT_TRY(strait_split_check(shape->layers, plan->n_stages, counts, run->stages.split.n));
    else
        STRAIT_TRY(strait_split_auto(&split, counts));
    for (int i = 0, first = 0; i < plan->n_stages; first += counts[i++])
        plan->stage_layers[i] = (strait_layer_range){first, first + counts[i]};
    return STRAIT_OK;
}

/* A split backward pass keeps activations that recomputation would discard. */
static strait_schedule_kind make_schedule(const strait_run *run) {
    switch (run->stages.schedule) {
    case STRAIT_RUN_FILL_DRAIN: return STRAIT_SCHEDULE_FILL;
    case STRAIT_RUN_1F1B: return STRAIT_SCHEDULE_1F1B;
    case STRAIT_RUN_1F1B_WINDOW: return STRAIT_SCHEDULE_WINDOW;
    case STRAIT_RUN_1F1B_SPLIT: return STRAIT_SCHEDULE_SPLIT;
    case STRAIT_RUN_PIPELINE_AUTO: break;
    }
    return run->train.recompute ? STRAIT_SCHEDULE_WINDOW : STRAIT_SCHEDULE_SPLIT;
}

/* Attention alone is told where a document begins: whatever else reads earlier tokens would read
 * those of another document. */
static strait_err check_packing(const strait_run *run, strait_run_plan *plan) {
    plan->packs = run->data.pack;
    if (!plan->packs) return STRAIT_OK;
    if (plan->shape.conv > 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "data.pack: convolutions (model.conv) would read across documents");
    if (plan->n_stages > 1 && plan->codec.context > 1 &&
        strcmp(plan->codec.variant, "context") == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "data.pack: codec %s, variant context, would read across documents",
                           plan->codec.name);
    return STRAIT_OK;
}

/* Fills in what depends on the stages. */
static strait_err make_pipeline(const strait_run *run, strait_run_plan *plan) {
    if (plan->n_stages > plan->shape.layers)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.count (%d) is more than model.layers (%d): a stage holds at "
                           "least one layer",
                           plan->n_stages, plan->shape.layers);
    if (plan->n_stages > 1 && plan->shape.is_tied)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.tied needs stages.count 1: the embedding table would have to "
                           "cross the links in every step");
    if (plan->schedule == STRAIT_SCHEDULE_SPLIT && plan->recomputes)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.schedule 1f1b-split needs the activations that train.recompute "
                           "discards: choose 1f1b-window");
    if (plan->n_microbatches > MICROBATCHES_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%lld microbatches in a step are more than %d: raise stages.microbatch",
                           (long long)plan->n_microbatches, MICROBATCHES_MAX);
    STRAIT_TRY(assign_layers(run, plan));
    STRAIT_TRY(strait_run_plan_make_codec(run, plan));
    STRAIT_TRY(check_packing(run, plan));
    return strait_run_plan_fit_replicas(run, plan);
}

/* Backends other than the host declare the scratch memory of a stream in advance. */
static size_t scratch_of(const strait_run *run, const strait_run_plan *plan) {
    const int64_t queries = plan->microbatch * run->model.context *
                            strait_shape_attention_cols(&plan->shape);
    for (int i = 0; strait_backends[i] != NULL; i++) {
        const struct strait_backend_ops *ops = strait_backends[i];
        if (strcmp(ops->name, run->device.kind) != 0) continue;
        const size_t of_queries = ops->query_bytes * (size_t)queries;
        return of_queries > ops->stream_bytes ? of_queries : ops->stream_bytes;
    }
    return 0;
}

strait_err strait_run_plan_init(const strait_run *run, int64_t vocab, strait_run_plan *out) {
    strait_run_plan plan = {
        .shape = make_shape(run, vocab),
        .optim = make_optim(run),
        .lr_schedule = make_lr_schedule(run),
        .sequences = run->train.batch_tokens / run->model.context,
        .n_stages = (int)run->stages.count,
        .schedule = make_schedule(run),
        .meter_bps = run->link.meter.rate,
        .meter_delay_s = run->link.meter.delay,
        .staleness = (int)run->train.staleness,
        .extrapolation = (float)run->train.extrapolation,
        .recomputes = run->train.recompute,
        .logit_bytes = is_on_cpu(run) ? 0 : DEVICE_LOGIT_BYTES,
        .sums_pairwise = is_on_cpu(run),
    };
    const char *why = NULL;
    /* No option of the model: it follows from the devices. */
    plan.shape.precision = strait_run_choose_precision(run, &why);
    plan.shape.fuses_conv = !is_on_cpu(run) && strait_shape_can_fuse_conv(&plan.shape);
    plan.shape.lists_tokens = !is_on_cpu(run) && strait_shape_reads_tokens(&plan.shape);
    plan.shape.has_fp8 = run->device.precision == STRAIT_RUN_FP8;
    if (plan.shape.has_fp8 && is_on_cpu(run))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "device.precision fp8 needs a GPU of sm_90 or later: set device.kind to "
                           "cuda, or device.precision to bf16");
    STRAIT_TRY(strait_shape_check(&plan.shape));
    STRAIT_TRY(strait_lr_schedule_check(&plan.lr_schedule));
    if (plan.sequences < 1 || run->train.batch_tokens % run->model.context != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "train.batch_tokens (%lld) must be a multiple of model.context (%lld)",
                           (long long)run->train.batch_tokens, (long long)run->model.context);
    plan.microbatch = run->stages.microbatch > 0 ? run->stages.microbatch
                                                 : strait_run_choose_microbatch(run);
    if (plan.sequences % plan.microbatch != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.microbatch (%lld) must divide the %lld sequences of a step",
                           (long long)plan.microbatch, (long long)plan.sequences);
    plan.n_microbatches = plan.sequences / plan.microbatch;
    plan.scratch_bytes = scratch_of(run, &plan);
    STRAIT_TRY(make_pipeline(run, &plan));
    STRAIT_TRY(strait_run_plan_fit_emulate(run, &plan));
    STRAIT_TRY(strait_run_plan_fit_lora(run, &plan));
    STRAIT_TRY(strait_run_plan_fit_late(run, &plan));
    STRAIT_TRY(strait_run_plan_check_late(&plan));
    *out = plan;
    return STRAIT_OK;
}

/* Parameters, not bytes: what papers call the size of a model. */
static void count(const strait_param *params, int n, strait_run_plan_count *sum) {
    for (int i = 0; i < n; i++) {
        const int64_t values = params[i].value.rows * params[i].value.cols;
        const int is_table = params[i].role == STRAIT_ROLE_TOKEN_TABLE ||
                             params[i].role == STRAIT_ROLE_VALUES;
        sum->all += values;
        sum->tables += is_table ? values : 0;
    }
}

strait_err strait_run_plan_codec_dry(const strait_run_plan *plan, int stage, strait_codec_side side,
                                     struct strait_codec **out) {
    const int boundary = side == STRAIT_SENDER ? stage : stage - 1;
    *out = NULL;
    if (boundary < 0 || boundary >= plan->n_stages - 1) return STRAIT_OK;
    strait_codec_spec spec = strait_run_plan_codec(plan, boundary, 1);
    if (spec.rows == 0) spec.rows = ROWS_ENOUGH; // the model is only inspected
    return strait_codec_open_dry(&spec, side, out);
}

strait_err strait_run_plan_codec_params(const strait_run_plan *plan, int stage,
                                        strait_codec_side side,
                                        strait_param out[STRAIT_CODEC_PARAMS], int *n) {
    struct strait_codec *codec = NULL;
    STRAIT_TRY(strait_run_plan_codec_dry(plan, stage, side, &codec));
    *n = codec != NULL ? codec->n_params : 0;
    for (int i = 0; i < *n; i++)
        out[i] = codec->params[i];
    strait_codec_close(&codec);
    return STRAIT_OK;
}

static strait_err count_weights(const strait_run_plan *plan, int stage,
                                strait_run_plan_count *sum) {
    struct strait_weights weights = {0};
    const strait_err err = strait_weights_plan(&plan->shape, plan->stage_layers[stage], 0,
                                               &weights);
    if (err == STRAIT_OK) count(weights.params, weights.n_params, sum);
    strait_weights_fini(&weights);
    return err;
}

strait_err strait_run_plan_count_stage(const strait_run_plan *plan, int stage,
                                       strait_run_plan_count *out) {
    strait_run_plan_count sum = {0};
    STRAIT_TRY(count_weights(plan, stage, &sum));
    for (int side = 0; side < 2; side++) {
        strait_param params[STRAIT_CODEC_PARAMS];
        int n = 0;
        STRAIT_TRY(strait_run_plan_codec_params(plan, stage, (strait_codec_side)side, params, &n));
        count(params, n, &sum);
    }
    *out = sum;
    return STRAIT_OK;
}

strait_err strait_run_plan_params(const strait_run_plan *plan, int64_t *out) {
    int64_t sum = 0;
    for (int stage = 0; stage < plan->n_stages; stage++) {
        strait_run_plan_count of_stage;
        STRAIT_TRY(strait_run_plan_count_stage(plan, stage, &of_stage));
        sum += of_stage.all;
    }
    *out = sum;
    return STRAIT_OK;
}

/* The codec constrains the outputs of every stage but the last, so only those have a learning rate
 * of their own. */
strait_optim_spec strait_run_plan_optim(const strait_run_plan *plan, int stage) {
    strait_optim_spec optim = plan->optim;
    if (stage == plan->n_stages - 1)
        optim.groups[STRAIT_ROLE_RESIDUAL_OUT] = optim.groups[STRAIT_ROLE_MATRIX];
    return optim;
}

/* Stages that need no token ids spare the coordinator of a swarm from sending them. Packed
 * documents are bounded by tags of their ids. */
int strait_run_plan_needs_tokens(const strait_run_plan *plan, int stage) {
    return stage == 0 || plan->packs || strait_shape_reads_tokens(&plan->shape) ||
           (plan->n_stages > 1 && (strait_codec_traits(&plan->codec) & STRAIT_CODEC_TOKENS) != 0);
}

strait_stage_spec strait_run_plan_stage(const strait_run_plan *plan, int stage, int n_slots) {
    return (strait_stage_spec){.shape = plan->shape,
                               .layers = plan->stage_layers[stage],
                               .n_sequences = plan->microbatch,
                               .seq_len = plan->shape.context,
                               .n_slots = n_slots,
                               .is_training = 1,
                               .recomputes = plan->recomputes,
                               .logit_bytes = plan->logit_bytes,
                               .can_defer = plan->n_stages > 1 &&
                                            plan->schedule == STRAIT_SCHEDULE_SPLIT};
}

strait_codec_spec strait_run_plan_codec(const strait_run_plan *plan, int boundary, int n_slots) {
    strait_codec_spec codec = plan->codec;
    codec.boundary = boundary;
    codec.n_slots = n_slots;
    return codec;
}
