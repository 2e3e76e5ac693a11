#include "store/checkpoint_folder.h"

#include "base/alloc.h"
#include "store/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGITS_MAX = 18 // fit into int64_t
};

strait_err strait_checkpoint_folder(const char *run_folder, int64_t step, const char *suffix,
                                    char out[STRAIT_PATH_MAX]) {
    return strait_file_path(out, "%s/checkpoints/%08lld%s", run_folder, (long long)step, suffix);
}

/* Anything else in the folder, such as a .tmp folder or a user's notes, is not a checkpoint. */
int64_t strait_checkpoint_step_of(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const size_t digits = strspn(name, "0123456789");
    if (digits < 8 || digits > DIGITS_MAX || name[digits] != '\0') return -1;
    return strtoll(name, NULL, 10);
}

static int by_step(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The system lists folders in any order; the caller sorts. */
static strait_err collect(DIR *folder, int64_t **steps, size_t *n) {
    size_t capacity = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own handle
        const int64_t step = strait_checkpoint_step_of(entry->d_name);
        if (step < 0) continue;
        if (*n == capacity) {
            void *memory = *steps;
            capacity = capacity * 2 + 16;
            STRAIT_TRY(strait_alloc_grow(&memory, *n, capacity, sizeof **steps, "checkpoints"));
            *steps = memory;
        }
        (*steps)[(*n)++] = step;
    }
    return STRAIT_OK;
}

strait_err strait_checkpoint_list(const char *run_folder, int64_t **out, int *n) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/checkpoints", run_folder));
    int64_t *steps = NULL;
    size_t n_steps = 0;
    DIR *folder = opendir(path);
    if (folder == NULL && errno != ENOENT)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be listed", path);
    if (folder != NULL) {
        const strait_err err = collect(folder, &steps, &n_steps);
        (void)closedir(folder);
        if (err != STRAIT_OK) {
            strait_alloc_free(steps);
            return err;
        }
    }
    if (n_steps > 0) qsort(steps, n_steps, sizeof *steps, by_step);
    *out = steps;
    *n = (int)n_steps;
    return STRAIT_OK;
}

/* Removes one leftover of an interrupted save. "00000200.tmp" was being written. "00000200.old.tmp"
 * was set aside while its successor was moved into place: if the successor never arrived, the old
 * checkpoint is moved back. */
static strait_err clear(const char *folder, const char *name) {
    static const char old[] = ".old.tmp";
    const size_t length = strlen(name);
    if (length < 5 || strcmp(name + length - 4, ".tmp") != 0) return STRAIT_OK;
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, name));
    if (length > sizeof old && strcmp(name + length - (sizeof old - 1), old) == 0) {
        char place[STRAIT_PATH_MAX];
        STRAIT_TRY(
            strait_file_path(place, "%s/%.*s", folder, (int)(length - (sizeof old - 1)), name));
        if (!strait_file_exists(place) && rename(path, place) == 0) return STRAIT_OK;
    }
    (void)strait_file_remove_folder(path); // on failure it stays: no reader looks at .tmp folders
    return STRAIT_OK;
}

strait_err strait_checkpoint_prepare(const char *run_folder) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/checkpoints", run_folder));
    STRAIT_TRY(strait_file_make_folders(path));
    DIR *folder = opendir(path);
    if (folder == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be listed", path);
    strait_err err = STRAIT_OK;
    const struct dirent *entry;
    while (err == STRAIT_OK &&
           (entry = readdir(folder)) != NULL) // NOLINT(concurrency-mt-unsafe): our own handle
        err = clear(path, entry->d_name);
    (void)closedir(folder);
    return err;
}
