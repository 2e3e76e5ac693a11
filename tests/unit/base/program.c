#include "base/program.h"

#include "check.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void uses_the_program_that_was_set(void **state) {
    (void)state;
    char path[STRAIT_PATH_MAX];
    CHECK_OK(strait_set_program("/opt/strait/bin/strait"));
    CHECK_OK(strait_program_path(path));
    assert_string_equal(path, "/opt/strait/bin/strait");
    strait_program_folder(path);
    assert_string_equal(path, "/opt/strait/bin");
    CHECK_OK(strait_set_program(NULL));
    strait_program_folder(path);
    assert_string_not_equal(path, "/opt/strait/bin");
}

static void rejects_a_path_that_is_too_long(void **state) {
    (void)state;
    char path[STRAIT_PATH_MAX + 2];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    CHECK_FAILS(strait_set_program(path), STRAIT_EINVAL, "");
}

/* The folder is that of this test program, where no strait is. */
static void finds_the_program_in_path_or_says_where_it_looked(void **state) {
    (void)state;
    scratch folder = scratch_open();
    char path[STRAIT_PATH_MAX], own[STRAIT_PATH_MAX], search[2 * STRAIT_PATH_MAX];
    strait_program_folder(own);
    CHECK(snprintf(search, sizeof search, ":%s", folder.path) > 0);
    assert_int_equal(setenv("PATH", search, 1), 0);
    CHECK_FAILS(strait_program_path(path), STRAIT_ECONFIG, "strait_set_program");
    CHECK(strstr(strait_err_detail(), own) != NULL);
    const char *program = scratch_at(&folder, "strait");
    CHECK_OK(strait_file_write(program, "", 0));
    CHECK_FAILS(strait_program_path(path), STRAIT_ECONFIG, "PATH"); // it cannot be executed
    assert_int_equal(chmod(program, 0755), 0);
    CHECK_OK(strait_program_path(path));
    assert_string_equal(path, program);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_the_program_that_was_set),
        cmocka_unit_test(rejects_a_path_that_is_too_long),
        cmocka_unit_test(finds_the_program_in_path_or_says_where_it_looked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
