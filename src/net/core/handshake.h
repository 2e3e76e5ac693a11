/* handshake.h - the first and the last message of a stream: HELLO and BYE.
 *
 * After the TLS handshake each side knows the other's key. On the key alone it decides whether to
 * send HELLO, or BYE with a reason. Each side then compares the HELLO it receives with its own.
 * docs/wire.md defines the bytes. */
#pragma once

#include "net/core/msg.h"

enum {
    STRAIT_RUN_BYTES = 16,      // length of a run's id
    STRAIT_NAME_MAX = 64,       // of a peer's name, with the terminating zero
    STRAIT_STREAMS_MAX = 16,    // TCP streams of one link
    STRAIT_BYE_REASON_MAX = 256 // of the text in a BYE, with the terminating zero
};

typedef struct strait_hello {
    unsigned char run[STRAIT_RUN_BYTES];
    uint64_t link;             // random number drawn by the dialler; equal in all streams of a link
    uint8_t stream, n_streams; // which of how many streams this is
    char name[STRAIT_NAME_MAX]; // for messages to people; not authenticated
} strait_hello;

/* The run's first four bytes as a number, as frames carry them. */
uint32_t strait_hello_run(const strait_hello *hello);

/* Packs a HELLO into a new message, which belongs to the caller. STRAIT_ENOMEM. */
strait_err strait_hello_pack(struct strait_msg_pool *pool, const strait_hello *hello,
                             struct strait_msg **out);
/* STRAIT_EPROTO unless `msg` is a HELLO whose every field is in bounds. */
strait_err strait_hello_unpack(const struct strait_msg *msg, strait_hello *out);
/* STRAIT_EAUTH when the two belong to different runs. */
strait_err strait_hello_match(const strait_hello *ours, const strait_hello *theirs);

typedef struct strait_bye {
    strait_err why;                     // STRAIT_OK: the sender has finished its work
    char reason[STRAIT_BYE_REASON_MAX]; // empty when nothing is wrong
} strait_bye;

/* Packs a BYE into a new message, which belongs to the caller. STRAIT_ENOMEM. */
strait_err strait_bye_pack(struct strait_msg_pool *pool, const strait_bye *bye,
                           struct strait_msg **out);
/* Cannot fail: an unknown error code becomes STRAIT_ECLOSED, control characters become dots, and
 * an over-long reason is cut. */
void strait_bye_unpack(const struct strait_msg *msg, strait_bye *out);
