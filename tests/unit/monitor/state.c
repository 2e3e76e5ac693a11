/* state.c - what is kept of a run, and how it is shown as JSON and for Prometheus. */
#include "monitor/state.h"

#include "check.h"

#include <stdlib.h>

static strait_state s; // large

/* A run of two stages, after a step with these values. */
static void put_step(strait_trainer_report report) {
    static const strait_trainer_stage_step steps[2] = {{.forward_bytes = 100.0}};
    strait_monitor_run run = {.name = "run"};
    strait_trainer_info info = {.n_stages = 2};
    for (int i = 0; i < 2; i++)
        info.stages[i] = (strait_trainer_stage){.replicas = 4, .reduced = 300.0};
    strait_state_open(&s, &run);
    strait_state_set_info(&s, &info, 0);
    report.n_stages = 2;
    report.stages = steps;
    report.limit = "compute";
    strait_state_put_step(&s, &report, (double)-INFINITY);
}

static void test_keeps_as_many_spans_as_fit(void **state) {
    (void)state;
    static strait_trainer_span spans[STRAIT_STATE_SPANS + 1];
    put_step((strait_trainer_report){.spans = spans, .n_spans = STRAIT_STATE_SPANS + 1});
    assert_int_equal(s.n_spans, STRAIT_STATE_SPANS);
    json_t *timeline = strait_state_pack_timeline(&s);
    assert_int_equal(json_array_size(json_object_get(timeline, "spans")), STRAIT_STATE_SPANS);
    json_decref(timeline);
}

static const char *event_at(const json_t *events, size_t i) {
    return json_string_value(json_object_get(json_array_get(events, i), "text"));
}

static void test_shows_the_newest_events_first(void **state) {
    (void)state;
    const int n = STRAIT_STATE_EVENTS + 6;
    char text[2 * STRAIT_STATE_EVENT_BYTES];
    put_step((strait_trainer_report){0});
    for (int i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "event %d %0300d", i, 0); // too long: it is cut off
        strait_state_put_event(&s, text);
    }
    json_t *object = strait_state_pack(&s, NULL);
    const json_t *events = json_object_get(object, "events");
    assert_int_equal(json_integer_value(json_object_get(object, "n_events")), n);
    assert_int_equal(json_array_size(events), STRAIT_STATE_EVENTS);
    assert_memory_equal(event_at(events, 0), "event 69 0", 10);
    assert_memory_equal(event_at(events, STRAIT_STATE_EVENTS - 1), "event 6 0", 9);
    assert_int_equal(strlen(event_at(events, 0)), STRAIT_STATE_EVENT_BYTES - 1);
    json_decref(object);
}

/* What the first stage of the state has under a key. */
static double shown(json_t *swarm, const char *key) {
    json_t *object = strait_state_pack(&s, swarm);
    const json_t *stage = json_array_get(json_object_get(object, "stages"), 0);
    const double value = json_number_value(json_object_get(stage, key));
    json_decref(object);
    json_decref(swarm);
    return value;
}

static json_t *swarm_of(int n_connected) {
    json_t *workers = json_pack("[{si sb} {si sb}]", "stage", 0, "connected", 0, // it has left
                                "stage", 1, "connected", 1);
    for (int i = 0; i < n_connected; i++)
        (void)json_array_append_new(workers, json_pack("{si sb}", "stage", 0, "connected", 1));
    return json_pack("{so}", "workers", workers);
}

/* The plan of a swarm has as many replicas as a stage may get: it has those that are connected. */
static void test_counts_the_replicas_that_are_connected(void **state) {
    (void)state;
    put_step((strait_trainer_report){0});
    CHECK(shown(NULL, "replicas") == 4.0 && shown(NULL, "reduce_bytes") == 300.0);
    CHECK(shown(swarm_of(0), "replicas") == 0.0 && shown(swarm_of(0), "reduce_bytes") == 0.0);
    CHECK(shown(swarm_of(1), "replicas") == 1.0 && shown(swarm_of(1), "reduce_bytes") == 0.0);
    CHECK(shown(swarm_of(2), "replicas") == 2.0);
    CHECK_NEAR(shown(swarm_of(2), "reduce_bytes"), 200.0, 1e-9); // 1/2 instead of 3/4 of them
}

/* The page for Prometheus as a text; the caller frees it. */
static char *expose(json_t *swarm) {
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_state_expose(&s, swarm, 0, &text, &bytes));
    char *copy = malloc(bytes + 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    strait_alloc_free(text);
    json_decref(swarm);
    return copy;
}

static void test_escapes_labels(void **state) {
    (void)state;
    put_step((strait_trainer_report){0});
    (void)snprintf(s.run.name, sizeof s.run.name, "a\"b\\c\nd\x7f\xc3\xa9");
    char *text = expose(NULL);
    assert_non_null(strstr(text, "strait_run_info{run=\"a\\\"b\\\\cd\x7f\xc3\xa9\",codec="));
    free(text);
}

/* A worker chooses its name. */
static void test_cuts_long_labels(void **state) {
    (void)state;
    static const char begin[] = "strait_worker_connected{worker=\"";
    char name[1000] = "";
    memset(name, '"', sizeof name - 1);
    put_step((strait_trainer_report){0});
    char *text = expose(
        json_pack("{s[{ss ss sb}]}", "workers", "name", name, "key", "k", "connected", 1));
    const char *label = strstr(text, begin);
    assert_non_null(label);
    label += sizeof begin - 1;
    for (int i = 0; i < 256; i++, label += 2)
        assert_memory_equal(label, "\\\"", 2);
    assert_memory_equal(label, "\",key=\"k\"} 1\n", 13);
    free(text);
}

static void test_spells_numbers_as_prometheus_does(void **state) {
    (void)state;
    put_step((strait_trainer_report){.loss = (double)NAN, .grad_norm = (double)INFINITY});
    char *text = expose(NULL);
    assert_non_null(strstr(text, "\nstrait_loss NaN\n"));
    assert_non_null(strstr(text, "\nstrait_gradient_norm +Inf\n"));
    assert_non_null(strstr(text, "\nstrait_remaining_seconds -Inf\n"));
    /* One boundary between two stages. */
    assert_non_null(
        strstr(text, "strait_link_bytes_total{boundary=\"0\",direction=\"forward\"} 100"));
    assert_null(strstr(text, "{boundary=\"1\""));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_as_many_spans_as_fit),
        cmocka_unit_test(test_shows_the_newest_events_first),
        cmocka_unit_test(test_counts_the_replicas_that_are_connected),
        cmocka_unit_test(test_escapes_labels),
        cmocka_unit_test(test_cuts_long_labels),
        cmocka_unit_test(test_spells_numbers_as_prometheus_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
