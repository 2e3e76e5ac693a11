/* folder_lock.h - one writer per folder of a run, also when a coordinator takes over from one that
 * hangs.
 *
 *     FOLDER/.lock    locked by the process that works here; the system releases it when that
 *                     process ends, however it ends. Its text is the term of that process.
 *            .term-T  the coordinator with term T owns the folder, unless a higher T exists
 *
 * A program without a term owns the folder while it holds the lock. A coordinator has a term
 * (metastore/metastore.h) that is higher than that of every earlier leader of its run. It takes the
 * folder although the lock is held, if the holder is a coordinator with a lower term: that one is
 * stopped or cut off, or the metastore would not have elected another. Before each durable write a
 * coordinator checks that its term file exists and that there is no higher one; one that was
 * replaced finds this out when it runs again, and writes nothing. Term files are only created and
 * removed, never rewritten, so no order of events lets a lower term replace a higher one.
 * docs/decisions/swarm/026 gives the reasons and says what is left between a check and its write.
 */
#pragma once

#include "base/error.h"
#include "base/file.h"

#include <pthread.h>
#include <stdint.h>

/* In the caller's memory; zeroed: nothing is owned. */
struct strait_folder_lock {
    char folder[STRAIT_PATH_MAX]; // empty: nothing is owned
    pthread_mutex_t mutex;        // guards the members below
    uint64_t term;                // 0: without a term
    int fd;                       // of the lock file; 0: a process with a lower term holds it
};

/* Takes an existing folder. STRAIT_EIO: another process works there, or the disk fails.
 * STRAIT_EDEPOSED: a coordinator with a higher term owns it. */
strait_err strait_folder_lock_take(struct strait_folder_lock *lock, const char *folder,
                                   uint64_t term);

/* STRAIT_EDEPOSED: another process has taken the folder. Without a term nobody can. Any thread,
 * while none changes the lock. */
strait_err strait_folder_lock_check(struct strait_folder_lock *lock);

/* Checks, then continues with a higher term: for a coordinator whose lease expired and that was
 * elected again. Also locks the lock file once the process that was replaced has ended. Any thread.
 */
strait_err strait_folder_lock_renew(struct strait_folder_lock *lock, uint64_t term);

/* Gives the folder up; accepts a zeroed lock. discard also removes the lock file, to leave the
 * folder as it was. */
void strait_folder_lock_release(struct strait_folder_lock *lock);
void strait_folder_lock_discard(struct strait_folder_lock *lock);
