/* tensorboard.h - the figures of a run as event files that TensorBoard reads.
 *
 * A file is a sequence of records (length, checksum, data, checksum), each an Event of TensorFlow's
 * protocol buffers. Every session of a run writes a file of its own into the folder; TensorBoard
 * joins them and drops the steps of a file that a later one has again. One thread uses it. */
#pragma once

#include "metrics/metrics.h"

struct strait_tensorboard;

/* Creates the folder and a file in it. STRAIT_EIO names the path. An empty `folder` opens nothing:
 * *out is NULL, and the functions below do nothing with it. */
strait_err strait_tensorboard_open(const char *folder, struct strait_tensorboard **out);
void strait_tensorboard_close(struct strait_tensorboard **board); // accepts NULL

/* Each appends one event and flushes it, without allocating. STRAIT_EIO: the write failed; events
 * may be missing. */
strait_err strait_tensorboard_put_step(struct strait_tensorboard *board,
                                       const strait_metrics_step *step, int64_t tokens);
strait_err strait_tensorboard_put_valid(struct strait_tensorboard *board, int64_t step,
                                        double valid_loss);
