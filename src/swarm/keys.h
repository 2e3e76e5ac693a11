/* keys.h - the key of this machine, made when it is first needed. */
#pragma once

#include "net/identity.h"

/* The key FOLDER/node.pem, which is made if it is not there, the folder too. `folder` NULL: the
 * user's, $HOME/.config/strait. */
strait_err strait_keys_open(const char *folder, struct strait_identity **out);
