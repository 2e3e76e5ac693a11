#include "net/mpi/wire.h"

#include "base/bytes.h"

#include <string.h>

static int has_message(strait_envelope_kind kind) {
    return kind == STRAIT_ENVELOPE_CONNECT || kind == STRAIT_ENVELOPE_ACCEPT ||
           kind == STRAIT_ENVELOPE_MESSAGE || kind == STRAIT_ENVELOPE_BYE;
}

/* The handshake's messages are those of the other transports. */
static strait_err message_of(struct strait_msg_pool *pool, struct strait_envelope *envelope,
                             struct strait_msg **out) {
    *out = NULL;
    switch (envelope->kind) {
    case STRAIT_ENVELOPE_CONNECT:
    case STRAIT_ENVELOPE_ACCEPT: return strait_hello_pack(pool, &envelope->hello, out);
    case STRAIT_ENVELOPE_BYE: return strait_bye_pack(pool, &envelope->bye, out);
    case STRAIT_ENVELOPE_MESSAGE:
        *out = envelope->msg;
        envelope->msg = NULL;
        return STRAIT_OK;
    default: return STRAIT_OK;
    }
}

strait_err strait_mpi_pack(struct strait_msg_pool *pool, const unsigned char run[STRAIT_RUN_BYTES],
                           struct strait_envelope *envelope, unsigned char out[STRAIT_MPI_HEAD],
                           size_t *out_bytes, struct strait_msg **body) {
    STRAIT_TRY(message_of(pool, envelope, body));
    strait_writer w = {.at = out, .left = STRAIT_MPI_PREFIX};
    strait_writer_uint(&w, (uint64_t)envelope->kind, 8);
    strait_writer_uint(&w, envelope->to, 8);
    strait_writer_uint(&w, envelope->from, 8);
    strait_writer_uint(&w, envelope->reply_to, 8);
    strait_writer_uint(&w, envelope->number, 8);
    strait_writer_copy(&w, envelope->key.bytes, sizeof envelope->key.bytes);
    *out_bytes = STRAIT_MPI_PREFIX;
    if (*body == NULL) return STRAIT_OK;
    strait_frame_write(*body, strait_get_u32(run), out + STRAIT_MPI_PREFIX);
    *out_bytes = STRAIT_MPI_HEAD;
    return STRAIT_OK;
}

/* Ports are small enough to make two tags of each. */
static int is_reply_valid(const struct strait_envelope *envelope, int source) {
    const uint64_t port = envelope->reply_to & 0xffffffff;
    if (envelope->kind != STRAIT_ENVELOPE_CONNECT && envelope->kind != STRAIT_ENVELOPE_ACCEPT)
        return 1;
    return envelope->reply_to >> 32 == (uint64_t)source && port > 0 && port <= INT32_MAX / 2;
}

strait_err strait_mpi_unpack(const unsigned char *head, size_t bytes, int source,
                             struct strait_envelope *out, int *has_frame) {
    strait_reader r = {.at = head, .left = bytes};
    *out = (struct strait_envelope){.next = NULL};
    const uint64_t kind = strait_reader_uint(&r, 8);
    out->to = strait_reader_uint(&r, 8);
    out->from = strait_reader_uint(&r, 8);
    out->reply_to = strait_reader_uint(&r, 8);
    out->number = strait_reader_uint(&r, 8);
    strait_reader_copy(&r, out->key.bytes, sizeof out->key.bytes);
    if (r.is_short || kind >= STRAIT_N_ENVELOPE_KINDS)
        return STRAIT_FAIL(STRAIT_EPROTO, "MPI: malformed head of %zu bytes", bytes);
    out->kind = (strait_envelope_kind)kind;
    *has_frame = has_message(out->kind);
    if (r.left != (*has_frame ? STRAIT_FRAME_HEADER : 0))
        return STRAIT_FAIL(STRAIT_EPROTO, "MPI: head of %zu bytes of kind %d", bytes, out->kind);
    if (!is_reply_valid(out, source))
        return STRAIT_FAIL(STRAIT_EPROTO, "MPI: rank %d wants its answers at rank %lld, port %lld",
                           source, (long long)(out->reply_to >> 32),
                           (long long)(out->reply_to & 0xffffffff));
    return STRAIT_OK;
}

strait_err strait_mpi_complete(struct strait_envelope *envelope, struct strait_msg **msg) {
    strait_err err = STRAIT_OK;
    if (envelope->kind == STRAIT_ENVELOPE_MESSAGE) {
        envelope->msg = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (envelope->kind == STRAIT_ENVELOPE_BYE)
        strait_bye_unpack(*msg, &envelope->bye);
    else
        err = strait_hello_unpack(*msg, &envelope->hello);
    strait_msg_close(msg);
    return err;
}
