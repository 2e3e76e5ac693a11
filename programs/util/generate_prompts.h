/* generate_prompts.h - the prompts of one call of generate: from flags, or from a file. */
#pragma once

#include <strait/error.h>

#include "args.h"

typedef struct strait_prompt_list {
    char **items;
    int n, capacity;
} strait_prompt_list;

/* Copies the prompts of the flags or, where `path` is not NULL, of a file: every line of a text
 * file, the key "prompt" of every line of JSON Lines. Without any, one empty prompt. STRAIT_EIO,
 * STRAIT_EDATA: the file cannot be read or has no prompt. Free the list also after an error. */
strait_err strait_prompts_read(const strait_flag_list *flags, const char *path,
                               strait_prompt_list *out);
void strait_prompts_free(strait_prompt_list *list);
