/* keys.h - the private keys of this machine, created when they are first needed.
 *
 *     FOLDER/host.pem              of its coordinators: one for all, so that invites stay valid
 *            node.pem, node-2.pem  of its workers: one for each that runs at the same time
 *            node.lock, ...        held while a worker runs
 *            node.status, ...      what it does (programs/util/join_control.h)
 *
 * `folder` NULL means .config/strait in the user's home folder. Any thread may call these
 * functions. */
#pragma once

#include "base/file.h"
#include "net/core/identity.h"

/* Opens the key of coordinators; the caller closes it. */
strait_err strait_keys_open_host(const char *folder, struct strait_identity **out);

/* Opens a key that no other process of this machine uses; the caller closes it. The key stays
 * reserved until *lock is passed to strait_file_unlock or the process ends. STRAIT_EIO when all are
 * in use or cannot be locked. *number counts the workers of the folder from 1. */
strait_err strait_keys_open_worker(const char *folder, int *number, int *lock,
                                   struct strait_identity **out);

enum {
    STRAIT_KEYS_WORKERS = 64 // of one folder, at once
};

/* The path of a file of the i-th worker, from 1: FOLDER/node.ENDING, FOLDER/node-2.ENDING.
 * STRAIT_EINVAL, STRAIT_ECONFIG: there is no folder. */
strait_err strait_keys_worker_file(const char *folder, int i, const char *ending,
                                   char out[STRAIT_PATH_MAX]);

/* The process that is the i-th worker, by its lock; 0: none, -1: one that cannot be seen from here.
 */
int64_t strait_keys_process(const char *folder, int i);
