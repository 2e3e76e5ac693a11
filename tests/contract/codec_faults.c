/* codec_faults.c - how every codec handles wrong calls, garbage on the wire and lack of memory. */
#include "base/alloc.h"
#include "base/rng/rng.h"
#include "codec_rig.h"

static struct chain chain;

static void rejects_other_sizes(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        strait_crossing at = chain_at(&chain, 0);
        at.input = chain.x[0][0];
        strait_tensor wire = chain.wire[0][0], narrow = chain.y;
        wire.cols--;
        narrow.rows--;
        CHECK_FAILS(strait_codec_act_pack(chain.sender[0], &at, wire, chain.y), STRAIT_EPROTO,
                    "bytes on the wire");
        CHECK_FAILS(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, wire), STRAIT_EPROTO,
                    "bytes on the wire");
        CHECK_FAILS(strait_codec_act_unpack(chain.receiver[0], &at, narrow, chain.wire[0][0]),
                    STRAIT_EINVAL, "5 x");
        CHECK_FAILS(strait_codec_act_pack(chain.receiver[0], &at, chain.wire[0][0], chain.y),
                    STRAIT_EINVAL, "wrong side");
        at.slot = CHAIN_SLOTS;
        CHECK_FAILS(strait_codec_grad_pack(chain.receiver[0], &at, chain.wire[0][1], chain.y),
                    STRAIT_EINVAL, "slot 2 of 2");
        at.slot = 0;
        at.tokens.data = NULL;
        at.input.data = NULL;
        const unsigned traits = strait_codec_traits(&chain.spec[0]);
        if (traits & STRAIT_CODEC_TOKENS)
            CHECK_FAILS(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, chain.wire[0][0]),
                        STRAIT_EINVAL, "one token id per row");
        at.tokens = chain.tokens;
        if (traits & STRAIT_CODEC_INPUT)
            CHECK_FAILS(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], chain.y),
                        STRAIT_EINVAL, "input of the stage");
        chain_close(&chain);
    }
}

static void check_finite(strait_tensor t, const char *label) {
    float values[CHAIN_ROWS * CHAIN_COLS];
    rig_read(chain.rig, t, values);
    for (int64_t i = 0; i < t.rows * t.cols; i++)
        if (!isfinite(values[i]))
            fail_msg("%s: garbage made value %d %g", label, (int)i, (double)values[i]);
}

static void garbage_stays_finite(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        const strait_crossing at = chain_at(&chain, 0);
        chain_forward(&chain, 0);
        for (int attempt = 0; attempt < 50; attempt++) {
            for (int way = 0; way < 2; way++) {
                const strait_tensor wire = chain.wire[0][way];
                unsigned char *bytes = malloc((size_t)wire.cols);
                assert_non_null(bytes);
                for (int64_t i = 0; i < wire.cols; i++)
                    bytes[i] = attempt == 0 ? 0xff
                                            : (unsigned char)strait_rng_u64(
                                                  (strait_rng){(uint64_t)attempt, (uint64_t)way},
                                                  (uint64_t)i);
                rig_write(chain.rig, wire, (float *)(void *)bytes);
                free(bytes);
            }
            CHECK_OK(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, chain.wire[0][0]));
            CHECK_OK(strait_codec_grad_unpack(chain.sender[0], &at, chain.d, chain.wire[0][1]));
            check_finite(chain.y, which->label);
            check_finite(chain.d, which->label);
        }
        strait_codec_metrics metrics;
        CHECK_OK(strait_codec_read_metrics(chain.receiver[0], &chain.rig->stream, &metrics));
        CHECK(metrics.rejected > 0);
        chain_close(&chain);
    }
}

static void allocates_nothing_after_open(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        strait_codec_metrics metrics;
        const int64_t prev = strait_alloc_count();
        chain_run(&chain, 2);
        for (int i = 0; i < 2 * CHAIN_BOUNDARIES; i++) {
            struct strait_codec *side = chain_side(&chain, i);
            CHECK_OK(strait_codec_read_metrics(side, &chain.rig->stream, &metrics));
            CHECK_OK(strait_codec_zero_gradients(side, &chain.rig->stream));
        }
        assert_int_equal(strait_alloc_count(), prev);
        chain_close(&chain);
    }
}

static void open_survives_any_failing_allocation(void **state) {
    (void)state;
    EACH_CASE(which) {
        const strait_codec_spec spec = case_spec(which, 0);
        for (int side = 0; side < 2; side++) {
            struct strait_codec *c = NULL;
            size_t planned = 0;
            CHECK_OK(strait_codec_plan_bytes(&spec, (strait_codec_side)side, &planned));
            CHECK(planned > 0);
            for (int64_t n = 1; c == NULL; n++) {
                CHECK(n < 100);
                strait_alloc_fail_at(n);
                const strait_err err = strait_codec_open(&spec, (strait_codec_side)side,
                                                         reference_rig()->be, &c);
                strait_alloc_fail_at(0);
                assert_int_equal(err, c == NULL ? STRAIT_ENOMEM : STRAIT_OK);
            }
            assert_int_equal(c->slab.bytes, planned);
            strait_codec_close(&c);
            assert_null(c);
        }
    }
}

static void counts_non_finite_values(void **state) {
    (void)state;
    EACH_CASE(which) {
        chain_open(&chain, reference_rig(), which);
        strait_codec_metrics metrics;
        strait_crossing at = chain_at(&chain, 0);
        at.input = chain.x[0][0];
        float values[CHAIN_ROWS * CHAIN_COLS];
        rig_read(chain.rig, chain.v, values);
        values[3] = NAN;
        values[chain.cols * 2] = INFINITY;
        rig_write(chain.rig, chain.y, values);
        CHECK_OK(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], chain.y));
        CHECK_OK(strait_codec_read_metrics(chain.sender[0], &chain.rig->stream, &metrics));
        CHECK(metrics.non_finite > 0);
        CHECK_OK(strait_codec_act_unpack(chain.receiver[0], &at, chain.y, chain.wire[0][0]));
        check_finite(chain.y, which->label);
        /* The next crossing is not affected. */
        CHECK_OK(strait_codec_act_pack(chain.sender[0], &at, chain.wire[0][0], chain.v));
        CHECK_OK(strait_codec_read_metrics(chain.sender[0], &chain.rig->stream, &metrics));
        CHECK(metrics.non_finite == 0 && metrics.residual < 1);
        chain_close(&chain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_other_sizes),
        cmocka_unit_test(garbage_stays_finite),
        cmocka_unit_test(allocates_nothing_after_open),
        cmocka_unit_test(open_survives_any_failing_allocation),
        cmocka_unit_test(counts_non_finite_values),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
