/* frame.h - a message as bytes on the wire: a header of 32 bytes, then the body.
 *
 * docs/wire.md is the definition; frame.c follows its order. Nothing here knows where bytes come
 * from: a reader says where the next ones go and is told how many came. */
#pragma once

#include "net/core/msg.h"

enum {
    STRAIT_FRAME_HEADER = 32,
    STRAIT_FRAME_VERSION = 1,
    STRAIT_FRAME_BODY_MAX = 1 << 28 // no peer may ask us to hold more than this for one message
};

/* Fills the header of `msg`. `run` is the first four bytes of the run's id, as a number. */
void strait_frame_write(const struct strait_msg *msg, uint32_t run,
                        unsigned char out[STRAIT_FRAME_HEADER]);

/* Takes frames apart. Zeroed is closed; set pool, run and limit before use. */
struct strait_frame_reader {
    struct strait_msg_pool *pool;
    uint32_t run;
    size_t limit; // largest body accepted, at most STRAIT_FRAME_BODY_MAX
    unsigned char header[STRAIT_FRAME_HEADER];
    struct strait_msg *msg; // NULL while the header is incomplete
    size_t filled;          // bytes of the header, or of the body once there is a message
};

/* Where the next bytes belong, and how many at most; never 0. */
unsigned char *strait_frame_space(struct strait_frame_reader *reader, size_t *out_capacity);

/* `bytes` were put there. *out is the message when that completed one, else NULL. STRAIT_EPROTO
 * when the peer broke the protocol: no more may then be read. A BYE is read whatever its version,
 * so that a peer of another version can say why it refuses. */
strait_err strait_frame_filled(struct strait_frame_reader *reader, size_t bytes,
                               struct strait_msg **out);

void strait_frame_reader_fini(struct strait_frame_reader *reader);
