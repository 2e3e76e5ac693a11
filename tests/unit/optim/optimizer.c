/* optimizer.c - AdamW, clipping, state and memory; what holds for every optimizer is asked of each
 * entry of the registry. */
#include "optim/optimizer.h"

#include "base/alloc.h"
#include "optim/optimizer_ops.h"
#include "rig.h"

static void first_step_matches_hand_computation(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_GAIN, 1, 2}}, 1);
    strait_optim_spec spec = rig_spec("adamw");
    spec.epsilon = 0.5f;
    spec.groups[STRAIT_ROLE_GAIN] = (strait_optim_group){.learning_rate = 0.25f,
                                                         .weight_decay = 0.5f};
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    memcpy(rig.params[0].value.data, (float[]){2, -1}, 2 * sizeof(float));
    memcpy(rig.params[0].grad.data, (float[]){1.5f, -0.5f}, 2 * sizeof(float));
    rig_step(&rig, opt, 1, 0.4f); // rate 0.1: w * 0.95 - 0.1 g / (|g| + 0.5)
    CHECK_NEAR((double)rig_f32(rig.params[0].value)[0], 1.9 - 0.1 * 1.5 / 2, 1e-6);
    CHECK_NEAR((double)rig_f32(rig.params[0].value)[1], -0.95 + 0.1 * 0.5, 1e-6);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

/* AdamW in double precision for one parameter of `rig_five`. */
struct reference {
    double w[143], m[143], v[143];
};

static void reference_step(struct reference *reference, const strait_param *p,
                           const strait_optim_spec *spec, double scale, double factor, int step) {
    const double rate = (double)spec->groups[p->role].learning_rate * factor;
    const double b1 = (double)spec->beta1, b2 = (double)spec->beta2;
    for (int64_t i = 0; i < rig_count(p->grad); i++) {
        const double g = (double)rig_f32(p->grad)[i] * scale;
        reference->w[i] *= 1 - rate * (double)spec->groups[p->role].weight_decay;
        reference->m[i] = b1 * reference->m[i] + (1 - b1) * g;
        reference->v[i] = b2 * reference->v[i] + (1 - b2) * g * g;
        reference->w[i] -= rate * reference->m[i] / (1 - pow(b1, step)) /
                           (sqrt(reference->v[i] / (1 - pow(b2, step))) + (double)spec->epsilon);
    }
}

static double squared_norm(strait_tensor t) {
    double sum = 0;
    for (int64_t i = 0; i < rig_count(t); i++)
        sum += pow((double)rig_f32(t)[i], 2);
    return sum;
}

static double global_norm(const struct rig *rig) {
    double squares = 0;
    for (int p = 0; p < rig->n; p++)
        squares += squared_norm(rig->params[p].grad);
    return sqrt(squares);
}

static void adamw_matches_double_precision(void **state) {
    (void)state;
    static struct reference reference[5];
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, rig_five, 5);
    strait_optim_spec spec = rig_spec("adamw");
    spec.max_norm = 1;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt));
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < rig_count(rig.params[p].value); i++)
            reference[p].w[i] = (double)rig_f32(rig.params[p].value)[i];
    for (int step = 1; step <= 20; step++) {
        rig_gradients(&rig, step);
        const float factor = 1 - 0.04f * (float)step;
        const double norm = global_norm(&rig);
        for (int p = 0; p < 5; p++)
            reference_step(&reference[p], &rig.params[p], &spec, norm > 1 ? 1 / norm : 1,
                           (double)factor, step);
        rig_step(&rig, opt, step, factor);
        CHECK_NEAR((double)rig_f32(strait_optimizer_scale(opt))[1], norm, 1e-6 * norm);
    }
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < rig_count(rig.params[p].value); i++)
            CHECK_NEAR((double)rig_f32(rig.params[p].value)[i], reference[p].w[i], 2e-6);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void clips_by_the_global_norm(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_GAIN, 1, 2}, {STRAIT_ROLE_GAIN, 1, 1}}, 2);
    strait_optim_spec spec = rig_spec("adamw");
    spec.max_norm = 6.5f;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 2, &opt));
    memcpy(rig.params[0].grad.data, (float[]){3, 4}, 2 * sizeof(float));
    rig_f32(rig.params[1].grad)[0] = 12;
    CHECK_OK(strait_optimizer_clip(opt, &rig.stream, 1));
    const strait_tensor totals = strait_optimizer_squared_norms(opt),
                        scale = strait_optimizer_scale(opt);
    assert_int_equal(totals.rows, 2);
    CHECK_NEAR((double)rig_f32(totals)[0], 25, 0);
    CHECK_NEAR((double)rig_f32(totals)[1], 144, 0);
    CHECK_NEAR((double)rig_f32(scale)[0], 0.5, 1e-7);
    CHECK_NEAR((double)rig_f32(scale)[1], 13, 1e-6);
    rig_f32(rig.params[1].grad)[0] = INFINITY;
    CHECK_OK(strait_optimizer_clip(opt, &rig.stream, 1));
    assert_true(isinf(rig_f32(scale)[1]) && rig_f32(scale)[0] == 0);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void states_have_stable_names_and_shapes(void **state) {
    (void)state;
    static const struct {
        const char *optimizer;
        const char *names; // and shapes
    } cases[] = {
        {"adamw", "p0.m 7x5,p0.v 7x5,p1.m 5x13,p1.v 5x13,p2.m 11x5,p2.v 11x5,"
                  "p3.m 11x5,p3.v 11x5,p4.m 1x5,p4.v 1x5,"},
        {"adamw-rows", "p0.m 7x5,p0.v 7x5,p1.m 5x13,p1.v 1x13,p2.m 11x5,p2.v 11x1,"
                       "p3.m 11x5,p3.v 11x5,p4.m 1x5,p4.v 1x5,"},
        {"muon", "p0.m 7x5,p1.m 5x13,p2.m 11x5,p2.v 11x5,"
                 "p3.m 11x5,p3.v 11x5,p4.m 1x5,p4.v 1x5,"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        char names[512] = "";
        size_t used = 0;
        strait_optim_state tensor;
        rig_open(&rig, 1, rig_five, 5);
        const strait_optim_spec spec = rig_spec(cases[k].optimizer);
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt));
        int n = 0;
        for (; strait_optimizer_state(opt, n, &tensor) == STRAIT_OK; n++)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s %dx%d,", tensor.name,
                                     (int)tensor.tensor.rows, (int)tensor.tensor.cols);
        assert_string_equal(names, cases[k].names);
        assert_int_equal(strait_optimizer_n_states(opt), n);
        CHECK_FAILS(strait_optimizer_state(opt, -1, &tensor), STRAIT_EINVAL, "no state tensor -1");
        CHECK_FAILS(strait_optimizer_state(opt, 10, &tensor), STRAIT_EINVAL, "no state tensor 10");
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

/* Trains for rig_five steps, which must not allocate, and writes weights to `out`. */
static void train(const char *name, int n_threads, float out[512]) {
    static const rig_shape shapes[] = {{STRAIT_ROLE_MATRIX, 131, 67},
                                       {STRAIT_ROLE_RESIDUAL_OUT, 67, 257},
                                       {STRAIT_ROLE_EMBEDDING, 300, 67},
                                       {STRAIT_ROLE_GAIN, 1, 67}};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, n_threads, shapes, 4);
    strait_optim_spec spec = rig_spec(name);
    spec.max_norm = 1;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 4, &opt));
    for (int step = 1; step <= 5; step++) {
        rig_gradients(&rig, step);
        const int64_t before = strait_alloc_count();
        rig_step(&rig, opt, step, 1);
        assert_int_equal(strait_alloc_count(), before);
    }
    for (int p = 0; p < 3; p++)
        memcpy(out + (ptrdiff_t)128 * p, rig_f32(rig.params[p].value) + 67, 128 * sizeof(float));
    memcpy(out + 384, rig.params[3].value.data, 67 * sizeof(float));
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void names_match_the_tables(void **state) {
    (void)state;
    for (int i = 0; strait_optimizers[i] != NULL; i++) {
        assert_string_equal(strait_optimizer_names[i], strait_optimizers[i]->name);
        assert_ptr_equal(strait_optimizer_find(strait_optimizer_names[i]), strait_optimizers[i]);
    }
    assert_null(strait_optimizer_find("sgd"));
}

/* Every optimizer of the registry, on every role, shrinks weights whose gradient is the weight. */
static void every_optimizer_descends(void **state) {
    (void)state;
    for (int i = 0; strait_optimizer_names[i] != NULL; i++) {
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        double before[5], after;
        strait_optim_spec spec = rig_spec(strait_optimizer_names[i]);
        for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
            spec.groups[role] = (strait_optim_group){.learning_rate = 1e-3f};
        rig_open(&rig, 1, rig_five, 5);
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt));
        for (int step = 1; step <= 50; step++) {
            for (int p = 0; p < 5; p++)
                memcpy(rig.params[p].grad.data, rig.params[p].value.data,
                       strait_tensor_bytes(rig.params[p].value));
            for (int p = 0; p < 5 && step == 1; p++)
                before[p] = squared_norm(rig.params[p].value);
            rig_step(&rig, opt, step, 1);
        }
        for (int p = 0; p < 5; p++) {
            after = squared_norm(rig.params[p].value);
            assert_true(after < before[p]);
        }
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

static void threads_do_not_change_the_bits(void **state) {
    (void)state;
    for (int i = 0; strait_optimizer_names[i] != NULL; i++) {
        float one[512] = {0}, two[512] = {0}, again[512] = {0};
        train(strait_optimizer_names[i], 1, one);
        train(strait_optimizer_names[i], 2, two);
        train(strait_optimizer_names[i], 2, again);
        assert_memory_equal(two, again, sizeof two);
        assert_memory_equal(one, two, sizeof one);
    }
}

static void dry_run_reports_bytes_and_states(void **state) {
    (void)state;
    strait_param p = {.name = "w", .role = STRAIT_ROLE_MATRIX, .value = {NULL, STRAIT_F32, 64, 4}};
    static const struct {
        const char *optimizer;
        size_t bytes;
        int n_states;
    } cases[] = {
        {"adamw", 256 + 256 + 1024 + 1024, 2},                  // totals, scale, m, v
        {"adamw-rows", 256 + 256 + 1024 + 1024, 2},             // a matrix that no codec constrains
        {"muon", 256 + 256 + 1024 + 2 * 1024 + 2 * 256 + 4, 1}, // m, u y, a b, total
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strait_optimizer *opt = NULL;
        strait_optim_state m;
        const strait_optim_spec spec = rig_spec(cases[i].optimizer);
        CHECK_OK(strait_optimizer_open_dry(&spec, &p, 1, &opt));
        assert_int_equal(strait_optimizer_bytes(opt), cases[i].bytes);
        assert_int_equal(strait_optimizer_n_states(opt), cases[i].n_states);
        CHECK_OK(strait_optimizer_state(opt, 0, &m));
        assert_string_equal(m.name, "w.m");
        assert_true(m.tensor.rows == 64 && m.tensor.cols == 4 && m.tensor.data == NULL);
        strait_optimizer_close(&opt);
    }
}

static void rejects_settings_out_of_bounds(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, rig_five, 5);
    strait_optim_spec spec = rig_spec("adamw");
    spec.beta2 = 1;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "beta2 is 1, expected from 0 to below 1");
    spec = rig_spec("muon");
    spec.groups[STRAIT_ROLE_HEAD].learning_rate = NAN;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "learning rate is nan");
    spec = rig_spec("muon");
    spec.momentum_warmup = -2;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "momentum_warmup is -2");
    spec.momentum_warmup = 0;
    spec.groups[STRAIT_ROLE_TOKEN_TABLE].steps = -1;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "parameter group has -1 steps");
    spec.groups[STRAIT_ROLE_TOKEN_TABLE].steps = 0;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 0, &opt), STRAIT_EINVAL,
                "0 parameters");
    rig.params[3].grad.data = NULL;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_EINVAL,
                "parameter p3");
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 3, &opt));
    CHECK_FAILS(strait_optimizer_step(opt, &rig.stream, 0, 1), STRAIT_EINVAL, "step 0");
    strait_optimizer_close(&opt);
    assert_null(opt);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void failed_allocation_leaks_nothing(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, rig_five, 5);
    const strait_optim_spec spec = rig_spec("muon");
    int64_t n = 1;
    for (;; n++) {
        strait_alloc_fail_at(n);
        const strait_err err = strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt);
        strait_alloc_fail_at(0);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
        assert_null(opt);
    }
    assert_true(n > 4); // the optimizer, its slots, the plan, the memory
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_match_the_tables),
        cmocka_unit_test(first_step_matches_hand_computation),
        cmocka_unit_test(adamw_matches_double_precision),
        cmocka_unit_test(clips_by_the_global_norm),
        cmocka_unit_test(states_have_stable_names_and_shapes),
        cmocka_unit_test(every_optimizer_descends),
        cmocka_unit_test(threads_do_not_change_the_bits),
        cmocka_unit_test(dry_run_reports_bytes_and_states),
        cmocka_unit_test(rejects_settings_out_of_bounds),
        cmocka_unit_test(failed_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
