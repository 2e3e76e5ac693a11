#include "study/builtin.h"

#include <string.h>

const strait_builtin_study *strait_builtin_find(const char *name) {
    for (const strait_builtin_study *s = strait_builtin_studies; s->name != NULL; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}
