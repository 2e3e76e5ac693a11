/* reply.c - answers, events and errors as OpenAI's API has them. */
#include "serve/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *dump(json_t *object) {
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(object);
    return text;
}

static const char *kind_of(unsigned code) {
    switch (code) {
    case MHD_HTTP_UNAUTHORIZED: return "authentication_error";
    case MHD_HTTP_FORBIDDEN: return "permission_error";
    case MHD_HTTP_TOO_MANY_REQUESTS: return "rate_limit_error";
    default: return code < 500 ? "invalid_request_error" : "server_error";
    }
}

char *strait_reply_error(unsigned code, const char *message) {
    return dump(json_pack("{s{so ss sn si}}", "error", "message",
                          strait_json_text(message, strlen(message)), "type", kind_of(code),
                          "param", "code", (int)code));
}

static json_t *describe_model(const struct strait_serve *s) {
    return json_pack("{so ss si ss sI}", "id",
                     strait_json_text(s->spec.model, strlen(s->spec.model)), "object", "model",
                     "created", 0, "owned_by", "strait", "context_length",
                     (json_int_t)s->spec.trained->use.n_positions);
}

char *strait_reply_model(const struct strait_serve *s) {
    return dump(describe_model(s));
}

char *strait_reply_models(const struct strait_serve *s) {
    return dump(json_pack("{ss s[o]}", "object", "list", "data", describe_model(s)));
}

static json_t *usage_of(const struct strait_job *job) {
    const json_int_t given = job->n_ids, drawn = job->n_drawn;
    return json_pack("{sI sI sI}", "prompt_tokens", given, "completion_tokens", drawn,
                     "total_tokens", given + drawn);
}

/* What every answer and event begins with. */
static json_t *envelope(const struct strait_job *job, const char *object, json_t *choice) {
    const char *model = job->serve->spec.model;
    char id[64];
    (void)snprintf(id, sizeof id, "%s-%lld-%lld", job->is_chat ? "chatcmpl" : "cmpl",
                   (long long)job->created, (long long)job->number);
    json_t *choices = choice != NULL ? json_pack("[o]", choice) : json_array();
    return json_pack("{ss ss sI so so}", "id", id, "object", object, "created",
                     (json_int_t)job->created, "model", strait_json_text(model, strlen(model)),
                     "choices", choices);
}

static json_t *finish_of(const char *finish) {
    return finish != NULL ? json_string(finish) : json_null();
}

char *strait_reply_answer(const struct strait_job *job) {
    json_t *text = strait_json_text((const char *)job->output.data, job->output.n);
    json_t *choice = NULL;
    if (job->is_chat)
        choice = json_pack("{si s{ss so} sn so}", "index", 0, "message", "role", "assistant",
                           "content", text, "logprobs", "finish_reason", finish_of(job->finish));
    else
        choice = json_pack("{so si sn so}", "text", text, "index", 0, "logprobs", "finish_reason",
                           finish_of(job->finish));
    json_t *answer = envelope(job, job->is_chat ? "chat.completion" : "text_completion", choice);
    (void)json_object_set_new(answer, "usage", usage_of(job));
    return dump(answer);
}

/* The first event of a chat has the role. */
static json_t *delta_of(struct strait_job *job, const char *text, size_t n, const char *finish) {
    json_t *delta = json_object();
    if (!job->has_role) (void)json_object_set_new(delta, "role", json_string("assistant"));
    if (n > 0 || !job->has_role)
        (void)json_object_set_new(delta, "content", strait_json_text(text, n));
    job->has_role = 1;
    return json_pack("{si so sn so}", "index", 0, "delta", delta, "logprobs", "finish_reason",
                     finish_of(finish));
}

static strait_err append_event(struct strait_job *job, char *json) {
    if (json == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "an event");
    strait_err err = strait_buffer_append(&job->output, "data: ", 6);
    if (err == STRAIT_OK) err = strait_buffer_append(&job->output, json, strlen(json));
    if (err == STRAIT_OK) err = strait_buffer_append(&job->output, "\n\n", 2);
    free(json);
    return err;
}

strait_err strait_reply_event(struct strait_job *job, const char *text, size_t n,
                              const char *finish) {
    const char *object = job->is_chat ? "chat.completion.chunk" : "text_completion";
    json_t *choice = job->is_chat
                         ? delta_of(job, text, n, finish)
                         : json_pack("{so si sn so}", "text", strait_json_text(text, n), "index", 0,
                                     "logprobs", "finish_reason", finish_of(finish));
    STRAIT_TRY(append_event(job, dump(envelope(job, object, choice))));
    if (finish == NULL) return STRAIT_OK;
    if (job->ask.wants_usage) {
        json_t *last = envelope(job, object, NULL);
        (void)json_object_set_new(last, "usage", usage_of(job));
        STRAIT_TRY(append_event(job, dump(last)));
    }
    return strait_buffer_append(&job->output, "data: [DONE]\n\n", 14);
}
