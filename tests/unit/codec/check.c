/* What strait_codec_check fills in and refuses. */
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

static void defaults_are_filled_in(void **state) {
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

static void checking_twice_changes_nothing(void **state) {
    (void)state;
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        strait_codec_spec spec = spec_of(strait_codecs[i]->name);
        CHECK_OK(strait_codec_check(&spec));
        const strait_codec_spec once = spec;
        CHECK_OK(strait_codec_check(&spec));
        assert_memory_equal(&spec, &once, sizeof spec);
    }
}

#define REFUSED(name, field, value, words)                            \
    do {                                                              \
        strait_codec_spec bad = spec_of(name);                        \
        bad.field = (value);                                          \
        CHECK_FAILS(strait_codec_check(&bad), STRAIT_ECONFIG, words); \
    } while (0)

static void the_impossible_is_refused(void **state) {
    (void)state;
    REFUSED("strait", keep, 65, "codec strait: keep is 65, but must be from 1 to 64");
    REFUSED("strait/tied", vocab, 0, "size of the vocabulary");
    REFUSED("strait", bits, 5, "bits is 5, but must be 32, 16, 8 or 4");
    REFUSED("strait", has_feedback, 1, "transparent");
    REFUSED("strait/tied", keep, 65, "keep is 65");
    REFUSED("strait/free", has_feedback, 1, "transparent");
    REFUSED("resbm", keep, -1, "keep is -1");
    REFUSED("resbm", grad_bits, 2, "grad_bits is 2");
    REFUSED("subspace", keep, 1000, "keep is 1000");
    REFUSED("subspace", leak_limit, -1, "must not be negative");
    REFUSED("int4", tile, 24, "power of two that divides the width 64");
    REFUSED("int4", bits, 8, "choose int8");
    REFUSED("int8", bits, 4, "choose int4");
    REFUSED("topk", keep, 65, "keep is 65");
    REFUSED("topk", bits, 8, "16 bits");
    REFUSED("lowrank", rank, 9, "rank is 9, but must be from 1 to 8");
    REFUSED("none", bits, 8, "bits is 8");
    REFUSED("none", rows, 0, "is empty");
    REFUSED("none", n_slots, 0, "n_slots is 0");
    REFUSED("none", boundary, 3, "boundary 3 of 3 does not exist");
}

static void unknown_names_are_refused(void **state) {
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

/* A name has one default, whichever of its tables a variant stands in. */
static void a_codec_has_a_variant_of_its_own(void **state) {
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
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(checking_twice_changes_nothing),
        cmocka_unit_test(the_impossible_is_refused),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(a_codec_has_a_variant_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
