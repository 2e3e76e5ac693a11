/* The next token from logits and a chance. */
#include "model/token_sampler.h"

#include "base/alloc.h"
#include "check.h"

enum {
    VOCAB = 5
};
/* At temperature 1: 0.1, 0.4, 0.1, 0.3, 0.1. */
static const float logits[VOCAB] = {-2.30258509f, -0.91629073f, -2.30258509f, -1.20397280f,
                                    -2.30258509f};

static int32_t pick(strait_token_sampler_params how, float chance) {
    struct strait_token_sampler *chooser = NULL;
    CHECK_OK(strait_token_sampler_open(VOCAB, how, &chooser));
    const int64_t before = strait_alloc_count();
    const int32_t token = strait_token_sampler_pick(chooser, logits, chance);
    assert_int_equal(strait_alloc_count(), before);
    strait_token_sampler_close(&chooser);
    return token;
}

static void chance_falls_by_the_odds_likeliest_first(void **state) {
    (void)state;
    const strait_token_sampler_params how = {1.0f, 0, 1.0f};
    static const struct {
        float chance;
        int32_t token;
    } cases[] = {{0.0f, 1},  {0.39f, 1}, {0.41f, 3}, {0.69f, 3},      {0.71f, 0},
                 {0.79f, 0}, {0.81f, 2}, {0.91f, 4}, {0.99999994f, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pick(how, cases[i].chance), cases[i].token);
}

static void temperature_sharpens_and_flattens(void **state) {
    (void)state;
    assert_int_equal(pick((strait_token_sampler_params){0.0f, 0, 1.0f}, 0.99f), 1);
    /* Squares of the odds: 16 + 9 + 1 + 1 + 1 of 28. */
    assert_int_equal(pick((strait_token_sampler_params){0.5f, 0, 1.0f}, 0.56f), 1);
    assert_int_equal(pick((strait_token_sampler_params){0.5f, 0, 1.0f}, 0.58f), 3);
    /* All but equal. */
    assert_int_equal(pick((strait_token_sampler_params){100.0f, 0, 1.0f}, 0.22f), 3);
}

static void the_few_likeliest_share_all_chances(void **state) {
    (void)state;
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 1, 1.0f}, 0.99f), 1);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 2, 1.0f}, 0.56f), 1); // 4 of 7
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 2, 1.0f}, 0.58f), 3);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 99, 1.0f}, 0.99f), 4);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 0, 0.6f}, 0.99f), 3);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 0, 0.3f}, 0.99f), 1);
    assert_int_equal(pick((strait_token_sampler_params){1.0f, 3, 0.8f}, 0.99f), 3); // 7 of 8
}

static void settings_out_of_bounds_are_refused(void **state) {
    (void)state;
    struct strait_token_sampler *chooser = NULL;
    static const struct {
        strait_token_sampler_params how;
        const char *words;
    } cases[] = {{{-1.0f, 0, 1.0f}, "temperature"}, {{101.0f, 0, 1.0f}, "temperature"},
                 {{NAN, 0, 1.0f}, "temperature"},   {{1.0f, -1, 1.0f}, "top-k"},
                 {{1.0f, 0, 0.0f}, "top-p"},        {{1.0f, 0, 1.5f}, "top-p"},
                 {{1.0f, 0, NAN}, "top-p"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(strait_token_sampler_open(VOCAB, cases[i].how, &chooser), STRAIT_ECONFIG,
                    cases[i].words);
    for (int n = 1; n <= 2; n++) {
        strait_alloc_fail_at(n);
        assert_int_equal(strait_token_sampler_open(
                             VOCAB, (strait_token_sampler_params){1.0f, 0, 1.0f}, &chooser),
                         STRAIT_ENOMEM);
    }
    strait_alloc_fail_at(0);
    assert_null(chooser);
    strait_token_sampler_close(&chooser);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chance_falls_by_the_odds_likeliest_first),
        cmocka_unit_test(temperature_sharpens_and_flattens),
        cmocka_unit_test(the_few_likeliest_share_all_chances),
        cmocka_unit_test(settings_out_of_bounds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
