#include "monitor/monitor.h"

#include "base/clock.h"
#include "check.h"
#include "monitor/fetch.h"
#include "scratch.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

/* A run of two stages that a test publishes. */
static const strait_trainer_stage_step stages[2] = {
    {.forward_s = 0.1,
     .backward_s = 0.2,
     .wait_s = 0.3,
     .wall_s = 0.6,
     .forward_bytes = 100,
     .backward_bytes = 50},
    {.forward_s = 0.2, .backward_s = 0.3, .wait_s = 0.1, .wall_s = 0.6}};
static const strait_trainer_span spans[2] = {{STRAIT_SPAN_FORWARD, 0, 0, 0, 0.1},
                                             {STRAIT_SPAN_GRADIENT, 1, 0, 0.1, 0.2}};
static const double residuals[1] = {0.25};

static strait_trainer_report report_at(int64_t step) {
    return (strait_trainer_report){.step = step,
                                   .loss = step == 3 ? (double)NAN : 4.5,
                                   .tokens = 128 * step,
                                   .limit = "serialisation",
                                   .limit_where = 0,
                                   .n_boundaries = 1,
                                   .residual_forward = residuals,
                                   .residual_backward = residuals,
                                   .n_stages = 2,
                                   .stages = stages,
                                   .n_spans = 2,
                                   .spans = spans};
}

static struct strait_monitor *open_monitor(const char *path) {
    strait_monitor_spec spec = {.address = "127.0.0.1:0",
                                .metrics_path = path,
                                .run = {.name = "a \"run\"\\", .steps = 10, .batch_tokens = 128}};
    struct strait_monitor *m = NULL;
    CHECK_OK(strait_monitor_open(&spec, &m));
    const strait_trainer_info info = {.n_stages = 2, .parameters = 7};
    strait_monitor_opened(m, &info, 0);
    return m;
}

/* What was published is served by the next answer, whatever the monitor's thread did meanwhile. */
static json_t *state_with(struct strait_monitor *m, int64_t step) {
    json_t *state = NULL;
    const strait_trainer_report report = report_at(step);
    strait_monitor_stepped(m, &report, 60.0);
    CHECK_OK(strait_fetch_json(strait_monitor_url(m), "/api/v1/state", &state));
    CHECK(json_integer_value(json_object_get(json_object_get(state, "step"), "step")) == step);
    return state;
}

static void test_serves_what_is_published(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_monitor *m = open_monitor(scratch_at(&dir, "metrics.jsonl"));
    json_t *now = state_with(m, 2), *timeline = NULL, *nothing = NULL;
    assert_string_equal(json_string_value(json_object_get(json_object_get(now, "run"), "name")),
                        "a \"run\"\\");
    assert_int_equal(json_array_size(json_object_get(now, "stages")), 2);
    const json_t *boundary = json_array_get(json_object_get(now, "boundaries"), 0);
    CHECK(json_number_value(json_object_get(boundary, "residual_forward")) == 0.25);
    assert_non_null(strstr(json_string_value(json_object_get(now, "advice")), "boundary 0"));
    json_decref(now);
    now = state_with(m, 3);
    CHECK(json_is_null(json_object_get(json_object_get(now, "step"), "loss")));
    json_decref(now);
    CHECK_OK(strait_fetch_json(strait_monitor_url(m), "/api/v1/timeline", &timeline));
    assert_int_equal(json_array_size(json_object_get(timeline, "spans")), 2);
    json_decref(timeline);
    CHECK_FAILS(strait_fetch_json(strait_monitor_url(m), "/nothing", &nothing), STRAIT_EDATA,
                "404");
    strait_monitor_close(&m, NULL);
    scratch_close(&dir);
}

/* Readers of every address while the run publishes as fast as it can. */
static atomic_int is_done, n_served;
static void *read_all(void *url) {
    static const char *const paths[] = {"/api/v1/state", "/api/v1/history", "/api/v1/timeline"};
    int n = 0;
    while (!is_done) {
        json_t *answer = NULL;
        if (strait_fetch_json(url, paths[n % 3], &answer) == STRAIT_OK && n++ == 0) n_served++;
        json_decref(answer);
    }
    return url;
}

static void test_readers_and_publisher_work_at_once(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_monitor *m = open_monitor(scratch_at(&dir, "metrics.jsonl"));
    pthread_t readers[4];
    is_done = n_served = 0;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&readers[i], NULL, read_all, (void *)strait_monitor_url(m)) == 0);
    const double began = strait_clock_seconds();
    for (int64_t step = 1; strait_clock_seconds() < began + 1.0 || n_served < 4; step++) {
        CHECK(strait_clock_seconds() < began + 600.0);
        const strait_trainer_report report = report_at(step);
        strait_monitor_stepped(m, &report, 1.0);
        strait_monitor_noted(m, "something happened");
        if (step % 16 == 0)
            strait_monitor_swarm(m, json_pack("{ss s[{ss si}]}", "phase", "working", "workers",
                                              "name", "w", "stage", 0));
    }
    is_done = 1;
    for (int i = 0; i < 4; i++) {
        void *served = NULL;
        CHECK(pthread_join(readers[i], &served) == 0 && served != NULL);
    }
    strait_monitor_close(&m, "interrupted");
    scratch_close(&dir);
}

static void test_refuses_addresses_and_pages(void **state) {
    (void)state;
    struct strait_monitor *m = NULL;
    json_t *answer = NULL;
    const strait_monitor_spec spec = {.address = "example.org:80", .metrics_path = "none"};
    CHECK_FAILS(strait_monitor_open(&spec, &m), STRAIT_ECONFIG,
                "'example.org:80' is not an address");
    CHECK_FAILS(strait_fetch_json("ftp://x", "/", &answer), STRAIT_ECONFIG, "expected http://");
    CHECK_FAILS(strait_fetch_json("http://127.0.0.1:1", "/", &answer), STRAIT_ECLOSED,
                "nobody answers");
    char long_url[400];
    (void)snprintf(long_url, sizeof long_url, "http://%0256d:80", 1);
    CHECK_FAILS(strait_fetch_json(long_url, "/", &answer), STRAIT_ECONFIG, "expected http://");
    CHECK_FAILS(strait_fetch_json("http://127.0.0.1:00000001", "/", &answer), STRAIT_ECONFIG,
                "expected http://");
    const strait_monitor_spec closed = {
        .address = "[::1]:0", .metrics_path = "none", .token = "secret"};
    if (strait_monitor_open(&closed, &m) != STRAIT_OK) return; // no IPv6 here
    char url[64];
    (void)snprintf(url, sizeof url, "%.*s", (int)strcspn(strait_monitor_url(m), "?"),
                   strait_monitor_url(m));
    CHECK_FAILS(strait_fetch_json(url, "/api/v1/state", &answer), STRAIT_EAUTH,
                "a token is needed");
    static const char *const others[] = {"s", "secre", "secrets", "Secret"};
    for (int i = 0; i < 4; i++) {
        char guess[80];
        (void)snprintf(guess, sizeof guess, "%s?token=%s", url, others[i]);
        CHECK_FAILS(strait_fetch_json(guess, "/api/v1/state", &answer), STRAIT_EAUTH,
                    "a token is needed");
    }
    CHECK_OK(strait_fetch_json(strait_monitor_url(m), "/api/v1/state", &answer));
    json_decref(answer);
    strait_monitor_close(&m, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serves_what_is_published),
        cmocka_unit_test(test_readers_and_publisher_work_at_once),
        cmocka_unit_test(test_refuses_addresses_and_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
