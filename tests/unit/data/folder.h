/* folder.h - a temporary folder for one test program, and files in it. */
#pragma once

#include "base/file.h"
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static inline int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/strait-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state) {
    (void)state;
    return strait_file_remove_folder(folder) != STRAIT_OK;
}

/* The path of NAME in the folder, in one of 64 buffers that are used in rotation. */
static inline const char *in_folder(const char *name) {
    static char paths[64][256];
    static int next;
    char *path = paths[next++ % 64];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Appends to a string in a buffer of `capacity` bytes. */
static inline void add_text(char *text, size_t capacity, const char *more) {
    const size_t n = strlen(text);
    CHECK((size_t)snprintf(text + n, capacity - n, "%s", more) < capacity - n);
}

static inline void put_file(const char *path, const void *data, size_t bytes) {
    CHECK_OK(strait_file_write(path, data, bytes));
}
