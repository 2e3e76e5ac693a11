/* The lines a stage is started with, and a stage that is told nonsense. */
#include "stage/service.h"

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "stage/service_state.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void the_start_line_is_read_as_written(void **state) {
    (void)state;
    static strait_startup start, back;
    char line[STRAIT_SERVICE_LINE];
    start = (strait_startup){.stage = 3,
                             .address = "127.0.0.1:4567",
                             .scheme = "tls",
                             .run_path = "/tmp/a folder/run.yaml"};
    for (int i = 0; i < STRAIT_RUN_BYTES; i++)
        start.run_id[i] = (unsigned char)(i * 17);
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        start.coordinator.bytes[i] = (unsigned char)(255 - i);
    CHECK_OK(strait_service_format_start(&start, line));
    assert_int_equal(line[strlen(line) - 1], '\n');
    line[strlen(line) - 1] = '\0';
    CHECK_OK(strait_service_parse_start(line, &back));
    assert_memory_equal(&start, &back, sizeof start);
    CHECK_FAILS(strait_service_parse_start("3 tls", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_service_parse_start("", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_service_parse_start("3 tls 00ff key address path", &back), STRAIT_EPROTO,
                "the run's id");
    CHECK_FAILS(
        strait_service_parse_start("3 tls zz112233445566778899aabbccddeeff key a path", &back),
        STRAIT_EPROTO, "the run's id");
    assert_int_not_equal(
        strait_service_parse_start("3 tls 00112233445566778899aabbccddeeff key a path", &back),
        STRAIT_OK);
}

static void the_answer_is_key_and_address(void **state) {
    (void)state;
    strait_fingerprint key;
    strait_fingerprint back;
    char text[STRAIT_FINGERPRINT_TEXT];
    char line[STRAIT_SERVICE_LINE];
    char address[STRAIT_ADDRESS_MAX];
    memset(&key, 0xa5, sizeof key);
    strait_fingerprint_text(&key, text);
    (void)snprintf(line, sizeof line, "%s stage-1", text);
    CHECK_OK(strait_service_parse_answer(line, &back, address));
    assert_memory_equal(&key, &back, sizeof key);
    assert_string_equal(address, "stage-1");
    CHECK_FAILS(strait_service_parse_answer(text, &back, address), STRAIT_EPROTO,
                "key and address");
}

static void a_line_ends_where_it_ends(void **state) {
    (void)state;
    int ends[2];
    char line[STRAIT_SERVICE_LINE];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "one\n\ntw", 7), 7);
    CHECK_OK(strait_service_read_line(ends[0], line));
    assert_string_equal(line, "one");
    CHECK_OK(strait_service_read_line(ends[0], line));
    assert_string_equal(line, "");
    assert_int_equal(close(ends[1]), 0);
    CHECK_FAILS(strait_service_read_line(ends[0], line), STRAIT_ECLOSED, "before it had begun");
    assert_int_equal(close(ends[0]), 0);
}

static void a_line_is_written_whole_or_not_at_all(void **state) {
    (void)state;
    int ends[2];
    char line[STRAIT_SERVICE_LINE];
    assert_int_equal(pipe(ends), 0);
    CHECK_OK(strait_service_write_line(ends[1], "one two\n"));
    CHECK_OK(strait_service_read_line(ends[0], line));
    assert_string_equal(line, "one two");
    assert_int_equal(close(ends[0]), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK_FAILS(strait_service_write_line(ends[1], "go\n"), STRAIT_ECLOSED, "has gone");
    assert_int_equal(close(ends[1]), 0);
}

static void a_line_without_an_end_is_refused(void **state) {
    (void)state;
    static char words[STRAIT_SERVICE_LINE];
    int ends[2];
    char line[STRAIT_SERVICE_LINE];
    memset(words, 'w', sizeof words);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], words, sizeof words), (int)sizeof words);
    CHECK_FAILS(strait_service_read_line(ends[0], line), STRAIT_EPROTO, "lacks an end");
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
        assert_int_equal(strait_service_run(in[0], out[1], NULL), cases[i].err);
        assert_int_equal(close(in[0]) + close(out[0]) + close(out[1]), 0);
    }
}

static strait_err nobody_looks(void *user) {
    (void)user;
    return STRAIT_OK;
}

/* The first stage of two, which has met nobody. */
static void server_open(const scratch *folder, struct strait_service *s) {
    *s = (struct strait_service){.prev = -1, .next = -1, .on_look = nobody_looks};
    tiny_run(folder, &s->run);
    s->run.stages.count = 2;
    CHECK_OK(strait_loader_open(&s->run, &s->loader));
    CHECK_OK(strait_service_prepare(s));
}

static void server_close(struct strait_service *s) {
    strait_runner_close(&s->worker);
    strait_loader_close(&s->loader);
    strait_alloc_free(s->basis);
}

/* Weights other than 0, in the matrix that comes first. */
static int64_t count_drawn(const struct strait_service *s) {
    int n = 0;
    const strait_tensor table = strait_stage_params(s->worker->model, &n)[0].value;
    int64_t n_drawn = 0;
    for (int64_t i = 0; i < table.rows * table.cols; i++)
        n_drawn += ((const float *)table.data)[i] != 0.0f;
    return n_drawn;
}

static void weights_are_drawn_once_the_window_is_known(void **state) {
    (void)state;
    static struct strait_service s;
    static strait_stage_command command;
    strait_reply reply = {0};
    scratch folder = scratch_open();
    server_open(&folder, &s);
    command.kind = STRAIT_COMMAND_TIME_PASSES;
    CHECK_OK(strait_service_execute(&s, &command, &reply));
    assert_true(reply.times.forward > 0.0 && reply.times.input > 0.0);
    assert_int_equal(s.worker->n_slots, 1);
    assert_int_equal(count_drawn(&s), 0);
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .number = 2};
    CHECK_OK(strait_service_execute(&s, &command, &reply));
    assert_int_equal(s.worker->n_slots, 2);
    assert_true(s.worker->is_untouched);
    assert_in_range(count_drawn(&s), TINY_VOCAB * 24 * 9 / 10, TINY_VOCAB * 24);
    server_close(&s);
    scratch_close(&folder);
}

static void windows_that_cannot_be_are_refused(void **state) {
    (void)state;
    static struct strait_service s;
    static strait_stage_command command;
    static const int windows[] = {0, -1, INT32_MIN, INT32_MAX, 3};
    strait_reply reply = {0};
    scratch folder = scratch_open();
    server_open(&folder, &s);
    assert_int_equal(s.plan.n_microbatches, 2);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .number = windows[i]};
        CHECK_FAILS(strait_service_execute(&s, &command, &reply), STRAIT_EPROTO,
                    "for 2 microbatches");
        assert_null(s.worker);
    }
    server_close(&s);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_start_line_is_read_as_written),
        cmocka_unit_test(the_answer_is_key_and_address),
        cmocka_unit_test(a_line_ends_where_it_ends),
        cmocka_unit_test(a_line_is_written_whole_or_not_at_all),
        cmocka_unit_test(a_line_without_an_end_is_refused),
        cmocka_unit_test(a_stage_that_hears_nonsense_ends),
        cmocka_unit_test(weights_are_drawn_once_the_window_is_known),
        cmocka_unit_test(windows_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
