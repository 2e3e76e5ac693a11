/* relay_secret.h - the secret of a relay that not everyone may use: it pairs only tokens that were
 * made with it.
 *
 * The second half of such a token is an HMAC of the first. So a coordinator, which hands out
 * addresses at the relay, needs the secret, and the workers that use them do not. */
#pragma once

#include "net/relay/relay_wire.h"

typedef struct strait_relay_secret {
    unsigned char bytes[32];
} strait_relay_secret;

/* Writes a new secret in 64 hexadecimal digits to a file that only its owner may read, all of it or
 * none. A file that exists is left as it is: STRAIT_EEXISTS. STRAIT_EIO. */
strait_err strait_relay_secret_create(const char *path);

/* STRAIT_EIO: the file cannot be read. STRAIT_ECONFIG: it holds anything but a secret, or users
 * other than its owner and group may read it. STRAIT_ENOMEM. */
strait_err strait_relay_secret_load(const char *path, strait_relay_secret *out);

/* Writes the address of a token at the relay `where`, host:port: of the token as it is where there
 * is no secret, and otherwise of one made with it. STRAIT_ENOMEM; STRAIT_EINVAL when it does not
 * fit. */
strait_err strait_relay_secret_address(const strait_relay_secret *secret, const char *where,
                                       const strait_relay_token *token, char *out, size_t capacity);

/* Replaces the second half of a token. STRAIT_ENOMEM is the only error. */
strait_err strait_relay_secret_sign(const strait_relay_secret *secret, strait_relay_token *token);

/* STRAIT_EAUTH unless the token was made with this secret; compares in constant time.
 * STRAIT_ENOMEM. */
strait_err strait_relay_secret_check(const strait_relay_secret *secret,
                                     const strait_relay_token *token);
