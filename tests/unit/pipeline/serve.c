/* The lines a stage is started with, and a stage that is told nonsense. */
#include "pipeline/serve.h"

#include "check.h"

#include <stdio.h>
#include <unistd.h>

static void the_start_line_is_read_as_written(void **state) {
    (void)state;
    static strait_serve_start start, back;
    char line[STRAIT_SERVE_LINE];
    start = (strait_serve_start){.stage = 3,
                                 .address = "127.0.0.1:4567",
                                 .scheme = "tls",
                                 .run_path = "/tmp/a folder/run.yaml"};
    for (int i = 0; i < STRAIT_RUN_BYTES; i++)
        start.run_id[i] = (unsigned char)(i * 17);
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        start.conductor.bytes[i] = (unsigned char)(255 - i);
    CHECK_OK(strait_serve_format_start(&start, line));
    assert_int_equal(line[strlen(line) - 1], '\n');
    line[strlen(line) - 1] = '\0';
    CHECK_OK(strait_serve_parse_start(line, &back));
    assert_memory_equal(&start, &back, sizeof start);
    CHECK_FAILS(strait_serve_parse_start("3 tls", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_serve_parse_start("", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_serve_parse_start("3 tls 00ff key address path", &back), STRAIT_EPROTO,
                "the run's id");
    CHECK_FAILS(
        strait_serve_parse_start("3 tls zz112233445566778899aabbccddeeff key a path", &back),
        STRAIT_EPROTO, "the run's id");
    assert_int_not_equal(
        strait_serve_parse_start("3 tls 00112233445566778899aabbccddeeff key a path", &back),
        STRAIT_OK);
}

static void the_answer_is_key_and_address(void **state) {
    (void)state;
    strait_fingerprint key;
    strait_fingerprint back;
    char text[STRAIT_FINGERPRINT_TEXT];
    char line[STRAIT_SERVE_LINE];
    char address[STRAIT_ADDRESS_MAX];
    memset(&key, 0xa5, sizeof key);
    strait_fingerprint_text(&key, text);
    (void)snprintf(line, sizeof line, "%s stage-1", text);
    CHECK_OK(strait_serve_parse_answer(line, &back, address));
    assert_memory_equal(&key, &back, sizeof key);
    assert_string_equal(address, "stage-1");
    CHECK_FAILS(strait_serve_parse_answer(text, &back, address), STRAIT_EPROTO, "key and address");
}

static void a_line_ends_where_it_ends(void **state) {
    (void)state;
    int ends[2];
    char line[STRAIT_SERVE_LINE];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "one\n\ntw", 7), 7);
    CHECK_OK(strait_serve_read_line(ends[0], line));
    assert_string_equal(line, "one");
    CHECK_OK(strait_serve_read_line(ends[0], line));
    assert_string_equal(line, "");
    assert_int_equal(close(ends[1]), 0);
    CHECK_FAILS(strait_serve_read_line(ends[0], line), STRAIT_ECLOSED, "before it had begun");
    assert_int_equal(close(ends[0]), 0);
}

static void a_line_without_an_end_is_refused(void **state) {
    (void)state;
    static char words[STRAIT_SERVE_LINE];
    int ends[2];
    char line[STRAIT_SERVE_LINE];
    memset(words, 'w', sizeof words);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], words, sizeof words), (int)sizeof words);
    CHECK_FAILS(strait_serve_read_line(ends[0], line), STRAIT_EPROTO, "lacks an end");
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

static void a_stage_that_hears_nonsense_ends(void **state) {
    (void)state;
    static const struct {
        const char *line;
        strait_err err;
    } cases[] = {
        {"nonsense\n", STRAIT_EPROTO},
        {"", STRAIT_ECLOSED},
        {"0 tls 00112233445566778899aabbccddeeff "
         "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 127.0.0.1:1 "
         "/no/such/run.yaml\n",
         STRAIT_ECONFIG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int in[2];
        int out[2];
        assert_int_equal(pipe(in) + pipe(out), 0);
        const size_t n = strlen(cases[i].line);
        assert_int_equal(write(in[1], cases[i].line, n), (int)n);
        assert_int_equal(close(in[1]), 0);
        assert_int_equal(strait_serve(in[0], out[1], NULL), cases[i].err);
        assert_int_equal(close(in[0]) + close(out[0]) + close(out[1]), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_start_line_is_read_as_written),
        cmocka_unit_test(the_answer_is_key_and_address),
        cmocka_unit_test(a_line_ends_where_it_ends),
        cmocka_unit_test(a_line_without_an_end_is_refused),
        cmocka_unit_test(a_stage_that_hears_nonsense_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
