#include "base/file.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The text of an errno value; thread-safe. */
static const char *reason(int number) {
    static _Thread_local char text[128];
    if (strerror_r(number, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", number);
    return text;
}

#define FAIL_ON(path, what) STRAIT_FAIL(STRAIT_EIO, "%s: cannot %s: %s", path, what, reason(errno))

int strait_file_raise_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return 0;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

strait_err strait_file_open(const char *path, int *out_fd, int64_t *out_bytes) {
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; // else a pipe would be waited for
    int fd = open(path, flags);
    if (fd < 0 && errno == EMFILE && strait_file_raise_limit()) fd = open(path, flags);
    if (fd < 0) return FAIL_ON(path, "open");
    struct stat info = {0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        const int is_folder = S_ISDIR(info.st_mode);
        (void)close(fd);
        return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path,
                           is_folder ? "is a folder; name a file" : "not a regular file");
    }
    *out_fd = fd;
    *out_bytes = info.st_size;
    return STRAIT_OK;
}

strait_err strait_file_read_at(int fd, const char *path, int64_t offset, void *out, size_t bytes,
                               size_t *out_read) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL_ON(path, "read");
        if (n == 0) break;
        done += (size_t)n;
    }
    *out_read = done;
    return STRAIT_OK;
}

/* An empty file cannot be mapped, so it has no data. */
strait_err strait_file_map_open(const char *path, strait_file_map *out) {
    int64_t bytes = 0;
    int fd = 0;
    STRAIT_TRY(strait_file_open(path, &fd, &bytes));
    strait_file_map map = {NULL, (size_t)bytes};
    if (map.bytes > 0) {
        void *data = mmap(NULL, map.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            const strait_err err = FAIL_ON(path, "map");
            (void)close(fd);
            return err;
        }
        map.data = data;
    }
    (void)close(fd);
    *out = map;
    return STRAIT_OK;
}

void strait_file_map_close(strait_file_map *map) {
    /* munmap takes a non-const pointer, although the mapping is read-only. */
    if (map->data != NULL)
        (void)munmap((void *)(uintptr_t)map->data, map->bytes); // NOLINT(performance-no-int-to-ptr)
    *map = (strait_file_map){NULL, 0};
}

/* Reads instead of mapping: whoever truncates the file meanwhile must not end this process. A zero
 * follows the last byte, so that the text can be used as a string. */
strait_err strait_file_read(const char *path, size_t limit, char **out, size_t *out_bytes) {
    int64_t bytes = 0;
    int fd = 0;
    size_t n_read = 0;
    void *text = NULL;
    STRAIT_TRY(strait_file_open(path, &fd, &bytes));
    strait_err err = STRAIT_OK;
    if ((uint64_t)bytes > limit)
        err = STRAIT_FAIL(STRAIT_EDATA, "%s: %lld bytes, more than the %zu allowed", path,
                          (long long)bytes, limit);
    if (err == STRAIT_OK) err = strait_alloc((size_t)bytes + 1, 1, path, &text); // zeroed
    if (err == STRAIT_OK) err = strait_file_read_at(fd, path, 0, text, (size_t)bytes, &n_read);
    (void)close(fd);
    if (err != STRAIT_OK) {
        strait_alloc_free(text);
        return err;
    }
    *out = text;
    if (out_bytes != NULL) *out_bytes = n_read;
    return STRAIT_OK;
}

static strait_err write_all(int fd, const char *path, const unsigned char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL_ON(path, "write");
        data += n;
        bytes -= (size_t)n;
    }
    return STRAIT_OK;
}

/* Synced before the caller renames: otherwise a crash may leave a new name with old contents. */
static strait_err write_file(const char *path, const void *data, size_t bytes, int must_sync) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL_ON(path, "create");
    strait_err err = write_all(fd, path, data, bytes);
    if (err == STRAIT_OK && must_sync && fsync(fd) != 0) err = FAIL_ON(path, "sync");
    if (close(fd) != 0 && err == STRAIT_OK) err = FAIL_ON(path, "close");
    return err;
}

strait_err strait_file_write(const char *path, const void *data, size_t bytes) {
    return write_file(path, data, bytes, 1);
}

/* The folder of a path; "." for a name without one. */
static strait_err parent_of(const char *path, char out[STRAIT_PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return strait_file_path(out, ".");
    if (slash == path) return strait_file_path(out, "/");
    return strait_file_path(out, "%.*s", (int)(slash - path), path);
}

strait_err strait_file_sync_parent(const char *path) {
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(parent_of(path, folder));
    return strait_file_sync_folder(folder);
}

strait_err strait_file_move(const char *from, const char *to) {
    if (rename(from, to) != 0) return FAIL_ON(to, "rename into place");
    return strait_file_sync_parent(to);
}

static strait_err replace(const char *path, const void *data, size_t bytes, int must_sync) {
    char beside[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(beside, "%s.tmp", path));
    strait_err err = write_file(beside, data, bytes, must_sync);
    if (err == STRAIT_OK && must_sync) err = strait_file_move(beside, path);
    if (err == STRAIT_OK && !must_sync && rename(beside, path) != 0)
        err = FAIL_ON(path, "rename into place");
    if (err != STRAIT_OK) (void)unlink(beside);
    return err;
}

/* Follows a symbolic link to the file it names, so that the link itself is not replaced. */
strait_err strait_file_replace(const char *path, const void *data, size_t bytes) {
    char *target = realpath(path, NULL); // NULL: the file does not exist yet
    const strait_err err = replace(target != NULL ? target : path, data, bytes, 1);
    free(target);
    return err;
}

strait_err strait_file_publish(const char *path, const void *data, size_t bytes) {
    return replace(path, data, bytes, 0);
}

/* Some file systems cannot sync and answer EINVAL, which is no failed write. */
strait_err strait_file_finish(FILE **file, const char *path) {
    FILE *f = *file;
    *file = NULL;
    if (f == NULL) return STRAIT_OK;
    strait_err err = STRAIT_OK;
    if (ferror(f) || fflush(f) != 0) err = FAIL_ON(path, "write");
    if (err == STRAIT_OK && fsync(fileno(f)) != 0 && errno != EINVAL) err = FAIL_ON(path, "sync");
    if (fclose(f) != 0 && err == STRAIT_OK) err = FAIL_ON(path, "close");
    return err;
}

strait_err strait_file_sync_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL_ON(path, "open");
    const int synced = fsync(fd);
    const strait_err err = synced != 0 && errno != EINVAL ? FAIL_ON(path, "sync") : STRAIT_OK;
    (void)close(fd);
    return err;
}

/* A folder that another process creates meanwhile is as good as our own. */
strait_err strait_file_make_folders(const char *path) {
    char so_far[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(so_far, "%s", path));
    for (char *at = so_far + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        const char ending = *at;
        *at = '\0';
        if (mkdir(so_far, 0777) == 0)
            STRAIT_TRY(strait_file_sync_parent(so_far));
        else if (errno != EEXIST)
            return FAIL_ON(so_far, "make folder");
        if (ending == '\0') break;
        *at = '/';
    }
    if (!strait_file_is_folder(path)) return STRAIT_FAIL(STRAIT_EIO, "%s: not a folder", path);
    return STRAIT_OK;
}

/* Removes files only, not folders inside: run folders have none, and a wrong path must not delete a
 * tree. Nor may a link: where others can write, they could put one in the place of our folder. */
strait_err strait_file_remove_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? STRAIT_OK : FAIL_ON(path, "open");
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        const strait_err err = FAIL_ON(path, "open");
        (void)close(fd);
        return err;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own handle
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    (void)closedir(folder);
    if (rmdir(path) != 0) return FAIL_ON(path, "remove");
    return STRAIT_OK;
}

int strait_file_is_named(const char *path, int fd) {
    struct stat named, held;
    return stat(path, &named) == 0 && fstat(fd, &held) == 0 && named.st_dev == held.st_dev &&
           named.st_ino == held.st_ino;
}

strait_err strait_file_open_lock(const char *path, int *out) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return FAIL_ON(path, "create");
    (void)fchmod(fd, 0600); // one that an earlier version created was readable by all
    *out = fd;
    return STRAIT_OK;
}

/* A lock of the system, not a file that exists or not: it is gone when the process ends, however it
 * ends. */
strait_err strait_file_lock(const char *path, int *out) {
    for (;;) {
        int fd = 0;
        STRAIT_TRY(strait_file_open_lock(path, &fd));
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_SETLK, &whole) != 0) {
            const int is_held = errno == EACCES || errno == EAGAIN;
            const strait_err err = is_held ? STRAIT_FAIL(STRAIT_EIO,
                                                         "%s: another process is using this folder",
                                                         path)
                                           : FAIL_ON(path, "lock");
            (void)close(fd);
            return err;
        }
        if (strait_file_is_named(path, fd)) {
            *out = fd;
            return STRAIT_OK;
        }
        (void)close(fd); // its holder removed it between open and lock: try again
    }
}

/* Only asks: a lock that is taken to find out would keep a process out that starts at that moment.
 */
int64_t strait_file_lock_holder(const char *path) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const int failed = fcntl(fd, F_GETLK, &whole);
    (void)close(fd);
    if (failed != 0) return -1;
    if (whole.l_type == F_UNLCK) return 0;
    return whole.l_pid > 0 ? (int64_t)whole.l_pid : -1;
}

void strait_file_unlock(int *lock) {
    if (*lock > 0) (void)close(*lock);
    *lock = 0;
}

/* The name is removed while the lock is still held, so that nobody can take it in between. */
void strait_file_remove_lock(const char *path, int *lock) {
    if (*lock > 0) (void)unlink(path);
    strait_file_unlock(lock);
}

int strait_file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

/* Device and inode decide: two paths may name one file. */
int strait_file_is_same(const char *a, const char *b) {
    struct stat one;
    struct stat other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

int strait_file_is_regular(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int strait_file_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

strait_err strait_file_path(char out[STRAIT_PATH_MAX], const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int used = vsnprintf(out, STRAIT_PATH_MAX, format, args);
    va_end(args);
    if (used < 0 || used >= STRAIT_PATH_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "a path is longer than %d bytes", STRAIT_PATH_MAX - 1);
    return STRAIT_OK;
}
