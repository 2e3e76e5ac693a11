#include "serve/chat_template.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES = 16 << 20
};

void strait_chat_template_close(struct strait_chat_template *t) {
    strait_template_close(&t->jinja);
    strait_chat_fini(&t->chat);
    strait_alloc_free(t->text.data);
    strait_alloc_free(t->marks.data);
    *t = (struct strait_chat_template){0};
}

int strait_chat_template_is_usable(const struct strait_chat_template *t) {
    return t->shape != NULL || t->jinja != NULL;
}

static strait_err use_shape(struct strait_chat_template *t, const char *shape) {
    STRAIT_TRY(strait_chat_check_template(shape));
    STRAIT_TRY(strait_chat_ending(&t->chat, shape));
    if (t->chat.text.n > STRAIT_STOP_BYTES_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "the end of the chat template is longer than %d bytes",
                           STRAIT_STOP_BYTES_MAX);
    if (t->chat.text.n > 0) memcpy(t->ending, t->chat.text.data, t->chat.text.n);
    t->shape = shape;
    return STRAIT_OK;
}

/* A text, or an object with it under "content": both are in published files. */
static void take_token(const json_t *config, const char *key, char out[128]) {
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    const char *text = json_string_value(value);
    if (text != NULL && strlen(text) < 128) (void)snprintf(out, 128, "%s", text);
}

/* A text, or a list of named ones, of which "default" is for chats. */
static const char *text_of(const json_t *config) {
    const json_t *value = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(one, "template"));
    }
    return json_string_value(value);
}

/* A template of the files that cannot be used: chats get the reason. */
static void use_file(struct strait_chat_template *t, const char *text, size_t n) {
    if (strait_template_open(text, n, &t->jinja) == STRAIT_OK) return;
    (void)snprintf(t->reason, sizeof t->reason, "the model's template cannot be used: %.180s",
                   strait_err_detail());
}

/* Tokens, and the template unless there is one: a file of its own comes before the configuration.
 */
static strait_err read_files(struct strait_chat_template *t, const char *checkpoint, int wants) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t n = 0;
    json_t *config = NULL;
    STRAIT_TRY(strait_file_path(path, "%s/../../tokenizer_config.json", checkpoint));
    if (strait_file_exists(path)) STRAIT_TRY(strait_json_load(path, FILE_BYTES, &config));
    take_token(config, "bos_token", t->bos);
    take_token(config, "eos_token", t->eos);
    strait_err err = strait_file_path(path, "%s/../../chat_template.jinja", checkpoint);
    if (err == STRAIT_OK && wants && strait_file_exists(path))
        err = strait_file_read(path, FILE_BYTES, &text, &n);
    const char *found = text != NULL || !wants ? text : text_of(config);
    if (err == STRAIT_OK && found != NULL) use_file(t, found, strlen(found));
    strait_alloc_free(text);
    json_decref(config);
    return err;
}

static strait_err use_given(struct strait_chat_template *t, const char *given) {
    if (strstr(given, "{%") == NULL && strstr(given, "{{") == NULL) return use_shape(t, given);
    const strait_err err = strait_template_open(given, strlen(given), &t->jinja);
    if (err != STRAIT_EDATA && err != STRAIT_ENOTSUP) return err;
    strait_err_prefix("--chat-template");
    return STRAIT_ECONFIG;
}

strait_err strait_chat_template_open(const struct strait_trained_model *trained, const char *given,
                                     struct strait_chat_template *t) {
    static const char begin[] = "<|im_start|>", end[] = "<|im_end|>";
    const struct strait_tokenizer *tokenizer = trained->tokenizer;
    STRAIT_TRY(read_files(t, trained->path, given == NULL));
    if (given != NULL) STRAIT_TRY(use_given(t, given));
    if (t->jinja != NULL) (void)snprintf(t->ending, sizeof t->ending, "%s", t->eos);
    if (strait_chat_template_is_usable(t) || t->reason[0] != '\0') return STRAIT_OK;
    if (strait_tokenizer_find(tokenizer, begin, sizeof begin - 1) >= 0 &&
        strait_tokenizer_find(tokenizer, end, sizeof end - 1) >= 0)
        return use_shape(t, strait_chat_chatml);
    (void)snprintf(t->reason, sizeof t->reason, "this model has no chat template");
    return STRAIT_OK;
}

strait_err strait_chat_template_prompt(struct strait_chat_template *t, const json_t *messages) {
    t->text.n = t->marks.n = 0;
    if (t->jinja == NULL) {
        STRAIT_TRY(strait_chat_prompt(&t->chat, messages, t->shape));
        STRAIT_TRY(strait_buffer_append(&t->text, t->chat.text.data, t->chat.text.n));
        return strait_buffer_append(&t->marks, t->chat.marks.data, t->chat.marks.n);
    }
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "\"messages\" is not a list of messages");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_string(json_object_get(message, "role")))
            return STRAIT_FAIL(STRAIT_EDATA, "message %zu: \"role\" is not a text", i + 1);
        if (!json_is_string(json_object_get(message, "content")))
            return STRAIT_FAIL(STRAIT_EDATA, "message %zu: \"content\" is not a text", i + 1);
    }
    const strait_template_input input = {.messages = messages,
                                         .bos_token = t->bos[0] != '\0' ? t->bos : NULL,
                                         .eos_token = t->eos[0] != '\0' ? t->eos : NULL};
    return strait_template_render(t->jinja, &input, &t->text, &t->marks);
}
