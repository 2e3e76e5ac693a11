/* orders.h - what the conductor of a run says to its stages, and what they answer.
 *
 * One order at a time to each stage, one reply to each order. Bytes are little-endian and every
 * length is checked; docs/wire.md has them. */
#pragma once

#include "net/core/mesh.h"
#include "stage/runner.h"

enum {
    STRAIT_MSG_COMMAND = STRAIT_MSG_FIRST + 1,
    STRAIT_MSG_REPLY = STRAIT_MSG_FIRST + 2,
    STRAIT_COMMAND_TEXT = 4096
};

typedef enum strait_stage_command_kind {
    STRAIT_COMMAND_MEET = 1, // `text`, `key`: address and key of the stage behind; none on the last
    STRAIT_COMMAND_OPEN,     // make the stage, with `number` slots
    STRAIT_COMMAND_TIME_PASSES, // time a few microbatches alone
    STRAIT_COMMAND_LOAD,        // `text`: folder of a checkpoint
    STRAIT_COMMAND_GRADIENTS,   // of `step`
    STRAIT_COMMAND_UPDATE,      // that ends `step`, by `factor`
    STRAIT_COMMAND_VALIDATE,    // after `step` steps
    STRAIT_COMMAND_SAVE,        // `text`: the run's folder, where a checkpoint of `step` was begun
    STRAIT_COMMAND_PROPOSE_BASIS, // last stage: where should the basis turn? answered in `values`
    STRAIT_COMMAND_ADOPT_BASIS,   // the basis `values`, whose version is `number`
    STRAIT_COMMAND_TRACE,         // begin a trace, or write it into the file `text`
    STRAIT_COMMAND_LEAVE,         // close everything
} strait_stage_command_kind;

typedef struct strait_stage_command {
    strait_stage_command_kind kind;
    int64_t step;
    int number;
    float factor;
    strait_fingerprint key;
    char text[STRAIT_COMMAND_TEXT];
    int n_values;
    const float *values; // borrowed: the sender's, or the room given to unpack
} strait_stage_command;

typedef struct strait_reply {
    strait_stage_command_kind kind;
    strait_err err; // with the words in `text`
    double loss_sum;
    strait_step_times times;
    uint64_t forward_bytes, backward_bytes; // that came over sockets for this order
    uint64_t device_bytes, device_spare;    // taken there, and free; 0 where it is the host
    double residual[2]; // what its codecs lost, as a share: by strait_codec_side
    double spoiled;     // values of its own that were no finite numbers
    double refused[2];  // of the neighbours': by the strait_codec_side they came to
    double delay;       // seconds to the stage behind, measured; 0: unknown
    char text[512];     // words of an error, or the device's name
    int n_values;
    const float *values; // sums of squares, or a basis; borrowed as above
} strait_reply;

/* As a message, for whoever sends it otherwise than the functions below. */
strait_err strait_stage_command_pack(struct strait_msg_pool *pool,
                                     const strait_stage_command *command, struct strait_msg **out);
strait_err strait_reply_pack(struct strait_msg_pool *pool, const strait_reply *reply,
                             struct strait_msg **out);

strait_err strait_stage_command_send(struct strait_mesh *mesh, int peer,
                                     const strait_stage_command *command);
/* `values` has room for `room` numbers and becomes out->values; the same below. */
strait_err strait_stage_command_unpack(const struct strait_msg *msg, float *values, int capacity,
                                       strait_stage_command *out);

strait_err strait_reply_send(struct strait_mesh *mesh, int peer, const strait_reply *reply);
strait_err strait_reply_unpack(const struct strait_msg *msg, float *values, int capacity,
                               strait_reply *out);
