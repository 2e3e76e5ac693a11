/* strings.h - a growing list of strings, owned by the list. */
#pragma once

#include "base/error.h"

typedef struct strait_strings {
    char **items;
    int n;
} strait_strings;

/* Each appends copies. */
strait_err strait_strings_add(strait_strings *list, const char *text);
strait_err strait_strings_format(strait_strings *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
strait_err strait_strings_append(strait_strings *list, const strait_strings *more);

int strait_strings_find(const strait_strings *list, const char *text); // its index, or -1
void strait_strings_close(strait_strings *list);                       // accepts a zeroed one
