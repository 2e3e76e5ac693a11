#include "swarm/host/verify/replay_check.h"

#include "check.h"

#include <math.h>
#include <string.h>

static struct strait_replay_check check;

static strait_replay_result result_of(int64_t step, double loss_sum, double norm,
                                      const char *device) {
    strait_replay_result result = {.step = step, .loss_sum = loss_sum, .norm = norm};
    strait_replay_kernels(device, result.kernels);
    return result;
}

static void keep(int64_t step, double loss_sum, double norm, const char *device) {
    const strait_replay_result result = result_of(step, loss_sum, norm, device);
    strait_replay_check_keep(&check, &result);
}

static int differs(int64_t step, double loss_sum, double norm, const char *device, int64_t start) {
    const strait_replay_result result = result_of(step, loss_sum, norm, device);
    return strait_replay_check_compare(&check, &result, start) != NULL;
}

static void names_the_kernels_of_a_cpu(void **state) {
    (void)state;
    char kernels[STRAIT_REPLAY_KERNELS];
    strait_replay_kernels("16 threads, avx512", kernels);
    assert_string_equal(kernels, "avx512");
    strait_replay_kernels("1 thread, avx2", kernels);
    assert_string_equal(kernels, "avx2");
    static const char *const others[] = {"NVIDIA H200, 139 GiB", "", "threads, avx2", "4 threads"};
    for (int i = 0; i < 4; i++) {
        strait_replay_kernels(others[i], kernels);
        assert_string_equal(kernels, "");
    }
}

static void wants_the_same_bits_from_the_same_kernels(void **state) {
    (void)state;
    memset(&check, 0, sizeof check);
    keep(40, 100.0, 2.0, "4 threads, avx2");
    assert_false(differs(40, 100.0, 2.0, "1 thread, avx2", 0));
    assert_true(differs(40, nextafter(100.0, 200.0), 2.0, "4 threads, avx2", 0));
    assert_true(differs(40, 100.0, nextafter(2.0, 0.0), "4 threads, avx2", 0));
}

static void tolerates_rounding_of_other_devices(void **state) {
    (void)state;
    static const char *const devices[] = {"4 threads, avx512", "NVIDIA H200"};
    memset(&check, 0, sizeof check);
    keep(40, 100.0, 2.0, "4 threads, avx2");
    for (int i = 0; i < 2; i++) {
        assert_false(differs(40, 100.9, 2.05, devices[i], 40));
        assert_true(differs(40, 102.0, 2.0, devices[i], 40));
        assert_true(differs(40, 100.0, 2.2, devices[i], 40));
        assert_true(differs(40, 102.0, 2.0, devices[i], 40 - STRAIT_REPLAY_NEAR + 1));
        assert_false(differs(40, 102.0, 2.0, devices[i], 40 - STRAIT_REPLAY_NEAR));
    }
    keep(41, 100.0, 2.0, "NVIDIA H200"); // of which two may round differently, too
    assert_false(differs(41, 100.9, 2.0, "NVIDIA H200", 40));
}

static void compares_only_what_is_known(void **state) {
    (void)state;
    memset(&check, 0, sizeof check);
    assert_false(differs(0, 1.0, 1.0, "1 thread, avx2", 0));
    keep(7, 100.0, 2.0, "1 thread, avx2");
    assert_false(differs(7 + STRAIT_REPLAY_STEPS, 1.0, 1.0, "1 thread, avx2", 0));
    keep(7 + STRAIT_REPLAY_STEPS, 1.0, 1.0, "1 thread, avx2");
    assert_false(differs(7, 3.0, 2.0, "1 thread, avx2", 0)); // forgotten
    assert_true(differs(7 + STRAIT_REPLAY_STEPS, 2.0, 1.0, "1 thread, avx2", 0));
    assert_false(differs(7 + STRAIT_REPLAY_STEPS, NAN, 1.0, "1 thread, avx2", 0));
    keep(8, 100.0, INFINITY, "1 thread, avx2");
    assert_false(differs(8, 100.0, 2.0, "1 thread, avx2", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_the_kernels_of_a_cpu),
                                       cmocka_unit_test(wants_the_same_bits_from_the_same_kernels),
                                       cmocka_unit_test(tolerates_rounding_of_other_devices),
                                       cmocka_unit_test(compares_only_what_is_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
