/* The startup lines of a stage, and a service that executes commands. */
#include "stage/service.h"

#include "../config/tiny_run.h"
#include "pair.h"
#include "stage/process/stage_process.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void parses_the_startup_line_it_formats(void **state) {
    (void)state;
    static strait_startup start, back;
    char line[STRAIT_STARTUP_LINE];
    start = (strait_startup){.stage = 3,
                             .replica = 2,
                             .address = "127.0.0.1:4567",
                             .scheme = "tls",
                             .run_path = "/tmp/a folder/run.yaml"};
    for (int i = 0; i < STRAIT_RUN_BYTES; i++)
        start.run_id[i] = (unsigned char)(i * 17);
    for (int i = 0; i < STRAIT_FINGERPRINT_BYTES; i++)
        start.coordinator.bytes[i] = (unsigned char)(255 - i);
    CHECK_OK(strait_startup_format(&start, line));
    assert_int_equal(line[strlen(line) - 1], '\n');
    line[strlen(line) - 1] = '\0';
    CHECK_OK(strait_startup_parse(line, &back));
    assert_memory_equal(&start, &back, sizeof start);
    CHECK_FAILS(strait_startup_parse("3 tls", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_startup_parse("", &back), STRAIT_EPROTO, "lacks a field");
    CHECK_FAILS(strait_startup_parse("3 64 tls 00ff key address path", &back), STRAIT_EPROTO,
                "a replica");
    CHECK_FAILS(strait_startup_parse("3 0 tls 00ff key address path", &back), STRAIT_EPROTO,
                "the run's id");
    CHECK_FAILS(strait_startup_parse("3 0 tls zz112233445566778899aabbccddeeff key a path", &back),
                STRAIT_EPROTO, "the run's id");
    assert_int_not_equal(
        strait_startup_parse("3 0 tls 00112233445566778899aabbccddeeff key a path", &back),
        STRAIT_OK);
}

static void parses_key_and_address_of_the_answer(void **state) {
    (void)state;
    strait_fingerprint key;
    strait_fingerprint back;
    char text[STRAIT_FINGERPRINT_TEXT];
    char line[STRAIT_STARTUP_LINE];
    char address[STRAIT_ADDRESS_MAX];
    memset(&key, 0xa5, sizeof key);
    strait_fingerprint_text(&key, text);
    (void)snprintf(line, sizeof line, "%s stage-1", text);
    CHECK_OK(strait_startup_parse_answer(line, &back, address));
    assert_memory_equal(&key, &back, sizeof key);
    assert_string_equal(address, "stage-1");
    CHECK_FAILS(strait_startup_parse_answer(text, &back, address), STRAIT_EPROTO,
                "key and address");
}

static void reads_no_bytes_after_the_line(void **state) {
    (void)state;
    int ends[2];
    char line[STRAIT_STARTUP_LINE];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "one\n\ntw", 7), 7);
    CHECK_OK(strait_startup_read_line(ends[0], line));
    assert_string_equal(line, "one");
    CHECK_OK(strait_startup_read_line(ends[0], line));
    assert_string_equal(line, "");
    assert_int_equal(close(ends[1]), 0);
    CHECK_FAILS(strait_startup_read_line(ends[0], line), STRAIT_ECLOSED, "before it was connected");
    assert_int_equal(close(ends[0]), 0);
}

static void writes_whole_lines(void **state) {
    (void)state;
    int ends[2];
    char line[STRAIT_STARTUP_LINE];
    assert_int_equal(pipe(ends), 0);
    CHECK_OK(strait_startup_write_line(ends[1], "one two\n"));
    CHECK_OK(strait_startup_read_line(ends[0], line));
    assert_string_equal(line, "one two");
    assert_int_equal(close(ends[0]), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK_FAILS(strait_startup_write_line(ends[1], "go\n"), STRAIT_ECLOSED, "has gone");
    assert_int_equal(close(ends[1]), 0);
}

static void rejects_a_line_without_an_end(void **state) {
    (void)state;
    static char unterminated[STRAIT_STARTUP_LINE];
    int ends[2];
    char line[STRAIT_STARTUP_LINE];
    memset(unterminated, 'w', sizeof unterminated);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], unterminated, sizeof unterminated), (int)sizeof unterminated);
    CHECK_FAILS(strait_startup_read_line(ends[0], line), STRAIT_EPROTO, "lacks an end");
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

static void ends_on_a_malformed_startup_line(void **state) {
    (void)state;
    static const struct {
        const char *line;
        strait_err err;
    } cases[] = {
        {"nonsense\n", STRAIT_EPROTO},
        {"", STRAIT_ECLOSED},
        {"0 0 tls 00112233445566778899aabbccddeeff "
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
        assert_int_equal(strait_stage_process_run(in[0], out[1], NULL), cases[i].err);
        assert_int_equal(close(in[0]) + close(out[0]) + close(out[1]), 0);
    }
}

static strait_err on_poll(void *user) {
    (void)user;
    return STRAIT_OK;
}

static strait_err on_message(void *user, struct strait_msg **msg) {
    (void)user;
    (void)msg;
    return STRAIT_OK;
}

/* The first stage of two, which has no neighbour yet. */
static struct strait_service *service_open(const scratch *folder) {
    static strait_run run;
    struct strait_loader *loader = NULL;
    struct strait_service *service = NULL;
    tiny_run(folder, &run);
    run.stages.count = 2;
    CHECK_OK(strait_loader_open(&run, &loader));
    const strait_service_spec spec = {.run = &run,
                                      .hooks = {.on_message = on_message, .on_poll = on_poll}};
    CHECK_OK(strait_service_open(&spec, &loader, &service));
    assert_null(loader);
    return service;
}

/* Counts the non-zero weights of the first matrix. */
static int64_t count_nonzero_weights(struct strait_service *service) {
    int n = 0;
    const strait_tensor table = strait_stage_params(strait_service_runner(service)->model, &n)[0]
                                    .value;
    int64_t n_nonzero = 0;
    for (int64_t i = 0; i < table.rows * table.cols; i++)
        n_nonzero += ((const float *)table.data)[i] != 0.0f;
    return n_nonzero;
}

static void draws_weights_on_open_only(void **state) {
    (void)state;
    strait_stage_reply reply;
    scratch folder = scratch_open();
    struct strait_service *service = service_open(&folder);
    strait_stage_command command = {.kind = STRAIT_COMMAND_TIME_PASSES};
    CHECK_OK(strait_service_execute(service, &command, &reply));
    assert_true(reply.time_passes.times.forward > 0.0 && reply.time_passes.times.input > 0.0);
    assert_int_equal(strait_service_runner(service)->n_slots, 1);
    assert_int_equal(count_nonzero_weights(service), 0);
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .open = {.n_slots = 2}};
    CHECK_OK(strait_service_execute(service, &command, &reply));
    assert_int_equal(reply.kind, STRAIT_COMMAND_OPEN);
    assert_true(strlen(reply.open.device) > 0);
    assert_int_equal(strait_service_runner(service)->n_slots, 2);
    assert_true(strait_service_runner(service)->has_initial_weights);
    assert_in_range(count_nonzero_weights(service), TINY_VOCAB * 24 * 9 / 10, TINY_VOCAB * 24);
    strait_service_close(&service);
    scratch_close(&folder);
}

/* With may_reuse, a stage with the same slots is kept; otherwise it is built again. */
static void reuses_an_open_stage_if_allowed(void **state) {
    (void)state;
    strait_stage_reply reply;
    scratch folder = scratch_open();
    struct strait_service *service = service_open(&folder);
    strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN, .open = {2, 1}};
    CHECK_OK(strait_service_execute(service, &command, &reply));
    strait_service_runner(service)->has_initial_weights = 0;
    CHECK_OK(strait_service_execute(service, &command, &reply));
    assert_false(strait_service_runner(service)->has_initial_weights);
    command.open.may_reuse = 0;
    CHECK_OK(strait_service_execute(service, &command, &reply));
    assert_true(strait_service_runner(service)->has_initial_weights);
    strait_service_close(&service);
    scratch_close(&folder);
}

static void rejects_impossible_windows(void **state) {
    (void)state;
    static const int windows[] = {0, -1, INT32_MIN, INT32_MAX, 3};
    strait_stage_reply reply;
    scratch folder = scratch_open();
    struct strait_service *service = service_open(&folder);
    assert_int_equal(strait_service_plan(service)->n_microbatches, 2);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN,
                                              .open = {.n_slots = windows[i]}};
        CHECK_FAILS(strait_service_execute(service, &command, &reply), STRAIT_EPROTO,
                    "expected 1 to 2");
        assert_int_equal(reply.err, STRAIT_EPROTO);
        assert_non_null(strstr(reply.reason, "expected 1 to 2"));
        assert_null(strait_service_runner(service));
    }
    strait_service_close(&service);
    scratch_close(&folder);
}

static void rejects_commands_it_cannot_execute(void **state) {
    (void)state;
    strait_stage_reply reply;
    scratch folder = scratch_open();
    struct strait_service *service = service_open(&folder);
    strait_stage_command command = {.kind = STRAIT_COMMAND_GRADIENTS};
    CHECK_FAILS(strait_service_execute(service, &command, &reply), STRAIT_EPROTO,
                "command gradients before open");
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .open = {.n_slots = 1}};
    CHECK_OK(strait_service_execute(service, &command, &reply));
    command = (strait_stage_command){.kind = STRAIT_COMMAND_SEND_SNAPSHOT};
    CHECK_FAILS(strait_service_execute(service, &command, &reply), STRAIT_EPROTO,
                "sends no snapshots");
    strait_service_close(&service);
    scratch_close(&folder);
}

/* Opens one stage of two with the given seed, connected to the other side of `pair`. */
static struct strait_service *stage_of_pair(const scratch *folder, const struct pair *pair,
                                            int stage, int seed) {
    static strait_run run;
    struct strait_loader *loader = NULL;
    struct strait_service *service = NULL;
    tiny_run(folder, &run);
    run.stages.count = 2;
    run.train.seed = seed;
    CHECK_OK(strait_loader_open(&run, &loader));
    const strait_service_spec spec = {
        .run = &run, .stage = stage, .hooks = {.on_message = on_message, .on_poll = on_poll}};
    CHECK_OK(strait_service_open(&spec, &loader, &service));
    strait_service_set_links(service, pair->meshes[stage], stage == 1 ? pair->peers[1] : -1,
                             stage == 0 ? pair->peers[0] : -1);
    CHECK_OK(strait_service_greet(service));
    return service;
}

static void compares_codecs_when_a_boundary_connects(void **state) {
    (void)state;
    struct pair pair;
    scratch folder = scratch_open();
    for (int is_same = 0; is_same < 2; is_same++) {
        pair_open(&pair);
        struct strait_service *first = stage_of_pair(&folder, &pair, 0, 1);
        struct strait_service *second = stage_of_pair(&folder, &pair, 1, is_same ? 1 : 2);
        struct strait_msg *msg = pair_take(&pair, 1);
        const strait_err err = strait_service_route(second, &msg);
        strait_msg_close(&msg);
        if (is_same) CHECK_OK(err);
        if (!is_same) {
            const strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN,
                                                  .open = {.n_slots = 1}};
            const strait_stage_command step = {.kind = STRAIT_COMMAND_GRADIENTS};
            strait_stage_reply reply;
            CHECK_FAILS(err, STRAIT_EPROTO,
                        "stage 1 and stage 0 have different codecs: seed is 2 at stage 1 and 1 at "
                        "stage 0");
            CHECK_OK(strait_service_execute(second, &command, &reply));
            CHECK_FAILS(strait_service_execute(second, &step, &reply), STRAIT_EPROTO,
                        "different codecs");
        }
        strait_service_close(&second);
        strait_service_close(&first);
        pair_close(&pair);
    }
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_the_startup_line_it_formats),
        cmocka_unit_test(parses_key_and_address_of_the_answer),
        cmocka_unit_test(reads_no_bytes_after_the_line),
        cmocka_unit_test(writes_whole_lines),
        cmocka_unit_test(rejects_a_line_without_an_end),
        cmocka_unit_test(ends_on_a_malformed_startup_line),
        cmocka_unit_test(draws_weights_on_open_only),
        cmocka_unit_test(reuses_an_open_stage_if_allowed),
        cmocka_unit_test(rejects_impossible_windows),
        cmocka_unit_test(rejects_commands_it_cannot_execute),
        cmocka_unit_test(compares_codecs_when_a_boundary_connects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
