/* optimizer.c - AdamW, clipping, state and memory of the optimizer. */
#include "optim/optimizer.h"

#include "base/alloc.h"
#include "rig.h"

static strait_optim_spec make_spec(strait_optim_kind kind) {
    strait_optim_spec spec = {.kind = kind,
                              .beta1 = 0.9f,
                              .beta2 = 0.99f,
                              .epsilon = 1e-8f,
                              .momentum = 0.95f,
                              .momentum_start = 0.85f,
                              .momentum_warmup = 5};
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
        spec.groups[role] = (strait_optim_group){.rate = 0.01f * (float)(role + 1),
                                                 .decay = 0.1f * (float)role};
    return spec;
}

static const rig_shape five[] = {
    {STRAIT_ROLE_MATRIX, 7, 5}, {STRAIT_ROLE_RESIDUAL_OUT, 5, 13}, {STRAIT_ROLE_EMBEDDING, 11, 5},
    {STRAIT_ROLE_HEAD, 11, 5},  {STRAIT_ROLE_GAIN, 1, 5},
};

static void first_step_by_hand(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_GAIN, 1, 2}}, 1);
    strait_optim_spec spec = make_spec(STRAIT_OPTIM_ADAMW);
    spec.epsilon = 0.5f;
    spec.groups[STRAIT_ROLE_GAIN] = (strait_optim_group){.rate = 0.25f, .decay = 0.5f};
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    memcpy(rig.params[0].value.data, (float[]){2, -1}, 2 * sizeof(float));
    memcpy(rig.params[0].grad.data, (float[]){1.5f, -0.5f}, 2 * sizeof(float));
    rig_step(&rig, opt, 1, 0.4f); // rate 0.1: w * 0.95 - 0.1 g / (|g| + 0.5)
    CHECK_NEAR((double)rig_f32(rig.params[0].value)[0], 1.9 - 0.1 * 1.5 / 2, 1e-6);
    CHECK_NEAR((double)rig_f32(rig.params[0].value)[1], -0.95 + 0.1 * 0.5, 1e-6);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

/* A group with steps of its own goes straight down over them, never above the schedule, and then
 * its weights stay, decay or not. */
static void a_group_may_end_before_the_run(void **state) {
    (void)state;
    const strait_optim_group group = {.rate = 0.5f, .decay = 0.25f, .steps = 4};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    CHECK_NEAR((double)strait_optim_rate(&group, 1, 1), 0.5, 0);
    CHECK_NEAR((double)strait_optim_rate(&group, 3, 1), 0.25, 0);
    CHECK_NEAR((double)strait_optim_rate(&group, 3, 0.125f), 0.0625, 0);
    CHECK_NEAR((double)strait_optim_rate(&group, 4, 1), 0.125, 0);
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_TOKEN_TABLE, 3, 2}}, 1);
    strait_optim_spec spec = make_spec(STRAIT_OPTIM_ADAMW);
    spec.groups[STRAIT_ROLE_TOKEN_TABLE] = group;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    for (int step = 1; step <= 7; step++) {
        float before[6];
        memcpy(before, rig.params[0].value.data, sizeof before);
        memcpy(rig.params[0].grad.data, (float[]){1, -2, 3, -4, 5, -6}, sizeof before);
        rig_step(&rig, opt, step, 1);
        const int is_same = memcmp(before, rig.params[0].value.data, sizeof before) == 0;
        assert_int_equal(is_same, step > 4);
    }
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

/* Four clipped steps of a matrix and a gain, alone or with a matrix and an anchor that are still;
 * weights of the two in `out`, the last norm in *norm. */
static void train_beside(strait_optim_kind kind, const strait_optim_group *still, float out[40],
                         float *norm) {
    const rig_shape shapes[] = {{STRAIT_ROLE_RESIDUAL_OUT, 7, 5},
                                {STRAIT_ROLE_GAIN, 1, 5},
                                {STRAIT_ROLE_MATRIX, 6, 5},
                                {STRAIT_ROLE_TOKEN_TABLE, 11, 5}};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    strait_optim_spec spec = make_spec(kind);
    const int n = still != NULL ? 4 : 2;
    spec.max_norm = 1;
    if (still != NULL)
        spec.groups[STRAIT_ROLE_TOKEN_TABLE] = spec.groups[STRAIT_ROLE_MATRIX] = *still;
    rig_open(&rig, 1, shapes, n);
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, n, &opt));
    for (int step = 10; step < 14; step++) {
        rig_gradients(&rig, step);
        if (n > 2) rig_f32(rig.params[2].grad)[3] = step % 2 != 0 ? NAN : 1e30f;
        rig_step(&rig, opt, step, 1);
    }
    *norm = rig_f32(strait_optimizer_scale(opt))[1];
    memcpy(out, rig.params[0].value.data, 35 * sizeof(float));
    memcpy(out + 35, rig.params[1].value.data, 5 * sizeof(float));
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

/* What learns no more has no say in the norm, be its gradient ever so large or no number: the rest
 * learns as if it were alone. */
static void what_is_still_does_not_clip_the_rest(void **state) {
    (void)state;
    const strait_optim_group never = {.rate = 0, .decay = 0.5f};
    const strait_optim_group over = {.rate = 0.5f, .decay = 0.5f, .steps = 9};
    assert_false(strait_optim_is_still(&over, 9));
    assert_true(strait_optim_is_still(&over, 10) && strait_optim_is_still(&never, 1));
    for (int kind = STRAIT_OPTIM_ADAMW; kind <= STRAIT_OPTIM_MUON; kind++) {
        float alone[40] = {0}, beside[40] = {0}, norms[2];
        train_beside((strait_optim_kind)kind, NULL, alone, &norms[0]);
        assert_true(norms[0] > 1); // so that clipping is at work
        train_beside((strait_optim_kind)kind, &never, beside, &norms[1]);
        assert_memory_equal(alone, beside, sizeof alone);
        assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
        train_beside((strait_optim_kind)kind, &over, beside, &norms[1]);
        assert_memory_equal(alone, beside, sizeof alone);
    }
}

/* Weights and moments stay, decay or not. */
static void what_is_still_keeps_its_moments(void **state) {
    (void)state;
    for (int kind = STRAIT_OPTIM_ADAMW; kind <= STRAIT_OPTIM_MUON; kind++) {
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        strait_optim_state m;
        float before[2][35];
        strait_optim_spec spec = make_spec((strait_optim_kind)kind);
        spec.groups[STRAIT_ROLE_MATRIX] = (strait_optim_group){0.5f, 0.25f, 2};
        rig_open(&rig, 1, five, 1);
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
        CHECK_OK(strait_optimizer_state(opt, 0, &m));
        for (int step = 1; step <= 4; step++) {
            memcpy(before[0], rig.params[0].value.data, sizeof before[0]);
            memcpy(before[1], m.tensor.data, sizeof before[1]);
            rig_gradients(&rig, step);
            rig_step(&rig, opt, step, 1);
            const int same_value = memcmp(before[0], rig.params[0].value.data, sizeof before[0]);
            const int same_moment = memcmp(before[1], m.tensor.data, sizeof before[1]);
            assert_int_equal(same_value == 0, step > 2);
            assert_int_equal(same_moment == 0, step > 2);
        }
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

/* AdamW in double precision for one parameter of `five`. */
struct slow {
    double w[143], m[143], v[143];
};

static void step_slowly(struct slow *slow, const strait_param *p, const strait_optim_spec *spec,
                        double scale, double factor, int step) {
    const double rate = (double)spec->groups[p->role].rate * factor;
    const double b1 = (double)spec->beta1, b2 = (double)spec->beta2;
    for (int64_t i = 0; i < rig_count(p->grad); i++) {
        const double g = (double)rig_f32(p->grad)[i] * scale;
        slow->w[i] *= 1 - rate * (double)spec->groups[p->role].decay;
        slow->m[i] = b1 * slow->m[i] + (1 - b1) * g;
        slow->v[i] = b2 * slow->v[i] + (1 - b2) * g * g;
        slow->w[i] -= rate * slow->m[i] / (1 - pow(b1, step)) /
                      (sqrt(slow->v[i] / (1 - pow(b2, step))) + (double)spec->epsilon);
    }
}

static double global_norm(const struct rig *rig) {
    double squares = 0;
    for (int p = 0; p < rig->n; p++)
        for (int64_t i = 0; i < rig_count(rig->params[p].grad); i++)
            squares += pow((double)rig_f32(rig->params[p].grad)[i], 2);
    return sqrt(squares);
}

static void adamw_follows_a_double_loop(void **state) {
    (void)state;
    static struct slow slow[5];
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, five, 5);
    strait_optim_spec spec = make_spec(STRAIT_OPTIM_ADAMW);
    spec.max_norm = 1;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt));
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < rig_count(rig.params[p].value); i++)
            slow[p].w[i] = (double)rig_f32(rig.params[p].value)[i];
    for (int step = 1; step <= 20; step++) {
        rig_gradients(&rig, step);
        const float factor = 1 - 0.04f * (float)step;
        const double norm = global_norm(&rig);
        for (int p = 0; p < 5; p++)
            step_slowly(&slow[p], &rig.params[p], &spec, norm > 1 ? 1 / norm : 1, (double)factor,
                        step);
        rig_step(&rig, opt, step, factor);
        CHECK_NEAR((double)rig_f32(strait_optimizer_scale(opt))[1], norm, 1e-6 * norm);
    }
    for (int p = 0; p < 5; p++)
        for (int64_t i = 0; i < rig_count(rig.params[p].value); i++)
            CHECK_NEAR((double)rig_f32(rig.params[p].value)[i], slow[p].w[i], 2e-6);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void clipping_follows_the_global_norm(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_GAIN, 1, 2}, {STRAIT_ROLE_GAIN, 1, 1}}, 2);
    strait_optim_spec spec = make_spec(STRAIT_OPTIM_ADAMW);
    spec.max_norm = 6.5f;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 2, &opt));
    memcpy(rig.params[0].grad.data, (float[]){3, 4}, 2 * sizeof(float));
    rig_f32(rig.params[1].grad)[0] = 12;
    CHECK_OK(strait_optimizer_clip(opt, &rig.stream, 1));
    const strait_tensor totals = strait_optimizer_totals(opt), scale = strait_optimizer_scale(opt);
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

static void moments_have_stable_names(void **state) {
    (void)state;
    static const struct {
        strait_optim_kind kind;
        const char *names; // with the shape of the moment
    } cases[] = {
        {STRAIT_OPTIM_ADAMW, "p0.m 7x5,p0.v 7x5,p1.m 5x13,p1.v 5x13,p2.m 11x5,p2.v 11x5,"
                             "p3.m 11x5,p3.v 11x5,p4.m 1x5,p4.v 1x5,"},
        {STRAIT_OPTIM_ADAMW_ROWS, "p0.m 7x5,p0.v 1x5,p1.m 5x13,p1.v 1x13,p2.m 11x5,p2.v 11x1,"
                                  "p3.m 11x5,p3.v 1x5,p4.m 1x5,p4.v 1x5,"},
        {STRAIT_OPTIM_MUON, "p0.m 7x5,p1.m 5x13,p2.m 11x5,p2.v 11x5,"
                            "p3.m 11x5,p3.v 11x5,p4.m 1x5,p4.v 1x5,"},
    };
    for (size_t k = 0; k < 3; k++) {
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        char names[512] = "";
        size_t used = 0;
        strait_optim_state moment;
        rig_open(&rig, 1, five, 5);
        const strait_optim_spec spec = make_spec(cases[k].kind);
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt));
        int n = 0;
        for (; strait_optimizer_state(opt, n, &moment) == STRAIT_OK; n++)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s %dx%d,", moment.name,
                                     (int)moment.tensor.rows, (int)moment.tensor.cols);
        assert_string_equal(names, cases[k].names);
        assert_int_equal(strait_optimizer_states(opt), n);
        CHECK_FAILS(strait_optimizer_state(opt, -1, &moment), STRAIT_EINVAL, "no moment -1");
        CHECK_FAILS(strait_optimizer_state(opt, 10, &moment), STRAIT_EINVAL, "no moment 10");
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

/* Five steps; the weights in `out`. */
static void train(strait_optim_kind kind, int n_threads, float out[512]) {
    static const rig_shape shapes[] = {{STRAIT_ROLE_MATRIX, 131, 67},
                                       {STRAIT_ROLE_RESIDUAL_OUT, 67, 257},
                                       {STRAIT_ROLE_EMBEDDING, 300, 67},
                                       {STRAIT_ROLE_GAIN, 1, 67}};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, n_threads, shapes, 4);
    strait_optim_spec spec = make_spec(kind);
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

static void threads_do_not_change_the_bits(void **state) {
    (void)state;
    for (int kind = STRAIT_OPTIM_ADAMW; kind <= STRAIT_OPTIM_MUON; kind++) {
        float one[512] = {0}, two[512] = {0}, again[512] = {0};
        train((strait_optim_kind)kind, 1, one);
        train((strait_optim_kind)kind, 2, two);
        train((strait_optim_kind)kind, 2, again);
        assert_memory_equal(two, again, sizeof two);
        assert_memory_equal(one, two, sizeof one);
    }
}

static void a_sketch_says_what_open_takes(void **state) {
    (void)state;
    strait_param p = {.name = "w", .role = STRAIT_ROLE_MATRIX, .value = {NULL, STRAIT_F32, 64, 4}};
    static const struct {
        strait_optim_kind kind;
        size_t bytes;
        int n_moments;
    } cases[] = {
        {STRAIT_OPTIM_ADAMW, 256 + 256 + 1024 + 1024, 2}, // totals, scale, m, v
        {STRAIT_OPTIM_ADAMW_ROWS, 256 + 256 + 1024 + 4 * 4, 2},
        {STRAIT_OPTIM_MUON, 256 + 256 + 1024 + 2 * 1024 + 2 * 256 + 256 + 4, 1}, // m, x y, a b, two
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strait_optimizer *opt = NULL;
        strait_optim_state m;
        const strait_optim_spec spec = make_spec(cases[i].kind);
        CHECK_OK(strait_optimizer_open_dry(&spec, &p, 1, &opt));
        assert_int_equal(strait_optimizer_bytes(opt), cases[i].bytes);
        assert_int_equal(strait_optimizer_states(opt), cases[i].n_moments);
        CHECK_OK(strait_optimizer_state(opt, 0, &m));
        assert_string_equal(m.name, "w.m");
        assert_true(m.tensor.rows == 64 && m.tensor.cols == 4 && m.tensor.data == NULL);
        strait_optimizer_close(&opt);
    }
}

static void bad_settings_are_named(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, five, 5);
    strait_optim_spec spec = make_spec(STRAIT_OPTIM_ADAMW);
    spec.beta2 = 1;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "beta2 is 1, expected from 0 to below 1");
    spec = make_spec(STRAIT_OPTIM_MUON);
    spec.groups[STRAIT_ROLE_HEAD].rate = NAN;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "rate is nan");
    spec = make_spec(STRAIT_OPTIM_MUON);
    spec.momentum_warmup = -2;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "momentum_warmup is -2");
    spec.momentum_warmup = 0;
    spec.groups[STRAIT_ROLE_TOKEN_TABLE].steps = -1;
    CHECK_FAILS(strait_optimizer_open(&spec, rig.backend, rig.params, 5, &opt), STRAIT_ECONFIG,
                "a group of -1 steps");
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

static void every_failed_allocation_is_clean(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1, five, 5);
    const strait_optim_spec spec = make_spec(STRAIT_OPTIM_MUON);
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
        cmocka_unit_test(first_step_by_hand),
        cmocka_unit_test(a_group_may_end_before_the_run),
        cmocka_unit_test(what_is_still_does_not_clip_the_rest),
        cmocka_unit_test(what_is_still_keeps_its_moments),
        cmocka_unit_test(adamw_follows_a_double_loop),
        cmocka_unit_test(clipping_follows_the_global_norm),
        cmocka_unit_test(moments_have_stable_names),
        cmocka_unit_test(threads_do_not_change_the_bits),
        cmocka_unit_test(a_sketch_says_what_open_takes),
        cmocka_unit_test(bad_settings_are_named),
        cmocka_unit_test(every_failed_allocation_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
