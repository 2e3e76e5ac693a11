/* draw.h - first values: normal numbers for tensors on a device, drawn by the host's threads.
 *
 * A number depends on its place in the tensor alone, so the number of threads changes no bit. Where
 * the device's memory is the host's, numbers are drawn right into it; elsewhere into two pinned
 * pieces, one drawn while the other travels. */
#pragma once

#include "backend/backend.h"
#include "base/rng.h"

struct strait_random_fill;

typedef struct strait_random_fill_params {
    strait_rng rng;
    double deviation;
    int64_t cols; // columns from this one on stay 0; 0: there are none
} strait_random_fill_params;

/* For tensors of at most `most` values, each, on the stream's device; uses the threads the backend
 * was opened with. Allocates; not for a training step. The stream outlives it. */
strait_err strait_random_fill_open(struct strait_stream *stream, int64_t most, struct strait_random_fill **out);
void strait_random_fill_close(struct strait_random_fill **draw); // accepts NULL

/* Value i of `to`, which is f32, becomes number i of params.rng times the deviation. Blocks until
 * all are drawn; the last may still be on their way in the stream's order until close or the next.
 */
strait_err strait_random_fill_normals(struct strait_random_fill *draw, strait_tensor to,
                               strait_random_fill_params params);

/* The same for one tensor, from open to close. */
strait_err strait_random_fill_once(struct strait_stream *stream, strait_tensor to,
                            strait_random_fill_params params);
