#include "study/builtin.h"

#include <string.h>

const strait_embedded_file *strait_builtin_find(const char *name) {
    for (const strait_embedded_file *s = strait_builtin_studies; s->name != NULL; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}
