/* orders.h - what the conductor of a run says to its stages, and what they answer.
 *
 * One order at a time to each stage, one reply to each order. Bytes are little-endian and every
 * length is checked; docs/wire.md has them. */
#pragma once

#include "net/mesh.h"
#include "pipeline/worker.h"

enum {
    STRAIT_MSG_ORDER = STRAIT_MSG_FIRST + 1,
    STRAIT_MSG_REPLY = STRAIT_MSG_FIRST + 2,
    STRAIT_ORDER_TEXT = 4096
};

typedef enum strait_order_kind {
    STRAIT_ORDER_MEET = 1,  // `text`, `key`: address and key of the stage behind; none on the last
    STRAIT_ORDER_OPEN,      // make the stage, with `number` slots
    STRAIT_ORDER_REHEARSE,  // time a few microbatches alone
    STRAIT_ORDER_LOAD,      // `text`: folder of a checkpoint
    STRAIT_ORDER_GRADIENTS, // of `step`
    STRAIT_ORDER_UPDATE,    // that ends `step`, by `factor`
    STRAIT_ORDER_VALIDATE,  // after `step` steps
    STRAIT_ORDER_SAVE,      // `text`: the run's folder, where a checkpoint of `step` was begun
    STRAIT_ORDER_TURN,      // last stage: where should the basis turn? answered in `values`
    STRAIT_ORDER_ADOPT,     // the basis `values`, whose version is `number`
    STRAIT_ORDER_TRACE,     // begin a trace, or write it into the file `text`
    STRAIT_ORDER_LEAVE,     // close everything
} strait_order_kind;

typedef struct strait_order {
    strait_order_kind kind;
    int64_t step;
    int number;
    float factor;
    strait_fingerprint key;
    char text[STRAIT_ORDER_TEXT];
    int n_values;
    const float *values; // borrowed: the sender's, or the room given to unpack
} strait_order;

typedef struct strait_reply {
    strait_order_kind kind;
    strait_err err; // with the words in `text`
    double loss_sum;
    strait_worker_times times;
    uint64_t forward_bytes, backward_bytes; // that came over sockets for this order
    uint64_t device_bytes, device_spare;    // taken there, and free; 0 where it is the host
    double residual[2];                     // what its codecs lost, as a share: by strait_half
    double spoiled;                         // values of its own that were no finite numbers
    double refused[2];                      // of the neighbours': by the strait_half they came to
    double delay;                           // seconds to the stage behind, measured; 0: unknown
    char text[512];                         // words of an error, or the device's name
    int n_values;
    const float *values; // sums of squares, or a basis; borrowed as above
} strait_reply;

/* As a message, for whoever sends it otherwise than the functions below. */
strait_err strait_order_pack(struct strait_msg_pool *pool, const strait_order *order,
                             struct strait_msg **out);
strait_err strait_reply_pack(struct strait_msg_pool *pool, const strait_reply *reply,
                             struct strait_msg **out);

strait_err strait_order_send(struct strait_mesh *mesh, int peer, const strait_order *order);
/* `values` has room for `room` numbers and becomes out->values; the same below. */
strait_err strait_order_unpack(const struct strait_msg *msg, float *values, int room,
                               strait_order *out);

strait_err strait_reply_send(struct strait_mesh *mesh, int peer, const strait_reply *reply);
strait_err strait_reply_unpack(const struct strait_msg *msg, float *values, int room,
                               strait_reply *out);
