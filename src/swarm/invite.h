/* invite.h - all that a machine needs to join a run, in one line that can be pasted.
 *
 *     strait1:AQ3k...                the rest is base64url of the fields below and a checksum
 *
 * The token is a secret: whoever has the line may join, as often and as long as the coordinator
 * lets them. Plain data. */
#pragma once

#include "net/core/transport.h"

enum {
    STRAIT_TOKEN_BYTES = 16,
    STRAIT_INVITE_TEXT = 512 // of the longest line, with its ending zero
};

typedef struct strait_invite {
    char address[STRAIT_ADDRESS_MAX]; // of the coordinator: host:port; several have commas between
    unsigned char run[STRAIT_RUN_BYTES];
    strait_fingerprint key; // of the coordinator
    unsigned char token[STRAIT_TOKEN_BYTES];
    uint32_t uses;    // how many machines may join by it; 0: any number
    uint64_t expires; // seconds since 1970; 0: never
} strait_invite;

/* STRAIT_EINVAL when the address is empty or too long. */
strait_err strait_invite_format(const strait_invite *invite, char out[STRAIT_INVITE_TEXT]);

/* Spaces and line ends around the line are forgiven. STRAIT_ECONFIG says what is wrong with it. */
strait_err strait_invite_parse(const char *text, strait_invite *out);

/* Takes as long whether the tokens differ early, late or not at all. */
int strait_invite_is_token(const unsigned char a[STRAIT_TOKEN_BYTES],
                           const unsigned char b[STRAIT_TOKEN_BYTES]);
