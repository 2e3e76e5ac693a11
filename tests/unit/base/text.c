/* What is done to texts before people see them. */
#include "base/text/text.h"

#include "check.h"

#include <string.h>

static void becomes(const char *from, const char *expected) {
    char text[64];
    (void)snprintf(text, sizeof text, "%s", from);
    strait_text_tame(text);
    assert_string_equal(text, expected);
}

static void replaces_what_controls_a_terminal(void **state) {
    (void)state;
    becomes("", "");
    becomes("a\n\x1b[2J\x7f b", "a??[2J? b");
    becomes("\xc2\x9b"
            "1m",
            "??1m"); // CSI as a C1 character
    becomes("a\xe2\x80\xae"
            "b\xe2\x81\xa6"
            "c",
            "a???b???c");                            // right-to-left override, isolate
    becomes("a\xe2\x80\xa8\xef\xbb\xbf", "a??????"); // line separator, byte order mark
}

static void keeps_characters_of_all_scripts(void **state) {
    (void)state;
    static const char *const kept[] = {"Zo\xc3\xab", "\xe4\xb8\x96\xe7\x95\x8c", "\xf0\x9f\x9a\x80",
                                       "e\xcc\x81", // e and a combining acute
                                       "\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xae"}; // with a joiner
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        becomes(kept[i], kept[i]);
}

static void replaces_bytes_that_are_not_utf8(void **state) {
    (void)state;
    becomes("a\xff", "a?");
    becomes("\xc3\xa9\xc3", "\xc3\xa9?"); // cut off
    becomes("\xc0\x80 \xed\xa0\x80", "?? ???");
    becomes("\xf5\x80\x80\x80", "????");
}

static void copies_whole_characters(void **state) {
    (void)state;
    char out[6];
    strait_text_copy(out, sizeof out, "abcde");
    assert_string_equal(out, "abcde");
    strait_text_copy(out, sizeof out, "abcdefg");
    assert_string_equal(out, "abcde");
    strait_text_copy(out, sizeof out, "abc\xe4\xb8\x96");
    assert_string_equal(out, "abc");
    strait_text_copy(out, sizeof out, "ab\xe4\xb8\x96\xe4");
    assert_string_equal(out, "ab\xe4\xb8\x96");
    strait_text_copy(out, sizeof out, "a\xf0\x9f\x9a\x80\x80");
    assert_string_equal(out, "a\xf0\x9f\x9a\x80");
}

static void counts_columns(void **state) {
    (void)state;
    assert_int_equal(strait_text_columns(""), 0);
    assert_int_equal(strait_text_columns("Zo\xc3\xab"), 3);
    assert_int_equal(strait_text_columns("\xe4\xb8\x96\xe7\x95\x8c"), 4);
    assert_int_equal(strait_text_columns("e\xcc\x81"), 1);
    assert_int_equal(strait_text_columns("\xf0\x9f\x9a\x80"), 2);
    assert_int_equal(strait_text_columns("\xe2\xa0\x89"), 1); // Braille, of which plots are made
    assert_int_equal(strait_text_columns("a\xff"), 2);
    assert_int_equal(strait_text_fit("a\xe4\xb8\x96", 2), 1); // half a wide character is none
    assert_int_equal(strait_text_fit("a\xe4\xb8\x96", 3), 4);
    assert_int_equal(strait_text_fit("e\xcc\x81z", 1), 3); // a mark stays with its letter
    assert_int_equal(strait_text_fit("abc", 0), 0);
}

static void fills_cells_of_tables(void **state) {
    (void)state;
    char out[12];
    strait_text_cell(out, sizeof out, "ab", 4);
    assert_string_equal(out, "ab  ");
    strait_text_cell(out, sizeof out, "\xe4\xb8\x96\xe7\x95\x8c", 3);
    assert_string_equal(out, "\xe4\xb8\x96 ");
    strait_text_cell(out, sizeof out, "abcdefghijklmnop", 20); // no more than the capacity
    assert_string_equal(out, "abcdefghijk");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_what_controls_a_terminal),
        cmocka_unit_test(keeps_characters_of_all_scripts),
        cmocka_unit_test(replaces_bytes_that_are_not_utf8),
        cmocka_unit_test(copies_whole_characters),
        cmocka_unit_test(counts_columns),
        cmocka_unit_test(fills_cells_of_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
