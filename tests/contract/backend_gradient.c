/* Every backward matches central differences of its forward, on the reference loops and on every
 * device but the cpu; other tests compare the cpu's fast kernels with the reference loops. */
#include "rig.h"

static const strait_tensor absent = {0};

struct norm_call {
    strait_tensor y, sum, rstd, x, delta, gain;
};

static void forward_rmsnorm(struct rig *rig, void *arg) {
    const struct norm_call *c = arg;
    CHECK_OK(rig->k->rmsnorm(&rig->stream, c->y, c->sum, c->rstd, c->x, c->delta,
                             (strait_norm_params){c->gain, 1e-2f}));
}

static strait_tensor zeros(struct rig *rig, strait_tensor like) {
    const strait_tensor t = rig_output(rig, like.rows, like.cols);
    CHECK_OK(rig->k->fill(&rig->stream, t, 0));
    return t;
}

static void one_rmsnorm(int64_t rows, int64_t cols, int has_delta, int has_gain) {
    struct rig *rig = rig_under_test();
    struct norm_call c = {.x = rig_input(rig, rows, cols, 1),
                          .y = rig_output(rig, rows, cols),
                          .rstd = rig_output(rig, rows, 1),
                          .delta = has_delta ? rig_input(rig, rows, cols, 2) : absent,
                          .sum = has_delta ? rig_output(rig, rows, cols) : absent,
                          .gain = has_gain ? rig_input(rig, 1, cols, 3) : absent};
    const gradient g = {.rig = rig,
                        .forward = forward_rmsnorm,
                        .arg = &c,
                        .outputs = {c.y},
                        .d_outputs = {rig_input(rig, rows, cols, 4)}};
    forward_rmsnorm(rig, &c);
    const strait_tensor d_x = zeros(rig, c.x), d_gain = has_gain ? zeros(rig, c.gain) : absent;
    CHECK_OK(rig->k->rmsnorm_back(&rig->stream, d_x, d_gain, g.d_outputs[0],
                                  has_delta ? c.sum : c.x, c.gain, c.rstd));
    check_gradient(&g, c.x, d_x, "rmsnorm x");
    if (has_delta) check_gradient(&g, c.delta, d_x, "rmsnorm delta");
    if (has_gain) check_gradient(&g, c.gain, d_gain, "rmsnorm gain");
}

static void rmsnorm(void) {
    one_rmsnorm(1, 5, 0, 0);
    one_rmsnorm(3, 7, 1, 1);
    one_rmsnorm(17, 33, 0, 1);
}

struct rotate_call {
    strait_tensor y, rstd, x;
    strait_rotate_params params;
};

static void forward_rotate(struct rig *rig, void *arg) {
    const struct rotate_call *c = arg;
    CHECK_OK(rig->k->rotate(&rig->stream, c->y, c->rstd, c->x, c->params));
}

static void one_rotate(strait_heads heads, int has_norm, int has_gain) {
    struct rig *rig = rig_under_test();
    const int64_t rows = 2 * heads.seq_len;
    const int64_t cols = (int64_t)(heads.n_query + 2 * heads.n_key) * heads.head_dim;
    struct rotate_call c = {.x = rig_input(rig, rows, cols, 1),
                            .y = rig_output(rig, rows, cols),
                            .rstd = has_norm ? rig_output(rig, rows, heads.n_query + heads.n_key)
                                             : absent,
                            .params = {.heads = heads, .epsilon = 1e-2f}};
    rig_angles(rig, heads, &c.params.cos, &c.params.sin);
    if (has_gain) c.params.gain = rig_input(rig, 2, heads.head_dim, 2);
    const gradient g = {.rig = rig,
                        .forward = forward_rotate,
                        .arg = &c,
                        .outputs = {c.y},
                        .d_outputs = {rig_input(rig, rows, cols, 3)}};
    forward_rotate(rig, &c);
    const strait_tensor d_x = rig_output(rig, rows, cols);
    const strait_tensor d_gain = has_gain ? zeros(rig, c.params.gain) : absent;
    CHECK_OK(rig->k->rotate_back(&rig->stream, d_x, d_gain, g.d_outputs[0], has_norm ? c.x : absent,
                                 c.rstd, c.params));
    check_gradient(&g, c.x, d_x, "rotate x");
    if (has_gain) check_gradient(&g, c.params.gain, d_gain, "rotate gain");
}

static void rotation(void) {
    const strait_heads grouped = {.n_query = 4, .n_key = 2, .head_dim = 6, .seq_len = 3};
    const strait_heads single = {.n_query = 1, .n_key = 1, .head_dim = 8, .seq_len = 1};
    one_rotate(grouped, 0, 0);
    one_rotate(grouped, 1, 0);
    one_rotate(grouped, 1, 1);
    one_rotate(single, 1, 1);
}

struct attention_call {
    strait_tensor y, lse, qkv;
    strait_heads heads;
};

static void forward_attention(struct rig *rig, void *arg) {
    const struct attention_call *c = arg;
    CHECK_OK(rig->k->attention(&rig->stream, c->y, c->lse, c->qkv, c->heads));
}

static void one_attention(int n_query, int n_key, int dim, int64_t length) {
    struct rig *rig = rig_under_test();
    const int64_t rows = 2 * length, cols = (int64_t)(n_query + 2 * n_key) * dim;
    struct attention_call c = {.qkv = rig_input(rig, rows, cols, 1),
                               .y = rig_output(rig, rows, (int64_t)n_query * dim),
                               .lse = rig_output(rig, rows, n_query),
                               .heads = {.n_query = n_query,
                                         .n_key = n_key,
                                         .head_dim = dim,
                                         .seq_len = length,
                                         .scale = 1.0f / sqrtf((float)dim)}};
    const gradient g = {.rig = rig,
                        .forward = forward_attention,
                        .arg = &c,
                        .outputs = {c.y},
                        .d_outputs = {rig_input(rig, rows, (int64_t)n_query * dim, 2)}};
    forward_attention(rig, &c);
    const strait_tensor d_qkv = rig_output(rig, rows, cols);
    CHECK_OK(
        rig->k->attention_back(&rig->stream, d_qkv, g.d_outputs[0], c.y, c.qkv, c.lse, c.heads));
    check_gradient(&g, c.qkv, d_qkv, "attention");
}

static void attention(void) {
    one_attention(1, 1, 8, 1);
    one_attention(1, 1, 2, 5);
    one_attention(4, 2, 8, 9);
    one_attention(6, 2, 5, 17);
    one_attention(3, 3, 16, 33);
}

struct mlp_call {
    strait_tensor y, x;
};

static void forward_swiglu(struct rig *rig, void *arg) {
    const struct mlp_call *c = arg;
    CHECK_OK(rig->k->swiglu(&rig->stream, c->y, c->x));
}

static void forward_relu2(struct rig *rig, void *arg) {
    const struct mlp_call *c = arg;
    CHECK_OK(rig->k->relu2(&rig->stream, c->y, c->x));
}

static void forward_relu(struct rig *rig, void *arg) {
    const struct mlp_call *c = arg;
    CHECK_OK(rig->k->relu(&rig->stream, c->y, c->x));
}

/* Keeps the values of x away from 0: differences across the kink of relu are meaningless. */
static void part_from_zero(struct rig *rig, strait_tensor x) {
    float values[17 * 2 * 31];
    CHECK(x.rows * x.cols <= (int64_t)COUNT(values));
    rig_read(rig, x, values);
    for (int64_t i = 0; i < x.rows * x.cols; i++)
        values[i] += values[i] < 0 ? -0.1f : 0.1f;
    rig_write(rig, x, values);
}

static void nonlinearities(void) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {17, 31}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct rig *rig = rig_under_test();
        const int64_t rows = shapes[i][0], cols = shapes[i][1];
        struct mlp_call c = {.x = rig_input(rig, rows, 2 * cols, 1),
                             .y = rig_output(rig, rows, cols)};
        gradient g = {.rig = rig,
                      .forward = forward_swiglu,
                      .arg = &c,
                      .outputs = {c.y},
                      .d_outputs = {rig_input(rig, rows, cols, 2)}};
        strait_tensor d_x = rig_output(rig, rows, 2 * cols);
        CHECK_OK(rig->k->swiglu_back(&rig->stream, d_x, (strait_tensor){0}, g.d_outputs[0], c.x));
        check_gradient(&g, c.x, d_x, "swiglu");

        c.y = g.outputs[0] = rig_output(rig, rows, 2 * cols);
        g.d_outputs[0] = rig_input(rig, rows, 2 * cols, 3);
        g.forward = forward_relu2;
        CHECK_OK(rig->k->relu2_back(&rig->stream, d_x, (strait_tensor){0}, g.d_outputs[0], c.x));
        check_gradient(&g, c.x, d_x, "relu2");

        part_from_zero(rig, c.x);
        g.forward = forward_relu;
        CHECK_OK(rig->k->relu_back(&rig->stream, d_x, g.d_outputs[0], c.x));
        check_gradient(&g, c.x, d_x, "relu");
    }
}

struct row_call {
    strait_tensor y, x, row;
};

static void forward_row(struct rig *rig, void *arg) {
    const struct row_call *c = arg;
    CHECK_OK(rig->k->cast(&rig->stream, c->y, c->x));
    CHECK_OK(rig->k->add_row(&rig->stream, c->y, c->row));
}

static void row(void) {
    struct rig *rig = rig_under_test();
    struct row_call c = {.x = rig_input(rig, 19, 37, 1),
                         .row = rig_input(rig, 1, 37, 2),
                         .y = rig_output(rig, 19, 37)};
    const gradient g = {.rig = rig,
                        .forward = forward_row,
                        .arg = &c,
                        .outputs = {c.y},
                        .d_outputs = {rig_input(rig, 19, 37, 3)}};
    const strait_tensor d_row = zeros(rig, c.row);
    CHECK_OK(rig->k->add_row_back(&rig->stream, d_row, g.d_outputs[0]));
    check_gradient(&g, c.row, d_row, "add_row");
}

static void row_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(row);
}

struct embed_call {
    strait_tensor y, table, tokens;
};

static void forward_embed(struct rig *rig, void *arg) {
    const struct embed_call *c = arg;
    CHECK_OK(rig->k->embed(&rig->stream, c->y, c->table, c->tokens));
}

static void embedding(void) {
    struct rig *rig = rig_under_test();
    struct embed_call c = {.table = rig_input(rig, 5, 7, 1),
                           .tokens = rig_tokens(rig, 19, 5, 2),
                           .y = rig_output(rig, 19, 7)};
    const gradient g = {.rig = rig,
                        .forward = forward_embed,
                        .arg = &c,
                        .outputs = {c.y},
                        .d_outputs = {rig_input(rig, 19, 7, 3)}};
    const strait_tensor d_table = zeros(rig, c.table);
    CHECK_OK(rig->k->embed_back(&rig->stream, d_table, g.d_outputs[0], c.tokens));
    check_gradient(&g, c.table, d_table, "embed");
}

struct loss_call {
    strait_tensor loss, logits, targets;
    float softcap;
};

static void forward_loss(struct rig *rig, void *arg) {
    const struct loss_call *c = arg;
    CHECK_OK(rig->k->cross_entropy(&rig->stream, c->loss, c->logits, c->targets,
                                   (strait_loss_params){.softcap = c->softcap}));
}

static void one_loss(int64_t rows, int64_t cols, float softcap) {
    struct rig *rig = rig_under_test();
    struct loss_call c = {.logits = rig_input(rig, rows, cols, 1),
                          .targets = rig_tokens(rig, rows, cols, 2),
                          .loss = rig_output(rig, rows, 1),
                          .softcap = softcap};
    const strait_tensor d_logits = rig_input(rig, rows, cols, 1), ones = rig_output(rig, rows, 1);
    CHECK_OK(rig->k->fill(&rig->stream, ones, 0.5f));
    const gradient g = {
        .rig = rig, .forward = forward_loss, .arg = &c, .outputs = {c.loss}, .d_outputs = {ones}};
    CHECK_OK(rig->k->cross_entropy(&rig->stream, rig_output(rig, rows, 1), d_logits, c.targets,
                                   (strait_loss_params){.softcap = softcap, .scale = 0.5f}));
    check_gradient(&g, c.logits, d_logits, "cross entropy");
}

static void cross_entropy(void) {
    one_loss(1, 3, 0);
    one_loss(17, 31, 0);
    one_loss(9, 33, 2);
}

struct matmul_call {
    strait_tensor y, a, b;
    strait_matmul_params params;
};

static void forward_matmul(struct rig *rig, void *arg) {
    const struct matmul_call *c = arg;
    CHECK_OK(rig->k->matmul(&rig->stream, c->y, c->a, c->b, c->params));
}

/* A linear layer y = x W^T: d_x = d_y W and d_W = d_y^T x, as models call it. */
static void linear_layer(void) {
    struct rig *rig = rig_under_test();
    struct matmul_call c = {.a = rig_input(rig, 5, 7, 1),
                            .b = rig_input(rig, 3, 7, 2),
                            .y = rig_output(rig, 5, 3),
                            .params = {.transpose_b = 1, .alpha = 1}};
    const strait_tensor d_y = rig_input(rig, 5, 3, 3);
    const gradient g = {
        .rig = rig, .forward = forward_matmul, .arg = &c, .outputs = {c.y}, .d_outputs = {d_y}};
    const strait_tensor d_a = rig_output(rig, 5, 7), d_b = rig_output(rig, 3, 7);
    CHECK_OK(rig->k->matmul(&rig->stream, d_a, d_y, c.b, (strait_matmul_params){.alpha = 1}));
    CHECK_OK(rig->k->matmul(&rig->stream, d_b, d_y, c.a,
                            (strait_matmul_params){.transpose_a = 1, .alpha = 1}));
    check_gradient(&g, c.a, d_a, "input of a linear layer");
    check_gradient(&g, c.b, d_b, "weight of a linear layer");
}

static void rmsnorm_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(rmsnorm);
}

static void rotation_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(rotation);
}

static void attention_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(attention);
}

static void activation_gradients_match_differences(void **state) {
    (void)state;
    on_every_device(nonlinearities);
}

static void embedding_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(embedding);
}

static void cross_entropy_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(cross_entropy);
}

static void linear_gradient_matches_differences(void **state) {
    (void)state;
    on_every_device(linear_layer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_gradient_matches_differences),
        cmocka_unit_test(rotation_gradient_matches_differences),
        cmocka_unit_test(attention_gradient_matches_differences),
        cmocka_unit_test(activation_gradients_match_differences),
        cmocka_unit_test(row_gradient_matches_differences),
        cmocka_unit_test(embedding_gradient_matches_differences),
        cmocka_unit_test(cross_entropy_gradient_matches_differences),
        cmocka_unit_test(linear_gradient_matches_differences),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
