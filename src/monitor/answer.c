/* answer.c - what each address of the page answers, to whom, and with which headers. */
#include "base/alloc.h"
#include "base/clock.h"
#include "monitor/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double timeline_s = 1.0; // that an answer is used again

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
    const strait_embedded_file *file = &strait_page_files[0];
    return MHD_create_response_from_buffer(file->bytes, (void *)file->text, MHD_RESPMEM_PERSISTENT);
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

static enum MHD_Result refuse(const struct strait_monitor *m, struct MHD_Connection *c,
                              unsigned code, const char *text) {
    struct MHD_Response *response = of_text(text);
    if (response != NULL && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    return strait_listener_reply(&m->listener, c, code, "text/plain; charset=utf-8", response);
}

static const struct address *find(const char *path) {
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (strcmp(addresses[i].path, path) == 0) return &addresses[i];
    return NULL;
}

/* Whether the reader may have an answer; otherwise it was refused, with *result. */
static int is_admitted(const struct strait_monitor *m, struct MHD_Connection *c,
                       enum MHD_Result *result) {
    const unsigned code = strait_listener_refuses(&m->listener, c);
    if (code == 0) return 1;
    *result = refuse(m, c, code,
                     code == MHD_HTTP_UNAUTHORIZED
                         ? "a token is needed: open the address that strait printed\n"
                         : "open this page as http://127.0.0.1\n");
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
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, name);
    }
    return strait_listener_reply(&m->listener, c, MHD_HTTP_OK, a->type, response);
}
