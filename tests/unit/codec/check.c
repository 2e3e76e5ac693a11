/* What strait_codec_check fills in and rejects. */
#include "check.h"

#include "codec/codec.h"

/* "strait", or "strait/tied" */
static strait_codec_spec spec_of(const char *name) {
    strait_codec_spec spec = {.rows = 8,
                              .cols = 64,
                              .vocab = 100,
                              .n_slots = 2,
                              .n_boundaries = 3,
                              .boundary = 1,
                              .seed = 1};
    const size_t length = strcspn(name, "/");
    assert_true(length < sizeof spec.name);
    memcpy(spec.name, name, length);
    if (name[length] == '/')
        (void)strncpy(spec.variant, name + length + 1, sizeof spec.variant - 1);
    return spec;
}

static void fits_bytes(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("strait");
    spec.cols = 1024;
    CHECK_OK(strait_codec_fit(&spec, 16));
    assert_int_equal(spec.keep, 31);
    CHECK_OK(strait_codec_fit(&spec, 32));
    assert_int_equal(spec.keep, 63);
    spec = spec_of("strait/tied"); // 4 bits: one value and two take as many bytes
    CHECK_OK(strait_codec_fit(&spec, 16));
    assert_int_equal(spec.keep, 30);
    spec = spec_of("resbm");
    CHECK_OK(strait_codec_fit(&spec, 8));
    CHECK_OK(strait_codec_check(&spec));
    assert_int_equal(spec.keep, 4); // 16 bits each
    spec = spec_of("lowrank");
    CHECK_OK(strait_codec_fit(&spec, 64));
    CHECK_OK(strait_codec_check(&spec));
    const size_t bytes = strait_codec_wire_bytes(&spec, STRAIT_FORWARD);
    assert_true(bytes <= 64 * 8 + 4);
    spec.rank++;
    assert_true(strait_codec_wire_bytes(&spec, STRAIT_FORWARD) > 64 * 8 + 4);
    spec = spec_of("int8");
    CHECK_OK(strait_codec_fit(&spec, 128));
    assert_int_equal(strait_codec_fit(&spec, 16), STRAIT_ECONFIG);
    spec = spec_of("strait");
    assert_int_equal(strait_codec_fit(&spec, 0.1), STRAIT_ECONFIG);
}

static void fills_in_defaults(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("strait");
    CHECK_OK(strait_codec_check(&spec));
    assert_string_equal(spec.variant, "context");
    assert_int_equal(spec.keep, 31);
    assert_int_equal(spec.context, 4);
    assert_int_equal(spec.bits, 4);
    assert_int_equal(spec.grad_bits, 4);
    spec = spec_of("strait/tied");
    CHECK_OK(strait_codec_check(&spec));
    assert_string_equal(spec.variant, "tied");
    assert_int_equal(spec.keep, 32);
    assert_int_equal(spec.hidden, 256);
    assert_int_equal(spec.table_width, 64); // no more than the width
    assert_int_equal(spec.bits, 4);
    assert_int_equal(spec.grad_bits, 4);
    spec = spec_of("resbm");
    CHECK_OK(strait_codec_check(&spec));
    assert_int_equal(spec.hidden, 256);
    assert_int_equal(spec.bits, 16);
    spec = spec_of("int4");
    spec.cols = 96;
    CHECK_OK(strait_codec_check(&spec));
    assert_int_equal(spec.tile, 32);
    spec = spec_of("none");
    CHECK_OK(strait_codec_check(&spec));
    assert_string_equal(spec.variant, "bf16");
}

static void check_is_idempotent(void **state) {
    (void)state;
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        strait_codec_spec spec = spec_of(strait_codecs[i]->name);
        CHECK_OK(strait_codec_check(&spec));
        const strait_codec_spec once = spec;
        CHECK_OK(strait_codec_check(&spec));
        assert_memory_equal(&spec, &once, sizeof spec);
    }
}

#define REJECTS(name, field, value, message)                            \
    do {                                                                \
        strait_codec_spec bad = spec_of(name);                          \
        bad.field = (value);                                            \
        CHECK_FAILS(strait_codec_check(&bad), STRAIT_ECONFIG, message); \
    } while (0)

static void rejects_impossible_specs(void **state) {
    (void)state;
    REJECTS("strait", keep, 65, "codec strait: keep is 65, but must be from 1 to 64");
    REJECTS("strait/tied", vocab, 0, "size of the vocabulary");
    REJECTS("strait", bits, 5, "bits is 5, but must be 32, 16, 8 or 4");
    REJECTS("strait", has_feedback, 1, "transparent");
    REJECTS("strait/tied", keep, 65, "keep is 65");
    REJECTS("strait/free", has_feedback, 1, "transparent");
    REJECTS("resbm", keep, -1, "keep is -1");
    REJECTS("resbm", grad_bits, 2, "grad_bits is 2");
    REJECTS("subspace", keep, 1000, "keep is 1000");
    REJECTS("subspace", leak_limit, -1, "must not be negative");
    REJECTS("subspace", leak_limit, (double)NAN, "must not be negative");
    REJECTS("subspace", grassmann_rate, -1, "must not be negative");
    REJECTS("subspace", grassmann_rate, (double)NAN, "must not be negative");
    REJECTS("subspace", grassmann_every, -1, "must not be negative");
    REJECTS("subspace", confine_every, -1, "must not be negative");
    REJECTS("int4", tile, 24, "power of two that divides the width 64");
    REJECTS("int4", bits, 8, "choose int8");
    REJECTS("int8", bits, 4, "choose int4");
    REJECTS("topk", keep, 65, "keep is 65");
    REJECTS("topk", bits, 8, "16 bits");
    REJECTS("lowrank", rank, 9, "rank is 9, but must be from 1 to 8");
    REJECTS("none", bits, 8, "bits is 8");
    REJECTS("none", rows, 0, "is empty");
    REJECTS("none", n_slots, 0, "n_slots is 0");
    REJECTS("none", boundary, 3, "boundary 3 of 3 does not exist");
}

static void rejects_unknown_names(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("int3");
    CHECK_FAILS(strait_codec_check(&spec), STRAIT_ECONFIG,
                "there is no codec 'int3'; choose one of none, int8, int4");
    spec = spec_of("none/fp64");
    CHECK_FAILS(strait_codec_check(&spec), STRAIT_ECONFIG, "no variant 'fp64'");
    spec = spec_of("int8/x");
    CHECK_FAILS(strait_codec_check(&spec), STRAIT_ECONFIG, "no variant 'x'");
    spec = spec_of("strait/loose");
    CHECK_FAILS(strait_codec_check(&spec), STRAIT_ECONFIG,
                "codec strait: there is no variant 'loose'; the default is 'context'");
}

/* A name has one default, also where several tables divide its variants. */
static void each_codec_has_one_default_variant(void **state) {
    (void)state;
    assert_string_equal(strait_codec_default_variant("strait"), "context");
    assert_string_equal(strait_codec_default_variant("resbm"), "a");
    assert_string_equal(strait_codec_default_variant("int8"), "");
    assert_string_equal(strait_codec_default_variant("int3"), "");
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        strait_codec_spec spec = spec_of(strait_codecs[i]->name);
        CHECK_OK(strait_codec_check(&spec));
        assert_string_equal(spec.variant, strait_codec_default_variant(spec.name));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_defaults),
        cmocka_unit_test(fits_bytes),
        cmocka_unit_test(check_is_idempotent),
        cmocka_unit_test(rejects_impossible_specs),
        cmocka_unit_test(rejects_unknown_names),
        cmocka_unit_test(each_codec_has_one_default_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
