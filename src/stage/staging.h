/* ferry.h - packed bytes between a device and the host, beside the device's own work.
 *
 * Each way has a few berths, on the device and in pinned memory of the host, and a stream of its
 * own, so that bytes travel while kernels run and nobody waits for them but who needs them. For
 * devices that are not the host. One thread, the boundary's, uses a ferry. */
#pragma once

#include "backend/slab.h"
#include "net/core/msg.h"

enum {
    STRAIT_STAGING_BUFFERS = 2 // each way: one under way, one being filled
};

struct strait_staging_buffer {
    strait_tensor wire;         // on the device
    void *host;                 // pinned
    struct strait_event free;   // reached when nothing reads or writes the berth
    struct strait_msg *message; // out only: waits for its bytes
};

struct strait_staging {
    struct strait_backend *backend; // NULL: there is none
    struct strait_stream up, down;
    struct strait_slab wires;
    struct strait_staging_buffer out[STRAIT_STAGING_BUFFERS], in[STRAIT_STAGING_BUFFERS];
    int oldest, n_out; // berths with cargo, from the oldest on
    int last_in;
};

/* Of device memory, for messages of these sizes. */
size_t strait_staging_bytes(size_t out_bytes, size_t in_bytes);

strait_err strait_staging_init(struct strait_staging *staging, struct strait_backend *backend,
                               size_t out_bytes, size_t in_bytes);
void strait_staging_fini(struct strait_staging *staging); // drops cargo; accepts a zeroed one

/* Out: the berth to pack into, on the device; then, once that is queued on `stream`, its bytes
 * leave for the message. There must be a free one. */
int strait_staging_is_full(const struct strait_staging *staging);
strait_tensor strait_staging_buffer_of(const struct strait_staging *staging);
strait_err strait_staging_leave(struct strait_staging *staging, struct strait_stream *stream,
                                struct strait_msg **msg);

/* The oldest message that left, whole, once its bytes are here; NULL where there is none, or,
 * unless `waits`, none yet. */
strait_err strait_staging_land(struct strait_staging *staging, int waits, struct strait_msg **out);

/* In: sends a message's bytes to the device, for work that is queued on `stream` from now on. The
 * message may go. Then, once that work is queued, done. */
strait_err strait_staging_bring(struct strait_staging *staging, struct strait_stream *stream,
                                const struct strait_msg *msg, strait_tensor *out);
strait_err strait_staging_done(struct strait_staging *staging, struct strait_stream *stream);

void strait_staging_drop(struct strait_staging *staging); // all cargo
