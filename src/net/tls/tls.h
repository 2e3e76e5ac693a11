/* tls.h - a stream that encrypts: TLS 1.3, both sides show their key. Knows no sockets.
 *
 *     plain text  write ->  [ tls ]  -> take  ciphertext to the wire
 *     plain text   read <-  [ tls ]  <- feed  ciphertext from the wire
 *
 * Whoever completes the handshake has proved that it holds its key; whether that key is welcome is
 * the caller's question (strait_tls_peer). Nothing blocks. One thread at a time. After the
 * handshake nothing is allocated. */
#pragma once

#include "net/core/identity.h"

#include <stddef.h>

enum {
    STRAIT_TLS_RECORD = 16384, // most plain text in one record
    STRAIT_TLS_SEALED = 16640  // most ciphertext of one record
};

struct strait_tls;

/* `identity` is borrowed until close. */
strait_err strait_tls_open(const struct strait_identity *identity, int is_server,
                           struct strait_tls **out);
void strait_tls_close(struct strait_tls **tls); // accepts NULL

/* Goes on with the handshake. STRAIT_EAGAIN until it is done; there may be ciphertext to take even
 * after a failure, an alert for the peer. */
strait_err strait_tls_handshake(struct strait_tls *tls);

/* The peer's key; only after the handshake. */
const strait_fingerprint *strait_tls_peer(const struct strait_tls *tls);

/* Encrypts all of `bytes`, at most STRAIT_TLS_RECORD, as one record. STRAIT_EAGAIN when earlier
 * ciphertext has to be taken first. */
strait_err strait_tls_write(struct strait_tls *tls, const void *data, size_t bytes);

/* Plain text that has arrived; *out_bytes is 0 when there is none now. STRAIT_ECLOSED after the
 * peer's orderly end, STRAIT_EPROTO when what came is not TLS or was tampered with. */
strait_err strait_tls_read(struct strait_tls *tls, void *out, size_t capacity, size_t *out_bytes);

size_t strait_tls_feed(struct strait_tls *tls, const void *data, size_t bytes); // how many it took
size_t strait_tls_take(struct strait_tls *tls, void *out, size_t capacity); // how many there were
