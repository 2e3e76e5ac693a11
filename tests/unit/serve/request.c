/* Bodies of requests: what they mean, and what is refused. */
#include "serve/request.h"

#include "base/alloc.h"
#include "check.h"

#include <string.h>

static strait_err parse(const char *body, int is_chat, strait_serve_ask *ask) {
    *ask = (strait_serve_ask){0};
    return strait_serve_ask_parse(body, strlen(body), is_chat, ask);
}

static void fills_in_what_is_not_given(void **state) {
    (void)state;
    strait_serve_ask ask;
    CHECK_OK(parse("{\"prompt\": \"a\", \"stop\": null, \"user\": \"x\", \"top_k\": -1}", 0, &ask));
    assert_string_equal(ask.prompt, "a");
    assert_null(ask.model);
    assert_int_equal(ask.n_tokens, 16);
    assert_int_equal(ask.n_stops + ask.streams + ask.has_seed + ask.ignores_end, 0);
    assert_int_equal(ask.sampling.top_k, 0);
    CHECK_NEAR(ask.sampling.temperature, 1, 0);
    CHECK_NEAR(ask.sampling.penalty, 1, 0);
    strait_serve_ask_close(&ask);
    CHECK_OK(parse("{\"messages\": []}", 1, &ask));
    assert_int_equal(ask.n_tokens, 512);
    assert_non_null(ask.messages);
    strait_serve_ask_close(&ask);
}

static void reads_every_setting(void **state) {
    (void)state;
    strait_serve_ask ask;
    CHECK_OK(
        parse("{\"prompt\": [\"a\"], \"model\": \"m\", \"max_tokens\": 5, \"temperature\": 0,"
              "\"top_p\": 0.5, \"top_k\": 7, \"min_p\": 0.1, \"repetition_penalty\": 1.5,"
              "\"seed\": -3, \"stop\": [\"x\", \"yz\"], \"stream\": true, \"ignore_eos\": true,"
              "\"stream_options\": {\"include_usage\": true}, \"n\": 1, \"echo\": false}",
              0, &ask));
    assert_string_equal(ask.model, "m");
    assert_int_equal(ask.n_tokens, 5);
    CHECK_NEAR(ask.sampling.temperature, 0, 0);
    CHECK_NEAR(ask.sampling.top_p, 0.5, 0);
    CHECK_NEAR(ask.sampling.min_p, 0.1, 1e-12);
    CHECK_NEAR(ask.sampling.penalty, 1.5, 0);
    assert_int_equal(ask.sampling.top_k, 7);
    assert_true(ask.has_seed && ask.sampling.seed == (uint64_t)-3);
    assert_int_equal(ask.n_stops, 2);
    assert_string_equal(ask.stops[1], "yz");
    assert_true(ask.streams && ask.ignores_end && ask.wants_usage);
    strait_serve_ask_close(&ask);
}

static void keeps_stop_strings_alone_once_the_prompt_is_encoded(void **state) {
    (void)state;
    strait_serve_ask ask;
    CHECK_OK(parse("{\"prompt\": \"a\", \"model\": \"m\", \"stop\": [\"x\", \"yz\"],"
                   "\"unknown\": [[], [], {}]}",
                   0, &ask));
    strait_serve_ask_drop_prompt(&ask);
    assert_true(ask.prompt == NULL && ask.messages == NULL && ask.model == NULL);
    assert_int_equal(json_array_size(ask.body), 2); // the stop strings
    assert_string_equal(ask.stops[1], "yz");
    strait_serve_ask_close(&ask);
    CHECK_OK(parse("{\"messages\": []}", 1, &ask));
    strait_serve_ask_drop_prompt(&ask);
    assert_null(ask.body);
    strait_serve_ask_close(&ask);
}

static void refuses_what_it_cannot_do(void **state) {
    (void)state;
    static const struct {
        const char *body;
        strait_err err;
        const char *message;
    } cases[] = {
        {"", STRAIT_EDATA, "expected"},
        {"[]", STRAIT_EDATA, "not an object"},
        {"{}", STRAIT_EDATA, "\"prompt\""},
        {"{\"prompt\": \"a\", \"model\": 1}", STRAIT_EDATA, "\"model\""},
        {"{\"prompt\": \"a\", \"max_tokens\": 65537}", STRAIT_ECONFIG, "65536"},
        {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", STRAIT_EDATA, "integer"},
        {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", STRAIT_EDATA, "not a number"},
        {"{\"prompt\": \"a\", \"temperature\": 1e9}", STRAIT_ECONFIG, "temperature"},
        {"{\"prompt\": \"a\", \"repetition_penalty\": 0}", STRAIT_ECONFIG, "penalty"},
        {"{\"prompt\": \"a\", \"n\": 2}", STRAIT_ENOTSUP, "\"n\""},
        {"{\"prompt\": \"a\", \"tools\": []}", STRAIT_ENOTSUP, "\"tools\""},
        {"{\"prompt\": \"a\", \"echo\": true}", STRAIT_ENOTSUP, "\"echo\""},
        {"{\"prompt\": [\"a\", \"b\"]}", STRAIT_ENOTSUP, "only one"},
        {"{\"prompt\": \"a\", \"stop\": [1]}", STRAIT_EDATA, "\"stop\""},
        {"{\"prompt\": \"a\", \"stop\": "
         "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\","
         "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]}",
         STRAIT_ECONFIG, "more than 15"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strait_serve_ask ask;
        CHECK_FAILS(parse(cases[i].body, 0, &ask), cases[i].err, cases[i].message);
        strait_serve_ask_close(&ask);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_what_is_not_given),
        cmocka_unit_test(reads_every_setting),
        cmocka_unit_test(keeps_stop_strings_alone_once_the_prompt_is_encoded),
        cmocka_unit_test(refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
