/* Random numbers are a function of seed, stream and counter. */
#include "base/rng.h"

#include "check.h"

/* The known answers of Philox 4x32 with ten rounds. */
static void draws_are_philox(void **state) {
    (void)state;
    uint32_t out[4];
    strait_rng_draw((strait_rng){0, 0}, 0, out);
    const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, zeros, sizeof out);
    strait_rng_draw((strait_rng){UINT64_MAX, UINT64_MAX}, UINT64_MAX, out);
    const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(out, ones, sizeof out);
}

static void words_are_draws_in_a_row(void **state) {
    (void)state;
    const strait_rng rng = {5, 6};
    const uint64_t firsts[] = {0, 3, 1001, 0xfffffffff7u};
    for (int f = 0; f < 4; f++) {
        uint32_t words[150] = {0};
        for (size_t n = 0; n < 149; n += 37) {
            strait_rng_words(rng, firsts[f], words, n);
            for (size_t i = 0; i < n; i++) {
                uint32_t draw[4];
                strait_rng_draw(rng, (firsts[f] + i) / 4, draw);
                assert_int_equal(words[i], draw[(firsts[f] + i) % 4]);
            }
            assert_int_equal(words[n], 0); // nothing past the end
        }
    }
}

static void normals_depend_on_their_place_alone(void **state) {
    (void)state;
    float all[64], part[10];
    strait_rng_normals((strait_rng){1, 2}, 0, all, 64);
    strait_rng_normals((strait_rng){1, 2}, 7, part, 10);
    assert_memory_equal(all + 7, part, sizeof part);
    double mean = 0, square = 0;
    static float many[40000];
    strait_rng_normals((strait_rng){3, 4}, 0, many, 40000);
    for (int i = 0; i < 40000; i++) {
        mean += (double)many[i] / 40000;
        square += (double)many[i] * (double)many[i] / 40000;
    }
    CHECK_NEAR(mean, 0, 0.02);
    CHECK_NEAR(square, 1, 0.03);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_philox),
        cmocka_unit_test(words_are_draws_in_a_row),
        cmocka_unit_test(normals_depend_on_their_place_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
