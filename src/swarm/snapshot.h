/* image.h - all that a stage goes on with, as bytes: to keep in memory, to send, to restore.
 *
 *     4  magic "SImg"      4  how many tensors
 *     each: 1 + n name, 1 type, 1 is it state, 8 rows, 8 columns       (the list)
 *     then their values, in the order of the list, without gaps
 *
 * One thread uses an image. */
#pragma once

#include "stage/runner.h"
#include "store/checkpoint.h"
#include "swarm/protocol.h"

struct strait_snapshot { // zeroed is empty
    int stage;
    int64_t step;        // steps that were done
    uint32_t generation; // epoch in which it was made
    unsigned char *data;
    size_t bytes, capacity;
    size_t filled; // of bytes; less while pieces are still coming
};

/* Bytes that a stage takes, with its images and the copies of its neighbours'. */
double strait_snapshot_need(const strait_runner_memory *memory);

void strait_snapshot_fini(struct strait_snapshot *snapshot);
int strait_snapshot_is_whole(const struct strait_snapshot *snapshot);

/* Copies the state of a worker that has done `step` steps. Allocates when the image is too small.
 */
strait_err strait_snapshot_take(struct strait_runner *worker, int64_t step, uint32_t generation,
                                struct strait_snapshot *snapshot);

/* Puts it back, whole or not at all: STRAIT_EDATA, as below, when it is not of this very stage. */
strait_err strait_snapshot_put(const struct strait_snapshot *snapshot,
                               struct strait_runner *worker);

/* The list alone, and how many bytes the whole would have: what a worker wants to be sent. */
strait_err strait_snapshot_header(struct strait_runner *worker, struct strait_snapshot *list,
                                  size_t *whole_bytes);

/* The same list, of a stage that nobody serves here. */
strait_err strait_snapshot_expect(const strait_run_plan *plan, int stage,
                                  struct strait_snapshot *list);

/* Whether an image, which may come from anyone, is one of the stage it says it is of. STRAIT_EDATA
 * names the first tensor that is missing, too many, or of another kind or shape. */
strait_err strait_snapshot_match(const struct strait_snapshot *snapshot,
                                 const strait_run_plan *plan);

/* STRAIT_ENONFINITE, naming the tensor, when one of its values is no finite number. The image may
 * come from anyone. */
strait_err strait_snapshot_check(const struct strait_snapshot *snapshot);

/* Writes an image, which may come from anyone, into a checkpoint that was begun. */
strait_err strait_snapshot_write(const struct strait_snapshot *snapshot, const char *folder,
                                 int64_t step);

/* Takes a piece, which must be the next one or the first. STRAIT_EPROTO when the whole would be
 * larger than `limit`. */
strait_err strait_snapshot_add(struct strait_snapshot *snapshot, const strait_piece *piece,
                               size_t limit);

/* The piece at *at, which moves on; piece->bytes is 0 at the end. */
void strait_snapshot_next(const struct strait_snapshot *snapshot, size_t *at, strait_piece *piece);
