/* embedded.h - files of the source that are part of the program, which finds them wherever it is
 * installed. The build writes their tables (cmake/embed.cmake). */
#pragma once

#include <stddef.h>

typedef struct strait_embedded_file {
    const char *name; // without folder and ending; NULL: past the last
    const char *text; // with a zero behind it
    size_t bytes;     // without that zero
} strait_embedded_file;
