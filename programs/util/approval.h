/* approval.h - strait host --approve: the operator types the keys of the workers to admit. */
#pragma once

#include "net/core/identity.h"

/* Returns whether the key was typed on standard input, or its first digits that no other key which
 * asked begins with. A worker that asks for the first time is listed by a note, and so is input
 * that matches no key. Does not block. */
int strait_approval_is_given(const strait_fingerprint *key, const char *name,
                             void (*noted)(void *user, const char *text), void *user);
