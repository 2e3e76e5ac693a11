/* lora.c - adapters: gradients against central differences, and the sum that layers read. */
#include "differences.h"

enum {
    ALL_TARGETS = 0x7f
};

struct whole {
    struct strait_stage *stage;
    tiny_batch *batch;
};

/* The sums are computed anew, because a parameter has changed. */
static double loss_of(void *user) {
    const struct whole *whole = user;
    CHECK_OK(strait_stage_refresh(whole->stage));
    return tiny_loss(whole->stage, whole->batch, 0);
}

static strait_shape adapted(int targets) {
    strait_shape shape = tiny_llama();
    shape.lora_rank = 3;
    shape.lora_alpha = 4.5f;
    shape.lora_targets = targets;
    return shape;
}

/* n_products matrices take part in no product that an adapter needs. */
static void check_gradients(strait_shape shape, int n_adapters, int n_products) {
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(shape, 2, 7);
    struct strait_stage *stage = NULL;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_refresh(stage));
    CHECK_OK(strait_stage_zero_gradients(stage));
    (void)tiny_loss(stage, &batch, 1);
    CHECK_OK(strait_stage_adapter_gradients(stage));
    int n = 0, seen = 0, n_idle = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    struct whole whole = {stage, &batch};
    for (int i = 0; i < n; i++) {
        seen += strstr(params[i].name, ".lora_") != NULL;
        n_idle += params[i].is_idle;
        if (!params[i].is_idle) check_differences(loss_of, &whole, &params[i]);
        for (int64_t k = 0; params[i].is_idle && k < params[i].grad.rows * params[i].grad.cols; k++)
            CHECK(fabsf(((const float *)params[i].grad.data)[k]) <= 0);
    }
    assert_int_equal(seen, 2 * n_adapters);
    assert_int_equal(n_idle, n_products);
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void adapters_match_differences(void **state) {
    (void)state;
    check_gradients(adapted(ALL_TARGETS), 3 * 7, 1);   // the head
    check_gradients(adapted(1 | 4), 3 * 2, 3 * 4 + 1); // q and v, between which k lies
    strait_shape shape = tiny_yardstick();
    shape.lora_rank = 1;
    shape.lora_alpha = 1.0f;
    shape.lora_targets = 8 | 32 | 64;
    check_gradients(shape, 3 * 3, 3 * 3 + 1);
}

/* W + scale B A in double precision, into the matrix of a model without adapters. */
static void merge(const strait_param *w, const strait_param *a, const strait_param *b, double scale,
                  strait_param *out) {
    const float *wv = w->value.data, *av = a->value.data, *bv = b->value.data;
    float *values = out->value.data;
    for (int64_t r = 0; r < w->value.rows; r++)
        for (int64_t c = 0; c < w->value.cols; c++) {
            double sum = (double)wv[r * w->value.cols + c];
            for (int64_t k = 0; k < a->value.rows; k++)
                sum += scale * (double)bv[r * a->value.rows + k] *
                       (double)av[k * w->value.cols + c];
            values[r * w->value.cols + c] = (float)sum;
        }
}

static strait_param *find(struct strait_stage *stage, const char *name) {
    int n = 0;
    strait_param *params = strait_stage_params(stage, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0) return &params[i];
    return NULL;
}

/* The adapted model has the loss of the model whose matrices are the sums. */
static void adapters_equal_merged_matrices(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_shape shape = adapted(ALL_TARGETS);
    const strait_stage_spec spec = tiny_spec(shape, 2, 7), plain = tiny_spec(tiny_llama(), 2, 7);
    struct strait_stage *stage = NULL, *merged = NULL;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    CHECK_OK(strait_stage_open(&plain, backend, &merged));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_refresh(stage));
    int n = 0, n_merged = 0;
    strait_param *params = strait_stage_params(merged, &n);
    for (int i = 0; i < n; i++) {
        char a[96], b[96];
        (void)snprintf(a, sizeof a, "%s.lora_a", params[i].name);
        (void)snprintf(b, sizeof b, "%s.lora_b", params[i].name);
        const strait_param *w = find(stage, params[i].name);
        memcpy(params[i].value.data, w->value.data, strait_tensor_bytes(w->value));
        if (find(stage, a) == NULL) continue;
        merge(w, find(stage, a), find(stage, b), 4.5 / 3, &params[i]);
        n_merged++;
    }
    assert_int_equal(n_merged, 3 * 7);
    const double ours = tiny_loss(stage, &batch, 0);
    CHECK_NEAR(ours, tiny_loss(merged, &batch, 0), 1e-5);
    /* Another step of the optimizer: the sum follows when it is applied, not before. */
    ((float *)find(stage, "blocks.1.mlp.up.lora_b")->value.data)[5] += 1.0f;
    CHECK_NEAR(tiny_loss(stage, &batch, 0), ours, 0);
    CHECK_OK(strait_stage_apply_adapters(stage));
    CHECK(fabs(tiny_loss(stage, &batch, 0) - ours) > 1e-4);
    strait_stage_close(&stage);
    strait_stage_close(&merged);
    strait_backend_close(&backend);
}

/* A new run computes what the model without adapters computes, bit for bit. */
static void adapters_start_without_effect(void **state) {
    (void)state;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        struct strait_backend *backend = NULL;
        CHECK_OK(strait_backend_open(
            (strait_backend_spec){
                .name = "cpu", .n_threads = 2, .precision = is_bf16 ? STRAIT_BF16 : STRAIT_F32},
            &backend));
        double losses[2];
        for (int i = 0; i < 2; i++) {
            strait_shape shape = i == 0 ? tiny_llama() : adapted(ALL_TARGETS);
            shape.precision = is_bf16 ? STRAIT_BF16 : STRAIT_F32;
            const strait_stage_spec spec = tiny_spec(shape, 2, 7);
            struct strait_stage *stage = NULL;
            tiny_batch batch;
            tiny_fill(&batch, &shape, 3);
            CHECK_OK(strait_stage_open(&spec, backend, &stage));
            CHECK_OK(strait_stage_init(stage, 5));
            losses[i] = tiny_loss(stage, &batch, 0);
            if (i == 1) {
                const strait_param *a = find(stage, "blocks.0.attention.q.lora_a");
                double sum = 0;
                for (int64_t k = 0; k < a->value.rows * a->value.cols; k++)
                    sum += fabs((double)((const float *)a->value.data)[k]);
                CHECK(sum > 0);
            }
            strait_stage_close(&stage);
        }
        CHECK_NEAR(losses[0], losses[1], 0);
        strait_backend_close(&backend);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_match_differences),
        cmocka_unit_test(adapters_equal_merged_matrices),
        cmocka_unit_test(adapters_start_without_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
