/* kernels.c - codecs and backends that lack optional kernels. */
#include "check.h"
#include "codec/codec.h"

/* Opens codec `name` on a cpu whose kernel table has been replaced by `kernels`. */
static strait_err open_codec(const char *name, struct strait_backend *be,
                             const struct strait_kernels *kernels) {
    strait_codec_spec spec = {
        .rows = 4, .cols = 64, .vocab = 16, .n_boundaries = 1, .n_slots = 1, .widest = 64};
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    struct strait_codec *codec = NULL;
    be->kernels = kernels;
    const strait_err err = strait_codec_open(&spec, STRAIT_SENDER, be, &codec);
    strait_codec_close(&codec);
    return err;
}

static void names_the_codec_and_device_that_lacks_its_kernels(void **state) {
    (void)state;
    struct strait_backend *be = NULL;
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu"}, &be));
    const struct strait_kernels *all = be->kernels;
    struct strait_kernels none = *all;
    none.conv = NULL;
    none.topk = NULL;
    none.log_scale = NULL;
    none.hadamard = NULL;
    none.lowrank = NULL;
    none.subspace = NULL;
    none.token_gates = NULL;
    none.autoencoder = NULL;
    const struct {
        const char *codec, *lacks;
    } cases[] = {
        {"topk", "device cpu has no top-k kernels, which codec topk needs"},
        {"int4", "device cpu has no Hadamard kernels, which codec int4 needs"},
        {"lowrank", "device cpu has no low-rank kernels, which codec lowrank needs"},
        {"subspace", "device cpu has no subspace kernels, which codec subspace needs"},
        {"resbm", "device cpu has no autoencoder kernels, which codec resbm needs"},
        {"strait", "which codec strait needs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(open_codec(cases[i].codec, be, &none), STRAIT_ENOTSUP, cases[i].lacks);
    CHECK_OK(open_codec("int8", be, &none));
    CHECK_OK(open_codec("topk", be, all));
    be->kernels = all;
    strait_backend_close(&be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_codec_and_device_that_lacks_its_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
