/* keys.h - the private keys of this machine, created when they are first needed.
 *
 *     FOLDER/host.pem              of its coordinators: one for all, so that invites stay valid
 *            node.pem, node-2.pem  of its workers: one for each that runs at the same time
 *
 * `folder` NULL means .config/strait in the user's home folder. Any thread may call these
 * functions. */
#pragma once

#include "net/core/identity.h"

/* Opens the key of coordinators; the caller closes it. */
strait_err strait_keys_open_host(const char *folder, struct strait_identity **out);

/* Opens a key that no other process of this machine uses; the caller closes it. The key stays
 * reserved until *lock is passed to strait_file_unlock or the process ends. STRAIT_EIO when all are
 * in use or cannot be locked. */
strait_err strait_keys_open_worker(const char *folder, int *lock, struct strait_identity **out);
