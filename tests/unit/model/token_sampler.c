/* token_sampler.c - tokens drawn for given logits and random numbers. */
#include "model/token_sampler.h"

#include "base/alloc.h"
#include "check.h"

enum {
    VOCAB = 5
};
/* Probabilities at temperature 1: 0.1, 0.4, 0.1, 0.3, 0.1. */
static const float logits[VOCAB] = {-2.30258509f, -0.91629073f, -2.30258509f, -1.20397280f,
                                    -2.30258509f};

static int32_t pick(strait_token_sampler_params params, float random) {
    struct strait_token_sampler *sampler = NULL;
    CHECK_OK(strait_token_sampler_open(VOCAB, params, &sampler));
    const int64_t before = strait_alloc_count();
    const int32_t token = strait_token_sampler_pick(sampler, logits, random);
    assert_int_equal(strait_alloc_count(), before);
    strait_token_sampler_close(&sampler);
    return token;
}

static void draws_by_probability_most_likely_first(void **state) {
    (void)state;
    const strait_token_sampler_params params = {1.0f, 0, 1.0f};
    static const struct {
        float random;
        int32_t token;
    } cases[] = {{0.0f, 1},  {0.39f, 1}, {0.41f, 3}, {0.69f, 3},      {0.71f, 0},
                 {0.79f, 0}, {0.81f, 2}, {0.91f, 4}, {0.99999994f, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pick(params, cases[i].random), cases[i].token);
}

static void temperature_sharpens_and_flattens(void **state) {
    (void)state;
    assert_int_equal(pick((strait_token_sampler_params){0.0f, 0, 1.0f}, 0.99f), 1);
    /* Temperature 0.5 squares the probabilities: weights 16, 9, 1, 1, 1 of 28. */
    assert_int_equal(pick((strait_token_sampler_params){0.5f, 0, 1.0f}, 0.56f), 1);
    assert_int_equal(pick((strait_token_sampler_params){0.5f, 0, 1.0f}, 0.58f), 3);
    /* Almost uniform. */
    assert_int_equal(pick((strait_token_sampler_params){100.0f, 0, 1.0f}, 0.22f), 3);
}

static void top_k_and_top_p_renormalise(void **state) {
    (void)state;
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 1, 1.0f}, 0.99f), 1);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 2, 1.0f}, 0.56f), 1); // 4 of 7
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 2, 1.0f}, 0.58f), 3);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 99, 1.0f}, 0.99f), 4);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 0, 0.6f}, 0.99f), 3);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 0, 0.3f}, 0.99f), 1);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 3, 0.8f}, 0.99f), 3); // 7 of 8
}

static void rejects_parameters_out_of_bounds(void **state) {
    (void)state;
    struct strait_token_sampler *sampler = NULL;
    static const struct {
        strait_token_sampler_params params;
        const char *message;
    } cases[] = {{{-1.0f, 0, 1.0f}, "temperature"}, {{101.0f, 0, 1.0f}, "temperature"},
                 {{NAN, 0, 1.0f}, "temperature"},   {{1.0f, -1, 1.0f}, "top-k"},
                 {{1.0f, 0, 0.0f}, "top-p"},        {{1.0f, 0, 1.5f}, "top-p"},
                 {{1.0f, 0, NAN}, "top-p"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(strait_token_sampler_open(VOCAB, cases[i].params, &sampler), STRAIT_ECONFIG,
                    cases[i].message);
    for (int n = 1; n <= 2; n++) {
        strait_alloc_fail_at(n);
        assert_int_equal(strait_token_sampler_open(
                             VOCAB, (strait_token_sampler_params){1.0f, 0, 1.0f}, &sampler),
                         STRAIT_ENOMEM);
    }
    strait_alloc_fail_at(0);
    assert_null(sampler);
    strait_token_sampler_close(&sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_by_probability_most_likely_first),
        cmocka_unit_test(temperature_sharpens_and_flattens),
        cmocka_unit_test(top_k_and_top_p_renormalise),
        cmocka_unit_test(rejects_parameters_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
