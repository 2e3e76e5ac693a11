#include "study/vision/vision.h"

#include "check.h"
#include "study/stable_rank.h"

enum {
    IMAGES = 3
};

static void test_stable_rank_of_known_matrices(void **state) {
    (void)state;
    float diagonal[9] = {3, 0, 0, 0, 2, 0, 0, 0, 1};
    float outer[6];
    for (int i = 0; i < 6; i++)
        outer[i] = (float)(i / 3 + 1) * (float)(i % 3 - 2);
    const float zeros[4] = {0};
    CHECK_NEAR(strait_stable_rank(diagonal, 3, 3), 14.0 / 9.0, 1e-6);
    CHECK_NEAR(strait_stable_rank(outer, 2, 3), 1.0, 1e-6);
    CHECK(isnan(strait_stable_rank(zeros, 2, 2)));
}

/* Central differences of a few values of every parameter, for every model. */
static void test_gradients_match_differences(void **state) {
    (void)state;
    for (int which = 0; strait_vision_name(which) != NULL; which++) {
        struct strait_tape *tape = NULL;
        int labels[IMAGES];
        CHECK_OK(strait_vision_build(strait_vision_name(which), IMAGES, 7, &tape));
        strait_vision_draw(7, 1, IMAGES, strait_tape_values(tape, 0), labels);
        (void)strait_tape_forward(tape, labels);
        strait_tape_backward(tape, labels);
        int n_params = 0;
        for (int i = 0; strait_tape_param_at(tape, i) >= 0; i++, n_params++) {
            const int at = strait_tape_param_at(tape, i);
            const int n = strait_tape_rows(tape, at) * strait_tape_columns(tape, at);
            for (int k = 0; k < 4; k++) {
                float *w = strait_tape_values(tape, at) + k * (n - 1) / 3;
                const double slope = strait_tape_gradients(tape, at)[k * (n - 1) / 3];
                const float before = *w;
                *w = before + 1e-3F;
                const double above = strait_tape_forward(tape, labels);
                *w = before - 1e-3F;
                const double below = strait_tape_forward(tape, labels);
                *w = before;
                CHECK_NEAR((above - below) / 2e-3, slope, 2e-3 + 0.05 * fabs(slope));
            }
        }
        CHECK(n_params >= 4);
        strait_tape_close(&tape);
    }
}

static void test_models_learn_the_gratings(void **state) {
    (void)state;
    for (int i = 0; strait_vision_name(i) != NULL; i++) {
        json_t *record = NULL;
        const strait_vision_spec spec = {.name = strait_vision_name(i),
                                         .steps = 60,
                                         .every = 20,
                                         .n_images = 16,
                                         .seed = 1,
                                         .learning_rate = 0.003};
        CHECK_OK(strait_vision_train(&spec, &record));
        const double first = json_number_value(json_object_get(record, "first_loss"));
        const double last = json_number_value(json_object_get(record, "train_loss"));
        CHECK(last < 0.8 * first);
        const json_t *head = json_object_get(json_object_get(record, "stable_rank"), "head");
        CHECK(json_array_size(head) == 4); // steps 0, 20, 40, 60
        json_decref(record);
    }
}

static void test_rejects_graphs_that_do_not_fit(void **state) {
    (void)state;
    struct strait_tape *tape = NULL;
    CHECK_OK(strait_tape_open(&tape));
    const int a = strait_tape_input(tape, 2, 3);
    const int b = strait_tape_param(tape, "b", 4, 5);
    (void)strait_tape_matmul(tape, a, b);
    CHECK_FAILS(strait_tape_check(tape), STRAIT_EINVAL, "do not fit");
    strait_tape_close(&tape);
    CHECK_FAILS(strait_vision_build("mlp", 1, 1, &tape), STRAIT_EINVAL, "no such model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stable_rank_of_known_matrices),
        cmocka_unit_test(test_gradients_match_differences),
        cmocka_unit_test(test_models_learn_the_gratings),
        cmocka_unit_test(test_rejects_graphs_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
