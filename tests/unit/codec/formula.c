/* The trained codecs agatest their equations, written out in double precision. */
#include "pair.h"

enum {
    N = 5,
    D = 12,
    K = 4,
    M = 6,
    R = 3,
    VOCAB = 9,
    CONTEXT = 3, // of context: codes read, tokens of a sequence, width of the encoder
    SEQ_LEN = 5,
    WIDE = 8
};

static strait_codec_spec spec_of(const char *name, const char *variant, int b) {
    strait_codec_spec spec = {.rows = N,
                              .cols = D,
                              .vocab = VOCAB,
                              .keep = K,
                              .hidden = M,
                              .table_width = R,
                              .bits = 32,
                              .n_boundaries = 2,
                              .boundary = b,
                              .seed = 2};
    (void)strncpy(spec.name, name, sizeof spec.name - 1);
    (void)strncpy(spec.variant, variant, sizeof spec.variant - 1);
    return spec;
}

/* Parameter i of a side, filled with random numbers. */
static strait_tensor weight(const struct strait_codec *c, int i) {
    strait_param p;
    CHECK_OK(strait_codec_get_param(c, i, &p));
    strait_rng_normals((strait_rng){(uint64_t)i, strait_rng_stream(p.name)}, 0, p.value.data,
                       (size_t)(p.value.rows * p.value.cols));
    return p.value;
}

/* Entry i of row W^T. */
static double times(const double *row, strait_tensor w, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < w.cols; j++)
        sum += row[j] * (double)f32(w)[i * w.cols + j];
    return sum;
}

static void norm(const double *x, double *out, int n) {
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < n; i++)
        out[i] = x[i] / sqrt(squares / n + 1e-6);
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* A middle stage: z comes in over boundary 0, u goes out over boundary 1. */
static void tied_matches_its_equations(void **state) {
    (void)state;
    struct pair in, out;
    pair_open(&in, spec_of("strait", "tied", 0));
    pair_open(&out, spec_of("strait", "tied", 1));
    CHECK_OK(strait_codec_join(in.receiver, out.sender));
    const strait_tensor d = weight(in.receiver, 0), v = weight(in.receiver, 1),
                        w = weight(in.receiver, 2), t = weight(in.receiver, 3),
                        p = weight(in.receiver, 4), e = weight(out.sender, 0);
    const strait_tensor z = pair_normals(N, K, 1), x = pair_tensor(N, D), y = pair_normals(N, D, 3);
    strait_crossing at = pair_at(&in);
    memcpy(in.wire[0].data, z.data, strait_tensor_bytes(z));
    CHECK_OK(strait_codec_act_unpack(in.receiver, &at, x, in.wire[0]));
    at.input = x;
    CHECK_OK(strait_codec_act_pack(out.sender, &at, out.wire[0], y));
    for (int n = 0; n < N; n++) {
        double code[K], normed[K], h[M], row[R], delta[D];
        const int32_t token = ((const int32_t *)in.tokens.data)[n];
        for (int i = 0; i < K; i++)
            code[i] = (double)f32(z)[n * K + i];
        for (int i = 0; i < R; i++)
            row[i] = (double)f32(t)[token * R + i];
        norm(code, normed, K);
        for (int i = 0; i < M; i++)
            h[i] = silu(times(normed, v, i));
        for (int i = 0; i < D; i++) {
            const double wide = times(code, d, i) + times(h, w, i) + times(row, p, i);
            CHECK_NEAR(f32(x)[n * D + i], wide, 1e-5);
            delta[i] = (double)f32(y)[n * D + i] - wide;
        }
        for (int i = 0; i < K; i++)
            CHECK_NEAR(((const float *)out.wire[0].data)[n * K + i], code[i] + times(delta, e, i),
                       1e-5);
    }
    free(z.data);
    free(x.data);
    free(y.data);
    pair_close(&in);
    pair_close(&out);
}

/* The codes of token n and of the tokens before it in its sequence, normalised or not. */
static void window(strait_tensor z, int n, int is_normed, double out[CONTEXT * K]) {
    for (int j = 0; j < CONTEXT; j++) {
        double code[K];
        for (int i = 0; i < K; i++)
            code[i] = n % SEQ_LEN >= j ? (double)f32(z)[(n - j) * K + i] : 0.0;
        if (is_normed) norm(code, code, K);
        for (int i = 0; i < K; i++)
            out[j * K + i] = code[i];
    }
}

/* 1 + the gate of column i for the token of row n; 1 without gates. */
static double gate_of(strait_tensor gates, strait_tensor tokens, int n, int i) {
    if (gates.data == NULL) return 1;
    return 1 + (double)f32(gates)[((const int32_t *)tokens.data)[n] * D + i];
}

/* u of one token, from its z, its y, the stage's input x and the token gates. */
static void check_context_sender(const strait_tensor w[4], const double *z, const float *y,
                                 const double *x, const double *gates, const float *u) {
    double delta[D], row[D], normed[D], h[WIDE];
    for (int i = 0; i < D; i++) {
        row[i] = (double)y[i];
        delta[i] = (row[i] - x[i]) * gates[i];
    }
    norm(row, normed, D);
    for (int i = 0; i < WIDE; i++)
        h[i] = silu(times(normed, w[1], i));
    for (int i = 0; i < K; i++)
        CHECK_NEAR(u[i], times(z, w[3], i) + times(delta, w[0], i) + times(h, w[2], i), 1e-4);
}

static void check_context(int has_gates) {
    enum {
        ROWS = 2 * SEQ_LEN
    };
    struct pair in, out;
    strait_codec_spec spec = spec_of("strait", "context", 0);
    spec.rows = ROWS;
    spec.context = CONTEXT;
    spec.seq_len = SEQ_LEN;
    spec.encoder = WIDE;
    spec.has_gates = has_gates;
    pair_open(&in, spec);
    spec.boundary = 1;
    pair_open(&out, spec);
    CHECK_OK(strait_codec_join(in.receiver, out.sender));
    const strait_tensor d = weight(in.receiver, 0), v = weight(in.receiver, 1),
                        w = weight(in.receiver, 2);
    const strait_tensor sender[] = {weight(out.sender, 0), weight(out.sender, 1),
                                    weight(out.sender, 2), weight(out.sender, 3)};
    const strait_tensor g = has_gates ? weight(in.receiver, 3) : (strait_tensor){0};
    const strait_tensor gates = has_gates ? weight(out.sender, 4) : (strait_tensor){0};
    const strait_tensor z = pair_normals(ROWS, K, 1), x = pair_tensor(ROWS, D),
                        y = pair_normals(ROWS, D, 3);
    strait_crossing at = pair_at(&in);
    memcpy(in.wire[0].data, z.data, strait_tensor_bytes(z));
    CHECK_OK(strait_codec_act_unpack(in.receiver, &at, x, in.wire[0]));
    at.input = x;
    CHECK_OK(strait_codec_act_pack(out.sender, &at, out.wire[0], y));
    for (int n = 0; n < ROWS; n++) {
        double codes[CONTEXT * K], normeds[CONTEXT * K], h[M], wide[D], gate[D];
        window(z, n, 0, codes);
        window(z, n, 1, normeds);
        for (int i = 0; i < M; i++)
            h[i] = silu(times(normeds, v, i));
        for (int i = 0; i < D; i++) {
            wide[i] = (times(codes, d, i) + times(h, w, i)) * gate_of(g, at.tokens, n, i);
            gate[i] = gate_of(gates, at.tokens, n, i);
            CHECK_NEAR(f32(x)[n * D + i], wide[i], 1e-4);
        }
        check_context_sender(sender, codes, f32(y) + (ptrdiff_t)n * D, wide, gate,
                             (const float *)out.wire[0].data + (ptrdiff_t)n * K);
    }
    free(z.data);
    free(x.data);
    free(y.data);
    pair_close(&in);
    pair_close(&out);
}

static void context_matches_its_equations(void **state) {
    (void)state;
    check_context(0);
    check_context(1);
}

static void resbm_matches_its_equations(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("resbm", "a", 0));
    const strait_tensor enc1 = weight(p.sender, 0), enc2 = weight(p.sender, 1),
                        dec1 = weight(p.receiver, 0), dec2 = weight(p.receiver, 1);
    const strait_tensor x = pair_normals(N, D, 1), y = pair_tensor(N, D);
    pair_forward(&p, y, x);
    for (int n = 0; n < N; n++) {
        double row[D], normed[D], h[M], z[K];
        for (int i = 0; i < D; i++)
            row[i] = (double)f32(x)[n * D + i];
        norm(row, normed, D);
        for (int i = 0; i < M; i++)
            h[i] = silu(times(normed, enc1, i));
        for (int i = 0; i < K; i++)
            z[i] = row[i] + times(h, enc2, i);
        for (int i = 0; i < M; i++)
            h[i] = silu(times(z, dec1, i));
        for (int i = 0; i < D; i++)
            CHECK_NEAR(f32(y)[n * D + i], (i < K ? z[i] : 0) + times(h, dec2, i), 1e-4);
    }
    free(x.data);
    free(y.data);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_matches_its_equations),
        cmocka_unit_test(context_matches_its_equations),
        cmocka_unit_test(resbm_matches_its_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
