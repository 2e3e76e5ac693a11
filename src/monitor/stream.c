/* stream.c - server-sent events. All streams share one message at a time: a reader that is slower
 * than the run finds only the latest one when it has finished another, and sees from its number
 * that it missed some. So a reader costs one reference and one send buffer, however slow it is. */
#include "base/alloc.h"
#include "base/clock.h"
#include "monitor/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 4096
};

void strait_message_release(strait_message **message) {
    if (*message != NULL && --(*message)->n_refs == 0) {
        strait_alloc_free((*message)->text);
        strait_alloc_free(*message);
    }
    *message = NULL;
}

/* Copies the next part of the message, or suspends the connection until there is one. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t capacity) {
    struct strait_stream *s = user;
    struct strait_monitor *m = s->monitor;
    (void)position;
    if (s->message == NULL && m->latest != NULL && m->latest->number > s->number) {
        s->message = m->latest;
        s->message->n_refs++;
        s->number = s->message->number;
        s->sent = 0;
    }
    if (s->message == NULL) {
        if (m->is_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        s->is_suspended = 1;
        MHD_suspend_connection(s->connection);
        return 0;
    }
    size_t n = s->message->bytes - s->sent;
    if (n > capacity) n = capacity;
    memcpy(out, s->message->text + s->sent, n);
    s->sent += n;
    if (s->sent == s->message->bytes) strait_message_release(&s->message);
    return (ssize_t)n;
}

static void close_stream(void *user) {
    struct strait_stream *s = user;
    struct strait_monitor *m = s->monitor;
    if (s->prev != NULL) s->prev->next = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
    if (m->streams == s) m->streams = s->next;
    m->n_streams--;
    strait_message_release(&s->message);
    strait_alloc_free(s);
}

struct MHD_Response *strait_stream_open(struct strait_monitor *m,
                                        struct MHD_Connection *connection) {
    void *memory = NULL;
    if (strait_alloc(1, sizeof(struct strait_stream), "stream", &memory) != STRAIT_OK) return NULL;
    struct strait_stream *s = memory;
    *s = (struct strait_stream){.monitor = m, .connection = connection, .next = m->streams};
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                                      read_stream, s, close_stream);
    if (response == NULL) {
        strait_alloc_free(s);
        return NULL;
    }
    if (m->streams != NULL) m->streams->prev = s;
    m->streams = s;
    m->n_streams++;
    /* A message may be on its way to others; if the state is newer, this one gets its own. */
    if (m->latest == NULL || m->view_version != m->sent_version) strait_stream_broadcast(m, 0);
    return response;
}

void strait_stream_resume_all(struct strait_monitor *m) {
    for (struct strait_stream *s = m->streams; s != NULL; s = s->next) {
        if (!s->is_suspended) continue;
        s->is_suspended = 0;
        MHD_resume_connection(s->connection);
    }
}

int strait_stream_is_idle(const struct strait_monitor *m) {
    for (const struct strait_stream *s = m->streams; s != NULL; s = s->next)
        if (s->message != NULL || !s->is_suspended) return 0;
    return 1;
}

/* {"number", "state", "reset", "points", "valid"}: the new points come with the state, so that a
 * page need not ask for the history again. */
static json_t *compose(struct strait_monitor *m) {
    json_t *points = json_array(), *valid = json_array();
    strait_follow_read(&m->follow);
    for (int i = 0; i < m->follow.n_fresh; i++)
        (void)json_array_append_new(points, strait_series_pack_point(&m->follow.fresh[i]));
    for (int i = 0; i < m->follow.n_fresh_valid; i++)
        (void)json_array_append_new(valid, strait_series_pack_valid(&m->follow.fresh_valid[i]));
    const int is_reset = m->follow.is_reset;
    strait_follow_take(&m->follow);
    return json_pack("{sI so sb so so}", "number", (json_int_t)m->n_messages, "state",
                     strait_state_pack(&m->view, m->swarm), "reset", is_reset, "points", points,
                     "valid", valid);
}

/* A line that begins with a colon is a comment, which readers ignore. */
static char *compose_text(struct strait_monitor *m, int is_empty) {
    if (is_empty) return strdup(":");
    json_t *object = compose(m);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(13)) : NULL;
    json_decref(object);
    return text;
}

void strait_stream_broadcast(struct strait_monitor *m, int is_empty) {
    strait_message *message = NULL;
    void *memory = NULL;
    m->n_messages += !is_empty;
    char *text = compose_text(m, is_empty);
    m->sent_at = strait_clock_seconds();
    m->sent_version = m->view_version;
    if (text == NULL) return; // no memory now; the next message says that one was missed
    const size_t capacity = strlen(text) + 64;
    if (strait_alloc(1, sizeof *message, "message", (void **)&message) == STRAIT_OK &&
        strait_alloc(capacity, 1, "message", &memory) == STRAIT_OK) {
        message->text = memory;
        message->n_refs = 1;
        message->number = m->latest != NULL ? m->latest->number + 1 : 1;
        message->bytes = (size_t)snprintf(message->text, capacity,
                                          is_empty ? "%s\n\n" : "event: state\ndata: %s\n\n", text);
        strait_message_release(&m->latest);
        m->latest = message;
        strait_stream_resume_all(m);
    } else {
        strait_alloc_free(message);
    }
    free(text);
}
