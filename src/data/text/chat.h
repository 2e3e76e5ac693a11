/* chat.h - one line of fine-tuning data as text, divided into what is trained on and what is not.
 *
 * A line is a JSON object with "prompt" and "completion", of which the completion is trained on, or
 * with "messages", a list of {"role", "content"}, of which those of the role "assistant" are
 * trained on. A template says how a message becomes text: the text around {content}, with {role}
 * replaced. What precedes the content of a message is never trained on, what follows it is if the
 * content is: it ends the answer. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <jansson.h>
#include <stddef.h>

/* A stretch of text that is trained on as a whole, or not. */
typedef struct strait_chat_run {
    size_t end; // in the text; the run begins where the one before it ends
    int is_trained;
} strait_chat_run;

/* A zeroed struct is empty and may be reused for any number of lines. */
typedef struct strait_chat {
    strait_buffer text;
    strait_buffer marks;   // per byte of the text 1 if a message has it, 0 if the template has it
    strait_chat_run *runs; // none is empty, neighbours differ in is_trained
    size_t n_runs, capacity;
} strait_chat;

void strait_chat_fini(strait_chat *chat); // accepts a zeroed one

/* The template for tokenizers that have <|im_start|> and <|im_end|>, and the one for others. */
extern const char strait_chat_chatml[];
extern const char strait_chat_plain[];

/* STRAIT_ECONFIG unless the template has {content} exactly once. */
strait_err strait_chat_check_template(const char *text);

/* Replaces *chat by the text of one line. "\n" and "\t" in the template, a backslash and a letter,
 * become one character. STRAIT_EDATA says what the line lacks. */
strait_err strait_chat_parse(strait_chat *chat, const char *line, size_t n, const char *text);

/* Replaces *chat by the text of `messages`, a list as above, and the beginning of an answer, which
 * a model then continues. STRAIT_EDATA says which message is wrong. */
strait_err strait_chat_prompt(strait_chat *chat, const json_t *messages, const char *text);
/* Replaces *chat by what ends an answer: the text of the template behind the content, without white
 * space at its end unless it has nothing else. */
strait_err strait_chat_ending(strait_chat *chat, const char *text);
