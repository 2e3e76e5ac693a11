#include "monitor/follow.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK = 1 << 16 // longer than any line
};

strait_err strait_follow_open(const char *path, strait_follow *out) {
    memset(out, 0, sizeof *out);
    out->path = path;
    return strait_series_open(&out->series);
}

void strait_follow_close(strait_follow *follow) {
    strait_series_close(&follow->series);
    json_decref(follow->line);
    follow->line = NULL;
}

static void take_line(strait_follow *f, const char *text, size_t bytes) {
    strait_series_point point;
    strait_series_valid valid;
    json_t *line = json_loadb(text, bytes, 0, NULL);
    if (!json_is_object(line)) {
        json_decref(line);
        return;
    }
    if (strait_series_unpack(line, &point, &valid)) {
        strait_series_put(&f->series, &point);
        json_decref(f->line);
        f->line = json_incref(line);
        if (f->n_fresh < STRAIT_FOLLOW_NEW)
            f->fresh[f->n_fresh++] = point;
        else
            f->is_reset = 1;
    } else {
        strait_series_put_valid(&f->series, &valid);
        if (f->n_fresh_valid < STRAIT_FOLLOW_NEW)
            f->fresh_valid[f->n_fresh_valid++] = valid;
        else
            f->is_reset = 1;
    }
    json_decref(line);
}

/* Reads one chunk and takes its whole lines. Returns the bytes taken; 0: there is no whole line. */
static size_t take_chunk(strait_follow *f, int fd) {
    char chunk[CHUNK];
    const ssize_t n = pread(fd, chunk, sizeof chunk, f->offset);
    size_t start = 0;
    if (n <= 0) return 0;
    for (const char *end; (end = memchr(chunk + start, '\n', (size_t)n - start)) != NULL;) {
        const size_t bytes = (size_t)(end - chunk) - start;
        take_line(f, chunk + start, bytes);
        start += bytes + 1;
    }
    return start;
}

void strait_follow_read(strait_follow *f) {
    struct stat info;
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && (info.st_ino != f->file || info.st_size < f->offset)) {
        strait_series_clear(&f->series);
        f->is_reset |= f->offset > 0;
        f->n_fresh = f->n_fresh_valid = 0;
        f->file = info.st_ino;
        f->offset = 0;
    }
    for (size_t n; (n = take_chunk(f, fd)) > 0;)
        f->offset += (off_t)n;
    (void)close(fd);
}

void strait_follow_take(strait_follow *f) {
    f->n_fresh = f->n_fresh_valid = f->is_reset = 0;
}
