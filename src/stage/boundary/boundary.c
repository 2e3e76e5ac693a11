#include "stage/boundary/boundary.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/frame.h"
#include "stage/inbox.h"
#include "stage/staging.h"

#include <string.h>

enum {
    SEND_TIMEOUT_MS = 600000,
    POLL_MS = 50
};

struct strait_boundary {
    strait_boundary_spec spec;
    struct strait_backend *backend;
    struct strait_codec *codec;
    struct strait_mesh *mesh;
    int peers[STRAIT_GROUPS_MAX]; // of the mesh: replicas of the neighbour
    int n_peers;
    strait_boundary_share share;  // zeroed: the neighbour has one replica
    struct strait_msg_pool *pool; // for a boundary without a mesh
    strait_direction out, in;     // the direction that this side sends, and the one it receives
    struct strait_inbox inbox;
    struct strait_crossing_log *log;    // of what was sent; NULL: nothing is kept
    int is_muted;                       // what is packed is kept, not sent
    struct strait_crossing_hash hash;   // of the crossings of this step so far
    struct strait_staging staging;      // zeroed when the device is the host
    double codec_seconds, post_seconds; // since they were last read
    uint64_t crossed_bytes;             // since it was last read
    strait_err (*poll)(void *user);     // NULL: not wanted
    void *user;
};

/* Fills a zeroed boundary; after an error the caller closes it. */
static strait_err open_into(struct strait_boundary *b) {
    STRAIT_TRY(strait_codec_check(&b->spec.codec));
    STRAIT_TRY(strait_inbox_init(&b->inbox, b->spec.n_microbatches, b->spec.n_valid));
    STRAIT_TRY(strait_msg_pool_open(&b->pool));
    STRAIT_TRY(strait_codec_open(&b->spec.codec, b->spec.side, b->backend, &b->codec));
    if (b->backend->ops->is_host) return STRAIT_OK;
    return strait_staging_init(&b->staging, b->backend,
                               strait_codec_wire_bytes(&b->spec.codec, b->out),
                               strait_codec_wire_bytes(&b->spec.codec, b->in));
}

strait_err strait_boundary_open(const strait_boundary_spec *spec, struct strait_backend *backend,
                                struct strait_boundary **out) {
    struct strait_boundary *b = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *b, "boundary", (void **)&b));
    b->spec = *spec;
    b->backend = backend;
    b->out = spec->side == STRAIT_SENDER ? STRAIT_FORWARD : STRAIT_BACKWARD;
    b->in = spec->side == STRAIT_SENDER ? STRAIT_BACKWARD : STRAIT_FORWARD;
    const strait_err err = open_into(b);
    if (err != STRAIT_OK) {
        strait_boundary_close(&b);
        return err;
    }
    *out = b;
    return STRAIT_OK;
}

void strait_boundary_close(struct strait_boundary **boundary) {
    struct strait_boundary *b = *boundary;
    if (b == NULL) return;
    strait_inbox_fini(&b->inbox);
    strait_codec_close(&b->codec);
    strait_staging_fini(&b->staging);
    strait_crossing_log_close(&b->log);
    strait_msg_pool_close(&b->pool);
    strait_alloc_free(b);
    *boundary = NULL;
}

void strait_boundary_connect(struct strait_boundary *boundary, struct strait_mesh *mesh,
                             const int *peers, int n_peers) {
    boundary->mesh = mesh;
    boundary->n_peers = n_peers;
    for (int i = 0; i < n_peers; i++)
        boundary->peers[i] = peers[i];
}

void strait_boundary_set_share(struct strait_boundary *b, const strait_boundary_share *share) {
    b->share = *share;
    strait_inbox_await(&b->inbox, share->microbatches, share->n_microbatches);
}

void strait_boundary_set_poll(struct strait_boundary *boundary, strait_err (*poll)(void *user),
                              void *user) {
    boundary->poll = poll;
    boundary->user = user;
}

int strait_boundary_peer(const struct strait_boundary *b, int replica) {
    return replica < b->n_peers ? b->peers[replica] : -1;
}

int strait_boundary_replica(const struct strait_boundary *b, int peer) {
    for (int i = 0; i < b->n_peers; i++)
        if (b->peers[i] == peer) return i;
    return -1;
}

/* The replica of the neighbour that a microbatch goes to or comes from. */
static int replica_of(const struct strait_boundary *b, const struct strait_msg *m) {
    if (b->share.theirs == NULL || (m->flags & STRAIT_CROSSING_IS_VALID) != 0)
        return b->share.valid_replica;
    return b->share.theirs->replica[strait_groups_of(b->share.groups, m->microbatch)];
}

struct strait_codec *strait_boundary_codec(struct strait_boundary *boundary) {
    return boundary->codec;
}

void strait_boundary_begin(struct strait_boundary *b, int64_t step) {
    strait_inbox_begin(&b->inbox, step);
    if (b->log != NULL) strait_crossing_log_begin(b->log, step);
    strait_crossing_hash_begin(&b->hash);
    b->codec_seconds = b->post_seconds = 0.0; // do not count a validation for this step
}

void strait_boundary_reset(struct strait_boundary *b, int64_t step) {
    strait_inbox_reset(&b->inbox, step);
    strait_staging_drop(&b->staging);
    b->crossed_bytes = 0; // of the step that was aborted
}

strait_err strait_boundary_keep(struct strait_boundary *b, size_t bytes_max) {
    const strait_crossing_log_spec spec = {
        .message_bytes = strait_codec_wire_bytes(&b->spec.codec, b->out),
        .n_microbatches = b->spec.n_microbatches,
        .bytes_max = bytes_max};
    strait_crossing_log_close(&b->log);
    return strait_crossing_log_steps(&spec) > 0 ? strait_crossing_log_open(&spec, &b->log)
                                                : STRAIT_OK;
}

struct strait_crossing_log *strait_boundary_log(struct strait_boundary *b) {
    return b->log;
}

void strait_boundary_mute(struct strait_boundary *b, int is_muted) {
    b->is_muted = is_muted;
}

void strait_boundary_hash(struct strait_boundary *b) {
    b->hash.is_on = 1;
}

const struct strait_crossing_hash *strait_boundary_digests(const struct strait_boundary *b) {
    return &b->hash;
}

static strait_tensor bytes_of(struct strait_msg *msg) {
    return (strait_tensor){msg->body, STRAIT_I8, 1, (int64_t)msg->size};
}

static strait_err pack(struct strait_boundary *b, const strait_crossing *at, strait_tensor wire,
                       strait_tensor x) {
    if (b->out == STRAIT_FORWARD) return strait_codec_act_pack(b->codec, at, wire, x);
    return strait_codec_grad_pack(b->codec, at, wire, x);
}

static strait_err unpack(struct strait_boundary *b, const strait_crossing *at, strait_tensor x,
                         strait_tensor wire) {
    if (b->in == STRAIT_FORWARD) return strait_codec_act_unpack(b->codec, at, x, wire);
    return strait_codec_grad_unpack(b->codec, at, x, wire);
}

static strait_err open_message(struct strait_boundary *b, int64_t step, int64_t microbatch,
                               struct strait_msg **out) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_msg_open(b->mesh != NULL ? strait_mesh_pool(b->mesh) : b->pool,
                               STRAIT_MSG_CROSSING, strait_codec_wire_bytes(&b->spec.codec, b->out),
                               &msg));
    msg->priority = b->out == STRAIT_FORWARD ? STRAIT_PRIORITY_ACTIVATION
                                             : STRAIT_PRIORITY_GRADIENT;
    msg->boundary = (uint16_t)b->spec.codec.boundary;
    msg->microbatch = (uint16_t)microbatch;
    msg->basis = (uint16_t)strait_codec_version(b->codec);
    msg->step = (uint32_t)step;
    *out = msg;
    return STRAIT_OK;
}

/* Waits for space in the peer's queue in short slices, so that the caller can react to events (such
 * as a command to stop) while a neighbour accepts nothing. */
static strait_err wait_and_post(struct strait_boundary *b, struct strait_msg **msg) {
    const int peer = strait_boundary_peer(b, replica_of(b, *msg));
    for (int waited_ms = 0;; waited_ms += POLL_MS) {
        const strait_err err = strait_mesh_send_wait(b->mesh, peer, POLL_MS, msg);
        if (err != STRAIT_ETIMEDOUT) return err;
        if (waited_ms >= SEND_TIMEOUT_MS)
            return STRAIT_FAIL(
                STRAIT_ETIMEDOUT,
                "boundary %d: the send queue has been full for %d s; check the neighbour "
                "stage and its link",
                b->spec.codec.boundary, SEND_TIMEOUT_MS / 1000);
        if (b->poll != NULL) STRAIT_TRY(b->poll(b->user));
    }
}

/* Time spent waiting here is not computing, and is reported separately. */
static strait_err wait_metered(struct strait_boundary *b, struct strait_msg **msg) {
    const double began = strait_clock_seconds();
    const strait_err err = wait_and_post(b, msg);
    b->post_seconds += strait_clock_seconds() - began;
    return err;
}

/* Keeps what was packed, and sends it unless the boundary is muted. */
static strait_err post(struct strait_boundary *b, struct strait_msg **msg) {
    const struct strait_msg *m = *msg;
    if (b->log != NULL && (m->flags & STRAIT_CROSSING_IS_VALID) == 0)
        strait_crossing_log_put(b->log, m->step, m->microbatch, m->basis, m->body);
    if ((m->flags & STRAIT_CROSSING_IS_VALID) == 0)
        STRAIT_TRY(strait_crossing_hash_add(&b->hash, STRAIT_CROSSING_SENT, b->share.groups, m));
    return b->is_muted ? STRAIT_OK : wait_metered(b, msg);
}

strait_err strait_boundary_flush(struct strait_boundary *b, int waits) {
    while (b->staging.n_out > 0) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_staging_take(&b->staging, waits, &msg));
        if (msg == NULL) return STRAIT_OK;
        const strait_err err = post(b, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* On the host the codec packs straight into the body of the message. */
static strait_err send_host(struct strait_boundary *b, const strait_crossing *at,
                            struct strait_msg **msg, strait_tensor x) {
    const double began = strait_clock_seconds();
    STRAIT_TRY(pack(b, at, bytes_of(*msg), x));
    b->codec_seconds += strait_clock_seconds() - began;
    return post(b, msg);
}

/* A device packs asynchronously; flush posts the message when its bytes are on the host. A full
 * staging forces a wait for the oldest message. */
static strait_err send_device(struct strait_boundary *b, const strait_crossing *at,
                              struct strait_msg **msg, strait_tensor x) {
    STRAIT_TRY(strait_boundary_flush(b, strait_staging_is_full(&b->staging)));
    const double began = strait_clock_seconds();
    STRAIT_TRY(pack(b, at, strait_staging_out_buffer(&b->staging), x));
    STRAIT_TRY(strait_staging_download(&b->staging, at->stream, msg));
    b->codec_seconds += strait_clock_seconds() - began;
    return STRAIT_OK;
}

strait_err strait_boundary_send(struct strait_boundary *b, const strait_crossing *at,
                                strait_tensor x) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(open_message(b, at->step, at->microbatch, &msg));
    msg->flags = at->is_evaluation ? STRAIT_CROSSING_IS_VALID : 0;
    const strait_err err = b->backend->ops->is_host ? send_host(b, at, &msg, x)
                                                    : send_device(b, at, &msg, x);
    strait_msg_close(&msg);
    return err;
}

/* The bytes are those of the first time; so is the version of the basis that encoded them. */
static strait_err resend_one(struct strait_boundary *b, int64_t step, int microbatch) {
    const strait_crossing_view kept = strait_crossing_log_find(b->log, step, microbatch);
    struct strait_msg *msg = NULL;
    STRAIT_TRY(open_message(b, step, microbatch, &msg));
    msg->basis = kept.basis;
    memcpy(msg->body, kept.data, kept.bytes);
    const strait_err err = wait_metered(b, &msg);
    strait_msg_close(&msg);
    return err;
}

strait_err strait_boundary_resend(struct strait_boundary *b, int64_t step) {
    if (b->log == NULL || !strait_crossing_log_has(b->log, step))
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "boundary %d: the crossings of step %lld are no longer kept",
                           b->spec.codec.boundary, (long long)step);
    for (int m = 0; m < b->spec.n_microbatches; m++) {
        STRAIT_TRY(resend_one(b, step, m));
        if (b->poll != NULL) STRAIT_TRY(b->poll(b->user));
    }
    return STRAIT_OK;
}

static strait_err fail_unexpected(const struct strait_boundary *b, const struct strait_msg *m) {
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "boundary %d, at step %lld: unexpected message for boundary %d, step %u, "
                       "microbatch %d, %zu bytes",
                       b->spec.codec.boundary, (long long)b->inbox.step, m->boundary,
                       (unsigned)m->step, m->microbatch, m->size);
}

/* A validation has no backward pass, hence no gradients. */
static int store(struct strait_boundary *b, struct strait_msg *msg, int is_valid) {
    if (!is_valid) return strait_inbox_store(&b->inbox, msg);
    return b->in == STRAIT_FORWARD && strait_inbox_store_valid(&b->inbox, msg);
}

strait_err strait_boundary_deliver(struct strait_boundary *b, struct strait_msg **msg) {
    if ((*msg)->boundary != b->spec.codec.boundary ||
        (*msg)->size != strait_codec_wire_bytes(&b->spec.codec, b->in))
        return fail_unexpected(b, *msg);
    const int is_valid = ((*msg)->flags & STRAIT_CROSSING_IS_VALID) != 0;
    /* Read before the call below: afterwards the message belongs to the boundary. */
    const size_t bytes = STRAIT_FRAME_HEADER + (*msg)->size;
    if (!store(b, *msg, is_valid)) return fail_unexpected(b, *msg);
    if (!is_valid) b->crossed_bytes += bytes;
    *msg = NULL;
    return STRAIT_OK;
}

int strait_boundary_arrived(const struct strait_boundary *boundary, int ahead) {
    return strait_inbox_leading(&boundary->inbox, ahead);
}

int strait_boundary_has_valid(const struct strait_boundary *boundary) {
    return boundary->inbox.first != NULL;
}

static strait_err unpack_on_device(struct strait_boundary *b, const strait_crossing *at,
                                   const struct strait_msg *msg, strait_tensor x) {
    strait_tensor wire;
    STRAIT_TRY(strait_staging_upload(&b->staging, at->stream, msg, &wire));
    STRAIT_TRY(unpack(b, at, x, wire));
    return strait_staging_upload_done(&b->staging, at->stream);
}

/* Unpacks one message; the caller may close it afterwards, even if a device is still unpacking.
 * Sides with different versions of the basis would decode garbage, hence the check. */
static strait_err read_message(struct strait_boundary *b, const strait_crossing *at,
                               struct strait_msg *msg, strait_tensor x) {
    const double began = strait_clock_seconds();
    STRAIT_TRY(strait_codec_check_version(b->codec, msg->basis));
    if (b->backend->ops->is_host)
        STRAIT_TRY(unpack(b, at, x, bytes_of(msg)));
    else
        STRAIT_TRY(unpack_on_device(b, at, msg, x));
    b->codec_seconds += strait_clock_seconds() - began;
    return STRAIT_OK;
}

strait_err strait_boundary_receive(struct strait_boundary *b, const strait_crossing *at,
                                   strait_tensor x) {
    struct strait_msg *msg = strait_inbox_take(&b->inbox, at->step, at->microbatch);
    /* Which replica sends a microbatch is known only when its step begins. */
    const int is_theirs = b->n_peers <= 1 ||
                          strait_boundary_replica(b, msg->peer) == replica_of(b, msg);
    strait_err err = is_theirs ? STRAIT_OK : fail_unexpected(b, msg);
    if (err == STRAIT_OK)
        err = strait_crossing_hash_add(&b->hash, STRAIT_CROSSING_RECEIVED, b->share.groups, msg);
    if (err == STRAIT_OK) err = read_message(b, at, msg, x);
    strait_msg_close(&msg);
    return err;
}

strait_err strait_boundary_receive_valid(struct strait_boundary *b, const strait_crossing *at,
                                         strait_tensor x) {
    struct strait_msg *msg = strait_inbox_take_valid(&b->inbox);
    /* The header keeps 16 bits of the microbatch number; a validation may have more of them. */
    const int is_next = msg->microbatch == (uint16_t)at->microbatch;
    const strait_err err = is_next ? read_message(b, at, msg, x) : fail_unexpected(b, msg);
    strait_msg_close(&msg);
    return err;
}

double strait_boundary_codec_seconds(struct strait_boundary *boundary) {
    const double seconds = boundary->codec_seconds;
    boundary->codec_seconds = 0.0;
    return seconds;
}

double strait_boundary_post_seconds(struct strait_boundary *boundary) {
    const double seconds = boundary->post_seconds;
    boundary->post_seconds = 0.0;
    return seconds;
}

void strait_boundary_add_bytes(struct strait_boundary *boundary, uint64_t bytes) {
    boundary->crossed_bytes += bytes;
}

uint64_t strait_boundary_crossed_bytes(struct strait_boundary *boundary) {
    const uint64_t bytes = boundary->crossed_bytes;
    boundary->crossed_bytes = 0;
    return bytes;
}
