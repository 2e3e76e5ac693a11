/* chat_template.h - how the messages of a chat become a prompt: by the template of --chat-template,
 * by that of the model's files, or by ChatML. The http thread uses it. */
#pragma once

#include "data/template/template.h"
#include "data/text/chat.h"
#include "infer/completion.h"
#include "infer/trained_model.h"

/* Zeroed is closed. */
struct strait_chat_template {
    const char *shape;                      // with {role} and {content}; NULL: none
    struct strait_template *jinja;          // NULL: none
    char bos[128], eos[128];                // of tokenizer_config.json; empty: none
    char ending[STRAIT_STOP_BYTES_MAX + 1]; // of an answer; empty: the end of text alone
    char reason[256];                       // why there is no template
    strait_chat chat;
    strait_buffer text, marks; // of the last prompt
};

/* Chooses the template: `given` (with {role} and {content}, or in Jinja), or NULL: the model's own.
 * STRAIT_ECONFIG: `given` is not one. A template of the model's files that cannot be used is no
 * error: `reason` then says why chats are refused. */
strait_err strait_chat_template_open(const struct strait_trained_model *trained, const char *given,
                                     struct strait_chat_template *out);
void strait_chat_template_close(struct strait_chat_template *t);

/* Whether chats can be answered. */
int strait_chat_template_is_usable(const struct strait_chat_template *t);

/* Writes the prompt of `messages` to t->text, and where its bytes come from to t->marks.
 * STRAIT_EDATA: the messages do not fit; STRAIT_ENOTSUP: the template does something that is not
 * supported. */
strait_err strait_chat_template_prompt(struct strait_chat_template *t, const json_t *messages);
