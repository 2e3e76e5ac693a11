#include "pipeline/ferry.h"

#include <assert.h>
#include <string.h>

static strait_err plan(struct strait_ferry *ferry, size_t out_bytes, size_t in_bytes) {
    for (int i = 0; i < STRAIT_FERRY_BERTHS; i++) {
        STRAIT_TRY(
            strait_slab_add(&ferry->wires, STRAIT_I8, 1, (int64_t)out_bytes, &ferry->out[i].wire));
        STRAIT_TRY(
            strait_slab_add(&ferry->wires, STRAIT_I8, 1, (int64_t)in_bytes, &ferry->in[i].wire));
    }
    return STRAIT_OK;
}

size_t strait_ferry_bytes(size_t out_bytes, size_t in_bytes) {
    struct strait_ferry ferry = {0};
    const strait_err err = plan(&ferry, out_bytes, in_bytes);
    const size_t bytes = ferry.wires.bytes;
    strait_slab_fini(&ferry.wires);
    return err == STRAIT_OK ? bytes : 0;
}

static strait_err open_berth(struct strait_ferry *ferry, struct strait_berth *berth) {
    const struct strait_backend_ops *ops = ferry->backend->ops;
    STRAIT_TRY(ops->alloc_host(ferry->backend, strait_tensor_bytes(berth->wire), &berth->host));
    return ops->mark_open(ferry->backend, &berth->free);
}

strait_err strait_ferry_init(struct strait_ferry *ferry, struct strait_backend *backend,
                             size_t out_bytes, size_t in_bytes) {
    *ferry = (struct strait_ferry){.backend = backend};
    STRAIT_TRY(backend->ops->stream_open(backend, &ferry->up));
    STRAIT_TRY(backend->ops->stream_open(backend, &ferry->down));
    STRAIT_TRY(plan(ferry, out_bytes, in_bytes));
    STRAIT_TRY(strait_slab_commit(&ferry->wires, backend));
    for (int i = 0; i < STRAIT_FERRY_BERTHS; i++) {
        STRAIT_TRY(open_berth(ferry, &ferry->out[i]));
        STRAIT_TRY(open_berth(ferry, &ferry->in[i]));
    }
    return STRAIT_OK;
}

static void close_berth(struct strait_backend *backend, struct strait_berth *berth) {
    if (berth->free.backend != NULL) backend->ops->mark_close(&berth->free);
    if (berth->host != NULL) backend->ops->release_host(backend, berth->host);
}

void strait_ferry_fini(struct strait_ferry *ferry) {
    struct strait_backend *backend = ferry->backend;
    if (backend == NULL) return;
    strait_ferry_drop(ferry);
    if (ferry->up.backend != NULL) backend->ops->stream_close(&ferry->up); // copies are done then
    if (ferry->down.backend != NULL) backend->ops->stream_close(&ferry->down);
    for (int i = 0; i < STRAIT_FERRY_BERTHS; i++) {
        close_berth(backend, &ferry->out[i]);
        close_berth(backend, &ferry->in[i]);
    }
    strait_slab_fini(&ferry->wires);
    *ferry = (struct strait_ferry){0};
}

int strait_ferry_is_full(const struct strait_ferry *ferry) {
    return ferry->n_out == STRAIT_FERRY_BERTHS;
}

static int next_out(const struct strait_ferry *ferry) {
    return (ferry->oldest + ferry->n_out) % STRAIT_FERRY_BERTHS;
}

strait_tensor strait_ferry_berth(const struct strait_ferry *ferry) {
    assert(!strait_ferry_is_full(ferry));
    return ferry->out[next_out(ferry)].wire;
}

strait_err strait_ferry_leave(struct strait_ferry *ferry, struct strait_stream *stream,
                              struct strait_msg **msg) {
    const struct strait_backend_ops *ops = ferry->backend->ops;
    struct strait_berth *berth = &ferry->out[next_out(ferry)];
    assert((*msg)->size == strait_tensor_bytes(berth->wire));
    STRAIT_TRY(ops->order(stream, &ferry->down));
    STRAIT_TRY(ops->download(&ferry->down, berth->host, berth->wire.data, (*msg)->size));
    STRAIT_TRY(ops->mark(&ferry->down, &berth->free));
    berth->cargo = *msg;
    *msg = NULL;
    ferry->n_out++;
    return STRAIT_OK;
}

strait_err strait_ferry_land(struct strait_ferry *ferry, int waits, struct strait_msg **out) {
    struct strait_berth *berth = &ferry->out[ferry->oldest];
    int is_reached = 0;
    *out = NULL;
    if (ferry->n_out == 0) return STRAIT_OK;
    STRAIT_TRY(ferry->backend->ops->reach(&berth->free, waits, &is_reached));
    if (!is_reached) return STRAIT_OK;
    memcpy(berth->cargo->body, berth->host, berth->cargo->size);
    *out = berth->cargo;
    berth->cargo = NULL;
    ferry->oldest = (ferry->oldest + 1) % STRAIT_FERRY_BERTHS;
    ferry->n_out--;
    return STRAIT_OK;
}

strait_err strait_ferry_bring(struct strait_ferry *ferry, struct strait_stream *stream,
                              const struct strait_msg *msg, strait_tensor *out) {
    const struct strait_backend_ops *ops = ferry->backend->ops;
    int is_reached = 0;
    ferry->last_in = (ferry->last_in + 1) % STRAIT_FERRY_BERTHS;
    struct strait_berth *berth = &ferry->in[ferry->last_in];
    assert(msg->size == strait_tensor_bytes(berth->wire));
    STRAIT_TRY(ops->reach(&berth->free, 1, &is_reached));
    memcpy(berth->host, msg->body, msg->size);
    STRAIT_TRY(ops->upload(&ferry->up, berth->wire.data, berth->host, msg->size));
    STRAIT_TRY(ops->order(&ferry->up, stream));
    *out = berth->wire;
    return STRAIT_OK;
}

strait_err strait_ferry_done(struct strait_ferry *ferry, struct strait_stream *stream) {
    return ferry->backend->ops->mark(stream, &ferry->in[ferry->last_in].free);
}

void strait_ferry_drop(struct strait_ferry *ferry) {
    for (int i = 0; i < STRAIT_FERRY_BERTHS; i++)
        strait_msg_close(&ferry->out[i].cargo);
    ferry->n_out = 0;
}
