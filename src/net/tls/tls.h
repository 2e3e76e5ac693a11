/* tls.h - encryption of one stream: TLS 1.3 in which both sides prove their key. No sockets.
 *
 *     plain text  write ->  [ tls ]  -> take  ciphertext to the wire
 *     plain text   read <-  [ tls ]  <- feed  ciphertext from the wire
 *
 * A peer that completes the handshake has proven that it holds its key; whether that key is
 * admitted is for the caller to decide (strait_tls_peer). Nothing blocks. One thread at a time.
 * After the handshake nothing is allocated. */
#pragma once

#include "net/core/identity.h"

#include <stddef.h>

enum {
    STRAIT_TLS_RECORD = 16384, // largest plain text of one record
    STRAIT_TLS_SEALED = 16640  // largest ciphertext of one record
};

struct strait_tls;

/* Opens a stream. `identity` is borrowed until close. STRAIT_ENOMEM. */
strait_err strait_tls_open(const struct strait_identity *identity, int is_server,
                           struct strait_tls **out);
void strait_tls_close(struct strait_tls **tls); // accepts NULL

/* Continues the handshake. STRAIT_EAGAIN until it is complete, STRAIT_EPROTO or STRAIT_EAUTH when
 * it failed. There may be ciphertext to take even then: an alert for the peer. */
strait_err strait_tls_handshake(struct strait_tls *tls);

/* The fingerprint of the peer's key; valid only after the handshake. Borrowed. */
const strait_fingerprint *strait_tls_peer(const struct strait_tls *tls);

/* Encrypts all of `bytes`, at most STRAIT_TLS_RECORD, as one record. STRAIT_EAGAIN when earlier
 * ciphertext has to be taken first. */
strait_err strait_tls_write(struct strait_tls *tls, const void *data, size_t bytes);

/* Reads plain text; *out_bytes is 0 when none is available. STRAIT_ECLOSED after the peer closed
 * the stream, STRAIT_EPROTO when the bytes are not TLS or were changed on the way. */
strait_err strait_tls_read(struct strait_tls *tls, void *out, size_t capacity, size_t *out_bytes);

/* Hands over ciphertext from the socket; returns how many bytes were accepted. */
size_t strait_tls_feed(struct strait_tls *tls, const void *data, size_t bytes);
/* Fetches ciphertext for the socket; returns how many bytes there were. */
size_t strait_tls_take(struct strait_tls *tls, void *out, size_t capacity);
