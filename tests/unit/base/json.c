/* JSON documents with our errors. */
#include "base/json.h"

#include "base/file.h"
#include "check.h"
#include "scratch.h"

static void members_have_their_kinds(void **state) {
    (void)state;
    static const char text[] =
        "{\"s\": \"x\", \"i\": -7, \"a\": [1], \"o\": {\"k\": 1}, \"r\": 1.5}";
    json_t *document = NULL;
    const char *string = NULL;
    int64_t number = 0;
    const json_t *value = NULL;
    CHECK_OK(strait_json_parse(text, sizeof text - 1, &document));
    CHECK_OK(strait_json_string(document, "s", &string));
    assert_string_equal(string, "x");
    CHECK_OK(strait_json_int(document, "i", &number));
    assert_int_equal(number, -7);
    CHECK_OK(strait_json_array(document, "a", &value));
    assert_int_equal(json_array_size(value), 1);
    CHECK_OK(strait_json_object(document, "o", &value));
    CHECK_OK(strait_json_int(value, "k", &number));
    CHECK_FAILS(strait_json_string(document, "i", &string), STRAIT_EDATA, "\"i\" is not a string");
    CHECK_FAILS(strait_json_int(document, "r", &number), STRAIT_EDATA, "not an integer");
    CHECK_FAILS(strait_json_array(document, "o", &value), STRAIT_EDATA, "\"o\" is not an array");
    CHECK_FAILS(strait_json_object(document, "a", &value), STRAIT_EDATA, "not an object");
    CHECK_FAILS(strait_json_object(document, "z", &value), STRAIT_EDATA, "\"z\" is missing");
    json_decref(document);
}

static void reports_position_of_bad_text(void **state) {
    (void)state;
    json_t *document = NULL;
    CHECK_FAILS(strait_json_parse("{\n\"a\": }", 8, &document), STRAIT_EDATA, "line 2, column 6");
    CHECK_FAILS(strait_json_parse("{\"a\": 1, \"a\": 2}", 16, &document), STRAIT_EDATA,
                "duplicate");
    CHECK_FAILS(strait_json_parse("[1] 2", 5, &document), STRAIT_EDATA, "line 1");
    assert_null(document);
}

static void files_are_replaced_and_loaded(void **state) {
    (void)state;
    scratch folder = scratch_open();
    const char *path = scratch_at(&folder, "x.json");
    json_t *document = json_pack("{s:i, s:[b]}", "z", 3, "a", 1);
    json_t *again = NULL;
    CHECK_OK(strait_json_replace(path, document));
    CHECK_OK(strait_json_load(path, 1000, &again));
    assert_true(json_equal(document, again));
    json_decref(document);
    json_decref(again);
    CHECK_FAILS(strait_json_load(path, 5, &again), STRAIT_EDATA, "more than the 5 allowed");
    CHECK_OK(strait_file_write(path, "{", 1));
    CHECK_FAILS(strait_json_load(path, 1000, &again), STRAIT_EDATA, "x.json: line 1");
    CHECK_FAILS(strait_json_load(scratch_at(&folder, "gone"), 10, &again), STRAIT_EIO, "gone");
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_their_kinds),
        cmocka_unit_test(reports_position_of_bad_text),
        cmocka_unit_test(files_are_replaced_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
