/* staging.h - staging buffers that carry packed bytes between a device and the host.
 *
 * Each direction has a few buffers, on the device and in pinned host memory, and a copy stream of
 * its own. Copies therefore overlap with kernels, and the host blocks only when it needs the bytes
 * or when every buffer is in use. Only devices other than the host need it. A staging object is
 * used by one thread, that of its boundary. */
#pragma once

#include "backend/slab.h"
#include "net/core/msg.h"

enum {
    STRAIT_STAGING_BUFFERS = 2 // in each direction: one is copied while the other is filled
};

struct strait_staging_buffer {
    strait_tensor wire;         // packed bytes, on the device
    void *host;                 // the same bytes in pinned host memory
    struct strait_event free;   // reached when no queued work uses the buffer any more
    struct strait_msg *message; // owned; outgoing only: the message that these bytes will fill
};

struct strait_staging {
    struct strait_backend *backend; // borrowed; NULL: not initialised, as on the host
    struct strait_stream up, down;  // copies to the device, copies to the host
    struct strait_slab wires;       // device memory of all buffers
    struct strait_staging_buffer out[STRAIT_STAGING_BUFFERS], in[STRAIT_STAGING_BUFFERS];
    int oldest, n_out; // `out` is a ring: n_out buffers are in use, starting at `oldest`
    int last_in;       // index of the incoming buffer used last
};

/* Bytes of device memory that staging takes for messages of these sizes. */
size_t strait_staging_bytes(size_t out_bytes, size_t in_bytes);

/* Opens the streams and allocates the buffers; all messages of a direction have the same size. The
 * backend must outlive the staging. After an error call fini. */
strait_err strait_staging_init(struct strait_staging *staging, struct strait_backend *backend,
                               size_t out_bytes, size_t in_bytes);

/* Drops pending messages, waits for the copies and frees everything. Accepts a zeroed struct. */
void strait_staging_fini(struct strait_staging *staging);

/* Sending takes three calls: the caller queues packing into the tensor that out_buffer returns,
 * then download queues the copy to the host behind it, then take returns the finished message.
 * out_buffer and download require that staging is not full. */
int strait_staging_is_full(const struct strait_staging *staging);
strait_tensor strait_staging_out_buffer(const struct strait_staging *staging);

/* Takes ownership of `*msg` and sets it to NULL on success; `stream` is the one that packs. */
strait_err strait_staging_download(struct strait_staging *staging, struct strait_stream *stream,
                                   struct strait_msg **msg);

/* Hands the oldest downloaded message to the caller. `*out` is NULL when no message is pending or,
 * unless `waits` is set, when its bytes have not arrived on the host yet. */
strait_err strait_staging_take(struct strait_staging *staging, int waits, struct strait_msg **out);

/* Queues the copy of a message's bytes to the device; work queued on `stream` afterwards sees them
 * in `out`. The caller keeps `msg` and may close it at once. Blocks while the buffer is in use. */
strait_err strait_staging_upload(struct strait_staging *staging, struct strait_stream *stream,
                                 const struct strait_msg *msg, strait_tensor *out);

/* Frees the buffer of the last upload once the work queued on `stream` so far is done. */
strait_err strait_staging_upload_done(struct strait_staging *staging, struct strait_stream *stream);

/* Closes all pending outgoing messages; copies in progress only touch the buffers. */
void strait_staging_drop(struct strait_staging *staging);
