/* stream.c - server-sent events. All streams share one message at a time, which has what changed
 * since the one before: a reader that is slower than the run finds only the latest one when it has
 * finished another, sees from its number that it missed some, and gets the whole state with it. So
 * a reader costs one reference and one send buffer, however slow it is. */
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
        strait_alloc_free((*message)->whole);
        strait_alloc_free(*message);
    }
    *message = NULL;
}

char *strait_monitor_dump(json_t *object) {
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(13)) : NULL;
    json_decref(object);
    return text;
}

/* The text of a message as it is sent; takes `json`. NULL: no memory. */
static char *frame(char *json, size_t *bytes) {
    void *text = NULL;
    const size_t capacity = json != NULL ? strlen(json) + 64 : 0;
    if (json != NULL && strait_alloc(capacity, 1, "message", &text) == STRAIT_OK)
        *bytes = (size_t)snprintf(text, capacity, "event: state\ndata: %s\n\n", json);
    free(json);
    return text;
}

/* Begins to send the latest message, if this reader has not had it. Without memory for the whole
 * state the reader waits for the next message. */
static void take_latest(struct strait_stream *s) {
    struct strait_monitor *m = s->monitor;
    strait_message *latest = m->latest;
    if (latest == NULL || latest->serial <= s->serial) return;
    s->text = latest->text;
    s->bytes = latest->bytes;
    if (s->number == 0 || latest->number > s->number + !latest->is_empty) {
        if (latest->whole == NULL)
            latest->whole = frame(strait_monitor_dump(json_incref(m->sent)), &latest->whole_bytes);
        s->text = latest->whole;
        s->bytes = latest->whole_bytes;
    }
    s->serial = latest->serial;
    if (s->text == NULL) return;
    s->number = latest->number;
    s->message = latest;
    s->message->n_refs++;
    s->sent = 0;
}

/* Copies the next part of the message, or suspends the connection until there is one. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t capacity) {
    struct strait_stream *s = user;
    struct strait_monitor *m = s->monitor;
    (void)position;
    if (s->message == NULL) take_latest(s);
    if (s->message == NULL) {
        if (m->is_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        s->is_suspended = 1;
        MHD_suspend_connection(s->connection);
        return 0;
    }
    size_t n = s->bytes - s->sent;
    if (n > capacity) n = capacity;
    memcpy(out, s->text + s->sent, n);
    s->sent += n;
    if (s->sent == s->bytes) strait_message_release(&s->message);
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
        m->has_resumed = 1;
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
                     strait_state_pack(m->view, m->swarm), "reset", is_reset, "points", points,
                     "valid", valid);
}

/* The message `now` with only the keys of its state that differ from `before`. */
static json_t *leave_out(json_t *now, const json_t *before) {
    json_t *message = json_copy(now), *changes = json_object();
    const json_t *old = json_object_get(before, "state");
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(json_object_get(now, "state"), key, value) {
        if (!json_equal(value, json_object_get(old, key)))
            (void)json_object_set(changes, key, value);
    }
    (void)json_object_set_new(message, "state", changes);
    return message;
}

/* A line that begins with a colon is a comment, which readers ignore. */
static strait_err fill(struct strait_monitor *m, strait_message *message) {
    if (message->is_empty) {
        STRAIT_TRY(strait_alloc_string(":\n\n", &message->text));
        message->bytes = strlen(message->text);
        return STRAIT_OK;
    }
    json_t *object = compose(m);
    if (object == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "cannot compose a message");
    message->number = m->n_messages;
    message->text = frame(strait_monitor_dump(leave_out(object, m->sent)), &message->bytes);
    json_decref(m->sent);
    m->sent = object;
    return message->text != NULL ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "a message");
}

/* Without memory nothing is sent now; the number of the next message says that one was missed. */
void strait_stream_broadcast(struct strait_monitor *m, int is_empty) {
    strait_message *message = NULL;
    m->n_messages += !is_empty;
    m->sent_at = strait_clock_seconds();
    m->sent_version = m->view_version;
    if (strait_alloc(1, sizeof *message, "message", (void **)&message) != STRAIT_OK) return;
    *message = (strait_message){.n_refs = 1, .is_empty = is_empty};
    if (m->latest != NULL) {
        message->serial = m->latest->serial;
        message->number = m->latest->number;
    }
    message->serial++;
    if (fill(m, message) != STRAIT_OK) {
        strait_message_release(&message);
        return;
    }
    strait_message_release(&m->latest);
    m->latest = message;
    strait_stream_resume_all(m);
}
