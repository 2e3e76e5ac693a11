/* The log-scale payload: what variant context of the strait codec sends at 4 bits, byte for byte as
 * docs/codecs.md describes it.
 *
 * The bytes are a format that every kind of processor must reproduce. The expected values were
 * computed from that page by an independent implementation, not taken from this program. */
#include "codec/payload.h"
#include "pair.h"

enum {
    D = 5, // width of the stream
    MOST_ROWS = 7
};

/* The default of the strait codec: variant context at 4 bits. */
static strait_codec_spec context(int64_t rows, int64_t keep) {
    return (strait_codec_spec){.name = "strait", .rows = rows, .cols = D, .keep = keep, .seed = 1};
}

/* Formats bytes as the page does: top, then each row after two spaces. */
static void check_bytes(strait_tensor wire, int64_t row_bytes, const char *expected) {
    char text[256];
    size_t n = 0;
    for (int64_t i = 0; i < wire.cols && n < sizeof text - 5; i++) {
        const char *gap = i >= 4 && (i - 4) % row_bytes == 0 ? "  " : " ";
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%02x", i == 0 ? "" : gap,
                              ((const unsigned char *)wire.data)[i]);
    }
    assert_string_equal(text, expected);
}

static void check_rows(strait_tensor got, const float expected[2][D]) {
    for (int i = 0; i < 2 * D; i++)
        CHECK_NEAR((double)f32(got)[i], (double)expected[i / D][i % D], 0); // exactly
}

/* Sets the first parameter, E or D, to the identity. B and W start at 0, so the stream is the code.
 */
static void pass_through(struct strait_codec *c, struct strait_stream *stream) {
    strait_param p;
    CHECK_OK(strait_codec_get_param(c, 0, &p));
    for (int64_t i = 0; i < p.value.rows * p.value.cols; i++)
        f32(p.value)[i] = i / p.value.cols == i % p.value.cols ? 1.0f : 0.0f;
    CHECK_OK(strait_codec_refresh(c, stream));
}

/* Through both sides of a codec, plain and padded, with reference and fast kernels. */
static void packs_the_documented_example(void **state) {
    (void)state;
    float values[2][D] = {{1.5f, -0.3f, 0.05f, 0}, {0.1f, 0, -0.02f, 0}};
    const float forward[2][D] = {{1.32582521f, -0.265165031f, 0.0883883461f, 0},
                                 {0.0828640759f, 0.00552427163f, -0.0165728144f, 0}};
    const float backward[2][D] = {{1.4666667f, -0.13333334f, -0.13333334f, 0},
                                  {0.0916666687f, -0.00833333377f, -0.0250000022f, 0}};
    const strait_tensor x = {values, STRAIT_F32, 2, D}, y = pair_tensor(2, D),
                        nothing = pair_tensor(2, D);
    for (int mode = 0; mode < 4; mode++) {
        struct pair p;
        strait_codec_spec spec = context(2, 3);
        spec.is_padded = mode / 2;
        spec.context = 1; // the receiver reads only the token's own code
        pair_open_on(&p, mode % 2, spec);
        pass_through(p.sender, &p.stream);
        pass_through(p.receiver, &p.stream);
        strait_crossing at = pair_at(&p);
        at.input = nothing;
        CHECK_OK(strait_codec_act_pack(p.sender, &at, p.wire[0], x));
        CHECK_OK(strait_codec_act_unpack(p.receiver, &at, y, p.wire[0]));
        check_bytes(p.wire[0], 2, "00 00 00 40  f1 86  f9 68");
        check_rows(y, forward);
        pair_backward(&p, y, x);
        check_bytes(p.wire[1], 2, "00 00 00 40  d0 77  d8 67");
        check_rows(y, backward);
        pair_close(&p);
    }
    free(y.data);
    free(nothing.data);
}

typedef struct crossing {
    struct {
        strait_direction way;
        int64_t rows, keep;
    } shape;
    float values[MOST_ROWS][D];
    const char *bytes;
} crossing;

static const crossing edge_cases[] = {
    /* Odd k: ordinary values, zeros, non-finite ones; a row that a scale just covers and one that
     * it just does not; one below the smallest scale; and one whose codes would be others if a
     * product were fused with its sum (second and last value), if 7.5 and r were not added first
     * (third), or if the value were divided by its unit (fourth). */
    {{STRAIT_BACKWARD, 7, 5},
     {{1.9f, -1.1f, 0.3f, -0.02f, 7e-5f},
      {0, -0.0f, 0, 0, 0},
      {NAN, 0.5f, INFINITY, -INFINITY, 0x1p51f},
      {0x1.6a09e6p-1f, -0.2f, 0.1f, 0, -0x1.6a09e6p-1f},
      {0x1.6a09e8p-1f, -0.2f, 0.1f, 0, -0x1.6a09e6p-1f},
      {1e-6f, -1e-3f, 0, 1e-20f, -1e-40f},
      {0.9f, -0x1.7c7a7ep-1f, 0x1.31d47ep-2f, 0x1.f8fe16p-2f, 0x1.1b577ep-1f}},
     "00 00 00 40  f0 94 87  7f 77 77  74 7f 78  f3 85 08  d2 86 28  8f 77 88  e2 a2 cb"},
    /* Even k, and values beyond the largest top: the largest that crosses, and one float more. */
    {{STRAIT_BACKWARD, 4, 4},
     {{0x1p50f, -0x1p45f, 0x1p40f, 1},
      {-3e11f, 2e11f, -1e10f, 0},
      {NAN, 0x1.000002p50f, -INFINITY, 1e9f},
      {1e-40f, -5e8f, 0, 4e9f}},
     "00 00 80 53  f0 f0 08  23 7b 07  7f 77 09  7f 77 0d"},
    /* Nothing but zeros, nothing above the smallest top, and one float above it. */
    {{STRAIT_BACKWARD, 3, 2}, {{0}}, "00 00 00 00  8f 08  8f 08  8f 07"},
    {{STRAIT_BACKWARD, 1, 2}, {{0x1p-100f, -0x1p-101f}}, "00 00 00 00  80 08"},
    {{STRAIT_BACKWARD, 1, 2}, {{0x1.000002p-100f, -0x1p-101f}}, "f3 04 b5 0d  d0 05"},
    /* The smallest row that a scale is nearest to, of the first scale and of the second; between
     * them the largest of the second, with a value (third) that its unit divides and the product
     * with 1 / unit does not; zeros; non-finite values; small ones. */
    {{STRAIT_FORWARD, 7, 4},
     {{1.9f, -0.3f, 0.3f, -2},
      {0x1.ae89fap0f, -0.3f, 0.05f, 0},
      {0x1.ae89f8p0f, -0.3f, 0x1.0f876cp-1f, 0},
      {0x1.306fep0f, 0, 0.05f, -0.3f},
      {0, 0, 0, 0},
      {NAN, 0.25f, INFINITY, -0x1p51f},
      {-1e-6f, 1e-3f, 0, 1e-40f}},
     "00 00 00 40  f0 96 00  e0 86 08  f1 a6 08  e1 88 06  8f 88 08  86 8f 08  7f 88 08"},
    {{STRAIT_FORWARD, 3, 2}, {{0}}, "00 00 00 00  80 08  80 08  80 08"},
    /* A top is its own bound; one float more has the next. */
    {{STRAIT_FORWARD, 1, 2}, {{0x1.6a09e6p2f, -1}}, "f3 04 b5 40  f0 06"},
    {{STRAIT_FORWARD, 1, 2}, {{0x1.6a09e8p2f, -1}}, "00 00 00 41  f1 06"},
};

/* Seed and step exceed 32 bits, so that both words of each part of a counter are tested. */
static void check_crossing(const crossing *c, int is_reference) {
    const int64_t rows = c->shape.rows, keep = c->shape.keep;
    struct pair p;
    strait_codec_spec spec = context(rows, keep);
    spec.seed = 0x0123456789abcdef;
    spec.boundary = 2;
    spec.n_boundaries = 4;
    pair_open_on(&p, is_reference, spec);
    p.step = ((int64_t)1 << 32) + 5;
    p.microbatch = 3;
    const strait_tensor x = pair_tensor(rows, keep), stats = pair_tensor(rows, 3);
    float n_non_finite = 0;
    for (int64_t i = 0; i < rows * keep; i++) {
        f32(x)[i] = c->values[i / keep][i % keep];
        n_non_finite += fabsf(f32(x)[i]) <= 0x1p50f ? 0.0f : 1.0f;
    }
    const strait_crossing at = pair_at(&p);
    const strait_direction way = c->shape.way;
    const strait_pack_params params = strait_payload_params(
        way == STRAIT_FORWARD ? p.sender : p.receiver, &at, 4);
    CHECK_OK(p.be->kernels->log_scale->pack(at.stream, p.wire[way], stats, x, params));
    check_bytes(p.wire[way], (keep + 2) / 2, c->bytes);
    for (int64_t i = 0; i < rows; i++)
        n_non_finite -= f32(stats)[i * 3 + 2];
    assert_true(n_non_finite == 0);
    free(x.data);
    free(stats.data);
    pair_close(&p);
}

static void packs_edge_cases_as_documented(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof edge_cases / sizeof edge_cases[0]; i++) {
        check_crossing(&edge_cases[i], 0);
        check_crossing(&edge_cases[i], 1);
    }
}

static void draws_the_documented_random_numbers(void **state) {
    (void)state;
    const double r[] = {0.28044, 0.97507, 0.11297, 0.13475, 0.18859, 0.58839};
    const float embedding[] = {-0.3005719f, -1.2338935f, 1.1469722f, 1.4232844f};
    const float encoder[] = {0.22461277f, -0.28676394f, 0.7198505f, -0.49456406f};
    struct pair p;
    pair_open(&p, context(2, 3));
    const strait_crossing at = pair_at(&p);
    const strait_pack_params params = strait_payload_params(p.receiver, &at, 4);
    uint32_t words[6];
    strait_rng_words((strait_rng){params.seed, params.stream}, 0, words, 6);
    for (int i = 0; i < 6; i++)
        CHECK_NEAR((double)(words[i] >> 8) * 0x1p-24, r[i], 0.5e-5);
    float drawn[4];
    strait_rng_normals((strait_rng){1, strait_rng_stream("embed.table")}, 0, drawn, 4);
    assert_memory_equal(drawn, embedding, sizeof drawn);
    strait_param e;
    CHECK_OK(strait_codec_get_param(p.sender, 0, &e));
    assert_string_equal(e.name, "boundary.0.head.E");
    for (int i = 0; i < 4; i++) // times its standard deviation, both as floats
        CHECK_NEAR(f32(e.value)[i], encoder[i] * (float)sqrt(0.33 / D), 0);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_the_documented_example),
        cmocka_unit_test(packs_edge_cases_as_documented),
        cmocka_unit_test(draws_the_documented_random_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
