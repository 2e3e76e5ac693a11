#include "net/mpi/wire.h"

#include "base/bytes.h"

#include <string.h>

static int has_message(strait_mail_kind kind) {
    return kind == STRAIT_MAIL_CONNECT || kind == STRAIT_MAIL_ACCEPT ||
           kind == STRAIT_MAIL_MESSAGE || kind == STRAIT_MAIL_BYE;
}

/* The handshake's messages are those of the other transports. */
static strait_err message_of(struct strait_msg_pool *pool, struct strait_mail *mail,
                             struct strait_msg **out) {
    *out = NULL;
    switch (mail->kind) {
    case STRAIT_MAIL_CONNECT:
    case STRAIT_MAIL_ACCEPT: return strait_hello_pack(pool, &mail->hello, out);
    case STRAIT_MAIL_BYE: return strait_bye_pack(pool, &mail->bye, out);
    case STRAIT_MAIL_MESSAGE:
        *out = mail->msg;
        mail->msg = NULL;
        return STRAIT_OK;
    default: return STRAIT_OK;
    }
}

strait_err strait_mpi_pack(struct strait_msg_pool *pool, const unsigned char run[STRAIT_RUN_BYTES],
                           struct strait_mail *mail, unsigned char out[STRAIT_MPI_HEAD],
                           size_t *out_bytes, struct strait_msg **body) {
    STRAIT_TRY(message_of(pool, mail, body));
    strait_writer w = {.at = out, .left = STRAIT_MPI_PREFIX};
    strait_writer_uint(&w, (uint64_t)mail->kind, 8);
    strait_writer_uint(&w, mail->to, 8);
    strait_writer_uint(&w, mail->from, 8);
    strait_writer_uint(&w, mail->reply_to, 8);
    strait_writer_uint(&w, mail->number, 8);
    strait_writer_copy(&w, mail->key.bytes, sizeof mail->key.bytes);
    *out_bytes = STRAIT_MPI_PREFIX;
    if (*body == NULL) return STRAIT_OK;
    strait_frame_write(*body, strait_get_u32(run), out + STRAIT_MPI_PREFIX);
    *out_bytes = STRAIT_MPI_HEAD;
    return STRAIT_OK;
}

strait_err strait_mpi_unpack(const unsigned char *head, size_t bytes, struct strait_mail *out,
                             int *has_frame) {
    strait_reader r = {.at = head, .left = bytes};
    *out = (struct strait_mail){.next = NULL};
    const uint64_t kind = strait_reader_uint(&r, 8);
    out->to = strait_reader_uint(&r, 8);
    out->from = strait_reader_uint(&r, 8);
    out->reply_to = strait_reader_uint(&r, 8);
    out->number = strait_reader_uint(&r, 8);
    strait_reader_copy(&r, out->key.bytes, sizeof out->key.bytes);
    if (r.is_short || kind >= STRAIT_N_MAIL_KINDS)
        return STRAIT_FAIL(STRAIT_EPROTO, "MPI: malformed head of %zu bytes", bytes);
    out->kind = (strait_mail_kind)kind;
    *has_frame = has_message(out->kind);
    if (r.left != (*has_frame ? STRAIT_FRAME_HEADER : 0))
        return STRAIT_FAIL(STRAIT_EPROTO, "MPI: head of %zu bytes of kind %d", bytes, out->kind);
    return STRAIT_OK;
}

strait_err strait_mpi_complete(struct strait_mail *mail, struct strait_msg **msg) {
    strait_err err = STRAIT_OK;
    if (mail->kind == STRAIT_MAIL_MESSAGE) {
        mail->msg = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (mail->kind == STRAIT_MAIL_BYE)
        strait_bye_unpack(*msg, &mail->bye);
    else
        err = strait_hello_unpack(*msg, &mail->hello);
    strait_msg_close(msg);
    return err;
}
