/* Every error in a file names its line and column. */
#include "base/alloc.h"
#include "check.h"
#include "options_table.h"

#include <stdlib.h>

#define REFUSES(text, words)                                                       \
    do {                                                                           \
        CHECK_FAILS(load(text, &t), STRAIT_ECONFIG, words);                        \
        assert_ptr_equal(strstr(strait_err_detail(), words), strait_err_detail()); \
        assert_null(strchr(strait_err_detail(), '\n'));                            \
    } while (0)

static void test_block_and_flow_style_are_the_same(void **state) {
    (void)state;
    thing a;
    thing b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    CHECK_OK(load("# a comment\n"
                  "title: \"two words\"\n"
                  "box:\n"
                  "  size: 12\n"
                  "  fast: true\n"
                  "link:\n"
                  "  cuts:\n"
                  "    - 1\n"
                  "    - 2\n"
                  "  emulate:\n"
                  "    delay: 25ms\n",
                  &a));
    CHECK_OK(load("{title: two words, box: {fast: true, size: 12},"
                  " link: {emulate: {delay: \"25ms\"}, cuts: [1, 2]}}",
                  &b));
    assert_memory_equal(&a, &b, sizeof a);
    CHECK(a.size == 12 && a.cuts.n == 2 && a.delay == 0.025);
    CHECK_OK(load("box.size: 12\nlink.emulate: {delay: 25ms}", &b));
    CHECK(b.size == 12 && b.delay == 0.025);
}

static void test_reads_paths_as_text_or_list(void **state) {
    (void)state;
    thing t;
    CHECK_OK(load("box: {parts: \"a.bin,b c.bin\"}", &t));
    assert_string_equal(t.parts, "a.bin,b c.bin");
    CHECK_OK(load("box:\n  parts:\n    - a.bin\n    - \"b c.bin\"\n", &t));
    assert_string_equal(t.parts, "a.bin,b c.bin");
    REFUSES("box: {parts: []}", "T.yaml:1:14: box.parts: has no value");
    REFUSES("box: {parts: [{a: 1}]}", "T.yaml:1:16: box.parts: expected the keys path and weight");
    REFUSES("box: {parts: [[a]]}", "T.yaml:1:15: box.parts: expected a list of paths");
    REFUSES("box: {file: [a]}", "T.yaml:1:13: box.file: does not take a list");
}

static void test_reads_sources_with_weights(void **state) {
    (void)state;
    thing t;
    CHECK_OK(
        load("box:\n  parts:\n    - {path: a/*.bin, weight: 3}\n    - weight: 0.5\n      path: b\n",
             &t));
    assert_string_equal(t.parts, "a/*.bin:3,b:0.5");
    REFUSES("box: {parts: [{path: a}]}", "T.yaml:1:15: box.parts: expected a path and a weight");
    REFUSES("box: {parts: [{path: a, weight: 0}]}",
            "T.yaml:1:15: box.parts: expected a path and a weight");
    REFUSES("box: {parts: [{path: a, weight: x}]}",
            "T.yaml:1:15: box.parts: expected a path and a weight");
    REFUSES("box: {parts: [{path: a, path: b}]}", "T.yaml:1:25: box.parts: path is given twice");
    REFUSES("box: {parts: [{path: [a]}]}", "T.yaml:1:22: box.parts: expected a text");
    REFUSES("box: {parts: [{path: \"a,b\", weight: 1}]}", "T.yaml:1:22: box.parts: empty, too");
    REFUSES("link: {cuts: [{path: a, weight: 1}]}",
            "T.yaml:1:15: link.cuts: expected a list of whole numbers");
}

/* Some editors write a byte order mark at the start of a file. */
static void test_skips_a_byte_order_mark(void **state) {
    (void)state;
    thing t;
    CHECK_OK(load("\xef\xbb\xbf"
                  "box: {size: 9}\r\ntitle: x\r\n",
                  &t));
    CHECK(t.size == 9 && strcmp(t.title, "x") == 0);
    CHECK_OK(load("\xef\xbb\xbf", &t));
    REFUSES("\xef\xbb\xbf"
            "box: {siez: 9}",
            "T.yaml:1:7: unknown key");
}

static void test_accepts_empty_files_and_sections(void **state) {
    (void)state;
    thing t;
    CHECK_OK(load("", &t));
    CHECK_OK(load("# nothing\n", &t));
    CHECK_OK(load("---\n", &t));
    CHECK_OK(load("box:\nlink: {}\n", &t));
    CHECK_OK(load("box: ~\nlink: null\n", &t));
    assert_int_equal(t.size, 8);
}

static void test_wrong_values_name_their_place(void **state) {
    (void)state;
    thing t;
    REFUSES("title: x\n\nbox:\n  size: fast\n",
            "T.yaml:4:9: box.size: \"fast\" is not a whole number");
    REFUSES("box: {size: 3, share: 7}",
            "T.yaml:1:23: box.share: \"7\" is out of bounds: expected a number, -1 to 0.5");
    REFUSES("box: {colour: blue}", "T.yaml:1:15: box.colour: \"blue\" is not one of red, green, ");
    REFUSES(
        "box: {size: \"3\"}",
        "T.yaml:1:13: box.size: \"3\" is text, expected whole number, 1 to 64: drop the quotes");
    REFUSES("box:\n  size:\n", "T.yaml:2:8: box.size: has no value");
    REFUSES("box: {size: ~}", "T.yaml:1:13: box.size: has no value");
    REFUSES("title: |\n  two\n  lines\n", "T.yaml:1:8: title: \"two?lines?\" is not printable");
    REFUSES("title: \"a\\0b\"", "T.yaml:1:8: the text contains a zero byte");
    REFUSES("link: {cuts: [1, x]}", "T.yaml:1:14: link.cuts: \"x\" is not a whole number");
}

static void test_wrong_keys_name_their_place(void **state) {
    (void)state;
    thing t;
    REFUSES("box:\n  siez: 3\n", "T.yaml:2:3: unknown key \"box.siez\"; did you mean box.size?");
    REFUSES("bxo: {size: 3}", "T.yaml:1:1: unknown key \"bxo\"; did you mean box?");
    REFUSES("box: {size: 3, size: 4}", "T.yaml:1:16: box.size: given twice, first at line 1");
    REFUSES("box: {size: 3}\nlink:\nbox: {share: 0}",
            "T.yaml:3:1: box: given twice; put its keys together");
    REFUSES("box: {size: 3}\nbox.size: 4", "T.yaml:2:1: box.size: given twice, first at line 1");
    REFUSES("[box]: 3", "T.yaml:1:1: expected a key");
    REFUSES("? {a: b}\n: 3", "T.yaml:1:3: expected a key");
    REFUSES("\"a\\0\": 3", "T.yaml:1:1: the text contains a zero byte");
    REFUSES("<<: {a: 1}", "T.yaml:1:1: unknown key \"<<\"");
}

static void test_wrong_structure_names_its_place(void **state) {
    (void)state;
    thing t;
    REFUSES("box: 3", "T.yaml:1:6: box: is a section, expected keys such as box.size");
    REFUSES("box: [3]", "T.yaml:1:6: box: does not take a list");
    REFUSES("box: {size: [3]}", "T.yaml:1:13: box.size: does not take a list");
    REFUSES("box: {size: {a: 3}}", "T.yaml:1:13: box.size: is a map, expected whole number");
    REFUSES("link: {cuts: [[1]]}", "T.yaml:1:15: link.cuts: expected a list of whole numbers");
    REFUSES("link: {cuts: {a: 1}}", "T.yaml:1:14: link.cuts: is a map, expected list of whole");
    REFUSES("just words", "T.yaml:1:1: expected sections such as \"train:\" with keys");
    REFUSES("- 1\n- 2", "T.yaml:1:1: expected sections");
    REFUSES("box: {size: 3}\n---\nbox: {size: 4}", "T.yaml:2:1: a second document");
}

static void test_rejects_anchors_aliases_and_tags(void **state) {
    (void)state;
    thing t;
    REFUSES("box: &b {size: 3}", "T.yaml:1:6: anchors are not supported");
    REFUSES("link: {cuts: &b [3]}", "T.yaml:1:14: anchors are not supported");
    REFUSES("title: &t x", "T.yaml:1:8: anchors are not supported");
    REFUSES("title: *t", "T.yaml:1:8: aliases are not supported");
    REFUSES("title: !!str x", "T.yaml:1:8: tags are not supported");
    REFUSES("box: !box {size: 3}", "T.yaml:1:6: tags are not supported");
    REFUSES("box: {size: 3", "T.yaml:2:1: not valid YAML: did not find expected");
    REFUSES("title: x\nbox:\n  size: 3\n \tcolour: red", "T.yaml:4:2: not valid YAML: a tab");
    REFUSES("box: {size: 3]", "T.yaml:1:14: not valid YAML: did not find expected");
    REFUSES("box:\n\tsize: 3", "T.yaml:2:1: not valid YAML: a tab; indent with spaces");
    REFUSES("title: \"\xff\"", "T.yaml: not valid YAML: byte 8: invalid leading UTF-8 octet");
}

static void test_rejects_large_and_deep_files(void **state) {
    (void)state;
    thing t;
    enum {
        LARGE = (1 << 20) + 1
    };
    void *memory = NULL;
    CHECK_OK(strait_alloc(LARGE + 1, 1, "text", &memory));
    char *text = memory;
    memset(text, ' ', LARGE);
    CHECK_FAILS(load(text, &t), STRAIT_ECONFIG, "T.yaml: 1048577 bytes, more than the 1048576");
    memset(text, '[', LARGE - 1);
    text[LARGE - 1] = '\0';
    CHECK_FAILS(load(text, &t), STRAIT_ECONFIG, "T.yaml:1:1: expected sections");
    memset(text, '{', LARGE - 1);
    CHECK_FAILS(load(text, &t), STRAIT_ECONFIG, "T.yaml:1:2: expected a key");
    memcpy(text, "link: {cuts: [", 14);
    memset(text + 14, '1', 4000);
    memcpy(text + 4014, "]}", 3);
    CHECK_FAILS(load(text, &t), STRAIT_ECONFIG, "T.yaml:1:15: link.cuts: the list is too long");
    strait_alloc_free(text);
}

static void test_reads_a_file_without_final_newline(void **state) {
    (void)state;
    thing t;
    const strait_options_source source = {
        .name = "T.yaml", .text = "box: {size: 34}XX", .bytes = 15};
    CHECK_OK(strait_options_load(&table, &source, &t, NULL));
    assert_int_equal(t.size, 34);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_and_flow_style_are_the_same),
        cmocka_unit_test(test_reads_paths_as_text_or_list),
        cmocka_unit_test(test_reads_sources_with_weights),
        cmocka_unit_test(test_skips_a_byte_order_mark),
        cmocka_unit_test(test_accepts_empty_files_and_sections),
        cmocka_unit_test(test_wrong_values_name_their_place),
        cmocka_unit_test(test_wrong_keys_name_their_place),
        cmocka_unit_test(test_wrong_structure_names_its_place),
        cmocka_unit_test(test_rejects_anchors_aliases_and_tags),
        cmocka_unit_test(test_rejects_large_and_deep_files),
        cmocka_unit_test(test_reads_a_file_without_final_newline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
