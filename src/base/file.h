/* file.h - whole files, read safely and written so that a crash leaves the old or the new one.
 *
 * Every error names the path and what the system said. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A file mapped for reading. `data` is NULL when the file is empty. */
typedef struct strait_file_map {
    const unsigned char *data;
    size_t bytes;
} strait_file_map;

strait_err strait_file_map_open(const char *path, strait_file_map *out);
void strait_file_map_close(strait_file_map *map); // accepts a zeroed map

/* These bytes of the map are not needed for now: their memory may go, and comes back if read. */
void strait_file_map_rest(const strait_file_map *map, const unsigned char *data, size_t bytes);

/* The whole file with a zero after its last byte. More than `limit` bytes is refused. */
strait_err strait_file_read(const char *path, size_t limit, char **out, size_t *out_bytes);

/* Replaces `path` in one move: written beside it, synced, renamed. A link stays, and what it leads
 * to is replaced. */
strait_err strait_file_replace(const char *path, const void *data, size_t bytes);

/* Renames within one file system, replacing `to`, and syncs the folder. */
strait_err strait_file_move(const char *from, const char *to);

/* Writes and syncs a new file or truncates an old one. For files inside a folder that is itself
 * renamed into place. */
strait_err strait_file_write(const char *path, const void *data, size_t bytes);

/* Flushes, syncs and closes; reports a full disk that fwrite did not. *file becomes NULL. */
strait_err strait_file_finish(FILE **file, const char *path);

strait_err strait_file_sync_folder(const char *path);
strait_err strait_file_make_folders(const char *path);  // like mkdir -p
strait_err strait_file_remove_folder(const char *path); // with the files in it, one level deep

/* Makes `path` and holds it until unlock or the end of the process, however it ends; STRAIT_EIO
 * when another process holds it. */
strait_err strait_file_lock(const char *path, int *out);
void strait_file_unlock(int *lock); // accepts 0
/* Lets go, and leaves no file: for a folder that shall be as it was before. Accepts 0. */
void strait_file_remove_lock(const char *path, int *lock);

int strait_file_exists(const char *path);
int strait_file_is_named(const char *path, int fd); // it is the open file, not another by that name
int strait_file_is_same(const char *a, const char *b); // two names of one file
int strait_file_is_regular(const char *path);
int strait_file_is_folder(const char *path);

enum {
    STRAIT_PATH_MAX = 4096
};
/* Formats a path; STRAIT_EINVAL when it does not fit. */
strait_err strait_file_path(char out[STRAIT_PATH_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
