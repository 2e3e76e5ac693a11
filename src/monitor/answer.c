/* answer.c - what each address of the page answers, to whom, and with which headers. */
#include "base/alloc.h"
#include "base/clock.h"
#include "monitor/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double timeline_s = 1.0; // that an answer is used again

/* Compares without revealing by its duration how many characters agree. */
static int is_token(const char *given, const char *wanted) {
    const size_t n = strlen(wanted);
    unsigned differs = strlen(given) != n;
    for (size_t i = 0; i < n && given[i] != '\0'; i++)
        differs |= (unsigned)((unsigned char)given[i] ^ (unsigned char)wanted[i]);
    return !differs;
}

static const char *header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* "Authorization: Bearer TOKEN", or ?token=TOKEN for browsers, which cannot send the other. */
static int has_token(const struct strait_monitor *m, struct MHD_Connection *c) {
    const char *query = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token");
    const char *bearer = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    if (query != NULL && is_token(query, m->token)) return 1;
    return bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0 &&
           is_token(bearer + 7, m->token);
}

/* Without a token the name in the request must be one of loopback: a site whose name resolves to
 * 127.0.0.1 could otherwise read the page through its visitor's browser. */
static int is_local_name(struct MHD_Connection *c) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = header(c, MHD_HTTP_HEADER_HOST);
    if (host == NULL) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':')) return 1;
    }
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.:") == strlen(host);
}

/* The library copies the text, although its parameter is not const. */
static struct MHD_Response *of_text(const char *text) {
    return MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
}

/* Takes the reference. NULL: no memory. */
static struct MHD_Response *of_json(json_t *object) {
    char *text = strait_monitor_dump(object);
    if (text == NULL) return NULL;
    return MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
}

static struct MHD_Response *page(struct strait_monitor *m, struct MHD_Connection *c) {
    (void)m, (void)c;
    return MHD_create_response_from_buffer(strait_page_html_bytes, (void *)strait_page_html,
                                           MHD_RESPMEM_PERSISTENT);
}

static struct MHD_Response *state(struct strait_monitor *m, struct MHD_Connection *c) {
    (void)c;
    return of_json(strait_state_pack(m->view, m->swarm));
}

/* `number` is that of the last message whose points are included. */
static struct MHD_Response *history(struct strait_monitor *m, struct MHD_Connection *c) {
    (void)c;
    strait_follow_read(&m->follow);
    json_t *object = strait_series_pack(&m->follow.series);
    (void)json_object_set_new(object, "number", json_integer((json_int_t)m->n_messages));
    return of_json(object);
}

/* The longest answer of all. Pages ask for it at the same time, so it is composed once for them. */
static struct MHD_Response *timeline(struct strait_monitor *m, struct MHD_Connection *c) {
    const double now = strait_clock_seconds();
    (void)c;
    if (m->timeline == NULL || now - m->timeline_at > timeline_s) {
        free(m->timeline);
        m->timeline = strait_monitor_dump(strait_state_pack_timeline(m->view));
        m->timeline_at = now;
    }
    return m->timeline != NULL ? of_text(m->timeline) : NULL;
}

static struct MHD_Response *prometheus(struct strait_monitor *m, struct MHD_Connection *c) {
    char *text = NULL;
    size_t bytes = 0;
    (void)c;
    if (strait_state_expose(m->view, m->swarm, m->n_streams, &text, &bytes) != STRAIT_OK)
        return NULL;
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text,
                                                                    MHD_RESPMEM_MUST_COPY);
    strait_alloc_free(text);
    return response;
}

static struct MHD_Response *jsonl(struct strait_monitor *m, struct MHD_Connection *c) {
    (void)c;
    return strait_download_jsonl(m->metrics_path);
}

static struct MHD_Response *csv(struct strait_monitor *m, struct MHD_Connection *c) {
    (void)c;
    return strait_download_csv(m->metrics_path);
}

/* Every address; all are read-only. */
static const struct address {
    const char *path, *type, *file; // file: offered as a download under this name
    struct MHD_Response *(*answer)(struct strait_monitor *m, struct MHD_Connection *c);
} addresses[] = {
    {"/", "text/html; charset=utf-8", NULL, page},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", NULL, prometheus},
    {"/metrics.jsonl", "application/x-ndjson", "metrics.jsonl", jsonl},
    {"/metrics.csv", "text/csv; charset=utf-8", "metrics.csv", csv},
    {"/api/v1/state", "application/json", NULL, state},
    {"/api/v1/history", "application/json", NULL, history},
    {"/api/v1/timeline", "application/json", NULL, timeline},
    {"/api/v1/stream", "text/event-stream", NULL, strait_stream_open},
};

static void add(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

/* Nothing from elsewhere is loaded, nobody may frame the page, and nothing is kept by caches. */
static enum MHD_Result reply(const struct strait_monitor *m, struct MHD_Connection *c,
                             unsigned code, const char *type, struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    add(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    add(response, "Content-Security-Policy", m->policy);
    add(response, "X-Content-Type-Options", "nosniff");
    add(response, "X-Frame-Options", "DENY");
    add(response, "Referrer-Policy", "no-referrer");
    add(response, "Cross-Origin-Resource-Policy", "same-origin");
    add(response, "Cross-Origin-Opener-Policy", "same-origin");
    add(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (code == MHD_HTTP_UNAUTHORIZED) add(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) add(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(c, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(const struct strait_monitor *m, struct MHD_Connection *c,
                              unsigned code, const char *text) {
    return reply(m, c, code, "text/plain; charset=utf-8", of_text(text));
}

static const struct address *find(const char *path) {
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (strcmp(addresses[i].path, path) == 0) return &addresses[i];
    return NULL;
}

/* Whether the reader may have an answer; otherwise it was refused, with *result. */
static int is_admitted(const struct strait_monitor *m, struct MHD_Connection *c,
                       enum MHD_Result *result) {
    if (m->token[0] != '\0' && !has_token(m, c))
        *result = refuse(m, c, MHD_HTTP_UNAUTHORIZED,
                         "a token is needed: open the address that strait printed\n");
    else if (m->token[0] == '\0' && !is_local_name(c))
        *result = refuse(m, c, MHD_HTTP_FORBIDDEN, "open this page as http://127.0.0.1\n");
    else
        return 1;
    return 0;
}

// NOLINTBEGIN(readability-non-const-parameter,readability-function-size): the type of the library
enum MHD_Result strait_monitor_answer(void *monitor, struct MHD_Connection *c, const char *url,
                                      const char *method, const char *version, const char *upload,
                                      size_t *upload_bytes, void **request) {
    // NOLINTEND(readability-non-const-parameter,readability-function-size)
    struct strait_monitor *m = monitor;
    const struct address *a = find(url);
    static int is_begun;
    enum MHD_Result result = MHD_NO;
    char name[96];
    (void)version, (void)upload, (void)upload_bytes;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(m, c, MHD_HTTP_METHOD_NOT_ALLOWED, "this page is read-only\n");
    /* The first call has the headers alone; an answer then would close the connection. */
    if (*request == NULL) {
        *request = &is_begun;
        return MHD_YES;
    }
    if (!is_admitted(m, c, &result)) return result;
    if (a == NULL) return refuse(m, c, MHD_HTTP_NOT_FOUND, "no such address\n");
    strait_monitor_refresh(m);
    struct MHD_Response *response = a->answer(m, c);
    if (response == NULL) return refuse(m, c, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready yet\n");
    if (a->file != NULL) {
        (void)snprintf(name, sizeof name, "attachment; filename=\"%s\"", a->file);
        add(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, name);
    }
    return reply(m, c, MHD_HTTP_OK, a->type, response);
}
