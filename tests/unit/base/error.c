#include "check.h"

static strait_err fails(void) {
    return STRAIT_FAIL(STRAIT_EDATA, "length %d exceeds %d", 9, 4);
}

static strait_err forwards(void) {
    STRAIT_TRY(fails());
    return STRAIT_OK;
}

static void test_detail_is_kept_and_prefixed(void **state) {
    (void)state;
    CHECK_FAILS(forwards(), STRAIT_EDATA, "length 9 exceeds 4");
    CHECK(strstr(strait_err_where(), "error.c:") != NULL);
    strait_err_prefix("%s", "train.bin");
    assert_string_equal(strait_err_detail(), "train.bin: length 9 exceeds 4");
}

static void test_detail_is_one_printable_line(void **state) {
    (void)state;
    strait_err_note("x.c", 1, "near \"%s\"", "a\nb\033[2Jc");
    assert_string_equal(strait_err_detail(), "near \"a?b?[2Jc\"");
    strait_err_prefix("%s", "one\rtwo");
    assert_string_equal(strait_err_detail(), "one?two: near \"a?b?[2Jc\"");
}

static void test_every_code_has_text_and_scope(void **state) {
    (void)state;
#define X(name, value, scope, text)                            \
    assert_string_equal(strait_err_text(STRAIT_##name), text); \
    assert_int_equal(strait_err_scope(STRAIT_##name), STRAIT_SCOPE_##scope);
    STRAIT_ERR_MAP(X)
#undef X
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detail_is_kept_and_prefixed),
        cmocka_unit_test(test_detail_is_one_printable_line),
        cmocka_unit_test(test_every_code_has_text_and_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
