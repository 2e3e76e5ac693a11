/* commands.h - the commands that the coordinator of a pipeline sends to a stage, and its replies.
 *
 * A command and its reply are tagged unions with one struct per kind. Each stage gets one command
 * at a time and sends one reply to each. The tables in commands.c describe every kind once;
 * packing, unpacking, bounds checks and docs/wire.md follow from them. A change of a table is a
 * change of the protocol: raise STRAIT_FRAME_VERSION (net/core/frame.h);
 * tests/unit/swarm/wire_layout.c fails until you do.
 *
 * To add a kind: its number below, its struct in the union, its row in the table, its case in
 * service.c, its row in docs/wire.md. */
#pragma once

#include "base/digest/sha256.h"
#include "base/layout.h"
#include "codec/codec.h"
#include "net/mesh/mesh.h"
#include "plan/groups.h"
#include "plan/step_times.h"
#include "stage/replicas/links.h"

enum {
    STRAIT_MSG_COMMAND = STRAIT_MSG_FIRST + 1,
    STRAIT_MSG_REPLY = STRAIT_MSG_FIRST + 2
};

typedef enum strait_stage_command_kind {
    STRAIT_COMMAND_CONNECT_PREV = 1, // expect the previous stage to dial
    STRAIT_COMMAND_CONNECT_NEXT,     // dial the next stage
    STRAIT_COMMAND_OPEN,             // build the stage and draw its first weights
    STRAIT_COMMAND_TIME_PASSES,      // time a few microbatches without the neighbours
    STRAIT_COMMAND_LOAD,             // restore the newest checkpoint of a folder
    STRAIT_COMMAND_GRADIENTS,        // forward and backward of all microbatches of a step
    STRAIT_COMMAND_UPDATE,           // the optimizer's update that ends a step
    STRAIT_COMMAND_VALIDATE,         // forward of the validation data
    STRAIT_COMMAND_SAVE,             // write this stage's files of a checkpoint
    STRAIT_COMMAND_SEND_SNAPSHOT,    // send the stage's weights and state; a swarm's way to save
    STRAIT_COMMAND_PROPOSE_BASIS,    // last stage: compute the next basis of the subspace codec
    STRAIT_COMMAND_ADOPT_BASIS,      // rotate weights and state into a new basis
    STRAIT_COMMAND_TRACE_BEGIN,      // record spans from now on
    STRAIT_COMMAND_TRACE_END,        // write the recorded spans to a file
    STRAIT_COMMAND_LEAVE,            // close everything and end
    STRAIT_COMMAND_RESEND,           // send neighbours the kept crossings of a step again
    STRAIT_COMMAND_CONNECT_REPLICA,  // expect another replica of the stage, or dial it
    STRAIT_COMMAND_OUTER,            // a phase of an exchange of averaged weights
    STRAIT_COMMAND_PROBE,            // measure the links to the neighbours, in both directions
    STRAIT_COMMAND_KINDS             // one more than the last
} strait_stage_command_kind;

/* Texts and floats are borrowed: from the sender, or from the message that was unpacked. */
typedef struct strait_stage_command {
    strait_stage_command_kind kind;
    uint32_t generation; // of the assignment of stages to workers; 0 in a local run
    uint32_t sequence;   // number of the command; its reply repeats both
    union {
        struct {                    // CONNECT_PREV, CONNECT_NEXT, CONNECT_REPLICA
            int replica;            // of the previous, the next or the same stage
            strait_fingerprint key; // of that replica
            const char *address;    // where it listens; empty: it dials
        } connect;
        struct {
            int n_slots;   // microbatches whose activations the stage can hold at once
            int may_reuse; // a stage that already has these slots may keep its weights
        } open;
        struct {
            const char *folder; // of checkpoints, on the stage's own disk
        } load;
        struct {
            int64_t step; // from 0
            /* Keep what crosses to that neighbour without sending it: it has it. */
            int mute_prev, mute_next;
            /* Which replica computes each group, in the previous stage, this one and the next.
             * Zeros: there is one of each. */
            strait_group_owners owners[STRAIT_SIDES];
            /* Late updates: the update of step - 2 is applied first, with this factor. */
            int has_update;
            float factor; // 0: that step is skipped
        } gradients;
        struct {
            int64_t step;
            float factor;      // of every gradient: clips their norm; 0: late, skipped
            int keep_snapshot; // keep a snapshot of the updated stage, for neighbours to copy
        } update;
        struct {
            int64_t step; // steps done
        } validate;
        struct {
            int64_t step;
            const char
                *folder;      // of the run, in which the checkpoint was begun; empty: write nothing
            int wants_digest; // of the stage's state, to compare replicas
            int is_partial;   // write what this replica alone has, not the averaged weights
        } save;
        struct {
            int64_t step;
        } send_snapshot;
        struct {
            uint32_t version; // rises with every new basis
            strait_floats basis;
        } adopt_basis;
        struct {
            const char *path;
        } trace_end;
        struct {
            int phase;             // strait_outer_phase
            int64_t step;          // after which the exchange was begun
            int fragment, attempt; // as strait_outer_exchange, which see
            uint64_t members, alive;
            int is_resent;
            strait_group_owners owners; // of the groups of a step, for the share of each replica
        } outer;
        struct {
            int64_t step;
            int to_prev, to_next; // neither: does nothing, which a barrier over all stages needs
        } resend;
        struct {
            int duration_ms;
        } probe;
    };
} strait_stage_command;

/* Values that cannot be trusted, counted during a step or a validation. */
typedef struct strait_stage_faults {
    double nonfinite;     // of the stage's own; they were not sent
    double rejected_prev; // non-finite or far too large, received from the previous stage
    double rejected_next; // the same, from the next stage
} strait_stage_faults;

/* The phases of an exchange of averaged weights; stage/outer/outer.h. */
typedef enum strait_outer_phase {
    STRAIT_OUTER_BEGIN,
    STRAIT_OUTER_SUM,
    STRAIT_OUTER_APPLY,
} strait_outer_phase;

typedef struct strait_stage_reply {
    strait_stage_command_kind kind; // of the command
    uint32_t generation, sequence;  // of the command; sequence 0: the stage failed unasked
    strait_err err;
    const char *reason; // of an error
    int failed_side;    // of an error: the neighbour it concerns, -1 previous, 1 next; 0: neither
    uint64_t device_bytes, device_free; // taken by the stage, and free; 0 where that is the host
    /* Snapshots copied from a neighbour and found unusable since the last reply; 0 in a local run.
     */
    int rejected_copies_prev, rejected_copies_next;
    union {
        struct {
            const char *device; // its name
        } open;
        struct {
            strait_step_times times;
            double next_delay_s; // one way to the next stage; 0: unknown
        } time_passes;
        struct {
            double loss_sum; // over all tokens of the step; 0 but on the last stage
            strait_step_times times;
            uint64_t forward_bytes, backward_bytes;     // received for this step
            uint64_t reduce_bytes;                      // received from other replicas of the stage
            double residual_forward, residual_backward; // relative error of what its codecs sent
            strait_codec_basis_metrics basis;           // of its sender
            strait_stage_faults faults;
            strait_floats squares; // sum of squared gradients, per parameter
        } gradients;
        struct {
            double snapshot_s; // what the snapshot cost; 0: none was kept
            double copy_s;     // how long a neighbour would take to copy one at this moment
            /* That the link to the next stage carried lately, of the last stage that to the
             * previous one, as the kernel measured it; 0: unknown. */
            double link_bps;
        } update;
        struct {
            double loss_sum;
            strait_stage_faults faults;
        } validate;
        struct {
            strait_digest digest; // of weights and state; zeros: not asked for
        } save;
        struct {
            strait_floats basis;
        } propose_basis;
        struct {
            int is_complete; // SUM: all results are here
            /* SUM, as bits: members whose parts are not here; replicas whose results are not, or
             * that take none; and those that sent what was rejected (stage/outer/outer.h). */
            uint64_t missing, withheld, rejected;
            double distance, size; // APPLY: strait_outer_result
            uint64_t bytes;        // received from other replicas since the last count
        } outer;
        /* Bits per second: that arrived from each neighbour, and that each neighbour acknowledged.
         * 0: nothing, or there is no neighbour. */
        struct {
            double from_prev_bps, from_next_bps;
            double to_prev_bps, to_next_bps;
        } probe;
    };
} strait_stage_reply;

/* The fields of one kind; NULL for a number that is no kind. The header of every command or reply
 * comes before them. */
const strait_layout *strait_stage_command_layout(strait_stage_command_kind kind);
const strait_layout *strait_stage_reply_layout(strait_stage_command_kind kind);
extern const strait_layout strait_stage_command_header, strait_stage_reply_header;

/* A message of the pool with priority CONTROL, which the caller closes. */
strait_err strait_stage_command_pack(struct strait_msg_pool *pool,
                                     const strait_stage_command *command, struct strait_msg **out);
strait_err strait_stage_reply_pack(struct strait_msg_pool *pool, const strait_stage_reply *reply,
                                   struct strait_msg **out);

/* Texts of *out point into `msg`, floats into `memory`: both must outlive *out. STRAIT_EPROTO for
 * anything that the tables do not describe exactly. */
strait_err strait_stage_command_unpack(struct strait_msg *msg, strait_float_memory memory,
                                       strait_stage_command *out);
strait_err strait_stage_reply_unpack(struct strait_msg *msg, strait_float_memory memory,
                                     strait_stage_reply *out);
/* Reads the header alone, to tell a late reply from one that is awaited. */
strait_err strait_stage_reply_peek(struct strait_msg *msg, strait_stage_reply *out);

/* Packs and sends; waits up to a minute for space in the peer's queue. */
strait_err strait_stage_command_send(struct strait_mesh *mesh, int peer,
                                     const strait_stage_command *command);
strait_err strait_stage_reply_send(struct strait_mesh *mesh, int peer,
                                   const strait_stage_reply *reply);

/* Whether only a stage that was opened can execute it. */
static inline int strait_stage_command_needs_open(strait_stage_command_kind kind) {
    return kind != STRAIT_COMMAND_CONNECT_PREV && kind != STRAIT_COMMAND_CONNECT_NEXT &&
           kind != STRAIT_COMMAND_CONNECT_REPLICA && kind != STRAIT_COMMAND_OPEN &&
           kind != STRAIT_COMMAND_TIME_PASSES && kind != STRAIT_COMMAND_LEAVE;
}

/* "gradients": for messages to people. */
const char *strait_stage_command_name(strait_stage_command_kind kind);
