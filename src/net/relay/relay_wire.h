/* relay_wire.h - what a node and a relay say to each other, before the nodes speak TLS through it.
 *
 * A node greets with a token and what it wants to be; the relay answers once the other side is
 * there, or why it will not. From then on the relay passes bytes. docs/wire.md has the layout. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_RELAY_TOKEN = 32,
    STRAIT_RELAY_REQUEST = 40,
    STRAIT_RELAY_REPLY = 8
};

typedef enum strait_relay_role {
    STRAIT_RELAY_DIALS = 0,  // speaks first
    STRAIT_RELAY_LISTENS = 1 // answers
} strait_relay_role;

typedef enum strait_relay_status {
    STRAIT_RELAY_OK = 0,      // the other side is there
    STRAIT_RELAY_NO_PEER,     // nobody came in time; come again
    STRAIT_RELAY_FULL,        // too many connections, here or from this address
    STRAIT_RELAY_BAD_REQUEST, // the greeting makes no sense
    STRAIT_RELAY_N_STATUSES
} strait_relay_status;

typedef struct strait_relay_token {
    unsigned char bytes[STRAIT_RELAY_TOKEN];
} strait_relay_token;

/* Takes the same time wherever they differ. */
int strait_relay_token_equal(const strait_relay_token *a, const strait_relay_token *b);

void strait_relay_request_pack(strait_relay_role role, const strait_relay_token *token,
                               unsigned char out[STRAIT_RELAY_REQUEST]);
/* STRAIT_EPROTO unless every byte is as it should be. */
strait_err strait_relay_request_unpack(const unsigned char in[STRAIT_RELAY_REQUEST],
                                       strait_relay_role *role, strait_relay_token *token);

void strait_relay_reply_pack(strait_relay_status status, unsigned char out[STRAIT_RELAY_REPLY]);
/* STRAIT_OK when the other side is there, STRAIT_EAGAIN when it did not come; else STRAIT_ECLOSED,
 * or STRAIT_EPROTO when this was no relay. */
strait_err strait_relay_reply_unpack(const unsigned char in[STRAIT_RELAY_REPLY]);

/* Whether an address goes through a relay: relay://HOST:PORT/TOKEN, 64 hexadecimal digits. */
int strait_relay_is_address(const char *address);
/* Splits one into host:port, of up to `room` bytes, and its token. STRAIT_EINVAL. */
strait_err strait_relay_address_parse(const char *address, char *out_where, size_t capacity,
                                      strait_relay_token *out_token);
/* Writes one; STRAIT_EINVAL when it does not fit. */
strait_err strait_relay_address_print(const char *where, const strait_relay_token *token, char *out,
                                      size_t capacity);
