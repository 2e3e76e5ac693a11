/* journal_file.h - a journal on disk: locked, read, appended to, written anew.
 *
 * PATH is the journal, PATH.lock is held by whoever leads, PATH.tmp is a journal on its way to
 * replace PATH. One thread. Every error names the path. */
#pragma once

#include "base/file.h"
#include "metastore/journal_format.h"

struct strait_journal_file {
    char path[STRAIT_PATH_MAX], lock_path[STRAIT_PATH_MAX], beside[STRAIT_PATH_MAX];
    int fd, lock_fd;   // 0: none
    int must_rewrite;  // what the file holds is not known: no more appending
    size_t rewrite_at; // so long a file is worth writing anew
    struct strait_journal_contents image;
    unsigned char *buffer; // for one record
};

strait_err strait_journal_file_init(struct strait_journal_file *j, const char *path);
void strait_journal_file_fini(struct strait_journal_file *j); // accepts a failed init

/* Takes the lock; STRAIT_EAGAIN when another holds it. It goes with the process, however that
 * ends. */
strait_err strait_journal_file_lock(struct strait_journal_file *j);
/* Whether somebody, in this process or another, holds it. */
strait_err strait_journal_file_is_locked(const struct strait_journal_file *j, int *out);
/* Whether ours still counts: the lock file may have been removed under us. */
int strait_journal_file_has_lock(const struct strait_journal_file *j);

/* Reads the journal into a zeroed image that the caller finishes. */
strait_err strait_journal_file_read(const struct strait_journal_file *j,
                                    struct strait_journal_contents *out);

/* With the lock held: reads the journal, cuts a torn tail and opens it for appending. */
strait_err strait_journal_file_load(struct strait_journal_file *j);
/* Replaces it by one that says what the image says and no more. On an error the old one stays. */
strait_err strait_journal_file_rewrite(struct strait_journal_file *j);
/* Adds one record of `bytes` from the buffer and syncs. On an error it is as if never written. */
strait_err strait_journal_file_append(struct strait_journal_file *j, size_t bytes);
/* Brings the file into a state that append can use, and a reasonable size. */
strait_err strait_journal_file_tidy(struct strait_journal_file *j);

/* Closes the file and the lock and forgets the image. */
void strait_journal_file_release(struct strait_journal_file *j);
