#include "base/folder_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char lock_name[] = ".lock", term_prefix[] = ".term-";

enum {
    TERM_TEXT = 24
};

/* ---- term files ---- */

static strait_err term_path(const char *folder, uint64_t term, char out[STRAIT_PATH_MAX]) {
    return strait_file_path(out, "%s/%s%" PRIu64, folder, term_prefix, term);
}

/* The term that a name states; 0: it is not the name of a term file. */
static uint64_t term_of(const char *name) {
    const size_t n = sizeof term_prefix - 1;
    if (strncmp(name, term_prefix, n) != 0) return 0;
    if (name[n] == '\0' || strspn(name + n, "0123456789") != strlen(name + n)) return 0;
    return strtoull(name + n, NULL, 10);
}

/* Finds the highest term in a folder, and whether `ours` has a file. */
static strait_err find_terms(const char *folder, uint64_t ours, uint64_t *highest, int *has_ours) {
    DIR *list = opendir(folder);
    const struct dirent *entry;
    if (list == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be listed to see who owns it", folder);
    *highest = 0;
    *has_ours = 0;
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own handle
        const uint64_t term = term_of(entry->d_name);
        if (term > *highest) *highest = term;
        if (term != 0 && term == ours) *has_ours = 1;
    }
    (void)closedir(list);
    return STRAIT_OK;
}

/* Removes term files below `limit`; 0 removes all. One that stays is harmless. */
static void remove_terms(const char *folder, uint64_t limit) {
    DIR *list = opendir(folder);
    const struct dirent *entry;
    while (list != NULL &&
           (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own handle
        const uint64_t term = term_of(entry->d_name);
        if (term != 0 && (limit == 0 || term < limit))
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list != NULL) (void)closedir(list);
}

static strait_err fail_deposed(const struct strait_folder_lock *lock, uint64_t highest) {
    if (highest > lock->term)
        return STRAIT_FAIL(STRAIT_EDEPOSED,
                           "%s: another coordinator (term %" PRIu64
                           ") has taken over this run; this one (term %" PRIu64
                           ") ends and writes nothing more: start it again to stand by",
                           lock->folder, highest, lock->term);
    return STRAIT_FAIL(STRAIT_EDEPOSED,
                       "%s: another process has taken this folder from this coordinator (term "
                       "%" PRIu64 "), which ends and writes nothing more",
                       lock->folder, lock->term);
}

/* Creates our term file, on disk before anything else is written. A coordinator with a higher term
 * may come at any time; the caller checks afterwards. */
static strait_err put_term(const char *folder, uint64_t term) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(term_path(folder, term, path));
    STRAIT_TRY(strait_file_write(path, "", 0));
    return strait_file_sync_parent(path);
}

static void drop_term(const struct strait_folder_lock *lock) {
    char path[STRAIT_PATH_MAX];
    if (lock->term != 0 && term_path(lock->folder, lock->term, path) == STRAIT_OK)
        (void)unlink(path);
}

/* ---- the lock file ---- */

/* States our term in the lock file, for a coordinator that finds it locked. */
static void sign(const struct strait_folder_lock *lock) {
    char text[TERM_TEXT] = "";
    if (lock->term != 0) (void)snprintf(text, sizeof text, "%" PRIu64 "\n", lock->term);
    if (ftruncate(lock->fd, 0) == 0) (void)!pwrite(lock->fd, text, strlen(text), 0);
}

/* Reads the term of the process that holds the lock; 0: it has none. */
static uint64_t read_holder(const char *path) {
    char text[TERM_TEXT] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    (void)close(fd);
    return n > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Locks the file, or finds that its holder is a coordinator that we replace. */
static strait_err lock_file(struct strait_folder_lock *lock) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/%s", lock->folder, lock_name));
    const strait_err err = strait_file_lock(path, &lock->fd);
    if (err == STRAIT_OK) {
        sign(lock);
        return STRAIT_OK;
    }
    const uint64_t holder = read_holder(path);
    lock->fd = 0;
    return holder != 0 && holder < lock->term ? STRAIT_OK : err;
}

/* ---- the folder ---- */

static strait_err check(const struct strait_folder_lock *lock) {
    uint64_t highest = 0;
    int has_ours = 0;
    if (lock->term == 0) return STRAIT_OK;
    STRAIT_TRY(find_terms(lock->folder, lock->term, &highest, &has_ours));
    return has_ours && highest == lock->term ? STRAIT_OK : fail_deposed(lock, highest);
}

static strait_err own(const struct strait_folder_lock *lock) {
    /* With the lock, terms of earlier owners mean nothing: none of them runs, or it will find its
     * file gone. They may even be higher, after a metastore was begun anew. */
    if (lock->fd > 0) remove_terms(lock->folder, 0);
    if (lock->term == 0) return STRAIT_OK;
    STRAIT_TRY(put_term(lock->folder, lock->term));
    STRAIT_TRY(check(lock));
    remove_terms(lock->folder, lock->term);
    return STRAIT_OK;
}

strait_err strait_folder_lock_take(struct strait_folder_lock *lock, const char *folder,
                                   uint64_t term) {
    *lock = (struct strait_folder_lock){.term = term};
    STRAIT_TRY(strait_file_path(lock->folder, "%s", folder));
    (void)pthread_mutex_init(&lock->mutex, NULL);
    strait_err err = lock_file(lock);
    if (err == STRAIT_OK) err = own(lock);
    if (err != STRAIT_OK) strait_folder_lock_release(lock);
    return err;
}

strait_err strait_folder_lock_check(struct strait_folder_lock *lock) {
    if (lock->folder[0] == '\0') return STRAIT_OK;
    (void)pthread_mutex_lock(&lock->mutex);
    const strait_err err = check(lock);
    (void)pthread_mutex_unlock(&lock->mutex);
    return err;
}

static strait_err renew(struct strait_folder_lock *lock, uint64_t term) {
    STRAIT_TRY(check(lock));
    if (lock->term != 0 && term > lock->term) {
        STRAIT_TRY(put_term(lock->folder, term));
        lock->term = term;
        STRAIT_TRY(check(lock));
        remove_terms(lock->folder, term);
        if (lock->fd > 0) sign(lock);
    }
    return lock->fd > 0 ? STRAIT_OK : lock_file(lock);
}

strait_err strait_folder_lock_renew(struct strait_folder_lock *lock, uint64_t term) {
    (void)pthread_mutex_lock(&lock->mutex);
    const strait_err err = renew(lock, term);
    (void)pthread_mutex_unlock(&lock->mutex);
    return err;
}

void strait_folder_lock_release(struct strait_folder_lock *lock) {
    if (lock->folder[0] == '\0') return;
    drop_term(lock);
    strait_file_unlock(&lock->fd);
    (void)pthread_mutex_destroy(&lock->mutex);
    *lock = (struct strait_folder_lock){.term = 0};
}

void strait_folder_lock_discard(struct strait_folder_lock *lock) {
    char path[STRAIT_PATH_MAX];
    if (lock->folder[0] != '\0' && check(lock) == STRAIT_OK &&
        strait_file_path(path, "%s/%s", lock->folder, lock_name) == STRAIT_OK)
        strait_file_remove_lock(path, &lock->fd);
    strait_folder_lock_release(lock);
}
