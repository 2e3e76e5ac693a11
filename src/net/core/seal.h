/* seal.h - short secrets that only the holder of an identity can read, for places that others can.
 *
 * A sealed secret is a random nonce (12 bytes), the secret encrypted with AES-256-GCM, and its tag
 * (16). The key is HMAC-SHA-256 of the label under the identity's private key, and the label is
 * authenticated too: a secret that was sealed for another purpose, or changed, is refused. */
#pragma once

#include "net/core/identity.h"

enum {
    STRAIT_SEAL_BYTES = 12 + 16, // more than the secret has
    STRAIT_SEAL_LABEL_MAX = 64   // bytes
};

/* What a secret is for; borrowed during the call. */
typedef struct strait_seal_label {
    const void *data;
    size_t bytes;
} strait_seal_label;

/* Writes `bytes` + STRAIT_SEAL_BYTES bytes. STRAIT_EDEVICE when OpenSSL fails. Any thread. */
strait_err strait_seal(const struct strait_identity *identity, strait_seal_label label,
                       const void *secret, size_t bytes, unsigned char *out);

/* Writes the secret of `bytes` bytes. STRAIT_EAUTH: sealed by another identity or for another
 * purpose, or damaged. Any thread. */
strait_err strait_unseal(const struct strait_identity *identity, strait_seal_label label,
                         const unsigned char *sealed, size_t bytes, void *out);
