/* Where CUDA's libraries and the module file are searched, and errors when they are missing. */
#include "backend/cuda/library.h"
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void names_missing_libraries(void **state) {
    (void)state;
    char path[STRAIT_CUDA_PATH];
    void *library = NULL;
    assert_int_equal(setenv("STRAIT_CUDA_LIBS", "/nowhere:/nowhere/else", 1), 0);
    CHECK_FAILS(strait_cuda_library_open("libabacus.so.7", path, &library), STRAIT_ENOTSUP,
                "libabacus.so.7 not found");
    CHECK(strstr(strait_err_detail(), "/nowhere:/nowhere/else") != NULL);
    CHECK(strstr(strait_err_detail(), "/usr/local/cuda/lib64") != NULL);
    assert_null(library);
    assert_int_equal(unsetenv("STRAIT_CUDA_LIBS"), 0);
}

static void opens_libraries_and_functions(void **state) {
    (void)state;
    static const char *const names[] = {"cos", "sin"}, *const wrong[] = {"cos", "cosine_of_tea"};
    struct {
        double (*first)(double), (*second)(double);
    } table = {NULL, NULL};
    char path[STRAIT_CUDA_PATH];
    void *library = NULL;
    CHECK_OK(strait_cuda_library_open("libm.so.6", path, &library));
    CHECK(path[0] == '/' && strstr(path, "libm.so.6") != NULL);
    CHECK_OK(strait_cuda_library_table(library, names, 2, &table));
    CHECK_NEAR(table.first(0), 1, 0);
    CHECK_NEAR(table.second(0), 0, 0);
    CHECK_FAILS(strait_cuda_library_table(library, wrong, 2, &table), STRAIT_ENOTSUP,
                "cosine_of_tea");
}

static void finds_module_by_environment(void **state) {
    (void)state;
    char path[STRAIT_CUDA_PATH];
    assert_int_equal(setenv("STRAIT_CUDA_MODULE", "/nowhere/strait.cuda", 1), 0);
    CHECK_FAILS(strait_cuda_module_path(path), STRAIT_ENOTSUP, "/nowhere/strait.cuda");
    assert_int_equal(setenv("STRAIT_CUDA_MODULE", "/proc/self/exe", 1), 0);
    CHECK_OK(strait_cuda_module_path(path));
    assert_string_equal(path, "/proc/self/exe");
    assert_int_equal(unsetenv("STRAIT_CUDA_MODULE"), 0);
}

/* Next to this test program, where one may exist already: it is not touched. */
static void finds_module_next_to_program(void **state) {
    (void)state;
    char self[STRAIT_CUDA_PATH] = "", path[STRAIT_CUDA_PATH], adjacent[STRAIT_CUDA_PATH];
    assert_int_equal(unsetenv("STRAIT_CUDA_MODULE"), 0);
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *strrchr(self, '/') = '\0';
    CHECK(snprintf(adjacent, sizeof adjacent, "%s/strait.cuda", self) < (int)sizeof adjacent);
    const int is_there = access(adjacent, F_OK) == 0;
    if (!is_there) {
        CHECK_FAILS(strait_cuda_module_path(path), STRAIT_ENOTSUP, self);
        FILE *file = fopen(adjacent, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
    const strait_err err = strait_cuda_module_path(path);
    if (!is_there) assert_int_equal(remove(adjacent), 0);
    CHECK_OK(err);
    assert_string_equal(path, adjacent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_missing_libraries),
        cmocka_unit_test(opens_libraries_and_functions),
        cmocka_unit_test(finds_module_by_environment),
        cmocka_unit_test(finds_module_next_to_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
