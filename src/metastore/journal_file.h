/* journal_file.h - a journal on disk: locking, reading, appending, rewriting.
 *
 * PATH is the journal, the leader holds a lock on PATH.lock, and PATH.tmp is a journal that will
 * replace PATH. One thread uses it. Every error names the path. */
#pragma once

#include "base/file.h"
#include "metastore/journal_format.h"

struct strait_journal_file {
    char path[STRAIT_PATH_MAX], lock_path[STRAIT_PATH_MAX], temporary[STRAIT_PATH_MAX];
    int fd, lock_fd;   // 0: none
    int must_rewrite;  // what the file holds is unknown: appending is not safe
    size_t rewrite_at; // a file longer than this is rewritten
    struct strait_journal_contents contents;
    unsigned char *buffer; // for one record
};

/* Prepares the paths and the buffer; opens nothing. STRAIT_ECONFIG when the path is empty. */
strait_err strait_journal_file_init(struct strait_journal_file *j, const char *path);
void strait_journal_file_fini(struct strait_journal_file *j); // accepts a failed init

/* Takes the lock; STRAIT_EAGAIN when another metastore holds it. The kernel releases it when the
 * process ends, however that happens. */
strait_err strait_journal_file_lock(struct strait_journal_file *j);
/* Writes whether anyone, in this process or another, holds the lock. */
strait_err strait_journal_file_is_locked(const struct strait_journal_file *j, int *out);
/* Returns whether our lock is still valid: the lock file may have been deleted since. */
int strait_journal_file_has_lock(const struct strait_journal_file *j);

/* Reads the journal into zeroed contents, which the caller finalises, whatever is returned. */
strait_err strait_journal_file_read(const struct strait_journal_file *j,
                                    struct strait_journal_contents *out);

/* With the lock held: reads the journal, truncates a torn end and opens it for appending. */
strait_err strait_journal_file_load(struct strait_journal_file *j);
/* Replaces the file by one with the current entries only. On an error the old file stays. */
strait_err strait_journal_file_rewrite(struct strait_journal_file *j);
/* Appends one record of `bytes` from the buffer and syncs. On an error the record does not count.
 */
strait_err strait_journal_file_append(struct strait_journal_file *j, size_t bytes);
/* Rewrites the file if appending is not safe or the file has grown too long. */
strait_err strait_journal_file_rewrite_if_needed(struct strait_journal_file *j);

/* Closes the file, releases the lock and frees the contents. */
void strait_journal_file_release(struct strait_journal_file *j);
