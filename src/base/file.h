/* file.h - reading files within limits, and replacing them atomically.
 *
 * A crash during a write leaves either the old or the new file, never a mixture. Every error names
 * the path and the reason given by the system. */
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

/* Tells the kernel that these bytes are not needed for now: it may drop the pages, which are read
 * again on access. */
void strait_file_map_drop_pages(const strait_file_map *map, const unsigned char *data,
                                size_t bytes);

/* Tells the kernel that these bytes will be read soon; returns before they are there. */
void strait_file_map_prefetch(const strait_file_map *map, const unsigned char *data, size_t bytes);

/* Raises the number of files and sockets that this process may open (ulimit -n) to what the system
 * allows. Returns whether it was raised. */
int strait_file_raise_limit(void);

/* Opens a regular file for reading and writes its length. When this process has too many files open
 * and its limit (ulimit -n) can be raised, it is raised. The caller closes *out_fd. */
strait_err strait_file_open(const char *path, int *out_fd, int64_t *out_bytes);

/* Reads up to `bytes` bytes at `offset`; *out_read is less only at the end of the file. Any number
 * of threads may read one descriptor. `path` is for the error. */
strait_err strait_file_read_at(int fd, const char *path, int64_t offset, void *out, size_t bytes,
                               size_t *out_read);

/* Reads a whole file and appends a zero byte. STRAIT_EDATA: the file has more than `limit` bytes.
 */
strait_err strait_file_read(const char *path, size_t limit, char **out, size_t *out_bytes);

/* Replaces `path` atomically: writes a temporary file beside it, syncs it, and renames it. If
 * `path` is a symbolic link, its target is replaced. */
strait_err strait_file_replace(const char *path, const void *data, size_t bytes);

/* The same without syncing: readers see the old file or the new one, but after a power cut it may
 * also be empty. For a status that is soon written again, by a thread that must not wait for a
 * disk.
 */
strait_err strait_file_publish(const char *path, const void *data, size_t bytes);

/* Renames a file within one file system, replacing `to`, and syncs the folder. */
strait_err strait_file_move(const char *from, const char *to);

/* Writes and syncs a file in place, truncating an old one. For files in a folder that is itself
 * renamed into place later. */
strait_err strait_file_write(const char *path, const void *data, size_t bytes);

/* Tells the kernel that bytes of the file from `at` on are read soon. */
void strait_file_prefetch(FILE *file, size_t at, size_t bytes);

/* Tells the kernel to begin writing to the disk what was passed on to it so far, so that the sync
 * at the end has less to wait for. */
void strait_file_begin_write(FILE *file);

/* Flushes, syncs and closes *file, and sets it to NULL. Reports write errors, such as a full disk,
 * that earlier fwrite calls buffered. */
strait_err strait_file_finish(FILE **file, const char *path);

strait_err strait_file_sync_folder(const char *path);
strait_err strait_file_sync_parent(const char *path);   // the folder that holds `path`
strait_err strait_file_make_folders(const char *path);  // like mkdir -p; new ones are synced
strait_err strait_file_remove_folder(const char *path); // and its files, one level deep; no link

/* Opens a lock file, and creates it if it is absent. Only its owner may open it: another user could
 * otherwise lock it and keep the owner out. */
strait_err strait_file_open_lock(const char *path, int *out);

/* Creates the lock file `path` and holds it until unlock or the end of the process, even by a
 * crash. STRAIT_EIO: another process holds it. */
strait_err strait_file_lock(const char *path, int *out);
/* The process that holds the lock, other than this one; 0: none, -1: one whose number is unknown
 * here (in another container, or on another machine). */
int64_t strait_file_lock_holder(const char *path);
void strait_file_unlock(int *lock); // accepts 0
/* Releases the lock and removes its file, to leave the folder as it was. Accepts 0. */
void strait_file_remove_lock(const char *path, int *lock);

int strait_file_exists(const char *path);
int strait_file_is_named(const char *path, int fd);    // whether `path` still names the open file
int strait_file_is_same(const char *a, const char *b); // whether both name the same file
int strait_file_is_regular(const char *path);
int strait_file_is_folder(const char *path);

enum {
    STRAIT_PATH_MAX = 4096
};
/* Formats a path. STRAIT_EINVAL: it is longer than STRAIT_PATH_MAX - 1 bytes. */
strait_err strait_file_path(char out[STRAIT_PATH_MAX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
