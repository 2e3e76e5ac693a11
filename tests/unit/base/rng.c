/* Random numbers are a function of seed, stream and counter. */
#include "base/digest/hash.h"
#include "base/rng/rng_set.h"
#include "check.h"

#include <math.h>

enum {
    MANY = 1 << 20
};

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

static void words_match_consecutive_draws(void **state) {
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
    static float all[400], part[400];
    const strait_rng rng = {1, 2};
    strait_rng_normals(rng, 0, all, 400);
    for (size_t first = 0; first < 9; first++) {
        const size_t counts[] = {0, 1, 3, 10, 63, 64, 65, 127, 128, 130, 200};
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset(part, 0, sizeof part);
            strait_rng_normals(rng, first, part, counts[c]);
            assert_memory_equal(all + first, part, counts[c] * sizeof *part);
            assert_true(part[counts[c]] == 0.0f); // nothing past the end
        }
    }
}

/* Philox backwards: the place where these four words are drawn. */
static void find_place(uint64_t seed, const uint32_t words[4], strait_rng *rng, uint64_t *counter) {
    uint32_t x[4] = {words[0], words[1], words[2], words[3]};
    for (uint32_t round = 10; round-- > 0;) {
        const uint32_t key[2] = {(uint32_t)seed + round * 0x9E3779B9u,
                                 (uint32_t)(seed >> 32) + round * 0xBB67AE85u};
        const uint32_t first = x[3] * 0x991A7CDBu; // 1 / 0xD2511F53, modulo 2^32
        const uint32_t third = x[1] * 0x6D7CAE67u; // 1 / 0xCD9E8D57
        const uint32_t second = x[0] ^ (uint32_t)((uint64_t)0xCD9E8D57u * third >> 32) ^ key[0];
        x[3] = x[2] ^ (uint32_t)((uint64_t)0xD2511F53u * first >> 32) ^ key[1];
        x[0] = first;
        x[1] = second;
        x[2] = third;
    }
    *rng = (strait_rng){seed, (uint64_t)x[3] << 32 | x[2]};
    *counter = (uint64_t)x[1] << 32 | x[0];
}

/* The formula, by the library. Sines of half turns are not quite 0 there. */
static void check_pair(const uint32_t words[2], const float pair[2], double within) {
    const double radius = sqrt(-2.0 * log(((double)words[0] + 1.0) * 0x1p-32));
    const double angle = 6.283185307179586 * ((double)words[1] * 0x1p-32);
    const double want[2] = {radius * cos(angle), radius * sin(angle)};
    for (int i = 0; i < 2; i++)
        CHECK_NEAR((double)pair[i], want[i], fabs(want[i]) * within + 1e-14);
}

static void normals_follow_the_formula(void **state) {
    (void)state;
    static float numbers[MANY];
    static uint32_t words[MANY];
    strait_rng_normals((strait_rng){7, 8}, 0, numbers, MANY);
    strait_rng_words((strait_rng){7, 8}, 0, words, MANY);
    for (int i = 0; i < MANY; i += 2)
        check_pair(words + i, numbers + i, 0x1.01p-24); // rounded to the nearest
}

/* At the ends of every range: the first and last word, where the logarithm and the angle change
 * from one piece of their range to the next, and close to all of these. */
static void extreme_words_follow_the_formula(void **state) {
    (void)state;
    const uint32_t radii[] = {0,          0x7fffffff, 0x80000000, 0xb504f333, 0xffffffff,
                              0x5a827999, 0x3fffffff, 0x00000005, 0x0000b504, 0x00ffffff};
    const uint32_t angles[] = {0,          0x20000000, 0x40000000, 0x60000000, 0x80000000,
                               0xa0000000, 0xc0000000, 0xe0000000, 0x12345678, 0xffffffff};
    for (uint32_t r = 0; r < 30; r++) {
        for (uint32_t a = 0; a < 30; a++) {
            const uint32_t radius = radii[r / 3] + r % 3 - 1, angle = angles[a / 3] + a % 3 - 1;
            const uint32_t words[4] = {radius, angle, ~radius, angle + radius};
            strait_rng rng;
            uint64_t counter = UINT64_MAX;
            for (uint64_t seed = 0x123456789u * r + a; counter > UINT64_MAX / 4; seed += 1000)
                find_place(seed, words, &rng, &counter); // until it is the place of a number
            uint32_t drawn[4];
            strait_rng_draw(rng, counter, drawn);
            assert_memory_equal(drawn, words, sizeof words);
            float numbers[4];
            strait_rng_normals(rng, counter * 4, numbers, 4);
            check_pair(words, numbers, 0x1.01p-24);
            check_pair(words + 2, numbers + 2, 0x1.01p-24);
        }
    }
}

/* First weights are a format: no compiler, option or processor may change one bit of them. */
static void bits_are_the_same_everywhere(void **state) {
    (void)state;
    static float numbers[MANY];
    const float first[] = {0x1.a612eep+0f, -0x1.30e0e6p+1f, 0x1.a205b8p-3f,  0x1.786be8p-2f,
                           0x1.243a36p+1f, 0x1.8abc48p-3f,  -0x1.9bf696p-2f, 0x1.4bdfc8p-1f};
    for (const struct strait_rng_set *set = strait_rng_sets; set->name != NULL; set++) {
        if (!set->is_supported()) continue;
        memset(numbers, 0, sizeof numbers);
        set->normals((strait_rng){5, 6}, 0, numbers, MANY / STRAIT_RNG_BLOCK);
        char hash[STRAIT_HASH_TEXT];
        strait_hash_text(numbers, sizeof numbers, hash);
        assert_memory_equal(numbers, first, sizeof first);
        assert_string_equal(hash, "3634f0f5e52bcd6e48f8796307f4b59a");
    }
}

static void normals_are_normal(void **state) {
    (void)state;
    static float numbers[MANY];
    strait_rng_normals((strait_rng){3, 4}, 0, numbers, MANY);
    double power[5] = {0}, neighbours = 0;
    int beyond[5] = {0};
    for (int i = 0; i < MANY; i++) {
        const double x = (double)numbers[i];
        for (int k = 1; k < 5; k++) {
            power[k] += pow(x, k) / MANY;
            beyond[k] += fabs(x) > k;
        }
        neighbours += x * (double)numbers[i ^ 1] / MANY;
    }
    /* Five times the deviation that so many true ones would have. */
    CHECK_NEAR(power[1], 0, 5 * sqrt(1.0 / MANY));
    CHECK_NEAR(power[2], 1, 5 * sqrt(2.0 / MANY));
    CHECK_NEAR(power[3], 0, 5 * sqrt(15.0 / MANY));
    CHECK_NEAR(power[4], 3, 5 * sqrt(96.0 / MANY));
    CHECK_NEAR(neighbours, 0, 5 * sqrt(2.0 / MANY));
    for (int k = 1; k < 5; k++) {
        const double want = MANY * erfc(k / sqrt(2.0));
        CHECK_NEAR((double)beyond[k], want, 5 * sqrt(want));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_philox),
        cmocka_unit_test(words_match_consecutive_draws),
        cmocka_unit_test(normals_depend_on_their_place_alone),
        cmocka_unit_test(normals_follow_the_formula),
        cmocka_unit_test(extreme_words_follow_the_formula),
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(normals_are_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
