/* codec.c - what every codec of the registry promises about bytes and values. */
#include "codec_rig.h"

static struct chain chain;

/* The wire has exactly as many bytes as the codec declares; guards around it detect more. */
static void writes_only_the_declared_bytes(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        chain_forward(&chain, 1);
        chain_backward(&chain, 1);
        chain_close(&chain);
    }
}

static void lossless_is_bit_exact(void **state) {
    (void)state;
    int n = 0;
    EACH_CASE(which) {
        const strait_codec_spec spec = case_spec(which, 0);
        if (!(strait_codec_traits(&spec) & STRAIT_CODEC_LOSSLESS)) continue;
        chain_open(&chain, reference_rig(), which);
        const strait_crossing at = chain_at(&chain, 0);
        CHECK_OK(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], chain.v));
        CHECK_OK(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, chain.wire[0][0]));
        CHECK_OK(strait_codec_grad_pack(chain.receiver[0], &at, chain.wire[0][1], chain.v));
        CHECK_OK(strait_codec_grad_unpack(chain.sender[0], &at, chain.d, chain.wire[0][1]));
        unsigned char *v = read_bytes(chain.rig, chain.v), *y = read_bytes(chain.rig, chain.y),
                      *d = read_bytes(chain.rig, chain.d);
        assert_memory_equal(v, y, strait_tensor_bytes(chain.v));
        assert_memory_equal(v, d, strait_tensor_bytes(chain.v));
        free(v);
        free(y);
        free(d);
        chain_close(&chain);
        n++;
    }
    CHECK(n >= 3);
}

static double dot(strait_tensor a, strait_tensor b) {
    float left[CHAIN_ROWS * CHAIN_COLS], right[CHAIN_ROWS * CHAIN_COLS];
    double sum = 0;
    rig_read(chain.rig, a, left);
    rig_read(chain.rig, b, right);
    for (int64_t i = 0; i < a.rows * a.cols; i++)
        sum += (double)left[i] * (double)right[i];
    return sum;
}

/* <act(x) - act(0), v> = <x, grad(v)> */
static void linear_has_its_adjoint(void **state) {
    (void)state;
    int n = 0;
    EACH_CASE(which) {
        const strait_codec_spec spec = case_spec(which, 0);
        if (!(strait_codec_traits(&spec) & STRAIT_CODEC_LINEAR)) continue;
        chain_open(&chain, reference_rig(), which);
        chain_shake(&chain);
        const strait_crossing at = chain_at(&chain, 1);
        const strait_tensor x = chain.x[0][0], zero = chain.x[0][1], y0 = chain.x[0][2];
        CHECK_OK(chain.rig->k->fill(&chain.rig->stream, zero, 0));
        CHECK_OK(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], zero));
        CHECK_OK(strait_codec_act_unpack(chain.receiver[0], &at, y0, chain.wire[0][0]));
        CHECK_OK(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], x));
        CHECK_OK(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, chain.wire[0][0]));
        CHECK_OK(strait_codec_grad_pack(chain.receiver[0], &at, chain.wire[0][1], chain.v));
        CHECK_OK(strait_codec_grad_unpack(chain.sender[0], &at, chain.d, chain.wire[0][1]));
        const double size = sqrt(dot(x, x) * dot(chain.v, chain.v));
        CHECK_NEAR((dot(chain.y, chain.v) - dot(y0, chain.v)) / size, dot(x, chain.d) / size,
                   case_tolerance(which));
        chain_close(&chain);
        n++;
    }
    CHECK(n >= 2);
}

/* The bytes of both directions, and the resulting output and gradient. */
static unsigned char *record(struct chain *c, size_t *out_bytes) {
    const strait_tensor parts[] = {c->wire[0][0], c->wire[0][1], c->wire[1][0],
                                   c->wire[1][1], c->y,          c->d};
    unsigned char *all = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < COUNT(parts); i++) {
        const size_t more = strait_tensor_bytes(parts[i]);
        unsigned char *part = read_bytes(c->rig, parts[i]);
        all = realloc(all, bytes + more);
        assert_non_null(all);
        memcpy(all + bytes, part, more);
        free(part);
        bytes += more;
    }
    *out_bytes = bytes;
    return all;
}

static void same_input_gives_same_bytes(void **state) {
    (void)state;
    EACH_CASE(which) {
        unsigned char *seen = NULL;
        size_t seen_bytes = 0;
        for (int threads = 1; threads <= 2; threads++) {
            for (int again = 0; again < 2; again++) {
                struct rig rig;
                size_t bytes;
                rig_open(&rig, (strait_backend_spec){.name = "cpu", .n_threads = threads});
                chain_open(&chain, &rig, which);
                chain_run(&chain, 2);
                unsigned char *now = record(&chain, &bytes);
                if (seen != NULL && (bytes != seen_bytes || memcmp(seen, now, bytes) != 0))
                    fail_msg("%s: other bits with %d threads", which->label, threads);
                free(seen);
                seen = now;
                seen_bytes = bytes;
                chain_close(&chain);
                rig_close(&rig);
            }
        }
        free(seen);
    }
}

/* ||a - b|| / ||a|| */
static double distance(const float *a, const float *b, int64_t n) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(off / size);
}

/* Every device agrees with the reference loops, except for values that round differently. */
static void devices_agree(void **state) {
    (void)state;
    EACH_CASE(which) {
        float y[2][CHAIN_ROWS * CHAIN_COLS], d[2][CHAIN_ROWS * CHAIN_COLS];
        for (int i = -1; i < 0 || strait_backends[i] != NULL; i++) {
            if (i >= 0 && !rig_is_available(i)) continue;
            struct rig rig;
            const char *name = i < 0 ? "cpu" : strait_backends[i]->name;
            rig_open(&rig, (strait_backend_spec){.name = name, .is_reference = i < 0});
            chain_open(&chain, &rig, which);
            chain_shake(&chain);
            chain_run(&chain, 2);
            rig_read(&rig, chain.y, y[i >= 0]);
            rig_read(&rig, chain.d, d[i >= 0]);
            const int64_t n = CHAIN_ROWS * chain.cols;
            const double limit = chain.spec[0].bits == 32 && chain.spec[0].grad_bits == 32 ? 1e-4
                                                                                           : 0.1;
            chain_close(&chain);
            rig_close(&rig);
            if (i >= 0 && !(distance(y[0], y[1], n) < limit && distance(d[0], d[1], n) < limit))
                fail_msg("%s: %s is %g forward, %g backward from the reference loops", which->label,
                         name, distance(y[0], y[1], n), distance(d[0], d[1], n));
        }
    }
}

enum {
    RUN_MAX = 1 << 14 // numbers of a run
};

/* Two steps of a chain: writes its output, its input gradient and every parameter gradient to
 * `out`. */
static int64_t numbers_of_run(struct rig *rig, const codec_case *which, float *out) {
    chain_open(&chain, rig, which);
    chain_shake(&chain);
    chain_run(&chain, 2);
    rig_read(rig, chain.y, out);
    rig_read(rig, chain.d, out + CHAIN_ROWS * chain.cols);
    int64_t n = 2 * CHAIN_ROWS * chain.cols;
    for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) {
        strait_param p;
        for (int j = 0; strait_codec_get_param(chain_side(&chain, i), j, &p) == STRAIT_OK; j++) {
            rig_read(rig, p.grad, out + n);
            n += p.grad.rows * p.grad.cols;
            CHECK(n + CHAIN_ROWS * CHAIN_COLS * 64 < RUN_MAX);
        }
    }
    chain_close(&chain);
    return n;
}

/* Whether device i of the registry computes in bf16. The answer is cached: a device is slow to
 * open. */
static int computes_in_bf16(int i) {
    static struct { int is_known, is_able; } answers[4];
    struct strait_backend *be = NULL;
    CHECK(i < (int)COUNT(answers));
    if (answers[i].is_known) return answers[i].is_able;
    const strait_backend_spec spec = {.name = strait_backends[i]->name, .precision = STRAIT_BF16};
    answers[i].is_able = strait_backend_open(spec, &be) == STRAIT_OK;
    answers[i].is_known = 1;
    strait_backend_close(&be);
    return answers[i].is_able;
}

/* The padded implementation computes the same function: in f32 up to rounding, and in bf16 up to
 * the precision of bf16. The reference loops get the same rounded stream. */
static void padded_matches_plain(void **state) {
    (void)state;
    static float want[RUN_MAX], got[RUN_MAX];
    int n_bf16 = 0, n_cases = 0;
    EACH_CASE(which) {
        if (!which->spec.is_padded || which->spec.bits != 32) continue;
        codec_case plain = *which, bf16 = *which;
        plain.spec.is_padded = 0;
        bf16.spec.precision = STRAIT_BF16;
        for (int i = -1; i < 0 || strait_backends[i] != NULL; i++) {
            const int is_bf16 = i >= 0;
            struct rig rigs[2];
            if (is_bf16 && !computes_in_bf16(i)) continue;
            rig_open(&rigs[0], (strait_backend_spec){.name = "cpu", .is_reference = 1});
            rigs[0].is_rounding = is_bf16;
            rig_open(&rigs[1],
                     (strait_backend_spec){.name = is_bf16 ? strait_backends[i]->name : "cpu",
                                           .precision = is_bf16 ? STRAIT_BF16 : STRAIT_F32});
            const int64_t n = numbers_of_run(&rigs[0], &plain, want);
            assert_int_equal(n, numbers_of_run(&rigs[1], is_bf16 ? &bf16 : which, got));
            const double off = distance(want, got, n), limit = is_bf16 ? 3e-2 : 1e-5;
            if (!(off < limit))
                fail_msg("%s: %g from the plain implementation%s", which->label, off,
                         is_bf16 ? " in bf16" : "");
            rig_close(&rigs[0]);
            rig_close(&rigs[1]);
            n_bf16 += is_bf16;
        }
        n_cases++;
    }
    CHECK(n_cases >= 9);
    print_message("%d cases in bf16\n", n_bf16);
}

/* Two runs in bf16 with the same inputs have the same bits. */
static void bf16_is_deterministic(void **state) {
    (void)state;
    static float once[RUN_MAX], again[RUN_MAX];
    EACH_CASE(which) {
        codec_case bf16 = *which;
        bf16.spec.precision = STRAIT_BF16;
        for (int i = 0; strait_backends[i] != NULL; i++) {
            if (!computes_in_bf16(i)) continue;
            struct rig rig;
            rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name,
                                                 .precision = STRAIT_BF16});
            const int64_t n = numbers_of_run(&rig, &bf16, once);
            rig_clear(&rig);
            assert_int_equal(n, numbers_of_run(&rig, &bf16, again));
            if (memcmp(once, again, (size_t)n * sizeof *once) != 0)
                fail_msg("%s: other bits in a second run in bf16", which->label);
            for (int64_t j = 0; j < n; j++)
                if (!isfinite(once[j])) fail_msg("%s: not finite in bf16", which->label);
            rig_close(&rig);
        }
    }
}

static void copy_tensor(struct chain *to, strait_tensor a, const struct chain *from,
                        strait_tensor b) {
    unsigned char *bytes = read_bytes(from->rig, b);
    rig_write(to->rig, a, (float *)(void *)bytes);
    free(bytes);
}

/* Copies parameters and state by name into fresh codecs, as a checkpoint does. */
static void copy_chain(struct chain *to, struct chain *from) {
    to->step = from->step;
    for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) {
        struct strait_codec *a = chain_side(to, i), *b = chain_side(from, i);
        strait_param p, q;
        strait_codec_state s, t;
        for (int j = 0; strait_codec_get_param(b, j, &q) == STRAIT_OK; j++) {
            CHECK_OK(strait_codec_get_param(a, j, &p));
            assert_string_equal(p.name, q.name);
            copy_tensor(to, p.value, from, q.value);
        }
        for (int j = 0; strait_codec_get_state(b, j, &t) == STRAIT_OK; j++) {
            CHECK_OK(strait_codec_get_state(a, j, &s));
            assert_string_equal(s.name, t.name);
            copy_tensor(to, s.tensor, from, t.tensor);
        }
        CHECK_OK(strait_codec_restored(a, &to->rig->stream));
    }
}

static void restored_continues_identically(void **state) {
    (void)state;
    EACH_CASE(which) {
        struct rig rigs[2];
        struct chain other;
        size_t bytes[2];
        for (int i = 0; i < 2; i++)
            rig_open(&rigs[i], (strait_backend_spec){.name = "cpu", .n_threads = 1});
        chain_open(&chain, &rigs[0], which);
        chain_shake(&chain);
        chain_run(&chain, 2);
        chain_open(&other, &rigs[1], which);
        copy_chain(&other, &chain);
        chain_run(&chain, 2);
        chain_run(&other, 2);
        unsigned char *a = record(&chain, &bytes[0]), *b = record(&other, &bytes[1]);
        if (bytes[0] != bytes[1] || memcmp(a, b, bytes[0]) != 0)
            fail_msg("%s: a restored codec continues differently", which->label);
        free(a);
        free(b);
        chain_close(&chain);
        chain_close(&other);
        rig_close(&rigs[0]);
        rig_close(&rigs[1]);
    }
}

/* Evaluation crossings in between do not change later training crossings. */
static void evaluation_changes_no_state(void **state) {
    (void)state;
    EACH_CASE(which) {
        unsigned char *seen[2];
        size_t bytes[2];
        strait_codec_metrics metrics[2];
        for (int evaluates = 0; evaluates < 2; evaluates++) {
            chain_open(&chain, reference_rig(), which);
            chain_run(&chain, 2);
            const strait_tensor other = rig_input(chain.rig, CHAIN_ROWS, chain.cols, 55);
            strait_crossing at = chain_at(&chain, 0);
            at.input = chain.x[0][1];
            at.is_evaluation = 1;
            for (int b = 0; evaluates && b < CHAIN_BOUNDARIES; b++) {
                CHECK_OK(strait_codec_act_pack(chain.sender[b], &at, chain.wire[b][0], other));
                CHECK_OK(
                    strait_codec_act_unpack(chain.receiver[b], &at, chain.y, chain.wire[b][0]));
            }
            CHECK_OK(strait_codec_read_metrics(chain.sender[0], &chain.rig->stream,
                                               &metrics[evaluates]));
            chain_run(&chain, 2);
            seen[evaluates] = record(&chain, &bytes[evaluates]);
            chain_close(&chain);
        }
        assert_int_equal(bytes[0], bytes[1]);
        if (memcmp(seen[0], seen[1], bytes[0]) != 0)
            fail_msg("%s: an evaluation left a trace", which->label);
        assert_memory_equal(&metrics[0], &metrics[1], sizeof metrics[0]);
        free(seen[0]);
        free(seen[1]);
    }
}

static void residual_is_measured(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        strait_codec_metrics metrics;
        chain_forward(&chain, 0);
        CHECK_OK(strait_codec_read_metrics(chain.sender[0], &chain.rig->stream, &metrics));
        const unsigned traits = strait_codec_traits(&chain.spec[0]);
        const int is_exact = chain.spec[0].bits == 32 &&
                             traits & (STRAIT_CODEC_LOSSLESS | STRAIT_CODEC_TRAINED);
        if (is_exact)
            CHECK(metrics.residual == 0);
        else
            CHECK(metrics.residual > 1e-5 && metrics.residual < 1.5);
        CHECK(metrics.non_finite == 0);
        CHECK_OK(strait_codec_read_metrics(chain.sender[0], &chain.rig->stream, &metrics));
        CHECK(metrics.residual == 0); // reading resets it
        chain_close(&chain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_only_the_declared_bytes),
        cmocka_unit_test(lossless_is_bit_exact),
        cmocka_unit_test(linear_has_its_adjoint),
        cmocka_unit_test(same_input_gives_same_bytes),
        cmocka_unit_test(devices_agree),
        cmocka_unit_test(padded_matches_plain),
        cmocka_unit_test(bf16_is_deterministic),
        cmocka_unit_test(restored_continues_identically),
        cmocka_unit_test(evaluation_changes_no_state),
        cmocka_unit_test(residual_is_measured),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
