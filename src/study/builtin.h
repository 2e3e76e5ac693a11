/* builtin.h - the study files that are part of the program (studies/ of its source). */
#pragma once

#include <stddef.h>

typedef struct strait_builtin_study {
    const char *name, *text; // NULL: past the last
    size_t bytes;
} strait_builtin_study;

extern const strait_builtin_study strait_builtin_studies[];

/* NULL: there is no such study. */
const strait_builtin_study *strait_builtin_find(const char *name);
