/* rope.c - the angles of rotary embedding against numbers of Hugging Face's formulas. */
#include "model/parts/rope.h"

#include "tiny.h"

#include <math.h>

enum {
    PAIRS = 6
};

/* Compares the angles at position 1 of a shape with 12 features per head. */
static void check_angles(strait_shape shape, const double expected[PAIRS]) {
    float cosines[2 * PAIRS], sines[2 * PAIRS];
    shape.head_dim = 2 * PAIRS;
    shape.context = 2;
    strait_rope_tables(&shape, cosines, sines);
    for (int i = 0; i < PAIRS; i++) {
        CHECK_NEAR((double)cosines[i], 1.0, 0.0);
        CHECK_NEAR((double)cosines[PAIRS + i], cos(expected[i]), 1e-7);
        CHECK_NEAR((double)sines[PAIRS + i], sin(expected[i]), 1e-7 * expected[i]);
    }
}

static void linear_scaling_divides_every_angle(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    double expected[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        expected[i] = pow(10000.0, -i / 6.0) / 4.0;
    shape.rope_scaling = STRAIT_ROPE_LINEAR;
    shape.rope_factor = 4.0f;
    check_angles(shape, expected);
}

/* Computed with the function of transformers' modeling_rope_utils.py: the first pair is
 * interpolated, the others are slowed down. With a longer original context the first ones keep
 * their angle. */
static void llama3_scaling_slows_only_rare_turns_down(void **state) {
    (void)state;
    static const double expected[PAIRS] = {0.5760564010955116,     0.014030775603867163,
                                           0.0015749013123685918,  0.00017677669529663688,
                                           1.9842513149602502e-05, 2.227246795350847e-06};
    strait_shape shape = tiny_llama();
    shape.rope_theta = 500000.0f;
    shape.rope_scaling = STRAIT_ROPE_LLAMA3;
    shape.rope_factor = 8.0f;
    shape.rope_low = 1.0f;
    shape.rope_high = 4.0f;
    shape.rope_original = 16;
    check_angles(shape, expected);
    double longer[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        longer[i] = pow(500000.0, -i / 6.0);
    shape.rope_original = 100000000;
    check_angles(shape, longer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_scaling_divides_every_angle),
        cmocka_unit_test(llama3_scaling_slows_only_rare_turns_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
