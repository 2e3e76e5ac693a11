/* answer.c - the http side: addresses, bodies, and how answers leave. Runs in the daemon's thread.
 */
#include "base/clock.h"
#include "serve/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 4096,
    DISCARDED_MAX = 8 * STRAIT_SERVE_BODY_MAX // of a body that is too large, then we hang up
};

static const char type_json[] = "application/json";
static char is_begun; // its address marks a request that is not a job

/* Takes a text of jansson. Clients that were refused for lack of space are told when to come back.
 */
static enum MHD_Result reply(const struct strait_serve *s, struct MHD_Connection *c, unsigned code,
                             char *text) {
    struct MHD_Response *response = NULL;
    if (text != NULL)
        response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response != NULL &&
        (code == MHD_HTTP_TOO_MANY_REQUESTS || code == MHD_HTTP_SERVICE_UNAVAILABLE))
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return strait_listener_reply(&s->listener, c, code, type_json, response);
}

static enum MHD_Result refuse(struct strait_serve *s, struct MHD_Connection *c, unsigned code,
                              const char *message) {
    (void)pthread_mutex_lock(&s->lock);
    s->counts.refused++;
    (void)pthread_mutex_unlock(&s->lock);
    return reply(s, c, code, strait_reply_error(code, message));
}

/* Copies what there is of a stream, or suspends the connection until there is more. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t capacity) {
    struct strait_job *job = user;
    ssize_t result = 0;
    (void)position;
    (void)pthread_mutex_lock(&job->serve->lock);
    const size_t left = job->output.n - job->n_sent;
    const size_t n = left < capacity ? left : capacity;
    if (n > 0) {
        memcpy(out, job->output.data + job->n_sent, n);
        job->n_sent += n;
        if (job->n_sent == job->output.n) job->output.n = job->n_sent = 0;
        result = (ssize_t)n;
    } else if (job->state == STRAIT_JOB_DONE) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        job->is_suspended = 1;
        MHD_suspend_connection(job->connection);
    }
    (void)pthread_mutex_unlock(&job->serve->lock);
    return result;
}

static void close_stream(void *user) {
    struct strait_job *job = user;
    strait_job_release(&job);
}

/* The response holds a reference of its own: it may outlive the request. */
static enum MHD_Result begin_stream(struct strait_job *job, struct MHD_Connection *c) {
    struct strait_serve *s = job->serve;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, job, close_stream);
    if (response == NULL) return MHD_NO;
    (void)pthread_mutex_lock(&s->lock);
    job->n_refs++;
    (void)pthread_mutex_unlock(&s->lock);
    return strait_listener_reply(&s->listener, c, MHD_HTTP_OK, "text/event-stream", response);
}

static unsigned code_of(const struct strait_job *job) {
    switch (job->err) {
    case STRAIT_OK: return MHD_HTTP_OK;
    case STRAIT_ETIMEDOUT: return MHD_HTTP_GATEWAY_TIMEOUT;
    case STRAIT_ENOMEM:
    case STRAIT_EINTERRUPTED: return MHD_HTTP_SERVICE_UNAVAILABLE;
    default: return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

/* The answer, if it is complete; otherwise the connection waits. */
static enum MHD_Result answer_or_wait(struct strait_job *job, struct MHD_Connection *c) {
    struct strait_serve *s = job->serve;
    (void)pthread_mutex_lock(&s->lock);
    const int is_done = job->state == STRAIT_JOB_DONE;
    if (!is_done) {
        job->is_suspended = 1;
        MHD_suspend_connection(c);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_done) return MHD_YES;
    const unsigned code = code_of(job);
    if (code != MHD_HTTP_OK) return refuse(s, c, code, job->reason);
    return reply(s, c, code, strait_reply_answer(job));
}

/* The deadline of a request covers its body, too: a connection from which nothing comes for as long
 * as is left is closed. Returns whether time is left. */
static int limit_wait(const struct strait_job *job, struct MHD_Connection *c) {
    const double left = job->deadline - strait_clock_seconds();
    const unsigned most = STRAIT_LISTENER_IDLE_S;
    const unsigned wait = left + 1 < (double)most ? (unsigned)(left + 1) : most; // 0 is forever
    if (left <= 0) return 0;
    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, wait);
    return 1;
}

/* Keeps a part of the body; one that is too large is read on for a while, so that the client gets
 * its answer. */
static enum MHD_Result take_body(struct strait_job *job, struct MHD_Connection *c,
                                 const char *upload, size_t n) {
    if (!limit_wait(job, c)) return MHD_NO;
    job->n_sent += n; // counts the body before there is output
    if (job->n_sent > DISCARDED_MAX) return MHD_NO;
    if (job->n_sent > STRAIT_SERVE_BODY_MAX) job->is_too_large = 1;
    if (job->is_too_large) return MHD_YES;
    return strait_buffer_append(&job->body, upload, n) == STRAIT_OK ? MHD_YES : MHD_NO;
}

static enum MHD_Result go_on(struct strait_job *job, struct MHD_Connection *c) {
    unsigned code = 0;
    if (job->connection != NULL) return answer_or_wait(job, c); // admitted before
    if (job->is_too_large)
        return refuse(job->serve, c, MHD_HTTP_CONTENT_TOO_LARGE, "the body is larger than 1 MiB");
    job->n_sent = 0;
    job->connection = c;
    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT,
                                    (unsigned)STRAIT_LISTENER_IDLE_S);
    strait_connections_begin(c);
    if (strait_job_admit(job, &code) != STRAIT_OK)
        return refuse(job->serve, c, code, strait_err_detail());
    return job->ask.streams ? begin_stream(job, c) : answer_or_wait(job, c);
}

/* A page of another site may send requests, but not in the name of its visitor. */
static int is_foreign(struct MHD_Connection *c) {
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *from = origin != NULL ? strstr(origin, "://") : NULL;
    if (origin == NULL) return 0;
    return from == NULL || host == NULL || strcmp(from + 3, host) != 0;
}

static const char no_such_address[] = "no such address: /v1/models (GET), /v1/completions, "
                                      "/v1/chat/completions (POST)";

static enum MHD_Result get(struct strait_serve *s, struct MHD_Connection *c, const char *url) {
    if (strcmp(url, "/v1/models") == 0) return reply(s, c, MHD_HTTP_OK, strait_reply_models(s));
    if (strncmp(url, "/v1/models/", 11) == 0 && strcmp(url + 11, s->spec.model) == 0)
        return reply(s, c, MHD_HTTP_OK, strait_reply_model(s));
    if (strcmp(url, "/health") == 0) return reply(s, c, MHD_HTTP_OK, strdup("{\"status\":\"ok\"}"));
    if (strcmp(url, "/v1/completions") == 0 || strcmp(url, "/v1/chat/completions") == 0)
        return refuse(s, c, MHD_HTTP_METHOD_NOT_ALLOWED, "this address takes POST, not GET");
    if (strcmp(url, "/") != 0) return refuse(s, c, MHD_HTTP_NOT_FOUND, no_such_address);
    return strait_listener_reply(&s->listener, c, MHD_HTTP_OK, "text/html; charset=utf-8",
                                 MHD_create_response_from_buffer(strait_serve_files[0].bytes,
                                                                 (void *)strait_serve_files[0].text,
                                                                 MHD_RESPMEM_PERSISTENT));
}

/* The first call of a request: it has the headers alone. A job is opened only for those who may
 * have an answer. */
static enum MHD_Result begin(struct strait_serve *s, struct MHD_Connection *c, const char *url,
                             const char *method, void **request) {
    const int is_chat = strcmp(url, "/v1/chat/completions") == 0;
    const unsigned refused = strait_listener_refuses(&s->listener, c);
    struct strait_job *job = NULL;
    strait_connections_header(c);
    if (refused != 0)
        return refuse(s, c, refused,
                      refused == MHD_HTTP_UNAUTHORIZED
                          ? "a token is needed: Authorization: Bearer TOKEN"
                          : "without a token the host must be 127.0.0.1 or localhost");
    if (strcmp(method, "POST") != 0) {
        *request = &is_begun; // an answer to the first call would close the connection
        return MHD_YES;
    }
    if (!is_chat && strcmp(url, "/v1/completions") != 0)
        return refuse(s, c, MHD_HTTP_NOT_FOUND, no_such_address);
    if (is_foreign(c))
        return refuse(s, c, MHD_HTTP_FORBIDDEN,
                      "requests in the name of other sites (Origin) are refused");
    if (strait_job_open(s, is_chat, &job) != STRAIT_OK) return MHD_NO;
    *request = job;
    return limit_wait(job, c) ? MHD_YES : MHD_NO;
}

// NOLINTBEGIN(readability-non-const-parameter,readability-function-size): the type of the library
enum MHD_Result strait_serve_answer(void *user, struct MHD_Connection *c, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_bytes, void **request) {
    // NOLINTEND(readability-non-const-parameter,readability-function-size)
    struct strait_job *job = *request;
    (void)version;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0 && strcmp(method, "POST") != 0)
        return refuse(user, c, MHD_HTTP_METHOD_NOT_ALLOWED, "use GET or POST");
    if (job == NULL) return begin(user, c, url, method, request);
    if (*request == &is_begun) return get(user, c, url);
    if (*upload_bytes == 0) return go_on(job, c);
    const enum MHD_Result result = take_body(job, c, upload, *upload_bytes);
    *upload_bytes = 0;
    return result;
}

void strait_serve_completed(void *user, struct MHD_Connection *c, void **request,
                            enum MHD_RequestTerminationCode why) {
    struct strait_serve *s = user;
    struct strait_job *job = *request;
    (void)c, (void)why;
    if (job == NULL || *request == &is_begun) return;
    (void)pthread_mutex_lock(&s->lock);
    job->connection = NULL;
    job->is_left = 1;
    (void)pthread_mutex_unlock(&s->lock);
    strait_job_release(&job);
    *request = NULL;
}
