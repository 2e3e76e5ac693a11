/* Sizes and views of tensors. */
#include "tensor/tensor.h"

#include "check.h"

static void computes_sizes_from_type_and_shape(void **state) {
    (void)state;
    static const struct {
        strait_dtype dtype;
        size_t bytes;
    } cases[] = {{STRAIT_F32, 4}, {STRAIT_BF16, 2}, {STRAIT_I8, 1}, {STRAIT_I32, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(strait_dtype_bytes(cases[i].dtype), cases[i].bytes);
        const strait_tensor t = {NULL, cases[i].dtype, 7, 5};
        assert_int_equal(strait_tensor_bytes(t), 35 * cases[i].bytes);
    }
    const strait_tensor large = {NULL, STRAIT_F32, 1 << 20, 1 << 20};
    assert_true(strait_tensor_bytes(large) == (size_t)1 << 42);
    assert_int_equal(strait_dtype_bytes((strait_dtype)99), 0);
}

static void views_share_memory(void **state) {
    (void)state;
    int32_t values[12];
    const strait_tensor t = {values, STRAIT_I32, 4, 3};
    const strait_tensor middle = strait_tensor_rows(t, 1, 2);
    assert_ptr_equal(middle.data, values + 3);
    assert_int_equal(middle.rows, 2);
    assert_int_equal(middle.cols, 3);
    assert_int_equal(strait_tensor_rows(t, 4, 0).rows, 0);
    const strait_tensor flat = strait_tensor_reshape(t, 1, 12);
    assert_ptr_equal(flat.data, values);
    assert_int_equal(flat.cols, 12);
    const strait_tensor absent = {NULL, STRAIT_F32, 4, 3};
    assert_null(strait_tensor_rows(absent, 2, 1).data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_sizes_from_type_and_shape),
        cmocka_unit_test(views_share_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
