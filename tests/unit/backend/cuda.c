/* What the cuda backend reports where something it needs is missing. */
#include "backend/backend.h"
#include "backend/cuda/info.h"
#include "check.h"

static struct strait_cuda_info info;

static void info_never_fails(void **state) {
    (void)state;
    memset(&info, 0x55, sizeof info);
    CHECK_OK(strait_cuda_get_info(&info));
    CHECK(info.n_devices >= 0 && info.n_devices <= STRAIT_CUDA_DEVICES);
    if (info.has_driver) {
        CHECK(info.driver_version >= 1000);
        for (int i = 0; i < info.n_devices; i++)
            CHECK(info.devices[i].memory > 0 && info.devices[i].major > 0);
    } else {
        assert_int_equal(info.n_devices, 0);
        CHECK(strstr(info.problem, "device cuda:") == info.problem);
        CHECK(strstr(info.problem, "device.kind to cpu") != NULL);
    }
}

static void reports_a_missing_driver(void **state) {
    (void)state;
    CHECK_OK(strait_cuda_get_info(&info));
    if (info.has_driver) skip();
    struct strait_backend *be = NULL;
    for (int i = 0; i < 2; i++) // the second call returns the stored result
        CHECK_FAILS(strait_backend_open((strait_backend_spec){.name = "cuda"}, &be), STRAIT_ENOTSUP,
                    info.problem);
    assert_null(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_never_fails),
        cmocka_unit_test(reports_a_missing_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
