/* relay_wire.h - the messages between a peer and a relay, before the TLS handshake between peers.
 *
 * A peer sends a request: its role and a token. The relay replies when another peer with the same
 * token and the other role has connected, or with the reason why it refuses. From then on the relay
 * forwards bytes. docs/wire.md defines the layout. Pure functions; any thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_RELAY_TOKEN = 32,
    STRAIT_RELAY_REQUEST = 40, // bytes
    STRAIT_RELAY_REPLY = 8,    // bytes
    STRAIT_RELAY_VERSION = 1   // rises with every change of request or reply
};

typedef enum strait_relay_role {
    STRAIT_RELAY_DIALS = 0,  // TLS client
    STRAIT_RELAY_LISTENS = 1 // TLS server
} strait_relay_role;

typedef enum strait_relay_status {
    STRAIT_RELAY_OK = 0,      // paired
    STRAIT_RELAY_NO_PEER,     // no peer came in time; connect again
    STRAIT_RELAY_FULL,        // too many connections, in all or from this address
    STRAIT_RELAY_BAD_REQUEST, // malformed, or of another version
    STRAIT_RELAY_DENIED,      // the token was not made with the relay's secret
    STRAIT_RELAY_N_STATUSES
} strait_relay_status;

typedef struct strait_relay_token {
    unsigned char bytes[STRAIT_RELAY_TOKEN];
} strait_relay_token;

/* Compares in constant time, so that the time does not help to guess a token. */
int strait_relay_token_equal(const strait_relay_token *a, const strait_relay_token *b);

void strait_relay_request_pack(strait_relay_role role, const strait_relay_token *token,
                               unsigned char out[STRAIT_RELAY_REQUEST]);
/* The version that a request claims, whatever the rest of it is. */
unsigned char strait_relay_request_version(const unsigned char in[STRAIT_RELAY_REQUEST]);
/* STRAIT_ENOTSUP for a request of another version, described with both versions; STRAIT_EPROTO
 * unless every other byte is valid. */
strait_err strait_relay_request_unpack(const unsigned char in[STRAIT_RELAY_REQUEST],
                                       strait_relay_role *role, strait_relay_token *token);

void strait_relay_reply_pack(strait_relay_status status, unsigned char out[STRAIT_RELAY_REPLY]);
/* STRAIT_OK when the peer is there, STRAIT_EAGAIN when it did not come, STRAIT_ECLOSED when the
 * relay is full, STRAIT_EPROTO when it is of another version, refuses the request or is no relay.
 */
strait_err strait_relay_reply_unpack(const unsigned char in[STRAIT_RELAY_REPLY]);

/* Whether an address goes through a relay: relay://HOST:PORT/TOKEN, 64 hexadecimal digits. */
int strait_relay_is_address(const char *address);
/* Splits one into host:port, of up to `capacity` bytes, and its token. STRAIT_EINVAL. */
strait_err strait_relay_address_parse(const char *address, char *out_where, size_t capacity,
                                      strait_relay_token *out_token);
/* Writes one; STRAIT_EINVAL when it does not fit. */
strait_err strait_relay_address_print(const char *where, const strait_relay_token *token, char *out,
                                      size_t capacity);
