/* journal_file.c - see journal_file.h. What a commit acknowledged must survive a power cut at any
 * moment, so every write is synced, and a file is only ever replaced by a complete one. */
#include "metastore/journal_file.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLACK = 1024 * 1024,         // a file this much longer than twice its entries is rewritten
    FILE_MAX = 512 * 1024 * 1024 // a longer file cannot be a journal
};

/* Operators see this when a disk is full, so it says that nothing is lost. */
static strait_err fail(const char *path, const char *what) {
    char reason[128] = "";
    (void)strerror_r(errno, reason, sizeof reason);
    return STRAIT_FAIL(STRAIT_EIO,
                       "%s: cannot %s: %s; nothing committed is lost, and the run continues once "
                       "this is fixed",
                       path, what, reason);
}

strait_err strait_journal_file_init(struct strait_journal_file *j, const char *path) {
    void *memory = NULL;
    if (path[0] == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "metastore 'journal:': expected journal:PATH");
    STRAIT_TRY(strait_file_path(j->path, "%s", path));
    STRAIT_TRY(strait_file_path(j->lock_path, "%s.lock", path));
    STRAIT_TRY(strait_file_path(j->temporary, "%s.tmp", path));
    STRAIT_TRY(strait_alloc(1, STRAIT_JOURNAL_RECORD_MAX, "journal", &memory));
    j->buffer = memory;
    return STRAIT_OK;
}

static void close_fd(int *fd) {
    if (*fd > 0) (void)close(*fd);
    *fd = 0;
}

void strait_journal_file_release(struct strait_journal_file *j) {
    close_fd(&j->fd);
    close_fd(&j->lock_fd);
    strait_journal_contents_fini(&j->contents);
    j->must_rewrite = 0;
}

void strait_journal_file_fini(struct strait_journal_file *j) {
    strait_journal_file_release(j);
    strait_alloc_free(j->buffer);
    j->buffer = NULL;
}

/* ---- the lock ---- */

/* Tries to lock; *out is 0 when another descriptor holds the lock. Unlike locks of fcntl, those of
 * flock also exclude a second metastore of the same process. */
static strait_err try_lock(const struct strait_journal_file *j, int *out) {
    int fd = 0;
    STRAIT_TRY(strait_file_open_lock(j->lock_path, &fd));
    *out = 0;
    const int is_ours = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_ours && strait_file_is_named(j->lock_path, fd)) {
        *out = fd;
        return STRAIT_OK;
    }
    strait_err err = STRAIT_OK; // held by another, or deleted by one that discards it
    if (!is_ours && errno != EWOULDBLOCK) err = fail(j->lock_path, "lock");
    (void)close(fd);
    return err;
}

strait_err strait_journal_file_lock(struct strait_journal_file *j) {
    STRAIT_TRY(try_lock(j, &j->lock_fd));
    if (j->lock_fd > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EAGAIN, "%s: another coordinator is using this journal", j->path);
}

strait_err strait_journal_file_is_locked(const struct strait_journal_file *j, int *out) {
    int fd = 0;
    if (!strait_file_exists(j->lock_path)) {
        *out = 0;
        return STRAIT_OK;
    }
    STRAIT_TRY(try_lock(j, &fd));
    *out = fd == 0;
    close_fd(&fd);
    return STRAIT_OK;
}

int strait_journal_file_has_lock(const struct strait_journal_file *j) {
    return j->lock_fd > 0 && strait_file_is_named(j->lock_path, j->lock_fd);
}

/* ---- reading ---- */

/* Reads instead of mapping: its writer may truncate the file meanwhile. */
static strait_err read_all(int fd, const char *path, unsigned char **out, size_t *out_bytes) {
    struct stat info;
    if (fstat(fd, &info) != 0) return fail(path, "read");
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_MAX)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: not a journal: expected a regular file of at most %d bytes", path,
                           FILE_MAX);
    void *data = NULL;
    const size_t bytes = (size_t)info.st_size;
    size_t n_read = 0;
    STRAIT_TRY(strait_alloc(bytes + 1, 1, path, &data));
    while (n_read < bytes) {
        const ssize_t n = pread(fd, (unsigned char *)data + n_read, bytes - n_read, (off_t)n_read);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const strait_err err = fail(path, "read");
            strait_alloc_free(data);
            return err;
        }
        if (n == 0) break;
        n_read += (size_t)n;
    }
    *out = data;
    *out_bytes = n_read;
    return STRAIT_OK;
}

/* Parse errors do not know the path. */
static strait_err read_contents(int fd, const char *path, struct strait_journal_contents *out) {
    unsigned char *data = NULL;
    size_t bytes = 0;
    STRAIT_TRY(read_all(fd, path, &data, &bytes));
    const strait_err err = strait_journal_parse(data, bytes, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    strait_alloc_free(data);
    return err;
}

strait_err strait_journal_file_read(const struct strait_journal_file *j,
                                    struct strait_journal_contents *out) {
    const int fd = open(j->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? STRAIT_OK : fail(j->path, "open");
    const strait_err err = read_contents(fd, j->path, out);
    (void)close(fd);
    return err;
}

static void set_rewrite_limit(struct strait_journal_file *j) {
    j->rewrite_at = 2 * j->contents.entries.n_bytes + SLACK;
}

strait_err strait_journal_file_load(struct strait_journal_file *j) {
    j->fd = open(j->path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (j->fd < 0) {
        j->fd = 0;
        return fail(j->path, "open");
    }
    STRAIT_TRY(read_contents(j->fd, j->path, &j->contents));
    set_rewrite_limit(j);
    if (ftruncate(j->fd, (off_t)j->contents.valid_bytes) != 0 || fsync(j->fd) != 0)
        return fail(j->path, "truncate its torn end");
    return STRAIT_OK;
}

/* ---- writing ---- */

/* write may accept less than asked, for example when the disk is nearly full. */
static strait_err write_all(int fd, const char *path, const unsigned char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(path, "write");
        data += n;
        bytes -= (size_t)n;
    }
    return STRAIT_OK;
}

/* After a failed sync it is unknown what the disk holds, and a second sync may report success
 * without writing. The file is then rewritten from memory before the next append. */
strait_err strait_journal_file_append(struct strait_journal_file *j, size_t bytes) {
    strait_err err = write_all(j->fd, j->path, j->buffer, bytes);
    if (err == STRAIT_OK && fdatasync(j->fd) != 0) {
        err = fail(j->path, "sync");
        j->must_rewrite = 1;
    }
    if (err == STRAIT_OK) {
        j->contents.valid_bytes += bytes;
        j->contents.sequence++;
        return STRAIT_OK;
    }
    if (ftruncate(j->fd, (off_t)j->contents.valid_bytes) != 0 || fdatasync(j->fd) != 0)
        j->must_rewrite = 1;
    return err;
}

/* Returns how many rows from `first` on fit into one record. */
static int count_rows_that_fit(const struct strait_metastore_table *table, size_t first) {
    size_t bytes = 0;
    int n = 0;
    while (n < STRAIT_METASTORE_CHANGES_MAX && first + (size_t)n < table->n_rows) {
        const strait_metastore_entry *entry = &table->rows[first + (size_t)n]->entry;
        bytes += strlen(entry->key) + entry->bytes;
        if (bytes > STRAIT_METASTORE_COMMIT_MAX) break;
        n++;
    }
    return n;
}

/* Writes the entries to a new file; its sequence and length are set in `contents`. */
static strait_err write_contents(struct strait_journal_file *j, int fd,
                                 struct strait_journal_contents *contents) {
    strait_journal_header_pack(contents, j->buffer);
    STRAIT_TRY(write_all(fd, j->temporary, j->buffer, STRAIT_JOURNAL_HEADER));
    contents->sequence = 0;
    size_t bytes = strait_journal_term_pack(contents, contents->term, contents->owner, j->buffer);
    STRAIT_TRY(write_all(fd, j->temporary, j->buffer, bytes));
    contents->sequence = 1;
    contents->valid_bytes = STRAIT_JOURNAL_HEADER + bytes;
    for (size_t i = 0; i < contents->entries.n_rows;) {
        const int n = count_rows_that_fit(&contents->entries, i);
        bytes = strait_journal_entries_pack(contents, contents->entries.rows + i, n, j->buffer);
        STRAIT_TRY(write_all(fd, j->temporary, j->buffer, bytes));
        contents->sequence++;
        contents->valid_bytes += bytes;
        i += (size_t)n;
    }
    if (fsync(fd) != 0) return fail(j->temporary, "sync");
    return STRAIT_OK;
}

strait_err strait_journal_file_rewrite(struct strait_journal_file *j) {
    struct strait_journal_contents contents = j->contents; // shares the entries
    /* Readable by its owner only: the invite's token is one of the entries. */
    const int fd = open(j->temporary, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return fail(j->temporary, "create");
    strait_err err = write_contents(j, fd, &contents);
    if (err == STRAIT_OK) {
        j->must_rewrite = 1; // until it is known which file the path names
        err = strait_file_move(j->temporary, j->path);
    }
    if (err != STRAIT_OK) {
        (void)close(fd);
        (void)unlink(j->temporary);
        return err;
    }
    close_fd(&j->fd);
    j->fd = fd;
    j->contents = contents;
    j->must_rewrite = 0;
    set_rewrite_limit(j);
    return STRAIT_OK;
}

strait_err strait_journal_file_rewrite_if_needed(struct strait_journal_file *j) {
    struct stat info;
    const int is_gone = fstat(j->fd, &info) != 0 || info.st_nlink == 0;
    if (j->must_rewrite || is_gone) return strait_journal_file_rewrite(j);
    if (j->contents.valid_bytes <= j->rewrite_at) return STRAIT_OK;
    /* A long file is still correct, so a failed rewrite is only tried again later. */
    if (strait_journal_file_rewrite(j) != STRAIT_OK)
        j->rewrite_at = j->contents.valid_bytes + SLACK;
    return j->must_rewrite ? strait_journal_file_rewrite(j) : STRAIT_OK;
}
