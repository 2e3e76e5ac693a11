/* hf_folder.c - indexes of sharded models: what they may name, and what they must not. */
#include "convert/hf_folder.h"

#include "check.h"

static strait_err parse(const char *text, struct strait_hf_index **out) {
    return strait_hf_index_parse(text, strlen(text), out);
}

static void finds_the_file_of_each_tensor(void **state) {
    (void)state;
    struct strait_hf_index *index = NULL;
    CHECK_OK(parse("{\"metadata\": {\"total_size\": 3}, \"weight_map\": {\"a\": \"1.safetensors\", "
                   "\"b\": \"2.safetensors\", \"c\": \"1.safetensors\"}}",
                   &index));
    assert_int_equal(strait_hf_index_files(index), 2);
    assert_string_equal(strait_hf_index_file(index, 1), "2.safetensors");
    assert_int_equal(strait_hf_index_find(index, "c"), 0);
    assert_int_equal(strait_hf_index_find(index, "b"), 1);
    assert_int_equal(strait_hf_index_find(index, "d"), -1);
    strait_hf_index_close(&index);
}

static void refuses_names_that_leave_the_folder(void **state) {
    (void)state;
    static const char *const names[] = {
        "../x.safetensors", "/x.safetensors", "a/b.safetensors",  "x.bin",
        ".safetensors",     ".x.safetensors", "a\\nb.safetensors"};
    struct strait_hf_index *index = NULL;
    char text[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(text, sizeof text, "{\"weight_map\": {\"t\": \"%s\"}}", names[i]);
        CHECK_FAILS(parse(text, &index), STRAIT_EDATA, "tensor \"t\" is not in");
    }
    CHECK_FAILS(parse("{\"weight_map\": {\"t\": 5}}", &index), STRAIT_EDATA, "tensor \"t\"");
    CHECK_FAILS(parse("{\"weight_map\": {}}", &index), STRAIT_EDATA, "no tensors");
    CHECK_FAILS(parse("{}", &index), STRAIT_EDATA, "weight_map");
    CHECK_FAILS(parse("[1]", &index), STRAIT_EDATA, "not a JSON object");
    CHECK_FAILS(parse("{", &index), STRAIT_EDATA, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_file_of_each_tensor),
        cmocka_unit_test(refuses_names_that_leave_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
