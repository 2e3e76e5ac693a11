#include "study/strings.h"

#include "base/alloc.h"
#include "base/options/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

strait_err strait_strings_add(strait_strings *list, const char *text) {
    char *copy = NULL;
    void *memory = list->items;
    STRAIT_TRY(strait_alloc_grow(&memory, (size_t)list->n, (size_t)list->n + 1, sizeof *list->items,
                                 "list"));
    list->items = memory;
    STRAIT_TRY(strait_alloc_string(text, &copy));
    list->items[list->n++] = copy;
    return STRAIT_OK;
}

strait_err strait_strings_format(strait_strings *list, const char *format, ...) {
    char text[2 * STRAIT_OPTION_TEXT_MAX];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof text)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%.60s...: too long", text);
    return strait_strings_add(list, text);
}

strait_err strait_strings_append(strait_strings *list, const strait_strings *more) {
    for (int i = 0; i < more->n; i++)
        STRAIT_TRY(strait_strings_add(list, more->items[i]));
    return STRAIT_OK;
}

int strait_strings_find(const strait_strings *list, const char *text) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i], text) == 0) return i;
    return -1;
}

void strait_strings_close(strait_strings *list) {
    for (int i = 0; i < list->n; i++)
        strait_alloc_free(list->items[i]);
    strait_alloc_free(list->items);
    *list = (strait_strings){0};
}
