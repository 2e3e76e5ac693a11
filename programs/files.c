#include "files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Paths that do not fit are an error: a truncated one would name another file. */
strait_err strait_files_path(char out[STRAIT_FILES_PATH], const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(out, STRAIT_FILES_PATH, format, args);
    va_end(args);
    if (n >= 0 && n < STRAIT_FILES_PATH) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL, "a path is longer than %d bytes", STRAIT_FILES_PATH - 1);
}

int strait_files_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

int strait_files_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Compares device and inode: two names may differ by links or relative parts. */
int strait_files_is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Reads byte by byte: a tokenizer.json may be large, and is loaded once more if it is one. */
int strait_files_mentions(const char *path, const char *word) {
    FILE *file = fopen(path, "rbe");
    const size_t length = strlen(word);
    size_t matched = 0; // bytes of `word`, which does not repeat its first byte
    int c = 0;
    if (file == NULL) return 0;
    while (matched < length && (c = getc(file)) != EOF)
        matched = c == word[matched] ? matched + 1 : c == word[0];
    (void)fclose(file);
    return matched == length;
}

/* Monotonic, for durations: the time of day may be set while a command runs. */
double strait_files_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
