/* floats.c - number formats of model files against the formats of the compiler and of IEEE 754. */
#include "convert/floats.h"

#include "check.h"

#include <math.h>

static float widen_one(uint16_t half, strait_dtype format) {
    float out = 0;
    strait_floats_widen(&out, (const unsigned char *)&half, format, 1);
    return out;
}

static uint16_t narrow_one(float value, strait_dtype format) {
    unsigned char bytes[2];
    uint16_t half;
    strait_floats_narrow(bytes, &value, format, 1);
    memcpy(&half, bytes, sizeof half);
    return half;
}

/* The value of a half by the definition of the format. */
static double half_by_definition(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 0 ? ldexp(fraction, -24)
                                      : ldexp(1024 + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}

static void every_half_survives_a_round_trip(void **state) {
    (void)state;
    for (int i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        const float wide = widen_one(half, STRAIT_F16), broad = widen_one(half, STRAIT_BF16);
        if ((half & 0x7c00) != 0x7c00) {
            assert_true((double)wide == half_by_definition(half));
            assert_int_equal(narrow_one(wide, STRAIT_F16), half);
        }
        if ((half & 0x7f80) != 0x7f80) assert_int_equal(narrow_one(broad, STRAIT_BF16), half);
    }
    assert_true(isinf(widen_one(0x7c00, STRAIT_F16)) && isnan(widen_one(0x7c01, STRAIT_F16)));
    assert_true(isnan(widen_one(narrow_one(NAN, STRAIT_F16), STRAIT_F16)));
    assert_true(isnan(widen_one(narrow_one(NAN, STRAIT_BF16), STRAIT_BF16)));
}

/* Between two neighbours the nearer one wins, and the even one in the middle. */
static void rounds_to_nearest_even(void **state) {
    (void)state;
    for (int i = 0; i < 0x7bff; i++) {
        const double low = half_by_definition((uint16_t)i),
                     high = half_by_definition((uint16_t)(i + 1));
        const float middle = (float)((low + high) / 2);
        assert_int_equal(narrow_one(middle, STRAIT_F16), i % 2 == 0 ? i : i + 1);
        assert_int_equal(narrow_one(nextafterf(middle, 0.0f), STRAIT_F16), i);
        assert_int_equal(narrow_one(nextafterf(middle, 1e9f), STRAIT_F16), i + 1);
    }
    assert_int_equal(narrow_one(1.00390625f, STRAIT_BF16), 0x3f80); // half a step above 1
    assert_int_equal(narrow_one(1.01171875f, STRAIT_BF16), 0x3f82); // a step and a half
}

static void finds_values_that_are_not_finite_or_too_large(void **state) {
    (void)state;
    const float values[] = {1.0f, -65519.0f, 65520.0f, INFINITY, NAN};
    assert_int_equal(strait_floats_first_nonfinite(values, 3), -1);
    assert_int_equal(strait_floats_first_nonfinite(values, 5), 3);
    assert_int_equal(strait_floats_first_nonfinite(values + 4, 1), 0);
    assert_int_equal(strait_floats_overflow(values, STRAIT_F16, 2), -1);
    assert_int_equal(strait_floats_overflow(values, STRAIT_F16, 3), 2);
    assert_int_equal(strait_floats_overflow(values, STRAIT_BF16, 3), -1);
}

/* Values are converted in blocks: no value of a long tensor is missed, also in place. */
static void converts_long_tensors_like_single_values(void **state) {
    enum {
        N = 2500
    };
    static float values[N];
    static const strait_dtype formats[] = {STRAIT_F16, STRAIT_BF16};
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        for (int i = 0; i < N; i++)
            values[i] = (float)(i - 1200) * 0.00123f;
        strait_floats_narrow((unsigned char *)values, values, formats[f], N);
        for (int i = 0; i < N; i++) {
            uint16_t half;
            memcpy(&half, (const unsigned char *)values + 2 * (size_t)i, sizeof half);
            assert_int_equal(half, narrow_one((float)(i - 1200) * 0.00123f, formats[f]));
        }
    }
    for (int bad = 1020; bad < 1030; bad++) {
        for (int i = 0; i < N; i++)
            values[i] = i >= bad && i % 7 == bad % 7 ? -INFINITY : 1.0f;
        assert_int_equal(strait_floats_first_nonfinite(values, N), bad);
        assert_int_equal(strait_floats_first_nonfinite(values, bad), -1);
    }
    values[N - 1] = NAN;
    assert_int_equal(strait_floats_first_nonfinite(values + 2048, N - 2048) >= 0, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(converts_long_tensors_like_single_values),
        cmocka_unit_test(finds_values_that_are_not_finite_or_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
