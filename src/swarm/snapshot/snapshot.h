/* snapshot.h - the complete state of a stage after a step (weights, optimizer moments, codec state)
 * as bytes: to keep in memory, to send to a neighbour, to restore.
 *
 *     4  magic "SImg"      4  number of tensors
 *     each: 1 + n name, 1 type, 1 is it state, 8 rows, 8 columns       (the header)
 *     then their values, in the order of the header, without gaps
 *
 * One thread uses a snapshot. */
#pragma once

#include "stage/runner.h"
#include "store/checkpoint.h"
#include "swarm/protocol.h"

struct strait_snapshot { // zeroed is empty
    int stage;
    int64_t step;        // steps that the stage had applied
    uint32_t generation; // in which it was taken
    unsigned char *data; // owned
    size_t bytes, capacity;
    size_t filled; // bytes that have arrived; less than `bytes` while pieces are still arriving
    strait_digest digest; // of all bytes; of a received snapshot once strait_snapshot_hash ran
};

/* Returns the memory that a stage takes with its snapshots and its copies of the neighbours'. */
double strait_snapshot_memory_bytes(const strait_runner_memory *memory);

/* Frees the data; the snapshot is empty afterwards. */
void strait_snapshot_fini(struct strait_snapshot *snapshot);

/* Returns whether all of its bytes have arrived. */
int strait_snapshot_is_complete(const struct strait_snapshot *snapshot);

/* Copies the state of a runner that has applied `step` steps, and hashes it. Allocates only if the
 * snapshot is too small, so a snapshot that is used again costs no allocation. */
strait_err strait_snapshot_capture(struct strait_runner *runner, int64_t step, uint32_t generation,
                                   struct strait_snapshot *snapshot);

/* Computes the digest of a complete snapshot. */
strait_err strait_snapshot_hash(struct strait_snapshot *snapshot);

/* Computes the digest again and compares it: STRAIT_EDATA when the bytes are not those that the
 * owner of the stage reported. */
strait_err strait_snapshot_check_digest(struct strait_snapshot *snapshot,
                                        const strait_digest *expected);

/* Restores the state of a runner. STRAIT_EDATA, with nothing changed, when the snapshot is not of
 * this stage (see strait_snapshot_match). */
strait_err strait_snapshot_restore(const struct strait_snapshot *snapshot,
                                   struct strait_runner *runner);

/* Writes the header alone, which a worker sends to request a snapshot, and the bytes of the
 * complete snapshot. */
strait_err strait_snapshot_header(struct strait_runner *runner, struct strait_snapshot *header,
                                  size_t *total_bytes);

/* Writes the same header for a stage that this process does not run. */
strait_err strait_snapshot_expected_header(const strait_run_plan *plan, int stage,
                                           struct strait_snapshot *header);

/* Writes how many bytes a complete snapshot of that stage has. */
strait_err strait_snapshot_expected_bytes(const strait_run_plan *plan, int stage, size_t *bytes);

/* Checks that a snapshot from an untrusted worker has exactly the tensors of its stage.
 * STRAIT_EDATA names the first tensor that is missing, unexpected, or of another type or shape.
 * That the values are those of the owner is strait_snapshot_check_digest. */
strait_err strait_snapshot_match(const struct strait_snapshot *snapshot,
                                 const strait_run_plan *plan);

/* Checks a snapshot from an untrusted worker for non-finite values: STRAIT_ENONFINITE names the
 * tensor. */
strait_err strait_snapshot_check_finite(const struct strait_snapshot *snapshot);

/* Writes a snapshot from an untrusted worker into a checkpoint that was begun. */
strait_err strait_snapshot_write(const struct strait_snapshot *snapshot, const char *folder,
                                 int64_t step);

/* Appends a received piece, which must be the first or the next one. STRAIT_EPROTO when it is not,
 * or when the complete snapshot would not have exactly `bytes`: nothing is allocated for it. */
strait_err strait_snapshot_add_piece(struct strait_snapshot *snapshot, const strait_piece *piece,
                                     size_t bytes);

/* Writes the piece at offset *at, which is advanced; piece->bytes is 0 at the end. The data is
 * borrowed from the snapshot. */
void strait_snapshot_next_piece(const struct strait_snapshot *snapshot, size_t *at,
                                strait_piece *piece);
