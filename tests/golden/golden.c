/* golden.c - logits, losses, every gradient and ten optimizer steps compared with PyTorch's, which
 * were computed in double precision; ours in single precision, with the reference loops and with
 * the fast kernels. */
#include "model/generator.h"
#include "model/stage.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "reader.h"

#include <stdio.h>

enum {
    TOKENS_MAX = 64,
    VOCAB_MAX = 128
};

static const double tolerance = 1e-4; // of the largest value of each tensor

struct setup {
    struct strait_safetensors *golden;
    strait_shape shape;
    struct strait_backend *backend;
    struct strait_stage *stage;
    int64_t n; // tokens per batch
};

typedef struct variant {
    const char *file;
    int is_reference, recomputes;
} variant;

static strait_tensor named(const struct strait_safetensors *golden, const char *prefix,
                           const char *name) {
    char full[2 * STRAIT_PARAM_NAME];
    (void)snprintf(full, sizeof full, "%s.%s", prefix, name);
    return golden_tensor(golden, full);
}

static strait_shape read_shape(const struct strait_safetensors *g) {
    return (strait_shape){
        .vocab = (int64_t)golden_number(g, "vocab"),
        .context = (int64_t)golden_number(g, "context"),
        .layers = (int)golden_number(g, "layers"),
        .width = (int)golden_number(g, "width"),
        .heads = (int)golden_number(g, "heads"),
        .kv_heads = (int)golden_number(g, "kv_heads"),
        .head_dim = (int)golden_number(g, "head_dim"),
        .ffn = (int)golden_number(g, "ffn"),
        .activation = strcmp(golden_text(g, "activation"), "relu2") == 0 ? STRAIT_RELU2
                                                                         : STRAIT_SWIGLU,
        .rope = strcmp(golden_text(g, "rope"), "half") == 0 ? STRAIT_ROPE_HALF : STRAIT_ROPE_FULL,
        .rope_theta = (float)golden_number(g, "rope_theta"),
        .has_qk_norm = (int)golden_number(g, "qk_norm"),
        .attention_scale = (float)golden_number(g, "attention_scale"),
        .softcap = (float)golden_number(g, "softcap"),
        .is_tied = (int)golden_number(g, "tied"),
        .norm_epsilon = (float)golden_number(g, "norm_epsilon"),
    };
}

/* Opens the model with the initial weights of the golden file. */
static void set_up(struct setup *setup, const variant *v) {
    char path[64];
    (void)snprintf(path, sizeof path, "tests/golden/%s.safetensors", v->file);
    *setup = (struct setup){0};
    CHECK_OK(strait_safetensors_open(path, &setup->golden));
    setup->shape = read_shape(setup->golden);
    const strait_stage_spec spec = {
        .shape = setup->shape,
        .layers = {0, setup->shape.layers},
        .n_sequences = (int64_t)golden_number(setup->golden, "batch"),
        .seq_len = setup->shape.context,
        .n_slots = 1,
        .is_training = 1,
        .recomputes = v->recomputes,
    };
    setup->n = spec.n_sequences * spec.seq_len;
    assert_true(setup->n <= TOKENS_MAX && setup->shape.vocab <= VOCAB_MAX);
    const strait_backend_spec backend = {
        .name = "cpu", .n_threads = 2, .is_reference = v->is_reference};
    CHECK_OK(strait_backend_open(backend, &setup->backend));
    CHECK_OK(strait_stage_open(&spec, setup->backend, &setup->stage));
    int n_params = 0;
    const strait_param *params = strait_stage_params(setup->stage, &n_params);
    for (int i = 0; i < n_params; i++) {
        const strait_tensor first = named(setup->golden, "value", params[i].name);
        assert_int_equal(strait_tensor_bytes(first), strait_tensor_bytes(params[i].value));
        memcpy(params[i].value.data, first.data, strait_tensor_bytes(first));
    }
}

static void tear_down(struct setup *setup) {
    strait_stage_close(&setup->stage);
    strait_backend_close(&setup->backend);
    strait_safetensors_close(&setup->golden);
}

/* A copy of the token ids or targets of a step: the file is mapped read-only. */
static strait_tensor ids_of(const struct setup *setup, const char *name, int64_t step,
                            int32_t capacity[TOKENS_MAX]) {
    const strait_tensor all = golden_tensor(setup->golden, name);
    assert_int_equal(all.cols, setup->n);
    memcpy(capacity, (const int32_t *)all.data + step * all.cols,
           (size_t)all.cols * sizeof *capacity);
    return (strait_tensor){capacity, STRAIT_I32, setup->n, 1};
}

/* Compares every stride-th of our values with theirs. */
static void check_near(const char *what, const char *name, strait_tensor ours, strait_tensor theirs,
                       int64_t stride) {
    const int64_t n = theirs.rows * theirs.cols;
    assert_int_equal(n, (ours.rows * ours.cols + stride - 1) / stride);
    const float *a = ours.data, *b = theirs.data;
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i * stride] - (double)b[i]);
        difference = d > difference || isnan(d) ? d : difference;
        largest = fmax(largest, fabs((double)b[i]));
    }
    if (!(difference <= tolerance * largest))
        fail_msg("%s %s: differs by %g, the largest value is %g", what, name, difference, largest);
}

/* Runs forward and backward for one batch and returns its mean loss. */
static double run_batch(const struct setup *setup, int64_t step) {
    int32_t token_buffer[TOKENS_MAX], target_buffer[TOKENS_MAX];
    const strait_tensor tokens = ids_of(setup, "tokens", step, token_buffer);
    const strait_tensor targets = ids_of(setup, "targets", step, target_buffer);
    strait_tensor losses;
    CHECK_OK(strait_stage_zero_gradients(setup->stage));
    CHECK_OK(strait_stage_forward(setup->stage, 0, tokens));
    CHECK_OK(strait_stage_loss(setup->stage, targets, 1.0f / (float)setup->n, &losses));
    CHECK_OK(strait_stage_backward(setup->stage, 0, 0));
    CHECK_OK(strait_stage_backward_embedding(setup->stage, tokens));
    double sum = 0;
    for (int64_t i = 0; i < setup->n; i++)
        sum += (double)((const float *)losses.data)[i];
    if (step == 0)
        check_near("first", "losses", strait_tensor_reshape(losses, 1, setup->n),
                   golden_tensor(setup->golden, "losses"), 1);
    return sum / (double)setup->n;
}

static void check_gradients(const variant *v) {
    struct setup setup;
    int n_params = 0;
    set_up(&setup, v);
    (void)run_batch(&setup, 0);
    const strait_param *params = strait_stage_params(setup.stage, &n_params);
    assert_int_equal(n_params, setup.shape.layers * (9 - (setup.shape.activation == STRAIT_RELU2)) +
                                   3 - setup.shape.is_tied);
    for (int i = 0; i < n_params; i++)
        check_near("gradient of", params[i].name, params[i].grad,
                   named(setup.golden, "grad", params[i].name), 1);
    tear_down(&setup);
}

/* log(sum of exp(logits)) */
static double log_sum(const float *logits, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return log(sum);
}

/* The training forward pass does not return logits, but its losses for every possible target
 * determine them. */
static void check_losses_of_all_targets(const struct setup *setup) {
    static float ours[TOKENS_MAX * VOCAB_MAX], theirs[TOKENS_MAX * VOCAB_MAX];
    const int64_t n = setup->n, vocab = setup->shape.vocab;
    const float *logits = golden_tensor(setup->golden, "logits").data;
    int32_t capacity[TOKENS_MAX];
    CHECK_OK(strait_stage_forward(setup->stage, 0, ids_of(setup, "tokens", 0, capacity)));
    for (int32_t target = 0; target < vocab; target++) {
        int32_t targets[TOKENS_MAX];
        strait_tensor losses;
        for (int64_t i = 0; i < n; i++)
            targets[i] = target;
        CHECK_OK(strait_stage_loss(setup->stage, (strait_tensor){targets, STRAIT_I32, n, 1}, 0,
                                   &losses));
        for (int64_t i = 0; i < n; i++) {
            const float *row = logits + i * vocab;
            ours[i * vocab + target] = ((const float *)losses.data)[i];
            theirs[i * vocab + target] = (float)(log_sum(row, vocab) - (double)row[target]);
        }
    }
    check_near("all", "losses", (strait_tensor){ours, STRAIT_F32, n, vocab},
               (strait_tensor){theirs, STRAIT_F32, n, vocab}, 1);
}

static void check_logits(const variant *v) {
    static float ours[TOKENS_MAX * VOCAB_MAX];
    struct setup setup;
    struct strait_generator *generator = NULL;
    int32_t capacity[TOKENS_MAX];
    set_up(&setup, v);
    check_losses_of_all_targets(&setup);
    (void)ids_of(&setup, "tokens", 0, capacity);
    CHECK_OK(strait_generator_open(
        setup.stage, (strait_generator_spec){.n_sequences = 1, .n_rows = 1}, &generator));
    for (int64_t i = 0; i < setup.n; i++) {
        const float *logits = NULL;
        if (i % setup.shape.context == 0) strait_generator_reset(generator);
        CHECK_OK(strait_generator_feed(generator, capacity[i], &logits));
        memcpy(ours + i * setup.shape.vocab, logits, (size_t)setup.shape.vocab * sizeof *ours);
    }
    check_near("generator's", "logits",
               (strait_tensor){ours, STRAIT_F32, setup.n, setup.shape.vocab},
               golden_tensor(setup.golden, "logits"), 1);
    strait_generator_close(&generator);
    tear_down(&setup);
}

static float setting(const struct strait_safetensors *g, const char *kind, const char *key) {
    char full[64];
    (void)snprintf(full, sizeof full, "%s_%s", kind, key);
    return (float)golden_number(g, full);
}

static strait_optim_spec read_optimizer(const struct strait_safetensors *g, const char *kind) {
    const int is_muon = strcmp(kind, "muon") == 0;
    const strait_optim_group matrix = {.learning_rate = setting(g, kind, "rate"),
                                       .weight_decay = setting(g, kind, "decay")};
    strait_optim_spec spec = {
        .ops = strait_optimizer_find(kind),
        .beta1 = setting(g, kind, "beta1"),
        .beta2 = setting(g, kind, "beta2"),
        .epsilon = setting(g, kind, "epsilon"),
        .max_norm = (float)golden_number(g, "clip"),
    };
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
        spec.groups[role] = matrix;
    spec.groups[STRAIT_ROLE_GAIN].weight_decay = 0;
    if (!is_muon) return spec;
    const float decay = setting(g, kind, "other_decay");
    spec.groups[STRAIT_ROLE_EMBEDDING] = (strait_optim_group){
        .learning_rate = setting(g, kind, "embedding_rate"), .weight_decay = decay};
    spec.groups[STRAIT_ROLE_HEAD] = (strait_optim_group){
        .learning_rate = setting(g, kind, "head_rate"), .weight_decay = decay};
    spec.groups[STRAIT_ROLE_GAIN] = (strait_optim_group){
        .learning_rate = setting(g, kind, "gain_rate"), .weight_decay = decay};
    spec.momentum = setting(g, kind, "momentum");
    spec.momentum_start = setting(g, kind, "momentum_start");
    spec.momentum_warmup = (int64_t)setting(g, kind, "momentum_warmup");
    return spec;
}

/* Runs ten steps; `curve` receives the losses, then the norms. */
static void train(const struct setup *setup, struct strait_optimizer *opt, float *curve) {
    const struct strait_safetensors *g = setup->golden;
    const strait_lr_schedule rate = {
        .shape = STRAIT_LR_LINEAR,
        .steps = (int64_t)golden_number(g, "steps"),
        .warmup = (int64_t)golden_number(g, "warmup"),
        .final = (float)golden_number(g, "final_rate"),
    };
    struct strait_stream *stream = strait_stage_stream(setup->stage);
    for (int64_t step = 0; step < rate.steps; step++) {
        curve[step] = (float)run_batch(setup, step);
        CHECK_OK(strait_optimizer_clip(opt, stream, step + 1));
        curve[rate.steps + step] = ((const float *)strait_optimizer_scale(opt).data)[1];
        CHECK_OK(
            strait_optimizer_step(opt, stream, step + 1, strait_lr_schedule_factor(&rate, step)));
    }
}

static void check_training(const variant *v, const char *kind) {
    struct setup setup;
    struct strait_optimizer *opt = NULL;
    float curve[20] = {0};
    char final[32];
    int n_params = 0;
    set_up(&setup, v);
    assert_int_equal((int)golden_number(setup.golden, "steps"), 10);
    const strait_optim_spec spec = read_optimizer(setup.golden, kind);
    strait_param *params = strait_stage_params(setup.stage, &n_params);
    CHECK_OK(strait_optimizer_open(&spec, setup.backend, params, n_params, &opt));
    train(&setup, opt, curve);
    const strait_tensor ours = {curve, STRAIT_F32, 1, 10};
    check_near(kind, "losses", ours, named(setup.golden, kind, "losses"), 1);
    check_near(kind, "norms", (strait_tensor){curve + 10, STRAIT_F32, 1, 10},
               named(setup.golden, kind, "norms"), 1);
    (void)snprintf(final, sizeof final, "%s.final", kind);
    for (int i = 0; i < n_params; i++)
        check_near(final, params[i].name, params[i].value,
                   named(setup.golden, final, params[i].name),
                   (int64_t)golden_number(setup.golden, "stride"));
    strait_optimizer_close(&opt);
    tear_down(&setup);
}

static const variant variants[] = {
    {"llama", 1, 0},     {"llama", 0, 0},     {"llama", 0, 1}, {"yardstick", 1, 0},
    {"yardstick", 0, 0}, {"yardstick", 0, 1}, {"tied", 1, 0},  {"tied", 0, 0},
};

enum {
    N_VARIANTS = sizeof variants / sizeof variants[0]
};

static void logits_match_pytorch(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        check_logits(&variants[i]);
}

static void gradients_match_pytorch(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        check_gradients(&variants[i]);
}

static void ten_adamw_steps_match_pytorch(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        check_training(&variants[i], "adamw");
}

static void ten_muon_steps_match_pytorch(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        check_training(&variants[i], "muon");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_match_pytorch),
        cmocka_unit_test(gradients_match_pytorch),
        cmocka_unit_test(ten_adamw_steps_match_pytorch),
        cmocka_unit_test(ten_muon_steps_match_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
