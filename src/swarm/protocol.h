/* protocol.h - what the coordinator of a swarm and its workers send each other besides commands.
 *
 * Commands to a stage and their replies are those of stage/commands.h. The messages here are about
 * the swarm itself: joining, which stage a worker serves, what its neighbours are, snapshots and
 * token ids. Each is described by a table of fields (base/layout.h) in protocol.c; docs/wire.md
 * has the bytes. A change of a table is a change of the protocol: raise STRAIT_FRAME_VERSION
 * (net/core/frame.h); tests/unit/swarm/wire_layout.c fails until you do.
 *
 * Unpack functions fail with STRAIT_EPROTO on anything malformed or out of bounds. Texts of what
 * they return point into the message. */
#pragma once

#include "base/layout.h"
#include "net/mesh/mesh.h"
#include "stage/replicas/links.h"
#include "swarm/commitment.h"
#include "swarm/coordinator/coordinator.h"
#include "swarm/invite.h"

enum {
    STRAIT_MSG_JOIN = STRAIT_MSG_FIRST + 3,      // worker: the first message on a link
    STRAIT_MSG_TASK = STRAIT_MSG_FIRST + 4,      // coordinator
    STRAIT_MSG_HEARTBEAT = STRAIT_MSG_FIRST + 5, // worker
    STRAIT_MSG_IDS = STRAIT_MSG_FIRST + 6,       // coordinator: tokens of a microbatch
    STRAIT_MSG_SNAPSHOT = STRAIT_MSG_FIRST + 7,  // anyone: a piece of a snapshot
    STRAIT_MSG_SNAPSHOT_REQUEST = STRAIT_MSG_FIRST +
                                  8,         // worker: the tensors it needs from the checkpoint
    STRAIT_MSG_LEAVE = STRAIT_MSG_FIRST + 9, // worker: asks to hand its stage over; no body
    /* Bytes that measure a link and are then dropped. From a peer that has not joined; a body that
     * is only the invite's token asks the coordinator to send as many, once. Between neighbours
     * (worker/probe.c): the sequence number of the command and a time, then zeros, or in 20 bytes
     * how much has arrived and how long it waited. */
    STRAIT_MSG_PROBE = STRAIT_MSG_FIRST + 10,
    STRAIT_MSG_TASK_REPLY = STRAIT_MSG_FIRST + 11, // worker: its answer to a task
    /* FIRST + 12 is STRAIT_MSG_BOUNDARY_CHECK. The others are of audits (host/audit/audits.h); what
     * is given goes as STRAIT_MSG_SNAPSHOT and STRAIT_MSG_CROSSING. */
    STRAIT_MSG_COMMITMENT = STRAIT_MSG_FIRST + 13, // worker: an interval has ended
    STRAIT_MSG_GIVE = STRAIT_MSG_FIRST + 14,  // coordinator: asks for what was kept of an interval
    STRAIT_MSG_GIVEN = STRAIT_MSG_FIRST + 15, // worker: that was all, or it cannot
    STRAIT_MSG_RUN_STATUS = STRAIT_MSG_FIRST + 20, // coordinator: about the run, for people
    STRAIT_MSG_WORK = STRAIT_MSG_FIRST + 23,       // worker: what it did in a step, beside replicas

    STRAIT_TASK_TEXT = 64 * 1024,                     // bytes of a run file, with the ending zero
    STRAIT_PIECE_BYTES = 256 * 1024,                  // of a snapshot, in one message
    STRAIT_VALID_MAX = 1 << 22,                       // sequences of a validation
    STRAIT_PROBE_BYTES = 64 * 1024,                   // of one probe
    STRAIT_PROBES = 40,                               // in each direction
    STRAIT_TASK_REPLICAS = 3 * STRAIT_SWARM_REPLICAS, // further peers of one worker, at most

    /* Flags of STRAIT_MSG_IDS and of STRAIT_MSG_SNAPSHOT. */
    STRAIT_IDS_VALID = 1,
    STRAIT_IDS_TOKENS = 2,
    STRAIT_IDS_TARGETS = 4,
    STRAIT_IDS_WIDE = 8,     // four bytes per id, not two
    STRAIT_SNAPSHOT_KEEP = 1 // to be kept as a copy, or for an audit, not restored or saved
};

typedef struct strait_join {
    unsigned char token[STRAIT_TOKEN_BYTES];
    uint32_t generation; // the newest in which it got a task; 0: none
    strait_swarm_report report;
    strait_snapshot_inventory inventory;
} strait_join;

typedef enum strait_task_kind {
    STRAIT_TASK_RELEASE = 1, // own no stage; not answered
    STRAIT_TASK_ASSIGN,      // serve a stage and open a listener for its neighbours
    STRAIT_TASK_LISTEN,      // the neighbours are these: admit those that will dial
    STRAIT_TASK_CONNECT,     // dial the other neighbours and wait until all are connected
    STRAIT_TASK_RESTORE,     // bring the stage to a step
    STRAIT_TASK_SNAPSHOT,    // take a snapshot and have a neighbour copy it
    STRAIT_TASK_REFUSE,      // the worker is not admitted and must leave; not answered
    STRAIT_TASK_END,         // the run is over; not answered
    STRAIT_TASK_AUDIT,       // to a spare: build a stage and restore it, to compute an interval
    STRAIT_TASK_AUDIT_STEP,  // compute one step of it from the crossings that were sent before
    STRAIT_TASK_AUDIT_END,   // reply with its result
    STRAIT_TASK_STAY,        // why a worker that asked to leave cannot yet; not answered
    STRAIT_TASK_KINDS        // one more than the last
} strait_task_kind;

typedef struct strait_task_peer {
    int is_present; // the stage has a neighbour on this side
    strait_fingerprint key;
    int is_near;                      // the coordinator sees both workers at one public address
    int must_listen;                  // at `address`, a relay's, where the neighbour dials
    char address[STRAIT_ADDRESS_MAX]; // where to dial it; empty: it dials us
} strait_task_peer;

/* A peer that is not the first replica of its stage, or is another replica of one's own. */
typedef struct strait_task_replica {
    int side;    // strait_stage_side
    int replica; // of that stage
    strait_task_peer peer;
} strait_task_replica;

typedef struct strait_task {
    strait_task_kind kind;
    uint32_t generation, sequence; // its reply repeats both
    union {
        struct {
            int stage;
            strait_stage_replicas replicas; // of the stage and of its neighbours
            int64_t valid_windows;          // sequences of a validation
            int commits;                    // send a commitment after each interval
            const char *run_text;           // the run file
        } assign;
        struct {
            int timeout_ms;              // for all to be connected; unused in LISTEN
            strait_task_peer prev, next; // their first replicas
            strait_view others;          // further peers: strait_task_replicas_unpack
        } neighbours;                    // of LISTEN and of CONNECT
        struct {
            int64_t step;
            strait_swarm_source source;
            int gives_prev, gives_next; // send that neighbour the copy of its stage
            strait_digest digest;       // of our snapshot; unused from seed and checkpoint
            int64_t live_step;          // of FROM_LIVE: the step to continue at
            int gives_replicas;         // bit i: send our snapshot to replica i of our stage
        } restore;
        struct {
            const char *reason;
        } refuse, stay;
        struct {
            int stage;
            int64_t step; // that it is restored to
            int n_slots;  // microbatches in flight, as the owner has
            int64_t valid_windows;
            int from_seed;        // else the snapshot follows, in pieces
            int n_replicas;       // that the stage had
            strait_digest digest; // of the snapshot
            const char *run_text;
        } audit;
        struct {
            int64_t step;
            float factor;       // of the update
            int is_skipped;     // there was no update
            strait_view owners; // of several replicas: the one of each group, a byte each
        } audit_step;
        struct {
            int sends_snapshot; // in pieces, before the reply
        } audit_end;
    };
} strait_task;

typedef struct strait_task_reply {
    strait_task_kind kind;         // of the task
    uint32_t generation, sequence; // of the task
    strait_err err;  // a code alone: texts would tell about the worker's machine and network
    int failed_side; // of an error: the neighbour it concerns, -1 previous, 1 next; 0: neither
    /* Snapshots copied from a neighbour and found unusable since the last reply. */
    int rejected_copies_prev, rejected_copies_next;
    union {
        struct {
            const char *address; // where neighbours can dial this worker; empty: they cannot
        } assign;
        struct {
            int is_source_bad; // with an error: the snapshot of the task's source is unusable
        } restore;
        struct {
            strait_view work; // of several replicas: the row of what they should have done
        } audit_step;
        strait_audit_result audit_end; // without sums: they are in the rows of its steps
    };
} strait_task_reply;

typedef struct strait_heartbeat {
    strait_snapshot_inventory inventory;
    strait_snapshot_arrivals arrived;
    uint32_t progress; // rises while the worker computes or sends
    int waits_for;     // as in strait_swarm_worker; above SAME_STAGE: 1 + the replica more
} strait_heartbeat;

/* The token ids of one microbatch. Arrays are the caller's; absent ones are NULL. */
typedef struct strait_batch_ids {
    int64_t step; // of training; unused in a validation
    int64_t batch;
    int is_valid;
    const int32_t *tokens, *targets;
    int64_t n;
    int is_wide;
} strait_batch_ids;

/* A part of the snapshot of `stage` at `step`. */
typedef struct strait_piece {
    int stage;
    int64_t step;
    uint32_t generation; // the generation in which the snapshot was taken
    int must_keep;       // as a copy of a neighbour's stage
    uint64_t offset, total;
    const unsigned char *data; // borrowed from the message
    size_t bytes;
} strait_piece;

/* The commitment of a stage's owner to an interval. */
typedef struct strait_commitment_message {
    int stage;
    uint32_t generation;
    strait_commitment interval;
} strait_commitment_message;

/* What a replica states about a step: a row of digests (commitment.h) of which it fills its part.
 */
typedef struct strait_work_message {
    int stage;
    uint32_t generation;
    int64_t step;
    strait_view row; // borrowed
} strait_work_message;

/* Asks an owner for the snapshot of its stage at `from`, or for the crossings that it sent to a
 * neighbour in the steps from `from` up to, not including, `to`. */
typedef struct strait_give {
    uint32_t audit;
    int64_t from, to;
    int wants_snapshot, wants_prev, wants_next;
} strait_give;

typedef struct strait_given {
    uint32_t audit;
    strait_err err; // it no longer has all of it
} strait_given;

/* What the run is and how far it is: sent to a worker when it is admitted, and about once a second.
 * Only shown to people, except for need_bytes. */
typedef struct strait_run_status {
    char name[STRAIT_NAME_MAX], model[STRAIT_NAME_MAX];
    int n_stages, n_workers; // workers that are connected
    int64_t step, n_steps, batch_tokens;
    double loss;         // of the last step; 0: none yet
    double tokens_per_s; // 0: unknown
    double left_s;       // seconds until the end of the run; 0: unknown
    double need_bytes;   // of memory, to serve the smallest stage
} strait_run_status;

/* The list of tensors (snapshot/header.h) that a worker needs from the checkpoint. */
typedef struct strait_snapshot_request {
    uint32_t generation;
    strait_view list; // borrowed
} strait_snapshot_request;

strait_err strait_join_pack(struct strait_msg_pool *pool, const strait_join *join,
                            struct strait_msg **out);
strait_err strait_join_unpack(const struct strait_msg *msg, strait_join *out);

strait_err strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                            struct strait_msg **out);
strait_err strait_task_unpack(struct strait_msg *msg, strait_task *out);

/* Packs further peers into `memory`, for neighbours.others, which borrows it. STRAIT_EINVAL: it is
 * too small. */
strait_err strait_task_replicas_pack(const strait_task_replica *replicas, int n,
                                     unsigned char *memory, size_t capacity, strait_view *out);
/* Writes up to STRAIT_TASK_REPLICAS of them. */
strait_err strait_task_replicas_unpack(const strait_view *others, strait_task_replica *out, int *n);

strait_err strait_task_reply_pack(struct strait_msg_pool *pool, const strait_task_reply *reply,
                                  struct strait_msg **out);
strait_err strait_task_reply_unpack(struct strait_msg *msg, strait_task_reply *out);

strait_err strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *heartbeat,
                                 struct strait_msg **out);
strait_err strait_heartbeat_unpack(const struct strait_msg *msg, strait_heartbeat *out);

strait_err strait_batch_ids_pack(struct strait_msg_pool *pool, const strait_batch_ids *ids,
                                 struct strait_msg **out);
/* `memory` has 2 * n places, for the tokens and targets of the n ids of a microbatch. */
strait_err strait_batch_ids_unpack(const struct strait_msg *msg, int32_t *memory, int64_t n,
                                   strait_batch_ids *out);

/* The message has capacity for piece->bytes, which are copied unless piece->data is NULL. */
strait_err strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                             struct strait_msg **out);
strait_err strait_piece_unpack(const struct strait_msg *msg, strait_piece *out);

strait_err strait_snapshot_request_pack(struct strait_msg_pool *pool,
                                        const strait_snapshot_request *request,
                                        struct strait_msg **out);
strait_err strait_snapshot_request_unpack(const struct strait_msg *msg,
                                          strait_snapshot_request *out);

strait_err strait_commitment_pack(struct strait_msg_pool *pool,
                                  const strait_commitment_message *commitment,
                                  struct strait_msg **out);
strait_err strait_commitment_unpack(const struct strait_msg *msg, strait_commitment_message *out);
strait_err strait_work_pack(struct strait_msg_pool *pool, const strait_work_message *work,
                            struct strait_msg **out);
strait_err strait_work_unpack(const struct strait_msg *msg, strait_work_message *out);
/* The row of a shape from bytes of a message. STRAIT_EPROTO: it has another length. */
strait_err strait_work_read(strait_work_shape shape, const strait_view *bytes,
                            strait_digest out[STRAIT_WORK_MAX]);
strait_err strait_give_pack(struct strait_msg_pool *pool, const strait_give *give,
                            struct strait_msg **out);
strait_err strait_give_unpack(const struct strait_msg *msg, strait_give *out);
strait_err strait_given_pack(struct strait_msg_pool *pool, const strait_given *given,
                             struct strait_msg **out);
strait_err strait_given_unpack(const struct strait_msg *msg, strait_given *out);

strait_err strait_run_status_pack(struct strait_msg_pool *pool, const strait_run_status *status,
                                  struct strait_msg **out);
strait_err strait_run_status_unpack(const struct strait_msg *msg, strait_run_status *out);

/* Returns whether a worker replies to a task of this kind. */
int strait_task_is_answered(strait_task_kind kind);

/* The tables, for tests that compare them with docs/wire.md; NULL for an unknown kind. */
const strait_layout *strait_task_layout(strait_task_kind kind);
const strait_layout *strait_task_reply_layout(strait_task_kind kind);
/* Those without kinds, and the headers of tasks and their replies; NULL past the last. */
typedef enum strait_swarm_layout_kind {
    STRAIT_LAYOUT_JOIN,
    STRAIT_LAYOUT_HEARTBEAT,
    STRAIT_LAYOUT_PIECE,
    STRAIT_LAYOUT_SNAPSHOT_REQUEST,
    STRAIT_LAYOUT_TASK,
    STRAIT_LAYOUT_TASK_REPLY,
    STRAIT_LAYOUT_COMMITMENT,
    STRAIT_LAYOUT_GIVE,
    STRAIT_LAYOUT_GIVEN,
    STRAIT_LAYOUT_RUN_STATUS,
    STRAIT_LAYOUT_WORK,
    STRAIT_LAYOUTS
} strait_swarm_layout_kind;
const strait_layout *strait_swarm_layout(int i);
extern const strait_layout strait_task_replica_layout; // in neighbours.others, one after the other
