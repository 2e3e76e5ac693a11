/* invite.h - everything a worker needs to join a run, in one line that can be pasted.
 *
 *     strait1:AQ3k...                base64url of the fields below and a checksum
 *
 * The token is a secret: anyone who has the line may join, as often and as long as the coordinator
 * admits workers. Plain data; functions may be called from any thread. */
#pragma once

#include "net/core/transport.h"

enum {
    STRAIT_TOKEN_BYTES = 16,
    STRAIT_INVITE_TEXT = 512 // bytes of the longest line, with its final zero
};

typedef struct strait_invite {
    char address[STRAIT_ADDRESS_MAX]; // of the coordinator: host:port; several separated by commas
    unsigned char run[STRAIT_RUN_BYTES];
    strait_fingerprint key; // of the coordinator
    unsigned char token[STRAIT_TOKEN_BYTES];
    uint32_t uses;    // how many workers may join with it; 0: any number
    uint64_t expires; // seconds since 1970; 0: never
} strait_invite;

/* Writes the line of an invite. STRAIT_EINVAL when the address is empty or too long. */
strait_err strait_invite_format(const strait_invite *invite, char out[STRAIT_INVITE_TEXT]);

/* Parses a line, ignoring spaces and line ends around it. STRAIT_ECONFIG says what is wrong. */
strait_err strait_invite_parse(const char *text, strait_invite *out);

/* Compares two tokens in constant time, so that an attacker cannot find one byte by byte. */
int strait_invite_is_token(const unsigned char a[STRAIT_TOKEN_BYTES],
                           const unsigned char b[STRAIT_TOKEN_BYTES]);
