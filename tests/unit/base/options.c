#include "base/options/options.h"

#include "base/alloc.h"
#include "check.h"
#include "options_table.h"

#include <stdio.h>
#include <stdlib.h>

static void test_defaults_come_from_the_table(void **state) {
    (void)state;
    thing t;
    memset(&t, 0xA5, sizeof t);
    CHECK_OK(load("", &t));
    assert_string_equal(t.title, "none");
    CHECK(t.size == 8 && t.share == 0.25 && t.is_fast == 0 && t.colour == 0 && t.deep == 0);
    CHECK(t.cuts.n == 0 && t.delay == 0 && t.speed == 0 && t.memory == 0);
    assert_string_equal(t.file, "");
}

static void test_overrides_set_options_of_every_kind(void **state) {
    (void)state;
    static const char *const sets[] = {"title=a=b",
                                       "box.size=64",
                                       "box.share=-1e-1",
                                       "box.fast=yes",
                                       "box.colour=dark-blue",
                                       "box.file=x/y",
                                       "link.cuts=3,4, 99",
                                       "link.memory=2MiB",
                                       "link.emulate.delay=25ms",
                                       "link.emulate.speed=80mbit",
                                       "link.deep=-5"};
    const strait_options_source source = {
        .name = "", .text = "", .sets = sets, .n_sets = 11, .set_folder = "/here"};
    thing t;
    CHECK_OK(strait_options_load(&table, &source, &t, NULL));
    assert_string_equal(t.title, "a=b");
    CHECK(t.size == 64 && t.share == -0.1 && t.is_fast == 1 && t.colour == 2 && t.deep == -5);
    assert_string_equal(t.file, "/here/x/y");
    CHECK(t.cuts.n == 3 && t.cuts.items[0] == 3 && t.cuts.items[2] == 99);
    CHECK(t.delay == 0.025 && t.speed == 80e6 && t.memory == 2 << 20);
}

static void test_reads_and_shows_units(void **state) {
    (void)state;
    thing t;
    static const struct {
        const char *set;
        double seconds;
    } delays[] = {{"link.emulate.delay=1.5s", 1.5},
                  {"link.emulate.delay=10us", 10e-6},
                  {"link.emulate.delay=0.1min", 6},
                  {"link.emulate.delay=0", 0},
                  {"link.emulate.delay=0.001h", 3.6}};
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        CHECK_OK(load_set("", delays[i].set, &t));
        CHECK_NEAR(t.delay, delays[i].seconds, 1e-12);
    }
    CHECK_OK(load_set("", "link.memory=1500", &t));
    assert_int_equal(t.memory, 1500);
    CHECK_OK(load_set("", "link.memory=1.5GB", &t));
    assert_int_equal(t.memory, 1500000000);
    CHECK_OK(load_set("", "link.emulate.speed=1.5kbit", &t));
    CHECK(t.speed == 1500);
}

#define REFUSES(set, words) CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, set ": " words)

static void test_refuses_wrong_numbers(void **state) {
    (void)state;
    thing t;
    REFUSES("box.size=fast", "\"fast\" is not a whole number");
    REFUSES("box.size=1.5", "\"1.5\" is not a whole number");
    REFUSES("box.size= 5", "\" 5\" is not a whole number");
    REFUSES("box.size=", "\"\" is not a whole number");
    REFUSES("box.size=65", "\"65\" is out of bounds: expected a whole number, 1 to 64");
    REFUSES("box.size=0", "\"0\" is out of bounds");
    REFUSES("link.deep=99999999999999999999",
            "\"99999999999999999999\" is not a number of at most 18 digits");
    REFUSES("box.share=0.6", "\"0.6\" is out of bounds: expected a number, -1 to 0.5");
    REFUSES("box.share=0x1", "\"0x1\" is not a number");
    REFUSES("box.share=nan", "\"nan\" is not a number");
    REFUSES("box.share=inf", "\"inf\" is not a number");
    REFUSES("box.share=1e999", "\"1e999\" is not a number");
    REFUSES("box.share=1 2", "\"1 2\" is not a number");
    REFUSES("box.share=-", "\"-\" is not a number");
}

static void test_refuses_wrong_values(void **state) {
    (void)state;
    thing t;
    REFUSES("box.fast=maybe", "\"maybe\" is not true or false");
    REFUSES("box.colour=blue", "\"blue\" is not one of red, green, dark-blue");
    REFUSES("title=0123456789abcdef", "longer than 15 bytes");
    CHECK_FAILS(load_set("", "title=a\xff", &t), STRAIT_ECONFIG, "\"a?\" is not printable UTF-8");
    CHECK_FAILS(load_set("", "title=\xc0\x80", &t), STRAIT_ECONFIG,
                "\"??\" is not printable UTF-8");
    CHECK_FAILS(load_set("", "title=\xed\xa0\x80", &t), STRAIT_ECONFIG,
                "\"???\" is not printable UTF-8");
    CHECK_FAILS(load_set("", "title=a\tb", &t), STRAIT_ECONFIG, "\"a?b\" is not printable UTF-8");
    REFUSES("link.cuts=automatic", "\"automatic\" is not a whole number");
    REFUSES("link.cuts=1,x", "\"x\" is not a whole number");
    REFUSES("link.cuts=1,,2", "\"\" is not a whole number");
    REFUSES("link.cuts=100", "\"100\" is out of bounds: expected a list of whole numbers, 0 to 99");
    REFUSES("link.cuts=[1]2", "\"[1]2\" is not a list of whole numbers");
    REFUSES("link.cuts=[1,2", "\"[1,2\" is not a list of whole numbers");
    REFUSES("link.cuts=1,2]", "\"1,2]\" is not a list of whole numbers");
    REFUSES("link.cuts=[[1]]", "\"[1\" is not a whole number");
    REFUSES("link.cuts=0000000000000000000000001",
            "\"0000000000000000000000001\" is not a list of whole numbers");
    REFUSES("link.emulate.delay=5", "\"5\" is not a duration such as 25ms or 1.5s, 0s to 10s");
    REFUSES("link.emulate.delay=5parsec", "\"5parsec\" is not a duration");
    REFUSES("link.emulate.delay=11s", "\"11s\" is out of bounds: expected a duration");
    REFUSES("link.emulate.speed=-1mbit", "\"-1mbit\" is not zero or more");
    REFUSES("link.emulate.speed=mbit", "\"mbit\" is not a rate such as 80mbit or 1gbit");
    REFUSES("link.memory=9000TiB", "\"9000TiB\" is not a size below 8 PiB");
    CHECK_OK(load_set("", "title=\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", &t));
    CHECK_OK(load_set("", "link.memory=8000TiB", &t));
}

static void test_limits_of_lists_and_paths(void **state) {
    (void)state;
    thing t;
    char set[STRAIT_OPTION_TEXT_MAX + 64] = "link.cuts=0";
    for (int i = 1; i < STRAIT_OPTION_INTS_MAX; i++)
        (void)snprintf(set + strlen(set), 8, ",%d", i);
    CHECK_OK(load_set("", set, &t));
    assert_int_equal(t.cuts.n, STRAIT_OPTION_INTS_MAX);
    (void)snprintf(set + strlen(set), 8, ",7");
    CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, "more than 64 numbers");
    (void)snprintf(set, sizeof set, "box.file=%060d", 0);
    CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, "longer than 63 bytes with its folder");
    (void)snprintf(set, sizeof set, "box.parts=%026d,%026d", 0, 0);
    CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, "longer than 63 bytes with its folder");
    memset(set, 'k', sizeof set - 1);
    set[sizeof set - 1] = '\0';
    set[sizeof set - 2] = '=';
    CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, "expected section.key=value");
}

static void test_unknown_keys_name_the_nearest(void **state) {
    (void)state;
    thing t;
    REFUSES("box.siz=1", "unknown key \"box.siz\"; did you mean box.size?");
    REFUSES("link.emulated.delay=1s", "unknown key \"link.emulated.delay\"; did you mean "
                                      "link.emulate.delay?");
    REFUSES("colour=red", "unknown key \"colour\"; did you mean box.colour?");
    REFUSES("box.5=1", "unknown key \"box.5\"; \"strait options box\" lists those of box");
    REFUSES("elephant=1", "unknown key \"elephant\"; \"strait options\" lists all");
    REFUSES("=1", "unknown key \"\"; \"strait options\" lists all");
    REFUSES("box=1", "box is a section; set a key of it, such as box.size");
    REFUSES("box.size", "expected section.key=value");
    char set[400];
    memset(set, 'x', sizeof set);
    (void)snprintf(set + 300, 8, "=1");
    CHECK_FAILS(load_set("", set, &t), STRAIT_ECONFIG, "xxx...\"; \"strait options\" lists all");
}

static void test_user_settings_override_presets(void **state) {
    (void)state;
    thing t;
    CHECK_OK(load("box: {size: 3, colour: green}", &t));
    CHECK(t.size == 3 && t.share == -0.5 && t.colour == 1);
    CHECK_OK(load("box: {colour: green, size: 3}", &t));
    CHECK(t.size == 3 && t.share == -0.5);
    CHECK_OK(load_set("box: {size: 3}", "box.colour=green", &t));
    CHECK(t.size == 3 && t.share == -0.5);
    CHECK_OK(load_set("box: {colour: green}", "box.colour=red", &t));
    CHECK(t.size == 8 && t.share == 0.25);
    CHECK_OK(load("box: {colour: green, fast: true}", &t));
    CHECK(t.size == 32 && t.deep == 7);
    CHECK_OK(load("{title: swift, box: {fast: true}}", &t)); // the later preset wins
    assert_int_equal(t.deep, 9);
    CHECK_OK(load("title: swift", &t)); // needs both options
    assert_int_equal(t.deep, 0);
}

static void test_later_overrides_win(void **state) {
    (void)state;
    const char *const sets[] = {"box.size=4", "box.size=5"};
    const strait_options_source source = {
        .name = "T.yaml", .text = "box: {size: 3}", .bytes = 14, .sets = sets, .n_sets = 2};
    thing t;
    CHECK_OK(strait_options_load(&table, &source, &t, NULL));
    assert_int_equal(t.size, 5);
}

static void test_relative_paths_start_at_the_folder_of_their_source(void **state) {
    (void)state;
    static const struct {
        const char *text, *set, *file, *parts;
    } cases[] = {
        {"box: {file: a.bin}", "title=x", "/data/a.bin", ""},
        {"box: {file: /a.bin}", "title=x", "/a.bin", ""},
        {"box: {file: a.bin}", "box.file=b.bin", "/here/b.bin", ""},
        {"box: {file: \"a,b.bin\"}", "title=x", "/data/a,b.bin", ""},
        {"box: {parts: \"a.bin,/b.bin,c/d.bin\"}", "title=x", "",
         "/data/a.bin,/b.bin,/data/c/d.bin"},
        {"", "box.parts=a.bin,,b.bin", "", "/here/a.bin,,/here/b.bin"},
    };
    thing t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(load_set(cases[i].text, cases[i].set, &t));
        assert_string_equal(t.file, cases[i].file);
        assert_string_equal(t.parts, cases[i].parts);
    }
    CHECK_OK(load("box: {file: a.bin}", &t));
    assert_string_equal(t.file, "a.bin");
}

static void check_renders(const char *text, const char *expected) {
    thing t;
    thing again;
    memset(&t, 0, sizeof t);
    memset(&again, 0, sizeof again);
    CHECK_OK(load(text, &t));
    char out[4096];
    const size_t bytes = strait_options_render(&table, &t, NULL, out, sizeof out);
    assert_int_equal(bytes, strlen(out));
    assert_int_equal(strait_options_render(&table, &t, NULL, NULL, 0), bytes);
    CHECK(strstr(out, expected) != NULL);
    CHECK_OK(load(out, &again));
    assert_memory_equal(&t, &again, sizeof t);
}

static void test_rendered_text_loads_to_the_same_values(void **state) {
    (void)state;
    check_renders("", "title: \"none\"\nbox:\n  size: 8\n  share: 0.25\n  fast: false\n"
                      "  colour: red\n  file: \"\"\n  parts: \"\"\nlink:\n  cuts: auto\n  "
                      "emulate:\n    delay: 0s\n"
                      "    speed: 0bit\n  memory: 0B\n  deep: 0\n");
    check_renders("title: 'say \"\\'", "title: \"say \\\"\\\\\"");
    check_renders("title: '# no'", "title: \"# no\"");
    check_renders("link: {cuts: [1, 2, 3]}", "cuts: [1, 2, 3]");
    check_renders("link: {emulate: {delay: 25ms, speed: 80mbit}}",
                  "delay: 25ms\n    speed: 80mbit");
    check_renders("link: {emulate: {delay: 1500ms, speed: 1234.5bit}}",
                  "delay: 1500ms\n    speed: 1234.5bit");
    check_renders("link: {emulate: {delay: 0.3333333333333333s}}", "delay: 0.3333333333333333s");
    check_renders("link: {memory: 3GiB}", "memory: 3GiB");
    check_renders("link: {memory: 1000001}", "memory: 1000001B");
    check_renders("box: {share: 0.1}", "share: 0.1\n");
    check_renders("box: {share: -1e-300}", "share: -1e-300");
    check_renders("box: {colour: dark-blue, fast: on}", "fast: true\n  colour: dark-blue");
}

static void test_render_never_exceeds_the_capacity(void **state) {
    (void)state;
    thing t;
    CHECK_OK(load("", &t));
    char out[8];
    memset(out, 'x', sizeof out);
    CHECK(strait_options_render(&table, &t, NULL, out, 6) > 100);
    assert_string_equal(out, "title");
    CHECK(out[6] == 'x');
}

static void test_describes_bounds_and_choices(void **state) {
    (void)state;
    char out[STRAIT_OPTION_TEXT_MAX];
    static const char *const expected[] = {"text",
                                           "whole number, 1 to 64",
                                           "number, -1 to 0.5",
                                           "true or false",
                                           "one of red, green, dark-blue",
                                           "path",
                                           "path, or several separated by commas",
                                           "list of whole numbers, 0 to 99",
                                           "duration such as 25ms or 1.5s, 0s to 10s",
                                           "rate such as 80mbit or 1gbit",
                                           "size such as 64MiB or 2GiB",
                                           "whole number"};
    for (int i = 0; i < table.n_rows; i++) {
        strait_options_describe(&table.rows[i], out);
        assert_string_equal(out, expected[i]);
    }
    assert_ptr_equal(strait_options_find(&table, "link.memory"), &rows[10]);
    assert_null(strait_options_find(&table, "link"));
}

static void test_survives_any_failing_allocation(void **state) {
    (void)state;
    thing t;
    int n_failed = 0;
    for (int n = 1;; n++, n_failed++) {
        strait_alloc_fail_at(n);
        const strait_err err = load("box: {size: 3, colour: green}\ntitle: x", &t);
        strait_alloc_fail_at(0);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
    }
    assert_int_equal(n_failed, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_come_from_the_table),
        cmocka_unit_test(test_overrides_set_options_of_every_kind),
        cmocka_unit_test(test_reads_and_shows_units),
        cmocka_unit_test(test_refuses_wrong_numbers),
        cmocka_unit_test(test_refuses_wrong_values),
        cmocka_unit_test(test_limits_of_lists_and_paths),
        cmocka_unit_test(test_unknown_keys_name_the_nearest),
        cmocka_unit_test(test_user_settings_override_presets),
        cmocka_unit_test(test_later_overrides_win),
        cmocka_unit_test(test_relative_paths_start_at_the_folder_of_their_source),
        cmocka_unit_test(test_rendered_text_loads_to_the_same_values),
        cmocka_unit_test(test_render_never_exceeds_the_capacity),
        cmocka_unit_test(test_describes_bounds_and_choices),
        cmocka_unit_test(test_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
