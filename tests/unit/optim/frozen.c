/* frozen.c - parameter groups that stop learning, or never learn, under every optimizer. */
#include "rig.h"

/* The learning rate of a group with steps of its own is capped by a linear decay over them; then
 * its weights do not change, not even by weight decay. */
static void group_freezes_after_its_own_steps(void **state) {
    (void)state;
    const strait_optim_group group = {.learning_rate = 0.5f, .weight_decay = 0.25f, .steps = 4};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    CHECK_NEAR((double)strait_optim_learning_rate(&group, 1, 1), 0.5, 0);
    CHECK_NEAR((double)strait_optim_learning_rate(&group, 3, 1), 0.25, 0);
    CHECK_NEAR((double)strait_optim_learning_rate(&group, 3, 0.125f), 0.0625, 0);
    CHECK_NEAR((double)strait_optim_learning_rate(&group, 4, 1), 0.125, 0);
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_TOKEN_TABLE, 3, 2}}, 1);
    strait_optim_spec spec = rig_spec("adamw");
    spec.groups[STRAIT_ROLE_TOKEN_TABLE] = group;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    assert_true(strait_optimizer_learns(opt, 0)); // at first
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

/* Four clipped steps of a matrix and a gain, alone or beside a frozen matrix and token table.
 * Writes the weights of the first two to `out` and the last norm to *norm. */
static void train_with_frozen(const char *name, const strait_optim_group *frozen, float out[40],
                              float *norm) {
    const rig_shape shapes[] = {{STRAIT_ROLE_RESIDUAL_OUT, 7, 5},
                                {STRAIT_ROLE_GAIN, 1, 5},
                                {STRAIT_ROLE_MATRIX, 6, 5},
                                {STRAIT_ROLE_TOKEN_TABLE, 11, 5}};
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    strait_optim_spec spec = rig_spec(name);
    const int n = frozen != NULL ? 4 : 2;
    spec.max_norm = 1;
    if (frozen != NULL)
        spec.groups[STRAIT_ROLE_TOKEN_TABLE] = spec.groups[STRAIT_ROLE_MATRIX] = *frozen;
    rig_open(&rig, 1, shapes, n);
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, n, &opt));
    for (int i = 0; i < n && (frozen == NULL || frozen->learning_rate == 0); i++)
        assert_int_equal(strait_optimizer_learns(opt, i), i < 2);
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

/* Huge or non-finite gradients of frozen parameters are left out of the norm: the others learn as
 * if they were alone. */
static void frozen_parameters_do_not_affect_clipping(void **state) {
    (void)state;
    const strait_optim_group never = {.learning_rate = 0, .weight_decay = 0.5f};
    const strait_optim_group over = {.learning_rate = 0.5f, .weight_decay = 0.5f, .steps = 9};
    assert_false(strait_optim_is_frozen(&over, 9));
    assert_true(strait_optim_is_frozen(&over, 10) && strait_optim_is_frozen(&never, 1));
    for (int i = 0; strait_optimizer_names[i] != NULL; i++) {
        float alone[40] = {0}, beside[40] = {0}, norms[2];
        train_with_frozen(strait_optimizer_names[i], NULL, alone, &norms[0]);
        assert_true(norms[0] > 1); // clipping is active
        train_with_frozen(strait_optimizer_names[i], &never, beside, &norms[1]);
        assert_memory_equal(alone, beside, sizeof alone);
        assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
        train_with_frozen(strait_optimizer_names[i], &over, beside, &norms[1]);
        assert_memory_equal(alone, beside, sizeof alone);
    }
}

/* Not even weight decay changes them. */
static void frozen_parameters_keep_weights_and_state(void **state) {
    (void)state;
    for (int i = 0; strait_optimizer_names[i] != NULL; i++) {
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        strait_optim_state m;
        float before[2][35];
        strait_optim_spec spec = rig_spec(strait_optimizer_names[i]);
        spec.groups[STRAIT_ROLE_MATRIX] = (strait_optim_group){0.5f, 0.25f, 2};
        rig_open(&rig, 1, rig_five, 1);
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

/* Names are compared as a shell does; lists have commas, perhaps with spaces. */
static void patterns_match_names(void **state) {
    (void)state;
    assert_true(strait_optim_is_named("embed.*", "embed.table"));
    assert_true(strait_optim_is_named("head.out, blocks.[01].*", "blocks.1.mlp.up"));
    assert_true(strait_optim_is_named("*.norm", "blocks.11.attention.norm"));
    assert_false(strait_optim_is_named("blocks.1.*", "blocks.11.mlp.up"));
    assert_false(strait_optim_is_named("", "embed.table"));
    assert_false(strait_optim_is_named(", ,", "embed.table"));
}

/* Of two matrices of one role, only the one with the name stays. */
static void named_parameters_stay_under_every_optimizer(void **state) {
    (void)state;
    for (int o = 0; strait_optimizers[o] != NULL; o++) {
        const rig_shape shapes[] = {{STRAIT_ROLE_MATRIX, 7, 5}, {STRAIT_ROLE_MATRIX, 6, 5}};
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        float before[2];
        strait_optim_spec spec = rig_spec(strait_optimizer_names[o]);
        rig_open(&rig, 1, shapes, 2);
        (void)snprintf(rig.params[0].name, sizeof rig.params[0].name, "blocks.0.mlp.up");
        (void)snprintf(rig.params[1].name, sizeof rig.params[1].name, "blocks.1.mlp.up");
        (void)snprintf(spec.freeze, sizeof spec.freeze, "blocks.1.*");
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 2, &opt));
        for (int i = 0; i < 2; i++)
            before[i] = rig_f32(rig.params[i].value)[3];
        rig_gradients(&rig, 1);
        rig_step(&rig, opt, 1, 1);
        assert_true(rig_f32(rig.params[0].value)[3] != before[0]);
        assert_true(rig_f32(rig.params[1].value)[3] == before[1]);
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

/* With `only`, the other parameters neither learn nor have state. */
static void only_named_parameters_learn(void **state) {
    (void)state;
    for (int i = 0; strait_optimizers[i] != NULL; i++) {
        const rig_shape shapes[] = {{STRAIT_ROLE_MATRIX, 6, 5}, {STRAIT_ROLE_MATRIX, 7, 5}};
        struct rig rig;
        struct strait_optimizer *opt = NULL;
        strait_optim_state kept;
        float before[30];
        rig_open(&rig, 1, shapes, 2);
        (void)snprintf(rig.params[0].name, sizeof rig.params[0].name, "blocks.0.mlp.up");
        (void)snprintf(rig.params[1].name, sizeof rig.params[1].name, "blocks.0.mlp.up.lora_a");
        strait_optim_spec spec = rig_spec(strait_optimizer_names[i]);
        (void)snprintf(spec.only, sizeof spec.only, "*.lora_a,*.lora_b");
        CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 2, &opt));
        memcpy(before, rig.params[0].value.data, sizeof before);
        const float first = rig_f32(rig.params[1].value)[0];
        rig_gradients(&rig, 1);
        rig_step(&rig, opt, 1, 1);
        assert_memory_equal(before, rig.params[0].value.data, sizeof before);
        CHECK(fabsf(rig_f32(rig.params[1].value)[0] - first) > 0);
        CHECK(strait_optimizer_n_states(opt) > 0);
        for (int k = 0; k < strait_optimizer_n_states(opt); k++) {
            CHECK_OK(strait_optimizer_state(opt, k, &kept));
            assert_ptr_equal(kept.param, &rig.params[1]);
        }
        strait_optimizer_close(&opt);
        rig_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_names),
        cmocka_unit_test(named_parameters_stay_under_every_optimizer),
        cmocka_unit_test(group_freezes_after_its_own_steps),
        cmocka_unit_test(frozen_parameters_do_not_affect_clipping),
        cmocka_unit_test(frozen_parameters_keep_weights_and_state),
        cmocka_unit_test(only_named_parameters_learn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
