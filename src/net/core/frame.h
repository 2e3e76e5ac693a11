/* frame.h - a message as bytes on the wire: a header of 32 bytes, then the body.
 *
 * docs/wire.md defines the layout; frame.c follows its order. The reader performs no I/O: it tells
 * its caller where the next bytes belong and is then told how many were written there. */
#pragma once

#include "net/core/msg.h"

enum {
    STRAIT_FRAME_HEADER = 32,
    /* Of the whole protocol: rises with every change of what any message means or how it is laid
     * out, here, in stage/commands.c or in swarm/protocol.c. */
    STRAIT_FRAME_VERSION = 13,
    STRAIT_FRAME_BODY_MAX = 1 << 28 // upper bound of what a peer can make us allocate for a message
};

/* Fills the header of `msg`. `run` is the first four bytes of the run's id, as a number. */
void strait_frame_write(const struct strait_msg *msg, uint32_t run,
                        unsigned char out[STRAIT_FRAME_HEADER]);

/* Parses a stream of frames. A zeroed reader is closed; set pool, run and limit before use. */
struct strait_frame_reader {
    struct strait_msg_pool *pool;
    uint32_t run; // frames of other runs are refused
    size_t limit; // largest body accepted, at most STRAIT_FRAME_BODY_MAX
    unsigned char header[STRAIT_FRAME_HEADER];
    struct strait_msg *msg; // NULL while the header is incomplete
    size_t filled;          // bytes of the header, or of the body once `msg` is set
};

/* Returns where the next bytes have to be written, and how many at most; never 0. */
unsigned char *strait_frame_space(struct strait_frame_reader *reader, size_t *out_capacity);

/* Reports that `bytes` were written there. When they complete a message, *out is that message and
 * belongs to the caller, else *out is NULL. STRAIT_EPROTO when the peer broke the protocol: nothing
 * more may then be read. A BYE is accepted whatever its version and run, so that a peer of another
 * version can say why it refuses us. */
strait_err strait_frame_filled(struct strait_frame_reader *reader, size_t bytes,
                               struct strait_msg **out);

/* The protocol version of the latest complete header. */
int strait_frame_version(const struct strait_frame_reader *reader);

/* Describes a version mismatch: names both versions and what to do. Always STRAIT_EPROTO. */
strait_err strait_frame_refuse_version(int theirs);

/* Frees an incomplete message. */
void strait_frame_reader_fini(struct strait_frame_reader *reader);
