/* The arguments of a launch are compared with the parameters of its kernel, as a driver lists them.
 */
#include "backend/cuda/args.h"
#include "check.h"

#include <stdint.h>

static const size_t kernel[] = {8, 8, 4, 40}; // two pointers, an int, a struct
static size_t n_kernel;

static CUresult info(CUfunction function, size_t index, size_t *offset, size_t *size) {
    (void)function;
    if (index >= n_kernel) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *size = index < 4 ? kernel[index] : 8;
    return CUDA_SUCCESS;
}

struct values {
    int64_t all[5];
};

/* Compares a launch with the kernel of the first `n` parameters above. */
static strait_err launch(size_t n, strait_cuda_args args) {
    strait_cuda_params params;
    n_kernel = n;
    STRAIT_TRY(strait_cuda_params_read(info, NULL, "axpy", args, &params));
    return strait_cuda_args_check("axpy", args, &params);
}

static void passes_addresses_and_sizes_in_order(void **state) {
    (void)state;
    float *y = NULL;
    int n = 3;
    struct values values = {{1}};
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y, n, values);
    assert_int_equal(args.n, 3);
    assert_ptr_equal(args.at[0], &y);
    assert_ptr_equal(args.at[1], &n);
    assert_ptr_equal(args.at[2], &values);
    assert_int_equal(args.sizes[0], sizeof(float *));
    assert_int_equal(args.sizes[1], sizeof(int));
    assert_int_equal(args.sizes[2], sizeof(struct values));
    const strait_cuda_args most = STRAIT_CUDA_ARGS(y, n, n, n, n, n, n, n, n, y);
    assert_int_equal(most.n, STRAIT_CUDA_MOST_ARGS);
    assert_ptr_equal(most.at[9], &y);
}

static void accepts_the_arguments_of_the_kernel(void **state) {
    (void)state;
    float *y = NULL, *x = NULL;
    int n = 0;
    struct values values = {{0}};
    CHECK_OK(launch(4, STRAIT_CUDA_ARGS(y, x, n, values)));
    CHECK_OK(launch(1, STRAIT_CUDA_ARGS(y)));
}

static void rejects_other_arguments(void **state) {
    (void)state;
    float *y = NULL, *x = NULL;
    int n = 0;
    int64_t wide = 0;
    struct values values = {{0}};
    CHECK_FAILS(launch(4, STRAIT_CUDA_ARGS(y, x, n)), STRAIT_EINVAL,
                "kernel axpy is launched with 3 arguments, but has 4");
    CHECK_FAILS(launch(3, STRAIT_CUDA_ARGS(y, x, n, values)), STRAIT_EINVAL,
                "kernel axpy is launched with 4 arguments, but has 3");
    CHECK_FAILS(launch(4, STRAIT_CUDA_ARGS(y, x, wide, values)), STRAIT_EINVAL,
                "kernel axpy: argument 2 has 8 bytes, but the kernel's has 4");
    CHECK_FAILS(launch(4, STRAIT_CUDA_ARGS(y, n, x, values)), STRAIT_EINVAL, "argument 1");
    CHECK_FAILS(launch(11, STRAIT_CUDA_ARGS(y)), STRAIT_ENOTSUP, "more than 10 parameters");
}

static void compares_with_the_first_launch_where_the_driver_cannot_tell(void **state) {
    (void)state;
    float *y = NULL;
    int n = 0;
    strait_cuda_params params;
    CHECK_OK(strait_cuda_params_read(NULL, NULL, "axpy", STRAIT_CUDA_ARGS(y, n), &params));
    CHECK_OK(strait_cuda_args_check("axpy", STRAIT_CUDA_ARGS(y, n), &params));
    CHECK_FAILS(strait_cuda_args_check("axpy", STRAIT_CUDA_ARGS(y), &params), STRAIT_EINVAL,
                "launched with 1 arguments");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_addresses_and_sizes_in_order),
        cmocka_unit_test(accepts_the_arguments_of_the_kernel),
        cmocka_unit_test(rejects_other_arguments),
        cmocka_unit_test(compares_with_the_first_launch_where_the_driver_cannot_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
