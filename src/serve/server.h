/* server.h - the inside of a server: jobs, and the two threads that share them.
 *
 * The lock guards the queue, the list of jobs, counts, and of each job what is said below.
 * Everything else of a job belongs to the http thread until the job is queued, then to the
 * computing thread until it is done. */
#pragma once

#include "base/alloc.h"
#include "base/embedded.h"
#include "data/buffer.h"
#include "infer/completion.h"
#include "infer/engine.h"
#include "monitor/listen.h"
#include "serve/chat_template.h"
#include "serve/request.h"
#include "serve/serve.h"

#include <pthread.h>

enum {
    STRAIT_SERVE_BODY_MAX = 1 << 20,  // bytes of a request
    STRAIT_SERVE_OUTPUT_MAX = 1 << 20 // bytes that wait for a client that reads too slowly
};

/* Where a job is. */
typedef enum strait_job_state {
    STRAIT_JOB_READING, // its body arrives
    STRAIT_JOB_QUEUED,
    STRAIT_JOB_RUNNING, // in the engine
    STRAIT_JOB_DONE,    // nothing will be added to its output
} strait_job_state;

/* One request for text. The http thread and the computing thread hold a reference each. */
struct strait_job {
    struct strait_serve *serve;
    struct strait_job *next, *prev; // of all jobs
    struct strait_job *after;       // in the queue
    int n_refs;
    int64_t number;
    int is_chat;
    strait_buffer body;
    int is_too_large;
    strait_serve_ask ask;
    int32_t *ids;
    int64_t n_ids, n_drawn;
    struct strait_completion completion;
    double deadline;
    int64_t created;
    /* Under the lock: */
    strait_job_state state;
    struct MHD_Connection *connection;
    int is_suspended;     // the connection waits for output
    int is_left;          // the client has gone
    int has_role;         // a chat's stream has begun
    strait_buffer output; // text, or events of a stream
    size_t n_sent;        // of a stream's output
    const char *finish;   // "stop", "length"; NULL: none yet
    strait_err err;       // instead of an answer
    char reason[256];
};

struct strait_serve {
    strait_serve_spec spec;
    struct strait_listener listener;
    struct strait_engine *engine;
    struct strait_encoder *encoder;   // of the http thread
    struct strait_chat_template chat; // likewise
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    int has_lock;
    /* Under the lock: */
    struct strait_job *jobs, *first, *last; // all; the queue
    int64_t n_queued, n_jobs;
    int is_stopping;
    strait_serve_counts counts;
};

/* answer.c: the callbacks of the daemon, whose user is the server. */
enum MHD_Result strait_serve_answer(void *user, struct MHD_Connection *c, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_bytes, void **request);
void strait_serve_completed(void *user, struct MHD_Connection *c, void **request,
                            enum MHD_RequestTerminationCode why);

/* job.c. open adds the job to the list, with one reference. admit checks its body, encodes the
 * prompt and appends it to the queue: otherwise *code is the status to answer with, and the error's
 * detail the message. The http thread calls both. */
strait_err strait_job_open(struct strait_serve *serve, int is_chat, struct strait_job **out);
strait_err strait_job_admit(struct strait_job *job, unsigned *code);
void strait_job_release(struct strait_job **held); // one reference; accepts NULL
/* Under the lock: lets a suspended connection go on. */
void strait_job_resume(struct strait_job *job);

/* reply.c: answers as JSON text of jansson; NULL: no memory. */
char *strait_reply_error(unsigned code, const char *message);
char *strait_reply_models(const struct strait_serve *serve); // the list, of one
char *strait_reply_model(const struct strait_serve *serve);
char *strait_reply_answer(const struct strait_job *job);
/* Appends one event of a stream with n bytes of text; the last one has `finish`, and the usage
 * where the client wants it. */
strait_err strait_reply_event(struct strait_job *job, const char *text, size_t n,
                              const char *finish);

/* The embedded page.html. */
extern const strait_embedded_file strait_serve_files[];
