/* scratch.h - a temporary folder for a test's files, which scratch_close removes with its contents.
 */
#pragma once

#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct scratch {
    char path[256];
} scratch;

static inline scratch scratch_open(void) {
    scratch s = {"/tmp/strait-test-XXXXXX"};
    if (mkdtemp(s.path) == NULL) abort();
    return s;
}

static inline void scratch_remove(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        (void)unlink(path);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own handle
        char inner[STRAIT_PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (strait_file_path(inner, "%s/%s", path, entry->d_name) == STRAIT_OK)
            scratch_remove(inner);
    }
    (void)closedir(folder);
    (void)rmdir(path);
}

static inline void scratch_close(scratch *s) {
    scratch_remove(s->path);
}

/* Returns a path inside the folder, in one of four static buffers: valid for three more calls. */
static inline const char *scratch_at(const scratch *s, const char *name) {
    static char paths[4][STRAIT_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, STRAIT_PATH_MAX, "%s/%s", s->path, name);
    return path;
}
