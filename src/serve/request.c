#include "serve/request.h"

#include <math.h>
#include <string.h>

enum {
    COMPLETION_TOKENS = 16, // by default, as OpenAI's
    CHAT_TOKENS = 512
};

void strait_serve_ask_close(strait_serve_ask *ask) {
    json_decref(ask->body);
    *ask = (strait_serve_ask){0};
}

/* Every value of JSON takes some hundred bytes, also one of two characters: a body of 1 MiB can
 * become 30 MB, which must not wait in the queue. */
void strait_serve_ask_drop_prompt(strait_serve_ask *ask) {
    json_t *stop = json_incref(json_object_get(ask->body, "stop"));
    json_decref(ask->body);
    ask->body = stop;
    ask->prompt = ask->model = NULL;
    ask->messages = NULL;
}

/* The value of a key that is given and not null. */
static const json_t *given(const json_t *body, const char *key) {
    const json_t *value = json_object_get(body, key);
    return json_is_null(value) ? NULL : value;
}

static strait_err read_real(const json_t *body, const char *key, double *out) {
    const json_t *value = given(body, key);
    if (value == NULL) return STRAIT_OK;
    if (!json_is_number(value)) return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not a number", key);
    *out = json_number_value(value);
    return STRAIT_OK;
}

static strait_err read_int(const json_t *body, const char *key, int64_t least, int64_t most,
                           int64_t *out) {
    const json_t *value = given(body, key);
    if (value == NULL) return STRAIT_OK;
    if (!json_is_integer(value)) return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not an integer", key);
    *out = json_integer_value(value);
    if (*out >= least && *out <= most) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "\"%s\" is %lld: expected %lld to %lld", key,
                       (long long)*out, (long long)least, (long long)most);
}

static strait_err read_switch(const json_t *body, const char *key, int *out) {
    const json_t *value = given(body, key);
    if (value == NULL) return STRAIT_OK;
    if (!json_is_boolean(value))
        return STRAIT_FAIL(STRAIT_EDATA, "\"%s\" is not true or false", key);
    *out = json_is_true(value);
    return STRAIT_OK;
}

/* Refuses what changes the answer and is not implemented. */
static strait_err refuse_others(const json_t *body) {
    static const char *const counts[] = {"n", "best_of"};
    static const char *const absent[] = {"suffix", "tools", "functions", "logit_bias",
                                         "response_format"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *value = given(body, counts[i]);
        if (value != NULL && (!json_is_integer(value) || json_integer_value(value) != 1))
            return STRAIT_FAIL(STRAIT_ENOTSUP, "\"%s\": only 1 is supported", counts[i]);
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (given(body, absent[i]) != NULL)
            return STRAIT_FAIL(STRAIT_ENOTSUP, "\"%s\" is not supported", absent[i]);
    const json_t *logprobs = given(body, "logprobs"), *echo = given(body, "echo");
    if (logprobs != NULL && !json_is_false(logprobs))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "\"logprobs\" is not supported");
    if (echo != NULL && !json_is_false(echo))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "\"echo\" is not supported");
    return STRAIT_OK;
}

static strait_err add_stop(strait_serve_ask *ask, const json_t *value) {
    if (!json_is_string(value))
        return STRAIT_FAIL(STRAIT_EDATA, "\"stop\" is not a text or a list of texts");
    if (ask->n_stops == STRAIT_STOPS_MAX - 1) // one is the chat template's
        return STRAIT_FAIL(STRAIT_ECONFIG, "\"stop\" has more than %d texts", STRAIT_STOPS_MAX - 1);
    ask->stops[ask->n_stops++] = json_string_value(value);
    return STRAIT_OK;
}

static strait_err read_stops(strait_serve_ask *ask) {
    const json_t *stop = given(ask->body, "stop");
    if (stop == NULL) return STRAIT_OK;
    if (!json_is_array(stop)) return add_stop(ask, stop);
    for (size_t i = 0; i < json_array_size(stop); i++)
        STRAIT_TRY(add_stop(ask, json_array_get(stop, i)));
    return STRAIT_OK;
}

static strait_err read_sampling(strait_serve_ask *ask) {
    const json_t *body = ask->body;
    strait_sampling *s = &ask->sampling;
    int64_t seed = 0;
    *s = (strait_sampling){.temperature = 1, .top_p = 1, .penalty = 1};
    STRAIT_TRY(read_real(body, "temperature", &s->temperature));
    STRAIT_TRY(read_real(body, "top_p", &s->top_p));
    STRAIT_TRY(read_real(body, "min_p", &s->min_p));
    STRAIT_TRY(read_real(body, "repetition_penalty", &s->penalty));
    STRAIT_TRY(read_int(body, "top_k", -1, INT32_MAX, &s->top_k));
    if (s->top_k < 0) s->top_k = 0; // as other servers write "all"
    STRAIT_TRY(read_int(body, "seed", INT64_MIN, INT64_MAX, &seed));
    s->seed = (uint64_t)seed;
    ask->has_seed = given(body, "seed") != NULL;
    return strait_sampling_check(s);
}

static strait_err read_limits(strait_serve_ask *ask, int is_chat) {
    const json_t *body = ask->body;
    ask->n_tokens = is_chat ? CHAT_TOKENS : COMPLETION_TOKENS;
    STRAIT_TRY(read_int(body, "max_tokens", 1, STRAIT_SERVE_TOKENS_MAX, &ask->n_tokens));
    STRAIT_TRY(read_int(body, "max_completion_tokens", 1, STRAIT_SERVE_TOKENS_MAX, &ask->n_tokens));
    STRAIT_TRY(read_switch(body, "stream", &ask->streams));
    STRAIT_TRY(read_switch(body, "ignore_eos", &ask->ignores_end));
    const json_t *options = given(body, "stream_options");
    if (options != NULL) STRAIT_TRY(read_switch(options, "include_usage", &ask->wants_usage));
    return read_stops(ask);
}

/* A text, or a list of one. */
static strait_err read_prompt(strait_serve_ask *ask) {
    const json_t *prompt = given(ask->body, "prompt");
    if (json_is_array(prompt) && json_array_size(prompt) == 1) prompt = json_array_get(prompt, 0);
    if (json_is_array(prompt))
        return STRAIT_FAIL(STRAIT_ENOTSUP, "\"prompt\": only one text per request is supported");
    if (!json_is_string(prompt)) return STRAIT_FAIL(STRAIT_EDATA, "\"prompt\" is not a text");
    ask->prompt = json_string_value(prompt);
    return STRAIT_OK;
}

static strait_err read_body(strait_serve_ask *ask, int is_chat) {
    const json_t *model = given(ask->body, "model");
    if (!json_is_object(ask->body)) return STRAIT_FAIL(STRAIT_EDATA, "the body is not an object");
    if (model != NULL && !json_is_string(model))
        return STRAIT_FAIL(STRAIT_EDATA, "\"model\" is not a text");
    ask->model = json_string_value(model);
    STRAIT_TRY(refuse_others(ask->body));
    if (is_chat) {
        ask->messages = given(ask->body, "messages");
        if (!json_is_array(ask->messages))
            return STRAIT_FAIL(STRAIT_EDATA, "\"messages\" is not a list");
    } else {
        STRAIT_TRY(read_prompt(ask));
    }
    STRAIT_TRY(read_limits(ask, is_chat));
    return read_sampling(ask);
}

strait_err strait_serve_ask_parse(const char *body, size_t n, int is_chat, strait_serve_ask *out) {
    STRAIT_TRY(strait_json_parse(body, n, &out->body));
    return read_body(out, is_chat);
}
