/* kernels.c - codecs and backends that lack optional kernels. */
#include "check.h"
#include "codec/codec.h"

/* Opens a codec on a cpu whose kernel table has been replaced by `kernels`. */
static strait_err open_codec(strait_codec_spec spec, struct strait_backend *be,
                             const struct strait_kernels *kernels) {
    struct strait_codec *codec = NULL;
    spec.rows = 4;
    spec.cols = 64;
    spec.vocab = 16;
    spec.n_boundaries = 1;
    spec.n_slots = 1;
    spec.widest = 64;
    be->kernels = kernels;
    const strait_err err = strait_codec_open(&spec, STRAIT_SENDER, be, &codec);
    strait_codec_close(&codec);
    return err;
}

/* A cpu without any optional kernels. */
static struct strait_kernels without_optional(const struct strait_kernels *all) {
    struct strait_kernels none = *all;
    none.conv = NULL;
    none.topk = NULL;
    none.log_scale = NULL;
    none.hadamard = NULL;
    none.lowrank = NULL;
    none.subspace = NULL;
    none.token_gates = NULL;
    none.autoencoder = NULL;
    return none;
}

static void names_the_codec_and_device_that_lacks_its_kernels(void **state) {
    (void)state;
    struct strait_backend *be = NULL;
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu"}, &be));
    const struct strait_kernels *all = be->kernels;
    const struct strait_kernels none = without_optional(all);
    const struct {
        strait_codec_spec codec;
        const char *lacks;
    } cases[] = {
        {{.name = "topk"}, "device cpu has no top-k kernels, which codec topk needs"},
        {{.name = "int4"}, "device cpu has no Hadamard kernels, which codec int4 needs"},
        {{.name = "lowrank"}, "device cpu has no low-rank kernels, which codec lowrank needs"},
        {{.name = "subspace"}, "device cpu has no subspace kernels, which codec subspace needs"},
        {{.name = "resbm", .is_padded = 1},
         "device cpu has no autoencoder kernels, which codec resbm needs"},
        {{.name = "strait", .variant = "free", .is_padded = 1},
         "device cpu has no autoencoder kernels, which codec strait needs"},
        {{.name = "strait"}, "which codec strait needs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(open_codec(cases[i].codec, be, &none), STRAIT_ENOTSUP, cases[i].lacks);
    CHECK_OK(open_codec((strait_codec_spec){.name = "int8"}, be, &none));
    CHECK_OK(open_codec((strait_codec_spec){.name = "topk"}, be, all));
    be->kernels = all;
    strait_backend_close(&be);
}

/* What a codec asks of the device follows from its variant and settings. */
static void asks_only_for_kernels_that_its_variant_calls(void **state) {
    (void)state;
    struct strait_backend *be = NULL;
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu"}, &be));
    const struct strait_kernels *all = be->kernels;
    const struct strait_kernels none = without_optional(all);
    const strait_codec_spec asks_for_none[] = {
        {.name = "resbm"},
        {.name = "resbm", .variant = "b"},
        {.name = "subspace", .variant = "code"},
        {.name = "strait", .variant = "tied"},
        {.name = "strait", .variant = "free"},
    };
    for (size_t i = 0; i < sizeof asks_for_none / sizeof *asks_for_none; i++)
        CHECK_OK(open_codec(asks_for_none[i], be, &none));
    struct strait_kernels some = none;
    some.autoencoder = all->autoencoder;
    CHECK_OK(open_codec((strait_codec_spec){.name = "strait", .bits = 8}, be, &some));
    CHECK_FAILS(open_codec((strait_codec_spec){.name = "strait"}, be, &some), STRAIT_ENOTSUP,
                "log-scale");
    CHECK_FAILS(
        open_codec((strait_codec_spec){.name = "strait", .bits = 8, .grad_bits = 4}, be, &some),
        STRAIT_ENOTSUP, "log-scale");
    CHECK_FAILS(
        open_codec((strait_codec_spec){.name = "strait", .bits = 8, .has_gates = 1}, be, &some),
        STRAIT_ENOTSUP, "token");
    be->kernels = all;
    strait_backend_close(&be);
}

static void finds_the_requirements_of_the_default_variant(void **state) {
    (void)state;
    strait_codec_requirements by_default;
    strait_codec_requirements full;
    strait_codec_requirements factored;
    CHECK_OK(strait_codec_get_requirements(&(strait_codec_spec){.name = "subspace", .keep = 8},
                                           &by_default));
    CHECK_OK(strait_codec_get_requirements(
        &(strait_codec_spec){.name = "subspace", .variant = "full", .keep = 8}, &full));
    CHECK_OK(strait_codec_get_requirements(
        &(strait_codec_spec){.name = "subspace", .variant = "factored", .keep = 8}, &factored));
    assert_memory_equal(&by_default, &full, sizeof full);
    assert_true(full.is_closed && full.subspace == 0);
    assert_true(!factored.is_closed && factored.subspace == 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_codec_and_device_that_lacks_its_kernels),
        cmocka_unit_test(asks_only_for_kernels_that_its_variant_calls),
        cmocka_unit_test(finds_the_requirements_of_the_default_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
