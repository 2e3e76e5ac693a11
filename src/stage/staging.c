#include "stage/staging.h"

#include <assert.h>
#include <string.h>

/* Shared by init and by the size estimate, so that the two cannot disagree. */
static strait_err add_buffers(struct strait_staging *staging, size_t out_bytes, size_t in_bytes) {
    for (int i = 0; i < STRAIT_STAGING_BUFFERS; i++) {
        STRAIT_TRY(strait_slab_add(&staging->wires, STRAIT_I8, 1, (int64_t)out_bytes,
                                   &staging->out[i].wire));
        STRAIT_TRY(strait_slab_add(&staging->wires, STRAIT_I8, 1, (int64_t)in_bytes,
                                   &staging->in[i].wire));
    }
    return STRAIT_OK;
}

size_t strait_staging_bytes(size_t out_bytes, size_t in_bytes) {
    struct strait_staging staging = {0};
    const strait_err err = add_buffers(&staging, out_bytes, in_bytes);
    const size_t bytes = staging.wires.bytes;
    strait_slab_fini(&staging.wires);
    return err == STRAIT_OK ? bytes : 0;
}

static strait_err open_buffer(struct strait_staging *staging,
                              struct strait_staging_buffer *buffer) {
    const struct strait_backend_ops *ops = staging->backend->ops;
    STRAIT_TRY(ops->alloc_host(staging->backend, strait_tensor_bytes(buffer->wire), &buffer->host));
    return ops->event_open(staging->backend, &buffer->free);
}

strait_err strait_staging_init(struct strait_staging *staging, struct strait_backend *backend,
                               size_t out_bytes, size_t in_bytes) {
    *staging = (struct strait_staging){.backend = backend};
    STRAIT_TRY(backend->ops->stream_open(backend, &staging->up));
    STRAIT_TRY(backend->ops->stream_open(backend, &staging->down));
    STRAIT_TRY(add_buffers(staging, out_bytes, in_bytes));
    STRAIT_TRY(strait_slab_commit(&staging->wires, backend));
    for (int i = 0; i < STRAIT_STAGING_BUFFERS; i++) {
        STRAIT_TRY(open_buffer(staging, &staging->out[i]));
        STRAIT_TRY(open_buffer(staging, &staging->in[i]));
    }
    return STRAIT_OK;
}

/* Accepts a buffer that was opened in part: init may have failed. */
static void close_buffer(struct strait_backend *backend, struct strait_staging_buffer *buffer) {
    if (buffer->free.backend != NULL) backend->ops->event_close(&buffer->free);
    if (buffer->host != NULL) backend->ops->release_host(backend, buffer->host);
}

void strait_staging_fini(struct strait_staging *staging) {
    struct strait_backend *backend = staging->backend;
    if (backend == NULL) return;
    strait_staging_drop(staging);
    if (staging->up.backend != NULL)
        backend->ops->stream_close(&staging->up); // waits for its copies
    if (staging->down.backend != NULL) backend->ops->stream_close(&staging->down);
    for (int i = 0; i < STRAIT_STAGING_BUFFERS; i++) {
        close_buffer(backend, &staging->out[i]);
        close_buffer(backend, &staging->in[i]);
    }
    strait_slab_fini(&staging->wires);
    *staging = (struct strait_staging){0};
}

/* The caller then waits for the oldest message before it packs another. */
int strait_staging_is_full(const struct strait_staging *staging) {
    return staging->n_out == STRAIT_STAGING_BUFFERS;
}

/* Index of the first unused outgoing buffer. */
static int next_out(const struct strait_staging *staging) {
    return (staging->oldest + staging->n_out) % STRAIT_STAGING_BUFFERS;
}

strait_tensor strait_staging_out_buffer(const struct strait_staging *staging) {
    assert(!strait_staging_is_full(staging)); // kernels would overwrite bytes not copied yet
    return staging->out[next_out(staging)].wire;
}

strait_err strait_staging_download(struct strait_staging *staging, struct strait_stream *stream,
                                   struct strait_msg **msg) {
    const struct strait_backend_ops *ops = staging->backend->ops;
    struct strait_staging_buffer *buffer = &staging->out[next_out(staging)];
    assert((*msg)->size == strait_tensor_bytes(buffer->wire));
    /* The copy starts after the packing, and the computing stream does not wait for the copy. */
    STRAIT_TRY(ops->order(stream, &staging->down));
    STRAIT_TRY(ops->download(&staging->down, buffer->host, buffer->wire.data, (*msg)->size));
    STRAIT_TRY(ops->event_record(&staging->down, &buffer->free));
    buffer->message = *msg;
    *msg = NULL;
    staging->n_out++;
    return STRAIT_OK;
}

strait_err strait_staging_take(struct strait_staging *staging, int waits, struct strait_msg **out) {
    struct strait_staging_buffer *buffer = &staging->out[staging->oldest];
    int is_reached = 0;
    *out = NULL;
    if (staging->n_out == 0) return STRAIT_OK;
    STRAIT_TRY(staging->backend->ops->event_query(&buffer->free, waits, &is_reached));
    if (!is_reached) return STRAIT_OK;
    /* Message bodies come from a pool and are not pinned: the bytes need this second copy. */
    memcpy(buffer->message->body, buffer->host, buffer->message->size);
    *out = buffer->message;
    buffer->message = NULL;
    staging->oldest = (staging->oldest + 1) % STRAIT_STAGING_BUFFERS;
    staging->n_out--;
    return STRAIT_OK;
}

strait_err strait_staging_upload(struct strait_staging *staging, struct strait_stream *stream,
                                 const struct strait_msg *msg, strait_tensor *out) {
    const struct strait_backend_ops *ops = staging->backend->ops;
    int is_reached = 0;
    staging->last_in = (staging->last_in + 1) % STRAIT_STAGING_BUFFERS;
    struct strait_staging_buffer *buffer = &staging->in[staging->last_in];
    assert(msg->size == strait_tensor_bytes(buffer->wire));
    /* Kernels may still read the bytes of the message that used this buffer before. */
    STRAIT_TRY(ops->event_query(&buffer->free, 1, &is_reached));
    memcpy(buffer->host, msg->body, msg->size);
    STRAIT_TRY(ops->upload(&staging->up, buffer->wire.data, buffer->host, msg->size));
    STRAIT_TRY(ops->order(&staging->up, stream)); // unpacking waits for the copy
    *out = buffer->wire;
    return STRAIT_OK;
}

/* From here on the buffer is free again once the kernels queued so far have read it. */
strait_err strait_staging_upload_done(struct strait_staging *staging,
                                      struct strait_stream *stream) {
    return staging->backend->ops->event_record(stream, &staging->in[staging->last_in].free);
}

void strait_staging_drop(struct strait_staging *staging) {
    for (int i = 0; i < STRAIT_STAGING_BUFFERS; i++)
        strait_msg_close(&staging->out[i].message);
    staging->n_out = 0; // `oldest` may stay: an empty ring starts anywhere
}
