#include "data/text/chat.h"

#include "base/alloc.h"
#include "base/json.h"

#include <string.h>

const char strait_chat_chatml[] = "<|im_start|>{role}\n{content}<|im_end|>\n";
const char strait_chat_plain[] = "{role}: {content}\n";

static const char content_mark[] = "{content}";
static const char role_mark[] = "{role}";

void strait_chat_fini(strait_chat *chat) {
    strait_alloc_free(chat->text.data);
    strait_alloc_free(chat->marks.data);
    strait_alloc_free(chat->runs);
    *chat = (strait_chat){0};
}

strait_err strait_chat_check_template(const char *text) {
    const char *at = strstr(text, content_mark);
    if (at != NULL && strstr(at + 1, content_mark) == NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "the template has {content} %s; expected a text such as "
                       "\"<|im_start|>{role}\\n{content}<|im_end|>\\n\"",
                       at == NULL ? "nowhere" : "twice");
}

/* Where n more bytes come from. */
static strait_err mark(strait_chat *chat, size_t n, int is_message) {
    unsigned char marks[64];
    memset(marks, is_message, sizeof marks);
    for (size_t i = 0; i < n; i += sizeof marks)
        STRAIT_TRY(
            strait_buffer_append(&chat->marks, marks, n - i < sizeof marks ? n - i : sizeof marks));
    return STRAIT_OK;
}

/* Adds text to the last run, or begins another one. */
static strait_err add(strait_chat *chat, const char *text, size_t n, int is_trained,
                      int is_message) {
    if (n == 0) return STRAIT_OK;
    STRAIT_TRY(strait_buffer_append(&chat->text, text, n));
    STRAIT_TRY(mark(chat, n, is_message));
    if (chat->n_runs == 0 || chat->runs[chat->n_runs - 1].is_trained != is_trained) {
        STRAIT_TRY(strait_buffer_reserve((void **)&chat->runs, &chat->capacity, chat->n_runs + 1,
                                         sizeof *chat->runs));
        chat->runs[chat->n_runs++].is_trained = is_trained;
    }
    chat->runs[chat->n_runs - 1].end = chat->text.n;
    return STRAIT_OK;
}

/* Adds a part of the template, up to `end`. */
static strait_err add_template(strait_chat *chat, const char *at, const char *end,
                               const json_t *role, int is_trained) {
    while (at < end) {
        const int is_escape = *at == '\\' && at + 1 < end && (at[1] == 'n' || at[1] == 't');
        if (strncmp(at, role_mark, sizeof role_mark - 1) == 0) {
            STRAIT_TRY(add(chat, json_string_value(role), json_string_length(role), is_trained, 1));
            at += sizeof role_mark - 1;
        } else if (is_escape) {
            STRAIT_TRY(add(chat, at[1] == 'n' ? "\n" : "\t", 1, is_trained, 0));
            at += 2;
        } else {
            STRAIT_TRY(add(chat, at++, 1, is_trained, 0));
        }
    }
    return STRAIT_OK;
}

static strait_err add_message(strait_chat *chat, const json_t *message, const char *text,
                              int *is_any_trained) {
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(role) || json_string_length(role) == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"role\" is not a text");
    if (!json_is_string(content))
        return STRAIT_FAIL(STRAIT_EDATA, "\"content\" is not a text; only text can be trained on");
    const int is_trained = strcmp(json_string_value(role), "assistant") == 0;
    const char *mark = strstr(text, content_mark);
    STRAIT_TRY(add_template(chat, text, mark, role, 0));
    STRAIT_TRY(add(chat, json_string_value(content), json_string_length(content), is_trained, 1));
    mark += sizeof content_mark - 1;
    *is_any_trained |= is_trained && json_string_length(content) > 0;
    return add_template(chat, mark, mark + strlen(mark), role, is_trained);
}

static strait_err add_messages(strait_chat *chat, const json_t *messages, const char *text) {
    int is_any_trained = 0;
    if (!json_is_array(messages)) return STRAIT_FAIL(STRAIT_EDATA, "\"messages\" is not a list");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const strait_err err = add_message(chat, json_array_get(messages, i), text,
                                           &is_any_trained);
        if (err == STRAIT_EDATA) strait_err_prefix("message %zu", i + 1);
        STRAIT_TRY(err);
    }
    if (is_any_trained) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "no message of the role \"assistant\": nothing to train on");
}

static strait_err add_object(strait_chat *chat, const json_t *object, const char *text) {
    const json_t *messages = json_object_get(object, "messages");
    if (messages != NULL) return add_messages(chat, messages, text);
    const json_t *prompt = json_object_get(object, "prompt");
    const json_t *completion = json_object_get(object, "completion");
    if (!json_is_string(prompt) || !json_is_string(completion))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "expected an object with \"messages\", or with the texts \"prompt\" and "
                           "\"completion\"");
    if (json_string_length(completion) == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"completion\" is empty: nothing to train on");
    STRAIT_TRY(add(chat, json_string_value(prompt), json_string_length(prompt), 0, 1));
    return add(chat, json_string_value(completion), json_string_length(completion), 1, 1);
}

strait_err strait_chat_parse(strait_chat *chat, const char *line, size_t n, const char *text) {
    json_error_t error;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    chat->text.n = chat->marks.n = chat->n_runs = 0;
    if (object == NULL) return STRAIT_FAIL(STRAIT_EDATA, "column %d: %s", error.column, error.text);
    const strait_err err = add_object(chat, object, text);
    json_decref(object);
    return err;
}

strait_err strait_chat_prompt(strait_chat *chat, const json_t *messages, const char *text) {
    int is_any_trained = 0;
    chat->text.n = chat->marks.n = chat->n_runs = 0;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"messages\" is not a list of messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const strait_err err = add_message(chat, json_array_get(messages, i), text,
                                           &is_any_trained);
        if (err == STRAIT_EDATA) strait_err_prefix("message %zu", i + 1);
        STRAIT_TRY(err);
    }
    json_t *role = json_string("assistant");
    if (role == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "a role");
    const strait_err err = add_template(chat, text, strstr(text, content_mark), role, 0);
    json_decref(role);
    return err;
}

strait_err strait_chat_ending(strait_chat *chat, const char *text) {
    const char *end = strstr(text, content_mark) + sizeof content_mark - 1;
    json_t *role = json_string("assistant");
    chat->text.n = chat->marks.n = chat->n_runs = 0;
    if (role == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "a role");
    const strait_err err = add_template(chat, end, end + strlen(end), role, 0);
    json_decref(role);
    STRAIT_TRY(err);
    size_t n = chat->text.n;
    while (n > 0 && strchr(" \n\t", chat->text.data[n - 1]) != NULL)
        n--;
    if (n > 0) chat->text.n = n;
    return STRAIT_OK;
}
