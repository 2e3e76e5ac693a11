/* shim.c - a library for LD_PRELOAD that knows which bytes a process has synced, and cuts its
 * power.
 *
 * Every fsync and fdatasync below POWERCUT_DISK copies what became durable into POWERCUT_SHADOW: of
 * a file its content (f-INODE), of a folder its names (d-INODE). Nothing else counts as written.
 * When the process has been killed, restore.c makes the disk what a power cut could have left.
 *
 *     POWERCUT_AT=N         the process kills itself in its N-th sync, before it takes effect
 *     POWERCUT_FILE=NAME    the file, by its last name, that the next two are about
 *     POWERCUT_FAIL=N       its N-th sync fails with EIO, and what was not synced is lost: the file
 *                           goes back to what it was at its last sync
 *     POWERCUT_SLOW=N       its N-th sync takes POWERCUT_SECONDS
 *
 * Only syncs below POWERCUT_DISK count. Inodes that were synced are kept open, so that the file
 * system does not give their numbers to other files. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    KEPT_MAX = 4096
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards everything below
static ino_t kept[KEPT_MAX];                              // inodes that are kept open
static int n_kept;
static long n_syncs, n_chosen; // of all, and of POWERCUT_FILE

static long number_of(const char *variable) {
    const char *text = getenv(variable);
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

/* Finds the path of a descriptor; 0: it is not below the disk. */
static int find_path(int fd, char path[PATH_BYTES]) {
    const char *disk = getenv("POWERCUT_DISK");
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = disk != NULL ? readlink(link, path, PATH_BYTES - 1) : -1;
    path[n > 0 ? n : 0] = '\0';
    return n > 0 && strncmp(path, disk, strlen(disk)) == 0;
}

static int is_chosen(const char *path) {
    const char *file = getenv("POWERCUT_FILE");
    const char *slash = strrchr(path, '/');
    return file != NULL && slash != NULL && strcmp(slash + 1, file) == 0;
}

static void shadow_path(char kind, ino_t inode, char out[PATH_BYTES]) {
    (void)snprintf(out, PATH_BYTES, "%s/%c-%llu", getenv("POWERCUT_SHADOW"), kind,
                   (unsigned long long)inode);
}

static void keep_open(int fd, ino_t inode) {
    for (int i = 0; i < n_kept; i++)
        if (kept[i] == inode) return;
    if (n_kept < KEPT_MAX && fcntl(fd, F_DUPFD_CLOEXEC, 100) >= 0) kept[n_kept++] = inode;
}

static void copy_bytes(int from, int to) {
    char piece[65536];
    ssize_t n;
    for (off_t at = 0; (n = pread(from, piece, sizeof piece, at)) > 0; at += n)
        if (pwrite(to, piece, (size_t)n, at) != n) abort();
}

/* Copies the content of an open file to the shadow, or from there. */
static void copy_file(int fd, ino_t inode, int is_back) {
    char path[PATH_BYTES], self[64];
    shadow_path('f', inode, path);
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    const int shadow = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int file = open(self, is_back ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
    if (shadow < 0 || file < 0) abort();
    if (ftruncate(is_back ? file : shadow, 0) != 0) abort();
    copy_bytes(is_back ? shadow : file, is_back ? file : shadow);
    (void)close(shadow);
    (void)close(file);
}

static void copy_names(int fd, ino_t inode) {
    char path[PATH_BYTES];
    shadow_path('d', inode, path);
    FILE *out = fopen(path, "we");
    const int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fdopendir(again);
    if (out == NULL || list == NULL) abort();
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (fstatat(again, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
        fprintf(out, "%c %llu %s\n", S_ISDIR(info.st_mode) ? 'd' : 'f',
                (unsigned long long)info.st_ino, entry->d_name);
    }
    (void)closedir(list);
    if (fclose(out) != 0) abort();
}

/* Lets other threads sync meanwhile. */
static void be_slow(void) {
    (void)pthread_mutex_unlock(&mutex);
    (void)sleep((unsigned)number_of("POWERCUT_SECONDS"));
    (void)pthread_mutex_lock(&mutex);
}

/* Returns 0, or the error that the sync reports. */
static int record(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0) return 0;
    if (++n_syncs == number_of("POWERCUT_AT")) (void)kill(getpid(), SIGKILL);
    const long number = is_chosen(path) ? ++n_chosen : -1;
    if (number == number_of("POWERCUT_SLOW")) be_slow();
    keep_open(fd, info.st_ino);
    if (S_ISDIR(info.st_mode)) {
        copy_names(fd, info.st_ino);
        return 0;
    }
    const int must_fail = number == number_of("POWERCUT_FAIL");
    copy_file(fd, info.st_ino, must_fail);
    return must_fail ? EIO : 0;
}

static int sync_and_record(int fd, const char *name) {
    char path[PATH_BYTES];
    if (find_path(fd, path)) {
        (void)pthread_mutex_lock(&mutex);
        const int number = record(fd, path);
        (void)pthread_mutex_unlock(&mutex);
        if (number != 0) {
            errno = number;
            return -1;
        }
    }
    int (*real)(int) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, name);
    return real(fd);
}

__attribute__((visibility("default"))) int fsync(int fd) {
    return sync_and_record(fd, "fsync");
}

__attribute__((visibility("default"))) int fdatasync(int fd) {
    return sync_and_record(fd, "fdatasync");
}
