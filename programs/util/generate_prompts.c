#include "generate_prompts.h"

#include <strait/text.h>

#include <stdlib.h>
#include <string.h>

static strait_err add(strait_prompt_list *list, const char *text, size_t n) {
    if (list->n == list->capacity) {
        const int capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        char **items = realloc(list->items, (size_t)capacity * sizeof *items);
        if (items == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%d prompts", capacity);
        list->items = items;
        list->capacity = capacity;
    }
    char *copy = malloc(n + 1);
    if (copy == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "a prompt of %zu bytes", n);
    memcpy(copy, text, n);
    copy[n] = '\0';
    list->items[list->n++] = copy;
    return STRAIT_OK;
}

static int is_json_lines(const char *path) {
    return strstr(path, ".jsonl") != NULL || strstr(path, ".ndjson") != NULL;
}

static strait_err add_document(void *user, const void *text, size_t n) {
    return add(user, text, n);
}

/* Every line of a text that is not empty. */
static strait_err add_lines(void *user, const void *text, size_t n) {
    const char *at = text, *end = at + n;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        const size_t length = (size_t)(stop - at) - (stop > at && stop[-1] == '\r');
        if (length > 0) STRAIT_TRY(add(user, at, length));
        at = stop + 1;
    }
    return STRAIT_OK;
}

strait_err strait_prompts_read(const strait_flag_list *flags, const char *path,
                               strait_prompt_list *out) {
    const int is_json = path != NULL && is_json_lines(path);
    const strait_text_spec file = {.paths = &path,
                                   .n_paths = 1,
                                   .format = is_json ? STRAIT_TEXT_JSONL : STRAIT_TEXT_PLAIN,
                                   .field = is_json ? "prompt" : NULL};
    if (path == NULL && flags->n == 0) return add(out, "", 0);
    for (int i = 0; i < flags->n; i++)
        STRAIT_TRY(add(out, flags->items[i], strlen(flags->items[i])));
    if (path == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_text_visit(&file, is_json ? add_document : add_lines, out));
    if (out->n > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: has no prompts", path);
}

void strait_prompts_free(strait_prompt_list *list) {
    for (int i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (strait_prompt_list){0};
}
