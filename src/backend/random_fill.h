/* random_fill.h - initial weights: fills tensors on a device with normal random numbers, computed
 * by host threads.
 *
 * A number depends only on its index in the tensor, so the number of threads changes no bit. Where
 * device memory is host memory, numbers are written in place; elsewhere they go through two pinned
 * buffers, one filled while the other is copied. */
#pragma once

#include "backend/backend.h"
#include "base/rng/rng.h"

struct strait_random_fill;

typedef struct strait_random_fill_params {
    strait_rng rng;
    double deviation;
    int64_t cols; // columns from this one on become 0; 0 fills all columns
} strait_random_fill_params;

/* Prepares to fill tensors of at most `most` values each on the stream's device, with the thread
 * count of the backend. Allocates; not for a training step. The stream must outlive it. */
strait_err strait_random_fill_open(struct strait_stream *stream, int64_t most,
                                   struct strait_random_fill **out);
void strait_random_fill_close(struct strait_random_fill **draw); // accepts NULL

/* Value i of `to`, which is f32, becomes number i of params.rng times the deviation. Blocks until
 * all numbers are computed; the last copies may still be queued on the stream, which orders later
 * work after them. */
strait_err strait_random_fill_normals(struct strait_random_fill *draw, strait_tensor to,
                                      strait_random_fill_params params);

/* Opens, fills one tensor and closes. */
strait_err strait_random_fill_once(struct strait_stream *stream, strait_tensor to,
                                   strait_random_fill_params params);
