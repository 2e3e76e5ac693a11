/* What the cuda backend says where something that it needs is absent. */
#include "backend/backend.h"
#include "backend/cuda/info.h"
#include "check.h"

static struct strait_cuda_info survey;

static void survey_is_never_an_error(void **state) {
    (void)state;
    memset(&survey, 0x55, sizeof survey);
    CHECK_OK(strait_cuda_get_info(&survey));
    CHECK(survey.n_devices >= 0 && survey.n_devices <= STRAIT_CUDA_DEVICES);
    if (survey.has_driver) {
        CHECK(survey.driver_version >= 1000);
        for (int i = 0; i < survey.n_devices; i++)
            CHECK(survey.devices[i].memory > 0 && survey.devices[i].major > 0);
    } else {
        assert_int_equal(survey.n_devices, 0);
        CHECK(strstr(survey.problem, "device cuda:") == survey.problem);
        CHECK(strstr(survey.problem, "device.kind to cpu") != NULL);
    }
}

static void without_a_driver_it_says_so(void **state) {
    (void)state;
    CHECK_OK(strait_cuda_get_info(&survey));
    if (survey.has_driver) skip();
    struct strait_backend *be = NULL;
    for (int i = 0; i < 2; i++) // the second time nothing is looked for again
        CHECK_FAILS(strait_backend_open((strait_backend_spec){.name = "cuda"}, &be), STRAIT_ENOTSUP,
                    survey.problem);
    assert_null(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survey_is_never_an_error),
        cmocka_unit_test(without_a_driver_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
