/* Traces are JSON that others read, the ring keeps the newest, clocks meet in the merge. */
#include "metrics/trace.h"

#include "base/alloc.h"
#include "base/json.h"
#include "check.h"
#include "scratch.h"

static strait_trace_span span(const char *name, int stage, int microbatch, int64_t start_ns,
                              int64_t end_ns) {
    return (strait_trace_span){.name = name,
                               .stage = stage,
                               .lane = STRAIT_LANE_COMPUTE,
                               .microbatch = microbatch,
                               .step = 7,
                               .start_ns = start_ns,
                               .end_ns = end_ns};
}

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL ? text : "";
}

static double number_of(const json_t *event, const char *key) {
    CHECK(json_is_number(json_object_get(event, key)));
    return json_number_value(json_object_get(event, key));
}

static json_t *load(const char *path) {
    json_t *events = NULL;
    CHECK_OK(strait_json_load(path, 1 << 20, &events));
    CHECK(json_is_array(events));
    return events;
}

/* The i-th complete event; NULL past the last. */
static const json_t *complete(const json_t *events, int i) {
    for (size_t k = 0; k < json_array_size(events); k++) {
        const json_t *event = json_array_get(events, k);
        if (strcmp(text_of(event, "ph"), "X") == 0 && i-- == 0) return event;
    }
    return NULL;
}

static void check_event(const json_t *event, const char *name, int stage, double ts, double dur) {
    assert_non_null(event);
    assert_string_equal(text_of(event, "name"), name);
    CHECK_NEAR(number_of(event, "pid"), stage, 0);
    CHECK_NEAR(number_of(event, "ts"), ts, 1e-9);
    CHECK_NEAR(number_of(event, "dur"), dur, 1e-9);
}

static void spans_become_events(void **state) {
    (void)state;
    scratch s = scratch_open();
    char path[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(path, "%s/trace.json", s.path));
    strait_trace_span spans[] = {span("forward", 2, 5, 1234567, 2000001),
                                 span("update", 2, -1, 3000000, 3000000),
                                 span("activation", 2, 5, 2000001, 2500000)};
    spans[2].lane = STRAIT_LANE_NEXT;
    CHECK_OK(strait_trace_write(path, spans, 3));
    json_t *events = load(path);
    CHECK(json_array_size(events) == 3 + 3); // and the names of one stage and two lanes
    check_event(complete(events, 0), "forward", 2, 1234.567, 765.434);
    check_event(complete(events, 1), "update", 2, 3000, 0);
    const json_t *args = json_object_get(complete(events, 0), "args");
    CHECK(number_of(args, "microbatch") == 5 && number_of(args, "step") == 7);
    CHECK(json_object_get(json_object_get(complete(events, 1), "args"), "microbatch") == NULL);
    CHECK(number_of(complete(events, 2), "tid") == STRAIT_LANE_NEXT);
    const json_t *name = json_array_get(events, 0);
    assert_string_equal(text_of(name, "name"), "process_name");
    assert_string_equal(text_of(json_object_get(name, "args"), "name"), "stage 2");
    json_decref(events);
    CHECK_OK(strait_trace_write(path, NULL, 0));
    events = load(path);
    CHECK(json_array_size(events) == 0);
    json_decref(events);
    scratch_close(&s);
}

static void ring_keeps_the_newest(void **state) {
    (void)state;
    scratch s = scratch_open();
    char path[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(path, "%s/trace.json", s.path));
    struct strait_trace *trace = NULL;
    CHECK_OK(strait_trace_open(3, &trace));
    const int64_t before = strait_alloc_count();
    for (int i = 0; i < 5; i++) {
        const strait_trace_span forward = span("forward", 0, i, 1000LL * i, 1000LL * i + 500);
        strait_trace_put(trace, &forward);
        strait_trace_put(NULL, &forward);
    }
    CHECK(strait_alloc_count() == before);
    CHECK(strait_trace_count(trace) == 3 && strait_trace_lost(trace) == 2);
    CHECK_OK(strait_trace_save(trace, path));
    json_t *events = load(path);
    for (int i = 0; i < 3; i++)
        check_event(complete(events, i), "forward", 0, i + 2, 0.5);
    CHECK(complete(events, 3) == NULL);
    json_decref(events);
    strait_trace_clear(trace);
    CHECK(strait_trace_count(trace) == 0 && strait_trace_lost(trace) == 0);
    strait_trace_close(&trace);
    strait_trace_close(&trace);
    scratch_close(&s);
}

static void stages_merge_on_one_clock(void **state) {
    (void)state;
    scratch s = scratch_open();
    char a[STRAIT_PATH_MAX], b[STRAIT_PATH_MAX], both[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(a, "%s/a.json", s.path));
    CHECK_OK(strait_file_path(b, "%s/b.json", s.path));
    CHECK_OK(strait_file_path(both, "%s/both.json", s.path));
    /* Clocks far from zero, as they are: eleven days after start, a nanosecond still counts. */
    const int64_t day = 86400LL * 1000000000;
    const strait_trace_span of_a[] = {span("forward", 0, 0, 11 * day, 11 * day + 1001),
                                      span("backward", 0, 0, 11 * day + 9000, 11 * day + 9500)};
    const strait_trace_span of_b[] = {span("forward", 1, 0, 5 * day + 2000, 5 * day + 3003)};
    CHECK_OK(strait_trace_write(a, of_a, 2));
    CHECK_OK(strait_trace_write(b, of_b, 1));
    const int64_t offsets[] = {-10 * day, -4 * day};
    CHECK_OK(strait_trace_merge((const char *const[]){a, b}, offsets, 2, both));
    json_t *events = load(both);
    check_event(complete(events, 0), "forward", 0, 0, 1.001);
    check_event(complete(events, 1), "forward", 1, 2, 1.003);
    check_event(complete(events, 2), "backward", 0, 9, 0.5);
    CHECK(complete(events, 3) == NULL);
    json_decref(events);
    /* A merged trace is a trace, and may be merged again. */
    CHECK_OK(strait_trace_merge((const char *const[]){both}, offsets, 1, both));
    scratch_close(&s);
}

static void check_refused(const char *path, const char *text, const char *words) {
    const int64_t offset = 0;
    CHECK_OK(strait_file_write(path, text, strlen(text)));
    CHECK_FAILS(strait_trace_merge(&path, &offset, 1, path), STRAIT_EDATA, words);
    CHECK(strstr(strait_err_detail(), path) != NULL);
}

static void rejects_bad_files(void **state) {
    (void)state;
    scratch s = scratch_open();
    char path[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(path, "%s/trace.json", s.path));
    check_refused(path, "[", "line 1");
    check_refused(path, "{}", "not an array");
    check_refused(path, "[7]", "event 0: \"ph\" is not \"X\"");
    check_refused(path, "[{\"ph\": \"B\"}]", "event 0: \"ph\" is not \"X\"");
    check_refused(path, "[{\"ph\": \"X\"}]", "event 0: \"name\" is missing");
    check_refused(path, "[{\"ph\": \"X\", \"name\": \"a\", \"pid\": -1}]", "\"pid\" is -1");
    check_refused(path, "[{\"ph\": \"X\", \"name\": \"a\", \"pid\": 0, \"tid\": 0, \"ts\": 1e30}]",
                  "\"ts\" is not a time");
    check_refused(path,
                  "[{\"ph\": \"X\", \"name\": \"a\\\"\", \"pid\": 0, \"tid\": 0, \"ts\": 1, "
                  "\"dur\": 1, \"args\": {\"step\": 1}}]",
                  "event 0: a span's name");
    check_refused(path,
                  "[{\"ph\": \"X\", \"name\": \"a\", \"pid\": 0, \"tid\": 9, \"ts\": 1, "
                  "\"dur\": 1, \"args\": {\"step\": 1}}]",
                  "lane 9 is out of range");
    scratch_close(&s);
}

static void rejects_bad_spans(void **state) {
    (void)state;
    scratch s = scratch_open();
    char path[STRAIT_PATH_MAX], away[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(path, "%s/trace.json", s.path));
    CHECK_OK(strait_file_path(away, "%s/none/trace.json", s.path));
    strait_trace_span bad = span("quote\"", 0, 0, 0, 1);
    CHECK_FAILS(strait_trace_write(path, &bad, 1), STRAIT_EINVAL, "name");
    bad = span("forward", 5000, 0, 0, 1);
    CHECK_FAILS(strait_trace_write(path, &bad, 1), STRAIT_EINVAL, "stage 5000");
    bad = span("forward", 0, 0, 2, 1);
    CHECK_FAILS(strait_trace_write(path, &bad, 1), STRAIT_EINVAL, "from 2 to 1 ns");
    CHECK(!strait_file_exists(path));
    bad = span("forward", 0, 0, 1, 2);
    CHECK_FAILS(strait_trace_write(away, &bad, 1), STRAIT_EIO, "none/trace.json");
    struct strait_trace *trace = NULL;
    CHECK_FAILS(strait_trace_open(0, &trace), STRAIT_EINVAL, "at least 1 span, not 0");
    for (int n = 1; n <= 2; n++) {
        strait_alloc_fail_at(n);
        CHECK_FAILS(strait_trace_open(8, &trace), STRAIT_ENOMEM, "a trace");
        CHECK(trace == NULL);
    }
    strait_alloc_fail_at(0);
    scratch_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_become_events),       cmocka_unit_test(ring_keeps_the_newest),
        cmocka_unit_test(stages_merge_on_one_clock), cmocka_unit_test(rejects_bad_files),
        cmocka_unit_test(rejects_bad_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
