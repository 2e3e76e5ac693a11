/* wire.h - an envelope as bytes: its head, which MPI moves first, and the body of its message.
 *
 *     0   kind (strait_envelope_kind)          40  key of the sender (CONNECT, ACCEPT), 32 bytes
 *     8   to, the id of a link             72  the frame header of docs/wire.md, 32 bytes; absent
 *     16  from                                 in CREDIT, PING and PONG
 *     24  reply_to, an endpoint
 *     32  number
 *
 * All numbers are little-endian. The body is that of the frame: a HELLO in CONNECT and ACCEPT. */
#pragma once

#include "net/core/frame.h"
#include "net/envelope/envelope.h"

enum {
    STRAIT_MPI_PREFIX = 72, // the head of envelopes without a frame
    STRAIT_MPI_HEAD = STRAIT_MPI_PREFIX + STRAIT_FRAME_HEADER
};

/* Writes the head of an envelope and returns its length. *body is the message whose body follows;
 * it belongs to the caller. NULL: none. It is envelope->msg, which is taken, or new. STRAIT_ENOMEM.
 */
strait_err strait_mpi_pack(struct strait_msg_pool *pool, const unsigned char run[STRAIT_RUN_BYTES],
                           struct strait_envelope *envelope, unsigned char out[STRAIT_MPI_HEAD],
                           size_t *out_bytes, struct strait_msg **body);

/* Reads a head that came from rank `source`; *has_frame tells whether a frame follows the prefix.
 * STRAIT_EPROTO, also for a sender that wants its answers elsewhere: `reply_to` of CONNECT and
 * ACCEPT is used as a rank and a tag. */
strait_err strait_mpi_unpack(const unsigned char *head, size_t bytes, int source,
                             struct strait_envelope *out, int *has_frame);

/* Completes an envelope by the message of its frame: takes *msg for MESSAGE, otherwise reads and
 * closes it. STRAIT_EPROTO. */
strait_err strait_mpi_complete(struct strait_envelope *envelope, struct strait_msg **msg);
