/* keys.h - the keys of this machine, made when they are first needed.
 *
 *     FOLDER/host.pem              of its coordinators: the same for all, so that invites stay good
 *            node.pem, node-2.pem  of its workers: one for each that runs at the same time
 *
 * `folder` NULL is the user's: .config/strait in the home folder. */
#pragma once

#include "net/core/identity.h"

strait_err strait_keys_open_host(const char *folder, struct strait_identity **out);

/* A key that no other process of this machine works with. It is held until *lock is given to
 * strait_file_unlock, or the process ends. */
strait_err strait_keys_open_worker(const char *folder, int *lock, struct strait_identity **out);
