#include "metastore/etcd_http.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    URL_MAX = 512,
    ANSWER_MAX = 64 * 1024 * 1024,
    ROUND_PAUSE_MS = 50, // after a round in which no member answered
    ATTEMPT_MIN_MS = 100,
    ATTEMPT_MS = 1000, // in the first round; twice as long in each that follows
    NS_PER_MS = 1000000
};
/* Error codes of gRPC. */
enum {
    CODE_UNKNOWN = 2,
    CODE_DEADLINE = 4,
    CODE_NOT_FOUND = 5,
    CODE_DENIED = 7,
    CODE_EXHAUSTED = 8,
    CODE_UNAVAILABLE = 14,
    CODE_UNAUTHENTICATED = 16
};

/* ---- life ---- */

static void begin_curl(void) {
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int is_url(const char *text) {
    const char *host = strncmp(text, "http://", 7) == 0    ? text + 7
                       : strncmp(text, "https://", 8) == 0 ? text + 8
                                                           : "";
    return host[0] != 0 && strlen(text) < URL_MAX / 2 && strpbrk(host, " /?#@\"") == NULL;
}

static strait_err split_members(struct strait_etcd_http *http, const char *members) {
    char *rest = NULL;
    STRAIT_TRY(strait_alloc_string(members, &http->list));
    for (char *at = strtok_r(http->list, ",", &rest); at != NULL; at = strtok_r(NULL, ",", &rest)) {
        if (http->n_members == STRAIT_ETCD_MEMBERS_MAX)
            return STRAIT_FAIL(STRAIT_ECONFIG, "metastore: more than %d etcd members",
                               STRAIT_ETCD_MEMBERS_MAX);
        if (!is_url(at))
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "metastore: etcd member '%.80s': expected http://HOST:PORT or "
                               "https://HOST:PORT",
                               at);
        http->members[http->n_members++] = at;
    }
    if (http->n_members > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "metastore 'etcd:': expected etcd:http://HOST:PORT,http://HOST:PORT,...");
}

/* Only http and https, no redirects, no proxy from the environment, no signals. */
static void set_up_curl(struct strait_etcd_http *http, const strait_metastore_config *config) {
    CURL *curl = http->curl;
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, http->headers);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->curl_error);
    if (config->ca_file != NULL) (void)curl_easy_setopt(curl, CURLOPT_CAINFO, config->ca_file);
    if (config->cert_file != NULL) (void)curl_easy_setopt(curl, CURLOPT_SSLCERT, config->cert_file);
    if (config->key_file != NULL) (void)curl_easy_setopt(curl, CURLOPT_SSLKEY, config->key_file);
}

strait_err strait_etcd_http_init(struct strait_etcd_http *http, const char *members,
                                 const strait_metastore_config *config) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    STRAIT_TRY(split_members(http, members));
    http->timeout_ms = config->timeout_ms;
    (void)pthread_once(&once, begin_curl);
    http->curl = curl_easy_init();
    /* Without this, libcurl waits up to a second for "100 Continue" before it sends a large body.
     */
    http->headers = curl_slist_append(NULL, "Expect:");
    if (http->curl == NULL || http->headers == NULL)
        return STRAIT_FAIL(STRAIT_ENOMEM,
                           "metastore: etcd needs libcurl, which is not installed (Debian "
                           "package libcurl4) or is out of memory");
    set_up_curl(http, config);
    return STRAIT_OK;
}

void strait_etcd_http_fini(struct strait_etcd_http *http) {
    if (http->curl != NULL) curl_easy_cleanup(http->curl);
    curl_slist_free_all(http->headers);
    strait_alloc_free(http->list);
    *http = (struct strait_etcd_http){.curl = NULL};
}

/* ---- one request to one member ---- */

struct answer {
    char *text;
    size_t n, capacity;
    int (*is_end)(const json_t *answer); // for a watch, whose answers are lines
    int is_ended;
};

/* Checks every complete line and removes it. */
static void check_lines(struct answer *a) {
    char *end = NULL;
    while (!a->is_ended && (end = memchr(a->text, '\n', a->n)) != NULL) {
        const size_t n = (size_t)(end - a->text) + 1;
        json_t *line = NULL;
        if (strait_json_parse(a->text, n, &line) == STRAIT_OK) a->is_ended = a->is_end(line);
        json_decref(line);
        memmove(a->text, a->text + n, a->n - n);
        a->n -= n;
    }
}

/* Receives a part of an answer. Returning 0 ends the transfer, which bounds the memory that a
 * malfunctioning member can make us use. */
static size_t append(char *data, size_t size, size_t n, void *user) {
    struct answer *a = user;
    const size_t bytes = size * n;
    if (bytes > ANSWER_MAX - a->n) return 0;
    if (a->n + bytes > a->capacity) {
        const size_t capacity = 2 * (a->n + bytes);
        void *text = a->text;
        if (strait_alloc_grow(&text, a->capacity, capacity, 1, "answer of etcd") != STRAIT_OK)
            return 0;
        a->text = text;
        a->capacity = capacity;
    }
    if (bytes > 0) memcpy(a->text + a->n, data, bytes);
    a->n += bytes;
    if (a->is_end != NULL) check_lines(a);
    return a->is_ended ? 0 : bytes; // 0 ends the transfer
}

/* Sends one request and collects its answer. Keeps the text of the first failure that is more
 * specific than a timeout, for the error message. */
static CURLcode post(struct strait_etcd_http *http, const char *path, const char *body, int64_t ms,
                     struct answer *a) {
    char url[URL_MAX];
    (void)snprintf(url, sizeof url, "%s%s", http->members[http->current], path);
    http->curl_error[0] = 0;
    (void)curl_easy_setopt(http->curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, body);
    (void)curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    (void)curl_easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, (long)ms);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, append);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, a);
    const CURLcode code = curl_easy_perform(http->curl);
    if (code != CURLE_OK && (code != CURLE_OPERATION_TIMEDOUT || http->reason[0] == 0))
        (void)snprintf(http->reason, sizeof http->reason, "%s",
                       http->curl_error[0] != 0 ? http->curl_error : curl_easy_strerror(code));
    return code;
}

/* Errors that may not occur at another member, or at the same one a little later. */
static int is_transient(int64_t code) {
    return code == CODE_UNAVAILABLE || code == CODE_DEADLINE || code == CODE_UNKNOWN;
}

/* Translates the error of an answer. STRAIT_ETIMEDOUT: try again. */
static strait_err judge(struct strait_etcd_http *http, const json_t *answer) {
    const json_t *error = json_object_get(answer, "error");
    if (error == NULL) return STRAIT_OK;
    const json_t *inner = json_is_object(error) ? error
                                                : answer; // an error of a stream, or of a call
    const char *message = json_string_value(json_object_get(inner, "message"));
    const int64_t code = json_integer_value(
        json_object_get(inner, json_is_object(error) ? "grpc_code" : "code"));
    if (message == NULL) message = "no message";
    (void)snprintf(http->reason, sizeof http->reason, "%.200s", message);
    if (is_transient(code)) return STRAIT_ETIMEDOUT;
    if (code == CODE_NOT_FOUND) return STRAIT_EAGAIN;
    const char *member = http->members[http->current];
    if (code == CODE_DENIED || code == CODE_UNAUTHENTICATED)
        return STRAIT_FAIL(STRAIT_EAUTH, "etcd at %s refuses access: %.200s", member, message);
    if (code == CODE_EXHAUSTED)
        return STRAIT_FAIL(
            STRAIT_EIO,
            "etcd at %s has no space: %.200s; compact and defragment it, or raise its "
            "quota: nothing committed is lost",
            member, message);
    return STRAIT_FAIL(STRAIT_EDATA, "etcd at %s: %.200s (code %d)", member, message, (int)code);
}

/* STRAIT_ETIMEDOUT: no answer, or a transient error. */
static strait_err ask_one(struct strait_etcd_http *http, const char *path, const char *body,
                          int64_t ms, json_t **out) {
    struct answer a = {.text = NULL};
    const CURLcode code = post(http, path, body, ms, &a);
    json_t *answer = NULL;
    strait_err err = STRAIT_ETIMEDOUT;
    if (code == CURLE_OK &&
        strait_json_parse(a.text != NULL ? a.text : "", a.n, &answer) == STRAIT_OK)
        err = judge(http, answer);
    else if (code == CURLE_OK)
        (void)snprintf(http->reason, sizeof http->reason,
                       "the answer is not JSON: is this an etcd gateway?");
    strait_alloc_free(a.text);
    if (err != STRAIT_OK) {
        json_decref(answer);
        return err;
    }
    *out = answer;
    return STRAIT_OK;
}

/* ---- any member ---- */

static strait_err fail_unreachable(const struct strait_etcd_http *http) {
    return STRAIT_FAIL(
        STRAIT_ETIMEDOUT,
        "etcd: none of %d members answered within %d ms (%.150s); start them or "
        "repair the network: committed entries are safe, new commits are not possible",
        http->n_members, http->timeout_ms, http->reason);
}

/* A member may wait long for a raft leader that has died, so each gets only a share of the time. */
static int64_t attempt_ms(int64_t left_ms, int n_left, int64_t limit_ms) {
    const int64_t share_ms = left_ms / n_left;
    const int64_t ms = share_ms < limit_ms ? share_ms : limit_ms;
    return ms < ATTEMPT_MIN_MS ? ATTEMPT_MIN_MS : ms;
}

static strait_err ask_round(struct strait_etcd_http *http, const char *path, const char *body,
                            int64_t until_ns, int64_t limit_ms, json_t **out) {
    for (int i = 0; i < http->n_members; i++) {
        const int64_t left_ms = (until_ns - strait_clock_ns()) / NS_PER_MS;
        if (left_ms <= 0) break;
        const int64_t ms = attempt_ms(left_ms, http->n_members - i, limit_ms);
        const strait_err err = ask_one(http, path, body, ms, out);
        if (err != STRAIT_ETIMEDOUT) return err;
        http->current = (http->current + 1) % http->n_members;
    }
    return STRAIT_ETIMEDOUT;
}

strait_err strait_etcd_http_ask(struct strait_etcd_http *http, const char *path,
                                const json_t *request, json_t **out) {
    const int64_t until_ns = strait_clock_ns() + (int64_t)http->timeout_ms * NS_PER_MS;
    char *body = json_dumps(request, JSON_COMPACT);
    if (body == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a question to etcd");
    strait_err err = STRAIT_ETIMEDOUT;
    http->reason[0] = 0;
    int64_t limit_ms = ATTEMPT_MS;
    while (err == STRAIT_ETIMEDOUT && strait_clock_ns() < until_ns) {
        err = ask_round(http, path, body, until_ns, limit_ms, out);
        if (limit_ms < http->timeout_ms) limit_ms *= 2;
        if (err == STRAIT_ETIMEDOUT)
            (void)nanosleep(&(struct timespec){0, (long)ROUND_PAUSE_MS * NS_PER_MS}, NULL);
    }
    free(body);
    return err == STRAIT_ETIMEDOUT ? fail_unreachable(http) : err;
}

strait_err strait_etcd_http_watch(struct strait_etcd_http *http, const json_t *request, int wait_ms,
                                  int (*is_end)(const json_t *answer)) {
    struct answer a = {.is_end = is_end};
    char *body = json_dumps(request, JSON_COMPACT);
    if (body == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for a question to etcd");
    const CURLcode code = post(http, "/v3/watch", body, wait_ms, &a);
    free(body);
    strait_alloc_free(a.text);
    if (a.is_ended) return STRAIT_OK;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return STRAIT_FAIL(STRAIT_ETIMEDOUT, "nothing changed within %d ms", wait_ms);
    const strait_err err = STRAIT_FAIL(STRAIT_ECLOSED, "etcd at %s closed the connection: %.150s",
                                       http->members[http->current], http->reason);
    http->current = (http->current + 1) % http->n_members;
    return err;
}
