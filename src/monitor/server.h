/* server.h - the inside of a monitor: the thread that serves its readers.
 *
 * The publisher and the thread share no lock. Three slots hold states: the publisher fills one, the
 * thread reads another, and each exchanges its own for the third, so that neither waits and nothing
 * published is lost. The thread owns everything that is not said to be the publisher's or atomic.
 */
#pragma once

#include "base/embedded.h"
#include "base/file.h"
#include "monitor/listen.h"
#include "monitor/state.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    STRAIT_MONITOR_SLOTS = 3,
    STRAIT_MONITOR_FRESH = 4 // in `newest`: the thread has not taken this slot yet
};

/* A message that several streams may be sending. */
typedef struct strait_message {
    int n_refs;
    int is_empty;   // only keeps connections alive
    int64_t serial; // of all messages
    int64_t number; // of the latest contents
    size_t bytes, whole_bytes;
    char *text;  // what changed since the contents before
    char *whole; // the same with the whole state; NULL until a reader needs it
} strait_message;

/* One reader of /api/v1/stream. */
struct strait_stream {
    struct strait_monitor *monitor;
    struct MHD_Connection *connection;
    strait_message *message; // being sent; NULL: none
    const char *text;        // of it: the changes or the whole
    size_t bytes, sent;
    int64_t serial, number; // of the last message taken
    int is_suspended;       // waits for the next message
    struct strait_stream *prev, *next;
};

struct strait_monitor {
    strait_state own; // the publisher's
    int back;         // the publisher's slot
    strait_state slots[STRAIT_MONITOR_SLOTS];
    atomic_int newest;          // the slot that was exchanged last, and whether it is fresh
    _Atomic(char *) swarm_text; // newer than `swarm`; NULL: none. Of jansson
    atomic_int wants_news;      // whether the publisher shall wake the thread
    atomic_int is_stopping;
    int wake_fd; // an eventfd: something was published, or the run ended
    pthread_t thread;
    int has_thread;
    /* The thread's own: */
    struct strait_listener listener;
    int front;                          // its slot
    const strait_state *view;           // the state in it
    int64_t view_version, sent_version; // seen; in the latest message
    json_t *swarm;
    strait_follow follow;
    strait_message *latest;
    json_t *sent; // the contents of the latest message with the whole state; NULL: none
    int64_t n_messages;
    double sent_at;
    char *timeline; // an answer, and when it was composed. Of jansson
    double timeline_at;
    struct strait_stream *streams;
    int n_streams, is_ended;
    int has_resumed; // streams that the daemon does not look at before it runs again
    char metrics_path[STRAIT_PATH_MAX];
};

/* The embedded page.html is the first. */
extern const strait_embedded_file strait_page_files[];

/* Answers a request; the MHD_AccessHandlerCallback of the daemon. */
enum MHD_Result strait_monitor_answer(void *monitor, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *upload, size_t *upload_bytes, void **request);

/* Takes what was published since as view and swarm. */
void strait_monitor_refresh(struct strait_monitor *monitor);

/* Opens a stream as a response. NULL: no memory. */
struct MHD_Response *strait_stream_open(struct strait_monitor *monitor,
                                        struct MHD_Connection *connection);
/* Composes a message of the current state and lets all streams send it. `is_empty`: one that only
 * keeps connections alive. */
void strait_stream_broadcast(struct strait_monitor *monitor, int is_empty);
/* Dumps a value as all answers are written; of jansson. Takes the reference. NULL: no memory. */
char *strait_monitor_dump(json_t *object);
/* Whether every stream has sent the latest message. */
int strait_stream_is_idle(const struct strait_monitor *monitor);
/* Lets suspended streams go on; before the daemon stops. */
void strait_stream_resume_all(struct strait_monitor *monitor);
void strait_message_release(strait_message **message); // accepts NULL

/* metrics.jsonl as a download, as it is or as CSV, read piece by piece. NULL: there is none. */
struct MHD_Response *strait_download_jsonl(const char *path);
struct MHD_Response *strait_download_csv(const char *path);
