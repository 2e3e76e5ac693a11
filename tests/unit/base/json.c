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
    CHECK_FAILS(strait_json_parse_line("[1] 2", 5, &document), STRAIT_EDATA, "column 5: ");
    CHECK_FAILS(strait_json_parse_line("[\"\\u0000\"]", 10, &document), STRAIT_EDATA,
                "column 9: the character NUL");
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

/* Bytes that are not UTF-8 become U+FFFD; everything else stays. */
static void writes_any_bytes_as_text(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"plain", "plain"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\xffz", "a\xef\xbf\xbdz"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *text = strait_json_text(cases[i].bytes, strlen(cases[i].bytes));
        assert_non_null(text);
        assert_string_equal(json_string_value(text), cases[i].text);
        json_decref(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_their_kinds),
        cmocka_unit_test(reports_position_of_bad_text),
        cmocka_unit_test(files_are_replaced_and_loaded),
        cmocka_unit_test(writes_any_bytes_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
