/* The fingerprint that both sides of a boundary compare when they connect. */
#include "base/alloc.h"
#include "check.h"
#include "codec/codec.h"

#include <stdio.h>

static strait_codec_spec spec_of(const char *name, const char *variant) {
    strait_codec_spec spec = {.rows = 8,
                              .cols = 64,
                              .vocab = 100,
                              .n_slots = 2,
                              .n_boundaries = 3,
                              .boundary = 1,
                              .seed = 1};
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    (void)snprintf(spec.variant, sizeof spec.variant, "%s", variant);
    return spec;
}

static uint64_t print_of(strait_codec_spec spec) {
    uint64_t print = 0;
    CHECK_OK(strait_codec_check(&spec));
    CHECK_OK(strait_codec_fingerprint(&spec, &print));
    return print;
}

enum {
    PRINTS_MAX = 64
};

/* Every codec and variant of the registry has a fingerprint of its own. */
static void tells_codecs_and_variants_apart(void **state) {
    (void)state;
    uint64_t prints[PRINTS_MAX];
    int n = 0;
    for (int i = 0; strait_codecs[i] != NULL; i++) {
        static const char *const none[] = {"", NULL};
        const char *const *variants = strait_codecs[i]->variants != NULL
                                          ? strait_codecs[i]->variants
                                          : none;
        for (int j = 0; variants[j] != NULL; j++) {
            CHECK(n < PRINTS_MAX);
            prints[n] = print_of(spec_of(strait_codecs[i]->name, variants[j]));
            for (int k = 0; k < n; k++)
                CHECK(prints[k] != prints[n]);
            n++;
        }
    }
    CHECK(n >= 14);
}

#define DIFFERS(field, value)                     \
    do {                                          \
        strait_codec_spec other = base;           \
        other.field = (value);                    \
        CHECK(print_of(other) != print_of(base)); \
    } while (0)

#define SAME(field, value)                        \
    do {                                          \
        strait_codec_spec other = base;           \
        other.field = (value);                    \
        CHECK(print_of(other) == print_of(base)); \
    } while (0)

static void covers_what_changes_values_or_bytes(void **state) {
    (void)state;
    strait_codec_spec base = spec_of("strait", "context");
    DIFFERS(rows, 16);
    DIFFERS(cols, 128);
    DIFFERS(keep, 15);
    DIFFERS(hidden, 64);
    DIFFERS(encoder, 64);
    DIFFERS(context, 2);
    DIFFERS(basis_gain, 0.5);
    DIFFERS(encoder_gain, 0.5);
    DIFFERS(has_gates, 1);
    DIFFERS(seq_len, 4);
    DIFFERS(bits, 8);
    DIFFERS(grad_bits, 8);
    DIFFERS(rounding, STRAIT_ROUND_NEAREST);
    DIFFERS(boundary, 0);
    DIFFERS(n_boundaries, 4);
    DIFFERS(seed, 2);
    base = spec_of("strait", "tied");
    DIFFERS(vocab, 99);
    DIFFERS(table_width, 7);
    base = spec_of("subspace", "full");
    DIFFERS(confine_every, 3);
    DIFFERS(leak_limit, 0.5);
    DIFFERS(grassmann_every, 10);
    DIFFERS(grassmann_rate, 0.7);
    base = spec_of("int4", "");
    DIFFERS(tile, 16);
    DIFFERS(has_feedback, 1);
    base = spec_of("lowrank", "");
    DIFFERS(rank, 3);
}

/* Stages may differ in these and still understand each other. */
static void ignores_settings_that_machines_may_differ_in(void **state) {
    (void)state;
    const strait_codec_spec base = spec_of("strait", "context");
    SAME(n_slots, 7);
    SAME(can_defer, 1);
    SAME(precision, STRAIT_BF16);
    SAME(is_padded, 1);
}

/* subspace's `widest` only sizes scratch; equal shapes then give equal fingerprints. */
static void covers_shapes_of_parameters_not_of_scratch(void **state) {
    (void)state;
    const strait_codec_spec base = spec_of("subspace", "full");
    SAME(widest, 1000);
}

static void reports_lack_of_memory(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("resbm", "a");
    uint64_t print = 1;
    CHECK_OK(strait_codec_check(&spec));
    strait_alloc_fail_at(1);
    const strait_err err = strait_codec_fingerprint(&spec, &print);
    strait_alloc_fail_at(0);
    assert_int_equal(err, STRAIT_ENOMEM);
    CHECK(print == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_codecs_and_variants_apart),
        cmocka_unit_test(covers_what_changes_values_or_bytes),
        cmocka_unit_test(ignores_settings_that_machines_may_differ_in),
        cmocka_unit_test(covers_shapes_of_parameters_not_of_scratch),
        cmocka_unit_test(reports_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
