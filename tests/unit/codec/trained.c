/* Initial values and identity paths of the codecs that are trained. */
#include "pair.h"

enum {
    N = 5,
    D = 24,
    K = 6,
    BOUNDARIES = 4
};

static strait_param param_of(const struct strait_codec *c, const char *name) {
    strait_param p;
    for (int i = 0; strait_codec_get_param(c, i, &p) == STRAIT_OK; i++)
        if (strcmp(p.name, name) == 0) return p;
    fail_msg("no parameter %s", name);
    return p;
}

static void fill_all(const struct strait_codec *c, float value) {
    strait_param p;
    for (int i = 0; strait_codec_get_param(c, i, &p) == STRAIT_OK; i++)
        for (int64_t j = 0; j < p.value.rows * p.value.cols; j++)
            f32(p.value)[j] = value;
}

/* Over all boundaries, with matrices of zeros: only the identity path is left. */
static void cross_resbm(strait_tensor first, strait_tensor v, int drops_identity) {
    const strait_tensor x = pair_tensor(N, D), y = pair_tensor(N, D), d = pair_tensor(N, D),
                        g = pair_tensor(N, D);
    memcpy(x.data, first.data, strait_tensor_bytes(x));
    memcpy(g.data, v.data, strait_tensor_bytes(g));
    for (int b = 0; b < BOUNDARIES; b++) {
        struct pair p;
        pair_open(&p, (strait_codec_spec){.name = "resbm",
                                          .rows = N,
                                          .cols = D,
                                          .keep = K,
                                          .bits = 32,
                                          .drops_identity = drops_identity,
                                          .n_boundaries = BOUNDARIES,
                                          .boundary = b});
        fill_all(p.sender, 0);
        fill_all(p.receiver, 0);
        pair_forward(&p, y, x);
        pair_backward(&p, d, g);
        memcpy(x.data, y.data, strait_tensor_bytes(x));
        memcpy(g.data, d.data, strait_tensor_bytes(g));
        pair_close(&p);
    }
    for (int i = 0; i < N * D; i++) {
        const int crosses = i % D < K && !drops_identity;
        assert_true(f32(x)[i] == (crosses ? f32(first)[i] : 0));
        assert_true(f32(g)[i] == (crosses ? f32(v)[i] : 0));
    }
    const strait_tensor all[] = {x, y, d, g};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
}

static void resbm_passes_the_first_channels_untouched(void **state) {
    (void)state;
    const strait_tensor x = pair_normals(N, D, 1), g = pair_normals(N, D, 2);
    cross_resbm(x, g, 0);
    cross_resbm(x, g, 1); // without the identity path nothing is left
    free(x.data);
    free(g.data);
}

static strait_codec_spec strait_spec(const char *variant, int b) {
    strait_codec_spec spec = {.name = "strait",
                              .rows = N,
                              .cols = D,
                              .vocab = 30,
                              .keep = K,
                              .table_width = 4,
                              .hidden = 12,
                              .bits = 32,
                              .n_boundaries = BOUNDARIES,
                              .boundary = b,
                              .seed = 9};
    (void)strncpy(spec.variant, variant, sizeof spec.variant - 1);
    return spec;
}

static double size_of(strait_tensor t) {
    double squares = 0;
    for (int64_t i = 0; i < t.rows * t.cols; i++)
        squares += (double)f32(t)[i] * (double)f32(t)[i];
    return sqrt(squares / (double)(t.rows * t.cols));
}

static void tied_starts_from_one_basis(void **state) {
    (void)state;
    struct pair p, q;
    pair_open(&p, strait_spec("tied", 0));
    pair_open(&q, strait_spec("tied", 3));
    const strait_tensor e = param_of(p.sender, "boundary.0.head.E").value;
    const strait_tensor d = param_of(p.receiver, "boundary.0.tail.D").value;
    const strait_tensor last = param_of(q.receiver, "boundary.3.tail.D").value;
    assert_int_equal(e.rows, K);
    assert_int_equal(d.rows, D);
    for (int i = 0; i < D * K; i++)
        assert_true(f32(d)[i] == f32(e)[i % K * D + i / K]);
    assert_memory_equal(d.data, last.data, strait_tensor_bytes(d));
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++) {
            double dot = 0;
            for (int i = 0; i < D; i++)
                dot += (double)f32(e)[a * D + i] * (double)f32(e)[b * D + i];
            CHECK_NEAR(dot, a == b, 1e-6);
        }
    CHECK(size_of(param_of(p.receiver, "boundary.0.tail.W").value) == 0);
    CHECK_NEAR(size_of(param_of(p.receiver, "boundary.0.tail.T").value), 1, 0.2);
    CHECK_NEAR(size_of(param_of(p.receiver, "boundary.0.tail.P").value), 0.5, 0.1);
    CHECK_NEAR(size_of(param_of(p.receiver, "boundary.0.tail.V").value), 1 / sqrt(K), 0.1);
    assert_memory_not_equal(param_of(p.receiver, "boundary.0.tail.T").value.data,
                            param_of(q.receiver, "boundary.3.tail.T").value.data, 400);
    assert_int_equal(param_of(p.receiver, "boundary.0.tail.T").role, STRAIT_ROLE_TOKEN_TABLE);
    pair_close(&p);
    pair_close(&q);
    pair_open(&p, strait_spec("free", 0));
    CHECK_NEAR(size_of(param_of(p.sender, "boundary.0.head.E").value), sqrt(0.33 / D), 0.03);
    pair_close(&p);
}

/* As in docs/research: a linear encoder, and a decoder that reads the token's own code only. */
static void context_starts_linear(void **state) {
    (void)state;
    struct pair p, q;
    strait_codec_spec spec = strait_spec("context", 0);
    spec.keep = spec.hidden = 0;
    spec.bits = 0;
    spec.cols = 1024;
    spec.has_gates = 1;
    pair_open(&p, spec);
    spec.boundary = 2;
    pair_open(&q, spec);
    const strait_tensor d = param_of(p.receiver, "boundary.0.tail.D").value;
    const strait_tensor m = param_of(q.sender, "boundary.2.head.M").value;
    assert_int_equal(d.rows, 1024);
    assert_int_equal(d.cols, 4 * 31);
    for (int64_t i = 0; i < d.rows * d.cols; i++)
        CHECK(i % d.cols < 31 || f32(d)[i] == 0);
    CHECK_NEAR(size_of(d), 0.5 / sqrt(31), 0.005);
    CHECK_NEAR(size_of(param_of(p.receiver, "boundary.0.tail.V").value), 1 / sqrt(4 * 31), 0.003);
    assert_int_equal(param_of(p.receiver, "boundary.0.tail.V").value.rows, 512);
    CHECK(size_of(param_of(p.receiver, "boundary.0.tail.W").value) == 0);
    CHECK_NEAR(size_of(param_of(p.sender, "boundary.0.head.E").value), sqrt(0.33 / 1024), 0.001);
    CHECK_NEAR(size_of(param_of(p.sender, "boundary.0.head.A").value), sqrt(0.33 / 1024), 0.001);
    assert_int_equal(param_of(p.sender, "boundary.0.head.A").value.rows, 256);
    CHECK(size_of(param_of(p.sender, "boundary.0.head.B").value) == 0);
    CHECK(size_of(param_of(p.sender, "boundary.0.head.G").value) == 0);
    CHECK(size_of(param_of(p.receiver, "boundary.0.tail.G").value) == 0);
    assert_int_equal(param_of(p.receiver, "boundary.0.tail.G").role, STRAIT_ROLE_VALUES);
    assert_int_equal(p.sender->n_params, 4); // the first stage receives no code: there is no M
    for (int64_t i = 0; i < 31 * 31; i++)
        assert_true(f32(m)[i] == (i % 32 == 0 ? 1.0f : 0.0f));
    assert_int_equal(param_of(q.sender, "boundary.2.head.M").role, STRAIT_ROLE_MIXING);
    assert_int_equal(param_of(q.sender, "boundary.2.head.E").role, STRAIT_ROLE_ENCODER_BASIS);
    assert_int_equal(param_of(q.sender, "boundary.2.head.A").role, STRAIT_ROLE_BOUNDARY);
    assert_int_equal(strait_codec_wire_bytes(&p.sender->spec, STRAIT_FORWARD), 4 + 16 * N);
    assert_int_equal(strait_codec_wire_bytes(&p.sender->spec, STRAIT_BACKWARD), 4 + 16 * N);
    pair_close(&p);
    pair_close(&q);
}

/* With basis_gain every boundary starts from the basis of variant tied, scaled on the receiver. */
static void context_starts_from_an_encoder_basis(void **state) {
    (void)state;
    struct pair p, q;
    strait_codec_spec spec = strait_spec("context", 1);
    spec.basis_gain = 3;
    pair_open(&p, spec);
    pair_open(&q, strait_spec("tied", 2));
    const strait_tensor e = param_of(p.sender, "boundary.1.head.E").value;
    const strait_tensor d = param_of(p.receiver, "boundary.1.tail.D").value;
    const strait_tensor tied = param_of(q.sender, "boundary.2.head.E").value;
    assert_memory_equal(e.data, tied.data, strait_tensor_bytes(e));
    assert_int_equal(d.cols, 4 * K);
    for (int64_t i = 0; i < d.rows * d.cols; i++) {
        const int64_t row = i / d.cols, col = i % d.cols;
        CHECK_NEAR((double)f32(d)[i], col < K ? 3 * (double)f32(e)[col * D + row] : 0, 1e-7);
    }
    pair_close(&p);
    pair_close(&q);
}

/* encoder_gain scales E alone, with the common basis and without. */
static void context_scales_its_encoder(void **state) {
    (void)state;
    for (int has_basis = 0; has_basis < 2; has_basis++) {
        struct pair p, q;
        strait_codec_spec spec = strait_spec("context", 1);
        spec.basis_gain = has_basis;
        pair_open(&p, spec);
        spec.encoder_gain = 0.25;
        pair_open(&q, spec);
        const strait_tensor e = param_of(p.sender, "boundary.1.head.E").value;
        const strait_tensor scaled = param_of(q.sender, "boundary.1.head.E").value;
        const strait_tensor d = param_of(p.receiver, "boundary.1.tail.D").value;
        for (int64_t i = 0; i < e.rows * e.cols; i++)
            assert_true(f32(e)[i] != 0 && f32(scaled)[i] == 0.25f * f32(e)[i]);
        assert_memory_equal(param_of(q.receiver, "boundary.1.tail.D").value.data, d.data,
                            strait_tensor_bytes(d));
        pair_close(&p);
        pair_close(&q);
    }
}

/* A first stage that adds a vector in the span of the basis sends its coordinates; the receiver
 * restores that vector and adds the rows of its token table. */
static void encodes_what_the_stage_added(void **state) {
    (void)state;
    struct pair p;
    strait_codec_spec spec = strait_spec("tied", 0);
    spec.n_boundaries = 1;
    pair_open(&p, spec);
    const strait_tensor basis = param_of(p.receiver, "boundary.0.tail.D").value;
    const strait_tensor input = pair_normals(N, D, 1), y = pair_normals(N, D, 1),
                        x = pair_tensor(N, D), rows_only = pair_tensor(N, D);
    strait_crossing at = pair_at(&p);
    at.input = input;
    CHECK_OK(strait_codec_act_pack(p.sender, &at, p.wire[0], y)); // nothing was added
    CHECK_OK(strait_codec_act_unpack(p.receiver, &at, rows_only, p.wire[0]));
    for (int i = 0; i < N * D; i++)
        f32(y)[i] += 3 * f32(basis)[i % D * K] - f32(basis)[i % D * K + 2];
    CHECK_OK(strait_codec_act_pack(p.sender, &at, p.wire[0], y));
    CHECK_OK(strait_codec_act_unpack(p.receiver, &at, x, p.wire[0]));
    for (int i = 0; i < N * D; i++)
        CHECK_NEAR(f32(x)[i] - f32(rows_only)[i],
                   3 * f32(basis)[i % D * K] - f32(basis)[i % D * K + 2], 1e-5);
    const strait_tensor all[] = {input, y, x, rows_only};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&p);
}

static void rejects_a_stage_with_one_side(void **state) {
    (void)state;
    struct pair p, q;
    pair_open(&p, strait_spec("tied", 1));
    strait_codec_spec other = strait_spec("tied", 2);
    other.keep = K - 1;
    pair_open(&q, other);
    CHECK_FAILS(strait_codec_join(NULL, p.sender), STRAIT_EINVAL, "needs both sides");
    CHECK_FAILS(strait_codec_join(p.receiver, q.sender), STRAIT_ECONFIG,
                "the same variant, keep and");
    CHECK_FAILS(strait_codec_join(q.receiver, p.sender), STRAIT_EINVAL, "do not enclose a stage");
    pair_close(&p);
    pair_close(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resbm_passes_the_first_channels_untouched),
        cmocka_unit_test(tied_starts_from_one_basis),
        cmocka_unit_test(context_starts_linear),
        cmocka_unit_test(context_starts_from_an_encoder_basis),
        cmocka_unit_test(context_scales_its_encoder),
        cmocka_unit_test(encodes_what_the_stage_added),
        cmocka_unit_test(rejects_a_stage_with_one_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
