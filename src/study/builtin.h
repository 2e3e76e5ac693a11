/* builtin.h - the study files that are part of the program (studies/ of its source). */
#pragma once

#include "base/embedded.h"

extern const strait_embedded_file strait_builtin_studies[];

/* NULL: there is no such study. */
const strait_embedded_file *strait_builtin_find(const char *name);
