/* template.h - chat templates in the language of Jinja, as tokenizer_config.json has them.
 *
 * The part that published templates use: output, if, for, set, comments and white-space control
 * (with trim_blocks and lstrip_blocks, as transformers has them), expressions with the usual
 * operators, slices, a choice of filters, tests and methods, namespace(), raise_exception() and
 * range(). Anything else is STRAIT_ENOTSUP, and the detail names it. Work and memory of a rendering
 * are bounded, whatever the template and its input are.
 *
 * Each byte of the result is known to come from the template or from a message, so that text of a
 * user that spells a control token does not become one. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <jansson.h>
#include <stddef.h>

struct strait_template;

/* Parses a template. STRAIT_EDATA: it is not one; STRAIT_ENOTSUP: it uses what is not supported.
 * The caller closes it. */
strait_err strait_template_open(const char *text, size_t n, struct strait_template **out);
void strait_template_close(struct strait_template **tmpl); // accepts NULL in it

/* What a template is rendered with. */
typedef struct strait_template_input {
    const json_t *messages;            // a list of objects
    const char *bos_token, *eos_token; // NULL: undefined
} strait_template_input;

/* Appends the text of the messages and the beginning of an answer to `text`, and for each byte 1 to
 * `marks` if it comes from a message. STRAIT_EDATA: the template rejects the messages
 * (raise_exception), an operation does not fit its values, or it takes more than 64 MiB or a few
 * million operations with these messages. Any number of threads may render one template. */
strait_err strait_template_render(const struct strait_template *tmpl,
                                  const strait_template_input *input, strait_buffer *text,
                                  strait_buffer *marks);
