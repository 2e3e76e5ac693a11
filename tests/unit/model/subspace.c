/* subspace.c - a stage that stores residual output projections as coordinates in a basis computes
 * what a stage with full matrices computes, and its gradients are theirs, in coordinates. */
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

/* full [rows x cols] = basis coordinates; for an embedding, fixed + coordinates basis^T. */
static void expand(const strait_param *compact, strait_param *full) {
    const float *z = compact->value.data;
    float *w = full->value.data;
    const int64_t rows = full->value.rows, cols = full->value.cols;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0.0;
            for (int64_t k = 0; k < KEEP; k++)
                sum += compact->role == STRAIT_ROLE_EMBEDDING
                           ? (double)z[r * KEEP + k] * (double)basis[c * KEEP + k]
                           : (double)basis[r * KEEP + k] * (double)z[k * cols + c];
            const int is_table = compact->role == STRAIT_ROLE_EMBEDDING;
            w[r * cols + c] = (float)(sum + (is_table ? (double)fixed[r * cols + c] : 0.0));
        }
    }
}

static int is_stored_in_basis(const strait_param *param) {
    return param->role == STRAIT_ROLE_RESIDUAL_OUT || param->role == STRAIT_ROLE_EMBEDDING;
}

static void convert(struct strait_stage *compact, struct strait_stage *full) {
    int n = 0;
    const strait_param *from = strait_stage_params(compact, &n);
    strait_param *to = strait_stage_params(full, &n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(from[i].name, to[i].name);
        if (is_stored_in_basis(&from[i]))
            expand(&from[i], &to[i]);
        else
            memcpy(to[i].value.data, from[i].value.data, strait_tensor_bytes(to[i].value));
    }
}

/* Forward, then backward from the same gradient for both stages. */
static strait_tensor run(struct strait_stage *stage, tiny_batch *batch) {
    const strait_tensor tokens = tiny_ids(batch->tokens, TOKENS);
    strait_tensor output;
    CHECK_OK(strait_stage_forward(stage, 0, tokens));
    CHECK_OK(strait_stage_output(stage, &output));
    const strait_tensor d = strait_stage_output_gradient(stage);
    strait_rng_normals((strait_rng){8, 8}, 0, d.data, (size_t)(d.rows * d.cols));
    CHECK_OK(strait_stage_backward(stage, 0, 0));
    CHECK_OK(strait_stage_backward_embedding(stage, tokens));
    return output;
}

/* The coordinates of the full gradient are the gradient of the coordinates. */
static void check_gradient(const strait_param *compact, const strait_param *full) {
    const float *dz = compact->grad.data;
    const float *dw = full->grad.data;
    const int64_t cols = full->grad.cols;
    const int is_table = compact->role == STRAIT_ROLE_EMBEDDING;
    for (int64_t i = 0; i < compact->grad.rows * compact->grad.cols; i++) {
        const int64_t row = i / compact->grad.cols, col = i % compact->grad.cols;
        double sum = 0.0;
        for (int64_t j = 0; j < 15; j++)
            sum += is_table ? (double)dw[row * cols + j] * (double)basis[j * KEEP + col]
                            : (double)basis[j * KEEP + row] * (double)dw[j * cols + col];
        CHECK_NEAR((double)dz[i], sum, 2e-4);
    }
}

static void coordinates_compute_like_full_matrices(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    struct strait_stage *compact = open_front(backend, KEEP);
    struct strait_stage *full = open_front(backend, 0);
    tiny_batch batch;
    int n = 0;
    CHECK_OK(strait_basis_draw((strait_rng){3, 4}, 15, KEEP, basis));
    strait_rng_normals((strait_rng){5, 6}, 0, fixed, sizeof fixed / sizeof *fixed);
    assert_int_equal(strait_stage_set_basis(compact, (strait_tensor){basis, STRAIT_F32, 15, KEEP},
                                            (strait_tensor){fixed, STRAIT_F32, 37, 15}),
                     STRAIT_OK);
    tiny_randomise(compact, 11);
    convert(compact, full);
    const strait_shape shape = tiny_llama();
    tiny_fill(&batch, &shape, 3);
    const strait_tensor a = run(compact, &batch);
    const strait_tensor b = run(full, &batch);
    for (int64_t i = 0; i < a.rows * a.cols; i++)
        CHECK_NEAR((double)((const float *)a.data)[i], (double)((const float *)b.data)[i], 2e-5);
    const strait_param *from = strait_stage_params(compact, &n);
    const strait_param *to = strait_stage_params(full, &n);
    for (int i = 0; i < n; i++)
        if (is_stored_in_basis(&from[i])) check_gradient(&from[i], &to[i]);
    strait_stage_close(&compact);
    strait_stage_close(&full);
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(coordinates_compute_like_full_matrices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
