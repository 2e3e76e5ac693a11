/* handshake.h - the first and the last words on a stream: HELLO and BYE.
 *
 * After TLS each side knows the other's key. It decides on that alone whether to say HELLO or BYE;
 * then each HELLO is held against one's own. docs/wire.md has the bytes. */
#pragma once

#include "net/core/msg.h"

enum {
    STRAIT_RUN_BYTES = 16,
    STRAIT_NAME_MAX = 64,    // with its ending zero
    STRAIT_STREAMS_MAX = 16, // TCP streams of one link
    STRAIT_REASON_MAX = 256  // of a BYE, with the ending zero
};

typedef struct strait_hello {
    unsigned char run[STRAIT_RUN_BYTES];
    uint64_t link; // drawn by the dialler; the same in all streams of a link
    uint8_t stream, n_streams;
    char name[STRAIT_NAME_MAX]; // for messages to people; proves nothing
} strait_hello;

/* The run's first four bytes, as frames carry them. */
uint32_t strait_hello_run(const strait_hello *hello);

strait_err strait_hello_pack(struct strait_msg_pool *pool, const strait_hello *hello,
                             struct strait_msg **out);
/* STRAIT_EPROTO unless `msg` is a HELLO whose every field is in bounds. */
strait_err strait_hello_unpack(const struct strait_msg *msg, strait_hello *out);
/* STRAIT_EAUTH when they belong to another run. */
strait_err strait_hello_match(const strait_hello *ours, const strait_hello *theirs);

typedef struct strait_bye {
    strait_err why; // STRAIT_OK: nothing is wrong, the work is done
    char reason[STRAIT_REASON_MAX];
} strait_bye;

strait_err strait_bye_pack(struct strait_msg_pool *pool, const strait_bye *bye,
                           struct strait_msg **out);
/* Any body makes sense: unknown reasons become STRAIT_ECLOSED, control characters dots. */
void strait_bye_unpack(const struct strait_msg *msg, strait_bye *out);
