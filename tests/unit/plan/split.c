/* Splits against all possible splits, and errors. */
#include "plan/split.h"

#include "rig.h"

static void matches_splits_by_hand(void **state) {
    (void)state;
    int n[4];
    strait_split_spec spec = {.n_layers = 8, .n_stages = 4};
    CHECK_OK(strait_split_auto(&spec, n));
    CHECK(n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 2);
    spec.head_cost = 1.5; // the last stage holds one layer and the head
    CHECK_OK(strait_split_auto(&spec, n));
    CHECK(n[0] + n[1] + n[2] == 7 && n[3] == 1);
    CHECK(n[0] == 2 && n[1] == 2 && n[2] == 3); // the remainder goes to the last stage
    const double speeds[] = {1, 3, 1, 3};
    spec.head_cost = 0;
    spec.speeds = speeds;
    CHECK_OK(strait_split_auto(&spec, n));
    CHECK(n[0] == 1 && n[1] == 3 && n[2] == 1 && n[3] == 3);
}

static void stages_begin_at_multiples_of_the_stride(void **state) {
    (void)state;
    int n[4];
    strait_split_spec spec = {.n_layers = 8, .n_stages = 4, .stride = 2, .head_cost = 1.5};
    CHECK_OK(strait_split_auto(&spec, n)); // 2, 2, 3 and 1 would be faster
    CHECK(n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 2);
    spec.n_layers = 11;
    CHECK_OK(strait_split_auto(&spec, n));
    CHECK(n[0] == 2 && n[1] == 4 && n[2] == 4 && n[3] == 1);
    const double memories[] = {2, 2, 2, 9};
    spec.memories = memories;
    spec.n_layers = 17;
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_ECONFIG, "15 of 17 layers fit");
    spec.stride = 3;
    spec.n_layers = 9;
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_ECONFIG,
                "stages.count is 4, but only 3 of 9 layers are local (model.local_every 3)");
}

static double load(const strait_split_spec *spec, int stage, int count) {
    const double embedding = stage == 0 ? spec->embedding_cost : 0;
    const double head = stage == spec->n_stages - 1 ? spec->head_cost : 0;
    return (count + embedding + head) / spec->speeds[stage];
}

static int fits(const strait_split_spec *spec, int stage, int count) {
    const double embedding = stage == 0 ? spec->embedding_memory : 0;
    const double head = stage == spec->n_stages - 1 ? spec->head_memory : 0;
    return count + embedding + head <= spec->memories[stage];
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* The lowest peak load of all splits of `left` layers over the stages from `stage` on. */
static double best_peak(const strait_split_spec *spec, int stage, int left) {
    if (stage == spec->n_stages) return left == 0 ? 0 : (double)INFINITY;
    double best = (double)INFINITY;
    for (int n = 1; n <= left; n++) {
        if (!fits(spec, stage, n)) break;
        if (stage < spec->n_stages - 1 && n % spec->stride != 0) continue;
        const double peak = larger(load(spec, stage, n), best_peak(spec, stage + 1, left - n));
        if (peak < best) best = peak;
    }
    return best;
}

static double peak_of(const strait_split_spec *spec, const int *counts) {
    double peak = 0;
    for (int i = 0; i < spec->n_stages; i++)
        peak = larger(peak, load(spec, i, counts[i]));
    return peak;
}

static void no_other_split_is_better(void **state) {
    (void)state;
    dice d = {.seed = 5};
    int n_refused = 0;
    for (int trial = 0; trial < 300; trial++) {
        double speeds[5], memories[5];
        const int n_stages = 1 + dice_roll(&d, 5);
        strait_split_spec spec = {.n_layers = n_stages + dice_roll(&d, 8),
                                  .n_stages = n_stages,
                                  .stride = 1 + trial % 3,
                                  .embedding_cost = 2 * dice_real(&d),
                                  .head_cost = 3 * dice_real(&d),
                                  .embedding_memory = dice_roll(&d, 2),
                                  .head_memory = dice_roll(&d, 2),
                                  .speeds = speeds,
                                  .memories = memories};
        for (int i = 0; i < n_stages; i++) {
            speeds[i] = 0.5 + dice_real(&d);
            memories[i] = 2 + dice_roll(&d, 6);
        }
        const double best = best_peak(&spec, 0, spec.n_layers);
        int counts[5];
        if (best == (double)INFINITY) {
            CHECK(strait_split_auto(&spec, counts) == STRAIT_ECONFIG);
            n_refused++;
            continue;
        }
        CHECK_OK(strait_split_auto(&spec, counts));
        CHECK_OK(strait_split_check(spec.n_layers, n_stages, counts, n_stages));
        CHECK_NEAR(peak_of(&spec, counts), best, 1e-12);
    }
    CHECK(n_refused > 5 && n_refused < 200);
}

static void rejects_wrong_counts(void **state) {
    (void)state;
    int n[4];
    CHECK_OK(strait_split_check(8, 4, (const int[]){3, 3, 1, 1}, 4));
    CHECK_FAILS(strait_split_check(8, 4, (const int[]){3, 3, 1, 2}, 4), STRAIT_ECONFIG,
                "adds up to 9 layers, but model.layers is 8");
    CHECK_FAILS(strait_split_check(8, 4, (const int[]){3, 0, 1, 4}, 4), STRAIT_ECONFIG,
                "gives 0 layers to stage 1");
    CHECK_FAILS(strait_split_check(8, 4, (const int[]){4, 4}, 2), STRAIT_ECONFIG,
                "has 2 counts, but stages.count is 4");
    strait_split_spec spec = {.n_layers = 3, .n_stages = 4};
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_ECONFIG, "use 1 to 3 stages");
    const double memories[] = {2, 2};
    spec = (strait_split_spec){.n_layers = 5, .n_stages = 2, .memories = memories};
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_ECONFIG, "4 of 5 layers fit");
    spec.head_memory = 1.5;
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_ECONFIG, "stage 1 has memory for 2.00 layers");
    const double speeds[] = {1, 0};
    spec.speeds = speeds;
    CHECK_FAILS(strait_split_auto(&spec, n), STRAIT_EINVAL, "speed of 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_splits_by_hand),
        cmocka_unit_test(stages_begin_at_multiples_of_the_stride),
        cmocka_unit_test(no_other_split_is_better),
        cmocka_unit_test(rejects_wrong_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
