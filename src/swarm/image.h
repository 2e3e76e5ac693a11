/* image.h - all that a stage goes on with, as bytes: to keep in memory, to send, to restore.
 *
 *     4  magic "SImg"      4  how many tensors
 *     each: 1 + n name, 1 type, 1 is it state, 8 rows, 8 columns       (the list)
 *     then their values, in the order of the list, without gaps
 *
 * One thread uses an image. */
#pragma once

#include "pipeline/worker.h"
#include "store/checkpoint.h"
#include "swarm/protocol.h"

struct strait_image { // zeroed is empty
    int stage;
    int64_t step;  // steps that were done
    uint32_t born; // epoch in which it was made
    unsigned char *data;
    size_t bytes, capacity;
    size_t filled; // of bytes; less while pieces are still coming
};

/* Bytes that a stage takes, with its images and the copies of its neighbours'. */
double strait_image_need(const strait_worker_memory *memory);

void strait_image_fini(struct strait_image *image);
int strait_image_is_whole(const struct strait_image *image);

/* Copies the state of a worker that has done `step` steps. Allocates when the image is too small.
 */
strait_err strait_image_take(struct strait_worker *worker, int64_t step, uint32_t born,
                             struct strait_image *image);

/* Puts it back, whole or not at all: STRAIT_EDATA, as below, when it is not of this very stage. */
strait_err strait_image_put(const struct strait_image *image, struct strait_worker *worker);

/* The list alone, and how many bytes the whole would have: what a worker wants to be sent. */
strait_err strait_image_list(struct strait_worker *worker, struct strait_image *list,
                             size_t *whole_bytes);

/* The same list, of a stage that nobody serves here. */
strait_err strait_image_expect(const strait_recipe *recipe, int stage, struct strait_image *list);

/* Whether an image, which may come from anyone, is one of the stage it says it is of. STRAIT_EDATA
 * names the first tensor that is missing, too many, or of another kind or shape. */
strait_err strait_image_match(const struct strait_image *image, const strait_recipe *recipe);

/* STRAIT_ENONFINITE, naming the tensor, when one of its values is no finite number. The image may
 * come from anyone. */
strait_err strait_image_check(const struct strait_image *image);

/* Writes an image, which may come from anyone, into a checkpoint that was begun. */
strait_err strait_image_write(const struct strait_image *image, const char *folder, int64_t step);

/* Takes a piece, which must be the next one or the first. STRAIT_EPROTO when the whole would be
 * larger than `limit`. */
strait_err strait_image_add(struct strait_image *image, const strait_piece *piece, size_t limit);

/* The piece at *at, which moves on; piece->bytes is 0 at the end. */
void strait_image_next(const struct strait_image *image, size_t *at, strait_piece *piece);
