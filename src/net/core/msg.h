/* msg.h - one whole message, and the pool it comes from.
 *
 * Messages are moved, never shared: whoever owns one closes it or passes it on. A pool keeps closed
 * messages for the next message of their size, so that after warm-up a training step allocates
 * nothing. A pool may be used by all threads; a message by one at a time. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* The order in which messages that wait for one link are sent. Gradients come before activations
 * because the backward pass is the critical path of a pipeline. */
typedef enum strait_priority {
    STRAIT_PRIORITY_CONTROL,
    STRAIT_PRIORITY_GRADIENT,
    STRAIT_PRIORITY_ACTIVATION,
    STRAIT_N_PRIORITIES
} strait_priority;

/* Kinds of messages. Values below STRAIT_MSG_FIRST belong to the net module. */
enum strait_msg_type {
    STRAIT_MSG_HELLO = 1, // first on every stream
    STRAIT_MSG_BYE = 2,   // last: why the sender refuses or closes
    STRAIT_MSG_PING = 3,  // keep-alive; the peer answers with a PONG
    STRAIT_MSG_PONG = 4,
    STRAIT_MSG_UP = 5,    // from the mesh, never on the wire: the link to `peer` opened
    STRAIT_MSG_DOWN = 6,  // from the mesh, never on the wire: it closed; `why` and the body, a
                          // text, give the reason
    STRAIT_MSG_FIRST = 16 // the first type free for the modules above, up to 255
};

struct strait_msg_pool;

struct strait_msg {
    struct strait_msg *next;      // in whichever queue holds it
    struct strait_msg_pool *pool; // where close() returns it

    /* Set by the sender, carried by the frame, free for the modules above to use. */
    uint8_t type, priority, flags;
    uint16_t boundary, microbatch, basis;
    uint32_t step;

    /* Set by the net module. */
    uint32_t sequence; // number within its priority and link
    int peer;          // on receipt from a mesh: who sent it
    strait_err why;    // STRAIT_MSG_DOWN only
    int64_t queued_ns; // when it was queued for sending; on receipt, when it arrived

    size_t size;     // bytes of body in use; the owner may lower it
    size_t capacity; // bytes of body allocated
    _Alignas(64) unsigned char body[];
};

strait_err strait_msg_pool_open(struct strait_msg_pool **out);
/* Frees the pool, at once or when the last of its messages is closed. Accepts NULL. */
void strait_msg_pool_close(struct strait_msg_pool **pool);

/* The memory that a message of `size` bytes takes. */
size_t strait_msg_bytes(size_t size);

/* Ensures that `n` messages of `size` bytes can be open at once without an allocation.
 * STRAIT_ENOMEM. */
strait_err strait_msg_pool_reserve(struct strait_msg_pool *pool, size_t size, int n);

/* Frees the closed messages that were never needed since the last call, and returns their memory to
 * the system if it is much. Without it a pool keeps what its busiest moment needed. */
void strait_msg_pool_trim(struct strait_msg_pool *pool);

/* Opens a message of `size` bytes. Its body is not cleared; all other fields are zero.
 * STRAIT_EINVAL when it is too large, STRAIT_ENOMEM. */
strait_err strait_msg_open(struct strait_msg_pool *pool, uint8_t type, size_t size,
                           struct strait_msg **out);
void strait_msg_close(struct strait_msg **msg); // sets *msg to NULL; accepts NULL
