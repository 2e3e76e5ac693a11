/* serve.c - the computing side: takes requests from the queue into the engine and delivers text. */
#include "serve/serve.h"

#include "base/clock.h"
#include "data/tokenizer/encoder.h"
#include "serve/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    CONNECTIONS = 512,
    POLL_MS = 100 // how often an idle server looks whether it must stop
};

static const double sweep_s = 0.5;   // between looks for clients that have gone
static const double finish_s = 10.0; // for what is computed when the server must stop
static const double leave_s = 5.0;   // for answers to reach their clients

/* ---- output of one job; the lock is held ---- */

static strait_err put_text(struct strait_job *job, strait_completion_text text) {
    if (!job->ask.streams) return strait_buffer_append(&job->output, text.bytes, text.n);
    return text.n > 0 ? strait_reply_event(job, text.bytes, text.n, NULL) : STRAIT_OK;
}

/* An answer that cannot be given any more: a stream says so in an event. */
static void put_error(struct strait_job *job, strait_err err, const char *reason) {
    char line[512];
    job->err = err;
    (void)snprintf(job->reason, sizeof job->reason, "%s", reason);
    if (!job->ask.streams) return;
    (void)snprintf(line, sizeof line,
                   "data: {\"error\":{\"message\":\"%.200s\",\"type\":\"server_error\"}}\n\n"
                   "data: [DONE]\n\n",
                   strpbrk(reason, "\"\\\n") == NULL ? reason : "the request failed");
    (void)strait_buffer_append(&job->output, line, strlen(line));
}

static void set_done(struct strait_job *job) {
    job->state = STRAIT_JOB_DONE;
    strait_job_resume(job);
}

/* ---- the end of a job; takes the computing thread's reference ---- */

static void fail(struct strait_job *job, strait_err err, const char *reason) {
    (void)pthread_mutex_lock(&job->serve->lock);
    if (job->is_left) job->serve->counts.cancelled++;
    put_error(job, err, reason);
    set_done(job);
    (void)pthread_mutex_unlock(&job->serve->lock);
    strait_job_release(&job);
}

static void finish(struct strait_job *job, const char *why) {
    struct strait_serve *s = job->serve;
    (void)pthread_mutex_lock(&s->lock);
    strait_err err = put_text(job, strait_completion_finish(&job->completion));
    job->finish = why;
    if (err == STRAIT_OK && job->ask.streams) err = strait_reply_event(job, "", 0, why);
    if (err != STRAIT_OK) put_error(job, err, "out of memory");
    s->counts.answered++;
    set_done(job);
    (void)pthread_mutex_unlock(&s->lock);
    strait_job_release(&job);
}

/* Text for the client. Returns an error where the job must end: nobody reads it. */
static strait_err deliver(struct strait_job *job, strait_completion_text text) {
    struct strait_serve *s = job->serve;
    (void)pthread_mutex_lock(&s->lock);
    strait_err err = put_text(job, text);
    s->counts.tokens++;
    if (job->is_left) err = STRAIT_FAIL(STRAIT_EINTERRUPTED, "the client has gone");
    if (err == STRAIT_OK && job->output.n - job->n_sent > STRAIT_SERVE_OUTPUT_MAX)
        err = STRAIT_FAIL(STRAIT_EINTERRUPTED, "the client reads too slowly");
    if (job->ask.streams) strait_job_resume(job);
    (void)pthread_mutex_unlock(&s->lock);
    return err;
}

/* The engine's callback: whether the sequence goes on. */
static int take_token(void *user, int32_t token) {
    struct strait_job *job = user;
    const int32_t end = strait_tokenizer_end(job->serve->spec.trained->tokenizer);
    if (token == end && !job->ask.ignores_end) {
        finish(job, "stop");
        return 0;
    }
    job->n_drawn++;
    const strait_completion_text text = strait_completion_push(&job->completion, token);
    const strait_err err = deliver(job, text);
    if (err != STRAIT_OK)
        fail(job, err, strait_err_detail());
    else if (text.is_stopped)
        finish(job, "stop");
    else if (job->n_drawn == job->ask.n_tokens)
        finish(job, "length");
    else if (strait_clock_seconds() > job->deadline)
        fail(job, STRAIT_ETIMEDOUT, "the request took too long");
    else
        return 1;
    return 0;
}

/* ---- the queue ---- */

static struct strait_job *pop(struct strait_serve *s) {
    struct strait_job *job = s->first;
    if (job == NULL) return NULL;
    s->first = job->after;
    if (s->first == NULL) s->last = NULL;
    s->n_queued--;
    job->state = STRAIT_JOB_RUNNING;
    return job;
}

/* Moves jobs from the queue into the engine, as many as it takes. */
static void start_jobs(struct strait_serve *s) {
    while (strait_engine_count(s->engine) < s->spec.n_sequences) {
        int slot = -1;
        strait_err err = STRAIT_OK;
        (void)pthread_mutex_lock(&s->lock);
        struct strait_job *job = pop(s);
        const int is_left = job != NULL && job->is_left;
        (void)pthread_mutex_unlock(&s->lock);
        if (job == NULL) return;
        const strait_engine_request request = {.ids = job->ids,
                                               .n_ids = job->n_ids,
                                               .n_tokens = job->ask.n_tokens,
                                               .sampling = job->ask.sampling,
                                               .on_token = take_token,
                                               .user = job};
        if (is_left)
            fail(job, STRAIT_EINTERRUPTED, "the client has gone");
        else if (strait_clock_seconds() > job->deadline)
            fail(job, STRAIT_ETIMEDOUT, "the request waited too long");
        else if ((err = strait_engine_add(s->engine, &request, &slot)) != STRAIT_OK)
            fail(job, err, strait_err_detail());
    }
}

/* Suspended connections notice that their client has gone only when they go on. Headers that
 * arrive too slowly are nobody else's to notice. */
static void sweep(struct strait_serve *s) {
    strait_connections_expire(&s->listener.connections);
    (void)pthread_mutex_lock(&s->lock);
    for (struct strait_job *job = s->jobs; job != NULL; job = job->next)
        if (job->state == STRAIT_JOB_QUEUED || job->state == STRAIT_JOB_RUNNING)
            strait_job_resume(job);
    (void)pthread_mutex_unlock(&s->lock);
}

/* Waits for a request, or for a moment. */
static void wait_a_moment(struct strait_serve *s) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)POLL_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&s->lock);
    if (s->first == NULL) (void)pthread_cond_timedwait(&s->wakes, &s->lock, &until);
    (void)pthread_mutex_unlock(&s->lock);
}

/* Jobs that were not begun, and with `running` also those that were not finished, end here. */
static void end_jobs(struct strait_serve *s, int running, const char *reason) {
    for (;;) {
        struct strait_job *job = NULL;
        (void)pthread_mutex_lock(&s->lock);
        s->is_stopping = 1;
        job = pop(s);
        for (struct strait_job *j = s->jobs; running && job == NULL && j != NULL; j = j->next)
            if (j->state == STRAIT_JOB_RUNNING) job = j;
        (void)pthread_mutex_unlock(&s->lock);
        if (job == NULL) return;
        fail(job, STRAIT_EINTERRUPTED, reason);
    }
}

/* Until every answer has left, or its client does not read it. */
static void wait_for_clients(struct strait_serve *s) {
    const double until = strait_clock_seconds() + leave_s;
    int is_empty = 0;
    while (!is_empty && strait_clock_seconds() < until) {
        wait_a_moment(s);
        (void)pthread_mutex_lock(&s->lock);
        is_empty = s->jobs == NULL;
        (void)pthread_mutex_unlock(&s->lock);
    }
}

strait_err strait_serve_run(struct strait_serve *s, int (*must_stop)(void)) {
    double swept = 0, stops_at = 0;
    strait_err err = STRAIT_OK;
    while (err == STRAIT_OK && must_stop() < 2) {
        const double now = strait_clock_seconds();
        if (must_stop() > 0 && stops_at == 0) {
            stops_at = now + finish_s;
            end_jobs(s, 0, "the server is stopping");
        }
        if (stops_at > 0 && (strait_engine_count(s->engine) == 0 || now > stops_at)) break;
        if (stops_at == 0) start_jobs(s);
        if (strait_engine_count(s->engine) > 0)
            err = strait_engine_step(s->engine);
        else
            wait_a_moment(s);
        if (now - swept > sweep_s) {
            sweep(s);
            swept = now;
        }
    }
    char reason[256];
    (void)snprintf(reason, sizeof reason, "%s",
                   err != STRAIT_OK ? strait_err_detail() : "the server is stopping");
    end_jobs(s, 1, reason);
    wait_for_clients(s);
    return err != STRAIT_OK ? STRAIT_FAIL(err, "%s", reason) : STRAIT_OK;
}

/* ---- opening and closing ---- */

static strait_err open_into(struct strait_serve *s) {
    const strait_serve_spec *spec = &s->spec;
    if (pthread_mutex_init(&s->lock, NULL) != 0 || pthread_cond_init(&s->wakes, NULL) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "a lock");
    s->has_lock = 1;
    STRAIT_TRY(strait_chat_template_open(spec->trained, spec->template, &s->chat));
    STRAIT_TRY(strait_encoder_open(spec->trained->tokenizer, &s->encoder));
    STRAIT_TRY(strait_engine_open(
        spec->trained,
        (strait_engine_spec){.n_sequences = spec->n_sequences, .n_positions = spec->n_positions},
        &s->engine));
    return strait_listener_open(
        &s->listener,
        &(strait_listener_spec){.address = spec->address,
                                .token = spec->token,
                                .page = strait_serve_files[0].text,
                                .flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC,
                                .n_connections = CONNECTIONS,
                                .header_s = spec->timeout_s,
                                .answer = strait_serve_answer,
                                .completed = strait_serve_completed,
                                .user = s});
}

strait_err strait_serve_open(const strait_serve_spec *spec, struct strait_serve **out) {
    struct strait_serve *s = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *s, "server", (void **)&s));
    s->spec = *spec;
    const strait_err err = open_into(s);
    if (err != STRAIT_OK) {
        strait_serve_close(&s);
        return err;
    }
    *out = s;
    return STRAIT_OK;
}

void strait_serve_close(struct strait_serve **serve) {
    struct strait_serve *s = *serve;
    if (s == NULL) return;
    if (s->has_lock) end_jobs(s, 1, "the server is stopping");
    strait_listener_close(&s->listener);
    strait_engine_close(&s->engine);
    strait_encoder_close(&s->encoder);
    strait_chat_template_close(&s->chat);
    if (s->has_lock) {
        (void)pthread_cond_destroy(&s->wakes);
        (void)pthread_mutex_destroy(&s->lock);
    }
    strait_alloc_free(s);
    *serve = NULL;
}

const char *strait_serve_url(const struct strait_serve *s) {
    return s->listener.url;
}

void strait_serve_count(struct strait_serve *s, strait_serve_counts *out) {
    (void)pthread_mutex_lock(&s->lock);
    *out = s->counts;
    (void)pthread_mutex_unlock(&s->lock);
}
