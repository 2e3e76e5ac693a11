/* adamw_rows.c - a second moment per input keeps weights in the subspace of their gradients.
 *
 * What one input contributes is a column of a matrix [outputs x inputs] and a row of an embedding.
 * Both start in the span of K orthonormal vectors and get gradients projected on it. */
#include "rig.h"

enum {
    WIDTH = 24,
    K = 5,
    INPUTS = 33,
    TOKENS = 40,
    STEPS = 100
};

static double basis[K][WIDTH];

static void make_basis(void) {
    float draw[WIDTH];
    for (int k = 0; k < K; k++) {
        strait_rng_normals((strait_rng){5, (uint64_t)k}, 0, draw, WIDTH);
        for (int i = 0; i < WIDTH; i++)
            basis[k][i] = (double)draw[i];
        for (int j = 0; j <= k; j++) {
            double dot = 0;
            for (int i = 0; i < WIDTH; i++)
                dot += basis[k][i] * basis[j][i];
            for (int i = 0; i < WIDTH; i++)
                basis[k][i] = j == k ? basis[k][i] / sqrt(dot) : basis[k][i] - dot * basis[j][i];
        }
    }
}

/* The part of x (WIDTH values, `stride` apart) outside the span; removes it if asked to. */
static double outside(float *x, int64_t stride, int remove) {
    double rest[WIDTH], squares = 0;
    for (int i = 0; i < WIDTH; i++)
        rest[i] = (double)x[i * stride];
    for (int k = 0; k < K; k++) {
        double dot = 0;
        for (int i = 0; i < WIDTH; i++)
            dot += basis[k][i] * (double)x[i * stride];
        for (int i = 0; i < WIDTH; i++)
            rest[i] -= dot * basis[k][i];
    }
    for (int i = 0; i < WIDTH; i++) {
        squares += rest[i] * rest[i];
        if (remove) x[i * stride] = (float)((double)x[i * stride] - rest[i]);
    }
    return sqrt(squares);
}

/* The largest part outside over all inputs of a parameter. */
static double all_outside(strait_tensor t, int is_embedding, int remove) {
    double worst = 0;
    for (int i = 0; i < (is_embedding ? TOKENS : INPUTS); i++) {
        float *x = rig_f32(t) + (is_embedding ? (ptrdiff_t)i * WIDTH : i);
        worst = fmax(worst, outside(x, is_embedding ? 1 : INPUTS, remove));
    }
    return worst;
}

static double drift(const char *name) {
    static const rig_shape shapes[] = {{STRAIT_ROLE_RESIDUAL_OUT, WIDTH, INPUTS},
                                       {STRAIT_ROLE_EMBEDDING, TOKENS, WIDTH}};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, shapes, 2);
    strait_optim_spec spec = {
        .ops = strait_optimizer_find(name), .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    spec.max_norm = 1;
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
        spec.groups[role] = (strait_optim_group){.learning_rate = 1e-3f, .weight_decay = 0.1f};
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 2, &opt));
    for (int p = 0; p < 2; p++)
        (void)all_outside(rig.params[p].value, p, 1);
    for (int step = 1; step <= STEPS; step++) {
        rig_gradients(&rig, step);
        for (int p = 0; p < 2; p++)
            (void)all_outside(rig.params[p].grad, p, 1);
        rig_step(&rig, opt, step, 1);
    }
    const double worst = fmax(all_outside(rig.params[0].value, 0, 0),
                              all_outside(rig.params[1].value, 1, 0));
    strait_optimizer_close(&opt);
    rig_close(&rig);
    return worst;
}

static void row_wise_second_moments_keep_the_subspace(void **state) {
    (void)state;
    make_basis();
    assert_true(drift("adamw-rows") < 1e-6);
    assert_true(drift("adamw") > 1e-3);
}

/* One parameter of each role: which of them have a second moment that is smaller than they are. */
static void only_constrained_weights_share_moments(void **state) {
    (void)state;
    for (int moments = STRAIT_ROWS_CONSTRAINED; moments <= STRAIT_ROWS_ALL; moments++) {
        for (int role = 0; role < STRAIT_ROLE_COUNT; role++) {
            const strait_param p = {
                .name = "w", .role = (strait_role)role, .value = {NULL, STRAIT_F32, WIDTH, INPUTS}};
            strait_optim_spec spec = rig_spec("adamw-rows");
            struct strait_optimizer *opt = NULL;
            strait_optim_state v;
            spec.row_moments = (strait_row_moments)moments;
            CHECK_OK(strait_optimizer_open_dry(&spec, &p, 1, &opt));
            CHECK_OK(strait_optimizer_state(opt, 1, &v));
            const int is_constrained = role == STRAIT_ROLE_RESIDUAL_OUT ||
                                       role == STRAIT_ROLE_EMBEDDING;
            const int is_shared = moments == STRAIT_ROWS_ALL ? !strait_role_is_gain(p.role)
                                                             : is_constrained;
            const int is_table = strait_role_is_table(p.role);
            assert_int_equal(v.tensor.rows, is_shared && !is_table ? 1 : WIDTH);
            assert_int_equal(v.tensor.cols, is_shared && is_table ? 1 : INPUTS);
            strait_optimizer_close(&opt);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_wise_second_moments_keep_the_subspace),
        cmocka_unit_test(only_constrained_weights_share_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
