/* Loss, gradient clipping and optimizer updates, compared with the reference loops. */
#include "rig.h"

/* variant: bit 0: with gradient, bit 1: capped logits, bit 2: some targets are negative */
static void run_loss(struct rig *rig, shape s) {
    const strait_tensor logits = rig_act_large(rig, s.rows, s.cols, 1, 5);
    int32_t *values = malloc((size_t)s.rows * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < s.rows; i++)
        values[i] = (s.variant & 4) && i % 3 != 1 ? -1 : (int32_t)((i * 7919 + 5) % s.cols);
    const strait_tensor targets = rig_ints(rig, s.rows, values);
    free(values);
    const strait_tensor loss = rig_output(rig, s.rows, 1);
    const strait_loss_params params = {.softcap = s.variant & 2 ? 6.0f : 0.0f,
                                       .scale = s.variant & 1 ? 0.25f : 0.0f};
    CHECK_OK(rig->k->cross_entropy(&rig->stream, loss, logits, targets, params));
    rig_keep(rig, loss);
    rig_keep(rig, logits);
}

static void matches_reference_cross_entropy(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 3, 17, 129}, cols[] = {1, 2, 7, 64, 65, 133, 1031, 2048};
    for (int variant = 0; variant < 8; variant++)
        for (size_t r = 0; r < COUNT(rows); r++)
            for (size_t c = 0; c < COUNT(cols); c++)
                check_one_of_many(
                    run_loss, (shape){.rows = rows[r], .cols = cols[c], .variant = variant}, 5e-6);
}

static void matches_reference_cross_entropy_of_a_vocabulary(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++)
        check_case(run_loss, (shape){.rows = 3, .cols = 50304, .variant = variant}, 5e-6);
}

static void run_loss_edges(struct rig *rig, shape s) {
    (void)s;
    float values[4][37];
    for (int c = 0; c < 37; c++) {
        values[0][c] = c == 5 ? 1.0f : -INFINITY; // all masked but one
        values[1][c] = 1e4f * (float)(c - 20);    // exponentials would overflow
        values[2][c] = c == 36 ? NAN : 0.5f;      // NaN must propagate
        values[3][c] = -INFINITY * (float)(c > 3) + (float)c;
        if (c <= 3) values[3][c] = (float)c;
    }
    const int32_t wanted[] = {5, 36, 0, 9};
    const strait_tensor logits = rig_act_values(rig, 4, 37, values[0]);
    const strait_tensor loss = rig_output(rig, 4, 1);
    CHECK_OK(rig->k->cross_entropy(&rig->stream, loss, logits, rig_ints(rig, 4, wanted),
                                   (strait_loss_params){.scale = 1}));
    rig_keep(rig, loss);
    rig_keep(rig, logits);
}

static void cross_entropy_handles_extreme_logits(void **state) {
    (void)state;
    check_case(run_loss_edges, (shape){0}, 1e-6);
    struct rig *rig = reference_rig();
    run_loss_edges(rig, (shape){0});
    CHECK_NEAR(rig->kept[0], 0, 0);
    CHECK_NEAR(rig->kept[1], 0, 0);
    CHECK(isnan(rig->kept[2]));
    CHECK(isinf(rig->kept[3]) && rig->kept[3] > 0);
    rig_check(rig);
}

/* variant selects the totals */
static void run_clip(struct rig *rig, shape s) {
    static const float totals[][3] = {
        {1, 4, 4}, {100, 0, 0}, {INFINITY, 1, 1}, {NAN, 1, 1}, {0, 0, 0}};
    static const float limits[] = {5, 2, 0};
    const strait_tensor t = rig_values(rig, 3, 1, totals[s.variant]);
    for (size_t i = 0; i < COUNT(limits); i++) {
        const strait_tensor scale = rig_output(rig, 2, 1);
        CHECK_OK(rig->k->clip(&rig->stream, scale, t, limits[i]));
        rig_keep(rig, scale);
    }
}

static void matches_reference_clip(void **state) {
    (void)state;
    for (int variant = 0; variant < 5; variant++)
        check_case(run_clip, (shape){.variant = variant}, 1e-6);
    struct rig *rig = reference_rig();
    run_clip(rig, (shape){.variant = 0});
    CHECK_NEAR(rig->kept[0], 1, 0); // a norm of 3 below 5 is not clipped
    CHECK_NEAR(rig->kept[1], 3, 1e-6);
    CHECK_NEAR(rig->kept[2], 2.0 / 3, 1e-6);
    CHECK_NEAR(rig->kept[4], 1, 0);
    rig = reference_rig();
    run_clip(rig, (shape){.variant = 2});
    CHECK_NEAR(rig->kept[0], 0, 0);
    CHECK_NEAR(rig->kept[4], 0, 0);
    rig_check(rig);
}

/* variant: 0: a second moment per weight, 1: per column, 2: per row; +4: clipped */
static void run_adamw(struct rig *rig, shape s) {
    const strait_tensor absent = {0};
    const int sharing = s.variant & 3;
    const strait_tensor weight = rig_input(rig, s.rows, s.cols, 1);
    const strait_tensor m = rig_output(rig, s.rows, s.cols);
    const strait_tensor v = rig_output(rig, sharing == 1 ? 1 : s.rows, sharing == 2 ? 1 : s.cols);
    CHECK_OK(rig->k->fill(&rig->stream, m, 0));
    CHECK_OK(rig->k->fill(&rig->stream, v, 0));
    const float by[] = {0.3f, 1};
    const strait_tensor scale = s.variant & 4 ? rig_values(rig, 2, 1, by) : absent;
    for (int step = 1; step <= 3; step++) {
        const strait_adamw_params params = {.learning_rate = 0.1f,
                                            .beta1 = 0.9f,
                                            .beta2 = 0.95f,
                                            .epsilon = 1e-8f,
                                            .weight_decay = 0.1f,
                                            .step = step};
        const strait_tensor grad = rig_input(rig, s.rows, s.cols, 10 + step);
        CHECK_OK(rig->k->adamw(&rig->stream, weight, m, v, grad, scale, params));
    }
    rig_keep(rig, weight);
    rig_keep(rig, m);
    rig_keep(rig, v);
}

static void matches_reference_adamw(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 3, 17, 129}, cols[] = {1, 7, 64, 133, 1500};
    static const int variants[] = {0, 1, 2, 4, 5, 6};
    for (size_t variant = 0; variant < COUNT(variants); variant++)
        for (size_t r = 0; r < COUNT(rows); r++)
            for (size_t c = 0; c < COUNT(cols); c++)
                check_one_of_many(
                    run_adamw,
                    (shape){.rows = rows[r], .cols = cols[c], .variant = variants[variant]}, 5e-6);
}

/* `rows` x `cols` values of t from `first` on. */
static strait_tensor part_of(strait_tensor t, int64_t first, int64_t rows, int64_t cols) {
    return (strait_tensor){
        .data = (float *)t.data + first, .dtype = STRAIT_F32, .rows = rows, .cols = cols};
}

enum {
    EACH = 125 // tensors: more than one launch of any device takes
};

/* Tensors of many sizes and alignments. */
static int64_t each_size(int i) {
    return i == 7 ? 40001 : i == 60 ? 16384 : 1 + i * 37 % 301;
}

static void run_squares_each(struct rig *rig, shape s) {
    (void)s;
    strait_tensor x[EACH];
    int64_t n = 0;
    for (int i = 0; i < EACH; i++)
        n += each_size(i);
    const strait_tensor all = rig_input(rig, 1, n, 1), totals = rig_output(rig, EACH, 1);
    for (int i = 0, at = 0; i < EACH; at += (int)each_size(i++))
        x[i] = part_of(all, at, 1, each_size(i));
    CHECK_OK(rig->k->sum_squares_each(&rig->stream, totals, x, EACH));
    rig_keep(rig, totals);
    const strait_tensor alone = rig_output(rig, 1, 1);
    CHECK_OK(rig->k->sum_squares(&rig->stream, alone, x[7]));
    rig_keep(rig, alone);
    assert_memory_equal(&rig->kept[7], &rig->kept[EACH], sizeof(float));
}

static void sums_squares_of_many_tensors_alike(void **state) {
    (void)state;
    check_case(run_squares_each, (shape){0}, 1e-6);
}

/* Every third weight has a second moment per column, every fifth per row; learning rates differ. */
static void run_adamw_each(struct rig *rig, shape s) {
    (void)s;
    strait_adamw_item items[EACH];
    int64_t n = 0;
    for (int i = 0; i < EACH; i++)
        n += 3 * each_size(i);
    const strait_tensor weight = rig_input(rig, 1, n, 1), m = rig_output(rig, 1, n);
    const strait_tensor v = rig_output(rig, 1, n), grad = rig_input(rig, 1, n, 2);
    CHECK_OK(rig->k->fill(&rig->stream, m, 0.1f));
    CHECK_OK(rig->k->fill(&rig->stream, v, 0.2f));
    for (int i = 0, at = 0; i < EACH; at += 3 * (int)each_size(i++)) {
        const int64_t cols = each_size(i);
        items[i] = (strait_adamw_item){part_of(weight, at, 3, cols),
                                       part_of(m, at, 3, cols),
                                       part_of(v, at, i % 3 == 0 ? 1 : 3, i % 5 == 4 ? 1 : cols),
                                       part_of(grad, at, 3, cols),
                                       {.learning_rate = 0.01f * (float)(1 + i % 4),
                                        .beta1 = 0.9f,
                                        .beta2 = 0.95f,
                                        .epsilon = 1e-8f,
                                        .weight_decay = 0.1f * (float)(i % 2),
                                        .step = 3}};
        if (i % 15 == 9) items[i].v = part_of(v, at, 3, 1);
    }
    const float by[] = {0.3f, 1};
    CHECK_OK(rig->k->adamw_each(&rig->stream, items, EACH, rig_values(rig, 2, 1, by)));
    rig_keep(rig, weight);
    rig_keep(rig, m);
    rig_keep(rig, v);
}

static void updates_many_weights_alike(void **state) {
    (void)state;
    check_case(run_adamw_each, (shape){0}, 5e-6);
}

/* The first step moves each weight by the learning rate against the sign of its gradient, whatever
 * the gradient's magnitude, after weight decay. */
static void first_adamw_step_follows_the_sign(void **state) {
    (void)state;
    const float weights[] = {1, 2, -3}, grads[] = {1e-3f, -50, 7}, zeros[3] = {0};
    struct rig *rig = reference_rig();
    const strait_tensor w = rig_values(rig, 1, 3, weights), absent = {0};
    CHECK_OK(rig->k->adamw(&rig->stream, w, rig_values(rig, 1, 3, zeros),
                           rig_values(rig, 1, 3, zeros), rig_values(rig, 1, 3, grads), absent,
                           (strait_adamw_params){.learning_rate = 0.1f,
                                                 .beta1 = 0.9f,
                                                 .beta2 = 0.99f,
                                                 .epsilon = 1e-12f,
                                                 .weight_decay = 0.5f,
                                                 .step = 1}));
    rig_keep(rig, w);
    CHECK_NEAR(rig->kept[0], 0.95 * 1 - 0.1, 1e-6);
    CHECK_NEAR(rig->kept[1], 0.95 * 2 + 0.1, 1e-6);
    CHECK_NEAR(rig->kept[2], 0.95 * -3 - 0.1, 1e-6);
    rig_check(rig);
}

/* With a scale of 0, non-finite gradients do not reach weights and moments; with a non-finite norm,
 * nothing is written at all. */
static void run_zero_scale(struct rig *rig, shape s) {
    const float grads[] = {NAN, INFINITY, 1}, zero[] = {0, s.rows > 0 ? NAN : 3};
    const float moments[] = {0.1f, 0.2f, 0.3f};
    const strait_tensor w = rig_input(rig, 1, 3, 1), m = rig_values(rig, 1, 3, moments);
    const strait_tensor v = rig_values(rig, 1, s.variant ? 1 : 3, moments);
    CHECK_OK(rig->k->adamw(
        &rig->stream, w, m, v, rig_values(rig, 1, 3, grads), rig_values(rig, 2, 1, zero),
        (strait_adamw_params){
            .learning_rate = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .step = 2}));
    rig_keep(rig, w);
    rig_keep(rig, m);
    rig_keep(rig, v);
    for (size_t i = 0; i < rig->n_kept; i++)
        CHECK(isfinite(rig->kept[i]));
    for (size_t i = 0; i < 3; i++)
        CHECK((rig->kept[3 + i] == moments[i]) == (s.rows > 0));
}

static void zero_scale_ignores_non_finite_gradients(void **state) {
    (void)state;
    for (int non_finite = 0; non_finite < 2; non_finite++) {
        check_case(run_zero_scale, (shape){.variant = 0, .rows = non_finite}, 1e-6);
        check_case(run_zero_scale, (shape){.variant = 1, .rows = non_finite}, 1e-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_cross_entropy),
        cmocka_unit_test(matches_reference_cross_entropy_of_a_vocabulary),
        cmocka_unit_test(cross_entropy_handles_extreme_logits),
        cmocka_unit_test(matches_reference_clip),
        cmocka_unit_test(matches_reference_adamw),
        cmocka_unit_test(sums_squares_of_many_tensors_alike),
        cmocka_unit_test(updates_many_weights_alike),
        cmocka_unit_test(first_adamw_step_follows_the_sign),
        cmocka_unit_test(zero_scale_ignores_non_finite_gradients),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
