/* subspace.c - a stage whose writers are stored as coordinates computes what a stage with the whole
 * matrices computes, and its gradients are those of the whole ones, seen from the subspace. */
#include "tensor/basis.h"
#include "tiny.h"

enum {
    KEEP = 5,
    SEQ_LEN = 6,
    SEQUENCES = 2,
    TOKENS = SEQ_LEN * SEQUENCES
};

static float basis[15 * KEEP], fixed[37 * 15]; // [width x keep], [vocab x width] of tiny_llama

static struct strait_stage *open_front(struct strait_backend *backend, int keep) {
    strait_stage_spec spec = tiny_spec(tiny_llama(), SEQUENCES, SEQ_LEN);
    struct strait_stage *stage = NULL;
    spec.shape.subspace = keep;
    spec.layers.last = 2;
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    return stage;
}

/* whole [rows x cols] = basis coordinates, or, for an embedding, fixed + coordinates basis'. */
static void widen(const strait_param *narrow, strait_param *whole) {
    const float *z = narrow->value.data;
    float *w = whole->value.data;
    const int64_t rows = whole->value.rows, cols = whole->value.cols;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0.0;
            for (int64_t k = 0; k < KEEP; k++)
                sum += narrow->role == STRAIT_ROLE_EMBEDDING
                           ? (double)z[r * KEEP + k] * (double)basis[c * KEEP + k]
                           : (double)basis[r * KEEP + k] * (double)z[k * cols + c];
            const int is_table = narrow->role == STRAIT_ROLE_EMBEDDING;
            w[r * cols + c] = (float)(sum + (is_table ? (double)fixed[r * cols + c] : 0.0));
        }
    }
}

static int is_written(const strait_param *param) {
    return param->role == STRAIT_ROLE_RESIDUAL_OUT || param->role == STRAIT_ROLE_EMBEDDING;
}

static void convert(struct strait_stage *narrow, struct strait_stage *whole) {
    int n = 0;
    const strait_param *from = strait_stage_params(narrow, &n);
    strait_param *to = strait_stage_params(whole, &n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(from[i].name, to[i].name);
        if (is_written(&from[i]))
            widen(&from[i], &to[i]);
        else
            memcpy(to[i].value.data, from[i].value.data, strait_tensor_bytes(to[i].value));
    }
}

/* Forward, then backward from a gradient that is the same for both. */
static strait_tensor run(struct strait_stage *stage, tiny_batch *batch) {
    const strait_tensor tokens = tiny_ids(batch->tokens, TOKENS);
    strait_tensor made;
    CHECK_OK(strait_stage_forward(stage, 0, tokens));
    CHECK_OK(strait_stage_output(stage, &made));
    const strait_tensor d = strait_stage_output_gradient(stage);
    strait_rng_normals((strait_rng){8, 8}, 0, d.data, (size_t)(d.rows * d.cols));
    CHECK_OK(strait_stage_backward(stage, 0, 0));
    CHECK_OK(strait_stage_backward_embedding(stage, tokens));
    return made;
}

/* The whole gradient's coordinates are the narrow one. */
static void check_gradient(const strait_param *narrow, const strait_param *whole) {
    const float *dz = narrow->grad.data;
    const float *dw = whole->grad.data;
    const int64_t cols = whole->grad.cols;
    const int is_table = narrow->role == STRAIT_ROLE_EMBEDDING;
    for (int64_t i = 0; i < narrow->grad.rows * narrow->grad.cols; i++) {
        const int64_t row = i / narrow->grad.cols, col = i % narrow->grad.cols;
        double sum = 0.0;
        for (int64_t j = 0; j < 15; j++)
            sum += is_table ? (double)dw[row * cols + j] * (double)basis[j * KEEP + col]
                            : (double)basis[j * KEEP + row] * (double)dw[j * cols + col];
        CHECK_NEAR((double)dz[i], sum, 2e-4);
    }
}

static void test_coordinates_say_what_the_whole_says(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    struct strait_stage *narrow = open_front(backend, KEEP);
    struct strait_stage *whole = open_front(backend, 0);
    tiny_batch batch;
    int n = 0;
    CHECK_OK(strait_basis_draw((strait_rng){3, 4}, 15, KEEP, basis));
    strait_rng_normals((strait_rng){5, 6}, 0, fixed, sizeof fixed / sizeof *fixed);
    assert_int_equal(strait_stage_set_basis(narrow, (strait_tensor){basis, STRAIT_F32, 15, KEEP},
                                            (strait_tensor){fixed, STRAIT_F32, 37, 15}),
                     STRAIT_OK);
    tiny_randomise(narrow, 11);
    convert(narrow, whole);
    const strait_shape shape = tiny_llama();
    tiny_fill(&batch, &shape, 3);
    const strait_tensor a = run(narrow, &batch);
    const strait_tensor b = run(whole, &batch);
    for (int64_t i = 0; i < a.rows * a.cols; i++)
        CHECK_NEAR((double)((const float *)a.data)[i], (double)((const float *)b.data)[i], 2e-5);
    const strait_param *from = strait_stage_params(narrow, &n);
    const strait_param *to = strait_stage_params(whole, &n);
    for (int i = 0; i < n; i++)
        if (is_written(&from[i])) check_gradient(&from[i], &to[i]);
    strait_stage_close(&narrow);
    strait_stage_close(&whole);
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_coordinates_say_what_the_whole_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
