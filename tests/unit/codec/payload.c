/* Rounding on the wire: unbiased where it is stochastic, repeatable, and within its bounds. */
#include "codec/payload.h"

#include "pair.h"

static strait_codec_spec code_spec(int bits) {
    return (strait_codec_spec){.name = "resbm",
                               .variant = "b",
                               .rows = 9,
                               .cols = 64,
                               .keep = 33,
                               .bits = bits,
                               .seed = 3};
}

/* The mean over many steps approaches the value as fast as the variance allows. */
static void stochastic_rounding_is_unbiased(void **state) {
    (void)state;
    static const int all_bits[] = {16, 8, 4};
    enum {
        DRAWS = 4000
    };
    for (size_t b = 0; b < sizeof all_bits / sizeof all_bits[0]; b++) {
        struct pair p;
        strait_codec_spec spec = code_spec(all_bits[b]);
        spec.rounding = STRAIT_ROUND_STOCHASTIC;
        pair_open(&p, spec);
        const strait_tensor g = pair_normals(9, 33, 5), d = pair_tensor(9, 33);
        double *sum = calloc(9 * 33, sizeof *sum), *squares = calloc(9 * 33, sizeof *squares);
        for (p.step = 0; p.step < DRAWS; p.step++) {
            pair_backward(&p, d, g);
            for (int i = 0; i < 9 * 33; i++) {
                sum[i] += (double)f32(d)[i];
                squares[i] += (double)f32(d)[i] * (double)f32(d)[i];
            }
        }
        double worst = 0, chi = 0;
        int n = 0;
        for (int i = 0; i < 9 * 33; i++) {
            const double mean = sum[i] / DRAWS, spread = squares[i] / DRAWS - mean * mean;
            if (spread < 1e-14) continue; // the value is exactly representable
            const double z = (mean - (double)f32(g)[i]) / sqrt(spread / DRAWS);
            worst = fmax(worst, fabs(z));
            chi += z * z;
            n++;
        }
        CHECK(n > 200);
        CHECK(worst < 5);
        CHECK_NEAR(chi / n, 1, 0.35);
        free(sum);
        free(squares);
        free(g.data);
        free(d.data);
        pair_close(&p);
    }
}

static void rounding_depends_on_place_and_step_only(void **state) {
    (void)state;
    const strait_tensor g = pair_normals(9, 33, 5), d = pair_tensor(9, 33);
    unsigned char *first = NULL;
    for (int i = 0; i < 6; i++) {
        struct pair p;
        strait_codec_spec spec = code_spec(4);
        spec.n_boundaries = 2;
        spec.boundary = i == 1;
        spec.seed += i == 2;
        pair_open(&p, spec);
        p.step = i == 3;
        p.microbatch = i == 4;
        pair_backward(&p, d, g);
        const size_t bytes = (size_t)p.wire[1].cols;
        if (i == 0) {
            first = malloc(bytes);
            assert_non_null(first);
            memcpy(first, p.wire[1].data, bytes);
        } else if (i < 5) {
            assert_memory_not_equal(first, p.wire[1].data, bytes);
        } else {
            assert_memory_equal(first, p.wire[1].data, bytes);
        }
        pair_close(&p);
    }
    free(first);
    free(g.data);
    free(d.data);
}

/* Variant context: 31 values and a 4-bit scale. Variant tied: 32 values and an 8-bit scale. */
static void four_bits_take_16_or_17_bytes_per_token(void **state) {
    (void)state;
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        strait_codec_spec spec = {.name = "strait",
                                  .rows = 2048,
                                  .cols = 1024,
                                  .vocab = 10,
                                  .n_slots = 1,
                                  .n_boundaries = 1};
        if (is_tied) (void)strncpy(spec.variant, "tied", sizeof spec.variant - 1);
        CHECK_OK(strait_codec_check(&spec));
        for (int direction = 0; direction < 2; direction++)
            assert_int_equal(strait_codec_wire_bytes(&spec, (strait_direction)direction),
                             4 + 2048 * (is_tied ? 17 : 16));
    }
}

/* The error of a value is at most half a step of its row; a step is the row's largest value over
 * the codes, and at most 2^(1/16) of that. */
static void errors_are_bounded_by_the_step(void **state) {
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        struct pair p;
        pair_open(&p, code_spec(bits));
        const strait_tensor x = pair_normals(9, 33, 8), y = pair_tensor(9, 33);
        for (int row = 0; row < 9; row++)
            for (int c = 0; c < 33; c++)
                f32(x)[row * 33 + c] *= powf(10, (float)(row % 4) - 3);
        memset(f32(x) + 5 * (ptrdiff_t)33, 0, 33 * sizeof(float));
        pair_forward(&p, y, x);
        const double codes = bits == 4 ? 7 : 127;
        for (int row = 0; row < 9; row++) {
            double largest = 0, worst = 0;
            for (int i = row * 33; i < (row + 1) * 33; i++) {
                const double size = fabs((double)f32(x)[i]);
                const double off = fabs((double)f32(x)[i] - (double)f32(y)[i]);
                if (size > largest) largest = size;
                if (off > worst) worst = off;
            }
            CHECK(worst <= largest / codes * 0.5 * 1.0443 * 1.0001);
            CHECK(row == 5 ? worst == 0 : worst > 0);
        }
        free(x.data);
        free(y.data);
        pair_close(&p);
    }
}

/* The bytes of docs/codecs.md. */
static void packs_the_documented_bytes(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, (strait_codec_spec){
                      .name = "resbm", .variant = "b", .rows = 2, .cols = 8, .keep = 3, .bits = 4});
    const float values[6] = {7, -3.4f, 1, 0.5f, -0.25f, 0};
    const strait_tensor x = {(void *)values, STRAIT_F32, 2, 3}, y = pair_tensor(2, 3);
    pair_forward(&p, y, x);
    /* base 1.0f; the second row's 0.5 / 7 is 60.9 steps of 2^(-1/16) below the base; 60 steps still
     * cover it. */
    const unsigned char expected[] = {0, 0, 0x80, 0x3f, 255, 255 - 60, 0xd7, 0x01, 0xd7, 0x00};
    assert_memory_equal(p.wire[0].data, expected, sizeof expected);
    free(y.data);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stochastic_rounding_is_unbiased),
        cmocka_unit_test(rounding_depends_on_place_and_step_only),
        cmocka_unit_test(four_bits_take_16_or_17_bytes_per_token),
        cmocka_unit_test(errors_are_bounded_by_the_step),
        cmocka_unit_test(packs_the_documented_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
