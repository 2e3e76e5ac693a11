/* job.c - the life of a request: read, checked, queued; computed elsewhere; released. */
#include "base/clock.h"
#include "data/tokenizer/encoder.h"
#include "serve/server.h"

#include <string.h>
#include <time.h>

strait_err strait_job_open(struct strait_serve *s, int is_chat, struct strait_job **out) {
    struct strait_job *job = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *job, "request", (void **)&job));
    job->serve = s;
    job->is_chat = is_chat;
    job->n_refs = 1;
    job->created = (int64_t)time(NULL);
    job->deadline = strait_clock_seconds() + s->spec.timeout_s;
    (void)pthread_mutex_lock(&s->lock);
    job->number = ++s->n_jobs;
    job->next = s->jobs;
    if (s->jobs != NULL) s->jobs->prev = job;
    s->jobs = job;
    (void)pthread_mutex_unlock(&s->lock);
    *out = job;
    return STRAIT_OK;
}

static void destroy(struct strait_job *job) {
    strait_completion_close(&job->completion);
    strait_serve_ask_close(&job->ask);
    strait_alloc_free(job->body.data);
    strait_alloc_free(job->output.data);
    strait_alloc_free(job->ids);
    strait_alloc_free(job);
}

void strait_job_release(struct strait_job **held) {
    struct strait_job *job = *held;
    if (job == NULL) return;
    struct strait_serve *s = job->serve;
    (void)pthread_mutex_lock(&s->lock);
    const int is_last = --job->n_refs == 0;
    if (is_last) {
        if (job->next != NULL) job->next->prev = job->prev;
        if (job->prev != NULL) job->prev->next = job->next;
        if (s->jobs == job) s->jobs = job->next;
        (void)pthread_cond_broadcast(&s->wakes); // a server that ends waits for the last
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (is_last) destroy(job);
    *held = NULL;
}

void strait_job_resume(struct strait_job *job) {
    if (!job->is_suspended || job->connection == NULL) return;
    job->is_suspended = 0;
    MHD_resume_connection(job->connection);
}

/* The ids to continue: those of the prompt, or of the messages of a chat in the template. What a
 * message spells never becomes a control token. */
static strait_err ids_of(struct strait_job *job, const int32_t **ids, size_t *n) {
    struct strait_serve *s = job->serve;
    struct strait_chat_template *chat = &s->chat;
    if (!job->is_chat)
        return strait_encoder_encode(s->encoder, job->ask.prompt, strlen(job->ask.prompt), 0, ids,
                                     n);
    STRAIT_TRY(strait_chat_template_prompt(chat, job->ask.messages));
    if (chat->ending[0] != '\0') job->ask.stops[job->ask.n_stops++] = chat->ending;
    return strait_encoder_encode_marked(s->encoder, chat->text.data, chat->marks.data, chat->text.n,
                                        ids, n);
}

/* An empty prompt starts after an end of text. */
static strait_err encode(struct strait_job *job) {
    struct strait_serve *s = job->serve;
    const int32_t end = strait_tokenizer_end(s->spec.trained->tokenizer);
    const int64_t most = s->spec.trained->use.n_positions;
    const int32_t *ids = NULL;
    size_t n = 0;
    STRAIT_TRY(ids_of(job, &ids, &n));
    if ((int64_t)n >= most)
        return STRAIT_FAIL(STRAIT_EDATA, "the prompt has %zu tokens, the context of the model %lld",
                           n, (long long)most);
    STRAIT_TRY(strait_alloc(n + 1, sizeof *job->ids, "ids", (void **)&job->ids));
    job->ids[0] = end >= 0 ? end : 0;
    if (n > 0) memcpy(job->ids, ids, n * sizeof *ids);
    job->n_ids = n > 0 ? (int64_t)n : 1;
    return STRAIT_OK;
}

/* Everything that can be wrong with a request is found here, before it waits. */
static strait_err prepare(struct strait_job *job, unsigned *code) {
    struct strait_serve *s = job->serve;
    STRAIT_TRY(
        strait_serve_ask_parse((const char *)job->body.data, job->body.n, job->is_chat, &job->ask));
    if (job->ask.model != NULL && strcmp(job->ask.model, s->spec.model) != 0) {
        *code = MHD_HTTP_NOT_FOUND;
        return STRAIT_FAIL(STRAIT_EDATA, "there is no model \"%.100s\" here, only \"%s\"",
                           job->ask.model, s->spec.model);
    }
    if (job->is_chat && !strait_chat_template_is_usable(&s->chat)) {
        *code = MHD_HTTP_NOT_IMPLEMENTED;
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "%s: use /v1/completions, or start the server with --chat-template",
                           s->chat.reason);
    }
    const strait_err encoded = encode(job);
    if (encoded == STRAIT_ENOTSUP) *code = MHD_HTTP_NOT_IMPLEMENTED;
    STRAIT_TRY(encoded);
    if (!job->ask.has_seed)
        job->ask.sampling.seed = (uint64_t)job->created << 24 ^ (uint64_t)job->number;
    STRAIT_TRY(strait_completion_open(&job->completion, s->spec.trained->tokenizer, job->ask.stops,
                                      job->ask.n_stops));
    for (int64_t i = 0; i < job->n_ids; i++) // spaces of the answer depend on the prompt
        (void)strait_completion_prompt(&job->completion, job->ids[i]);
    strait_serve_ask_drop_prompt(&job->ask);
    strait_alloc_free(job->body.data);
    job->body = (strait_buffer){0};
    return STRAIT_OK;
}

static strait_err enqueue(struct strait_job *job, unsigned *code) {
    struct strait_serve *s = job->serve;
    strait_err err = STRAIT_OK;
    (void)pthread_mutex_lock(&s->lock);
    if (s->is_stopping) {
        *code = MHD_HTTP_SERVICE_UNAVAILABLE;
        err = STRAIT_FAIL(STRAIT_EINTERRUPTED, "the server is stopping");
    } else if (s->n_queued >= s->spec.n_queued) {
        *code = MHD_HTTP_TOO_MANY_REQUESTS;
        err = STRAIT_FAIL(STRAIT_ENOMEM, "%lld requests are waiting; try again later",
                          (long long)s->n_queued);
    } else {
        job->state = STRAIT_JOB_QUEUED;
        job->n_refs++; // of the computing thread
        job->after = NULL;
        if (s->last != NULL)
            s->last->after = job;
        else
            s->first = job;
        s->last = job;
        s->n_queued++;
        (void)pthread_cond_broadcast(&s->wakes);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return err;
}

strait_err strait_job_admit(struct strait_job *job, unsigned *code) {
    *code = MHD_HTTP_BAD_REQUEST;
    const strait_err err = prepare(job, code);
    if (err == STRAIT_ENOMEM) *code = MHD_HTTP_SERVICE_UNAVAILABLE;
    STRAIT_TRY(err);
    return enqueue(job, code);
}
