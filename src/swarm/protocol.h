/* protocol.h - what coordinator and workers say to each other besides the orders of the pipeline.
 *
 * Orders and replies are those of pipeline/orders.h. In all that is sent because of an epoch the
 * frame's `step` is the epoch and its `microbatch` the round, modulo 65,536; a reply has those of
 * the order it answers. Everything is little-endian and every length is checked before it is used;
 * docs/swarm.md has the bytes. */
#pragma once

#include "net/core/mesh.h"
#include "swarm/coordinator.h"
#include "swarm/invite.h"

enum {
    STRAIT_MSG_JOIN = STRAIT_MSG_FIRST + 3,      // worker: the first message on a link
    STRAIT_MSG_TASK = STRAIT_MSG_FIRST + 4,      // coordinator
    STRAIT_MSG_HEARTBEAT = STRAIT_MSG_FIRST + 5, // worker
    STRAIT_MSG_IDS = STRAIT_MSG_FIRST + 6,       // coordinator: tokens of a microbatch
    STRAIT_MSG_SNAPSHOT = STRAIT_MSG_FIRST + 7,  // anyone: a piece of an image
    STRAIT_MSG_WANT = STRAIT_MSG_FIRST + 8,      // worker: the tensors that it has to restore
    STRAIT_MSG_LEAVE = STRAIT_MSG_FIRST + 9,     // worker
    /* Who has not joined: bytes to time, not heard; the invite's token alone asks for as many back,
     * once. */
    STRAIT_MSG_PROBE = STRAIT_MSG_FIRST + 10,

    STRAIT_SWARM_VERSION = 1,
    STRAIT_TASK_TEXT = 64 * 1024,    // of a run file, with its ending zero
    STRAIT_PIECE_BYTES = 256 * 1024, // of an image, in one message
    STRAIT_VALID_MAX = 1 << 22,      // sequences of a validation
    STRAIT_PROBE_BYTES = 64 * 1024,  // of a probe
    STRAIT_PROBES = 40,              // each way: a coordinator stays patient for that long

    /* Flags of STRAIT_MSG_IDS and of STRAIT_MSG_SNAPSHOT. */
    STRAIT_IDS_VALID = 1,
    STRAIT_IDS_TOKENS = 2,
    STRAIT_IDS_TARGETS = 4,
    STRAIT_IDS_WIDE = 8,     // four bytes an id, not two
    STRAIT_SNAPSHOT_KEEP = 1 // to be kept as a copy, not restored
};

typedef struct strait_join {
    unsigned char token[STRAIT_TOKEN_BYTES];
    strait_swarm_report report;
    strait_snapshot_inventory inventory;
} strait_join;

typedef enum strait_task_kind {
    STRAIT_TASK_REST = 1, // you own nothing
    STRAIT_TASK_TAKE,     // stage `stage` of the run in `text`; listen
    STRAIT_TASK_MEET,     // these are your neighbours: let in those who dial
    STRAIT_TASK_DIAL,     // the same: now dial the others
    STRAIT_TASK_RESTORE,  // be at `step`
    STRAIT_TASK_KEEP,     // make an image of `step` and have your neighbour copy it
    STRAIT_TASK_REFUSE,   // go away and stay there; `text` says why
    STRAIT_TASK_END,      // the run is over
} strait_task_kind;

typedef struct strait_task_peer {
    int is_there;
    strait_fingerprint key;
    int must_listen;                  // at `address`, a relay's: it dials there
    char address[STRAIT_ADDRESS_MAX]; // where to dial it; empty: it dials us
} strait_task_peer;

typedef struct strait_task {
    strait_task_kind kind;
    uint32_t generation;
    uint16_t sequence;
    int stage;
    int64_t step;
    strait_swarm_source source;
    int gives_prev, gives_next;
    int64_t valid_windows;
    strait_task_peer prev, next;
    char text[STRAIT_TASK_TEXT];
} strait_task;

typedef struct strait_heartbeat {
    strait_snapshot_inventory inventory;
    uint32_t progress;
    int is_waiting;
} strait_heartbeat;

/* One microbatch. Arrays are the caller's; absent ones are NULL. */
typedef struct strait_ids {
    int64_t step; // of training; unused in a validation
    int64_t batch;
    int is_valid;
    const int32_t *tokens, *targets;
    int64_t n;
    int is_wide;
} strait_ids;

/* Part of an image of `stage` at `step`. */
typedef struct strait_piece {
    int stage;
    int64_t step;
    uint32_t generation;
    int must_keep;
    uint64_t offset, total;
    const unsigned char *data; // borrowed from the message
    size_t bytes;
} strait_piece;

strait_err strait_join_pack(struct strait_msg_pool *pool, const strait_join *join,
                            struct strait_msg **out);
/* STRAIT_EPROTO for another version, naming both. */
strait_err strait_join_unpack(const struct strait_msg *msg, strait_join *out);

strait_err strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                            struct strait_msg **out);
strait_err strait_task_unpack(const struct strait_msg *msg, strait_task *out);

strait_err strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *pulse,
                                 struct strait_msg **out);
strait_err strait_heartbeat_unpack(const struct strait_msg *msg, strait_heartbeat *out);

strait_err strait_ids_pack(struct strait_msg_pool *pool, const strait_ids *ids,
                           struct strait_msg **out);
/* `room` has 2 * n places, for tokens and targets of the n ids that a microbatch has. */
strait_err strait_ids_unpack(const struct strait_msg *msg, int32_t *capacity, int64_t n,
                             strait_ids *out);

/* The message has room for piece->bytes, which are copied where piece->data is not NULL. */
strait_err strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                             struct strait_msg **out);
strait_err strait_piece_unpack(const struct strait_msg *msg, strait_piece *out);
