/* handshake.c - packing and checking HELLO and BYE. */
#include "net/core/handshake.h"

#include "base/bytes.h"
#include "base/text/text.h"

#include <string.h>

enum {
    HELLO_MIN = STRAIT_RUN_BYTES + 8 + 1 + 1 + 1, // the fields before the name
    RUN_TEXT = 2 * STRAIT_RUN_BYTES + 1
};

/* Enough to notice a mix-up in every frame; the whole id was compared in HELLO. */
uint32_t strait_hello_run(const strait_hello *hello) {
    return strait_get_u32(hello->run);
}

strait_err strait_hello_pack(struct strait_msg_pool *pool, const strait_hello *hello,
                             struct strait_msg **out) {
    const size_t name_bytes = strnlen(hello->name, STRAIT_NAME_MAX - 1);
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_HELLO, HELLO_MIN + name_bytes, out));
    strait_writer w = {.at = (*out)->body, .left = (*out)->size};
    strait_writer_copy(&w, hello->run, sizeof hello->run);
    strait_writer_uint(&w, hello->link, 8);
    strait_writer_uint(&w, hello->stream, 1);
    strait_writer_uint(&w, hello->n_streams, 1);
    strait_writer_uint(&w, name_bytes, 1);
    strait_writer_copy(&w, hello->name, name_bytes);
    return STRAIT_OK;
}

strait_err strait_hello_unpack(const struct strait_msg *msg, strait_hello *out) {
    if (msg->type != STRAIT_MSG_HELLO)
        return STRAIT_FAIL(STRAIT_EPROTO, "the first frame has type %d, expected a HELLO",
                           msg->type);
    strait_reader r = {.at = msg->body, .left = msg->size};
    strait_hello h = {.run = {0}};
    strait_reader_copy(&r, h.run, sizeof h.run);
    h.link = strait_reader_uint(&r, 8);
    h.stream = (uint8_t)strait_reader_uint(&r, 1);
    h.n_streams = (uint8_t)strait_reader_uint(&r, 1);
    const size_t name_bytes = (size_t)strait_reader_uint(&r, 1);
    /* The name takes the rest exactly: no byte of a HELLO goes unchecked. */
    if (r.is_short || name_bytes != r.left || name_bytes >= STRAIT_NAME_MAX)
        return STRAIT_FAIL(STRAIT_EPROTO, "HELLO of %zu bytes does not match its fields",
                           msg->size);
    strait_reader_copy(&r, h.name, name_bytes);
    strait_text_tame(h.name);
    if (h.n_streams < 1 || h.n_streams > STRAIT_STREAMS_MAX || h.stream >= h.n_streams)
        return STRAIT_FAIL(STRAIT_EPROTO, "HELLO for stream %d of %d, expected at most %d",
                           h.stream, h.n_streams, STRAIT_STREAMS_MAX);
    *out = h;
    return STRAIT_OK;
}

/* The id of a run in hexadecimal, as programs print it elsewhere. */
static void run_text(const strait_hello *hello, char out[RUN_TEXT]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < STRAIT_RUN_BYTES; i++) {
        out[2 * i] = digits[hello->run[i] >> 4];
        out[2 * i + 1] = digits[hello->run[i] & 15];
    }
    out[RUN_TEXT - 1] = 0;
}

/* A peer of another run may have a valid key, for example after a restart with a new folder. */
strait_err strait_hello_match(const strait_hello *ours, const strait_hello *theirs) {
    if (memcmp(ours->run, theirs->run, sizeof ours->run) == 0) return STRAIT_OK;
    char our_run[RUN_TEXT], their_run[RUN_TEXT];
    run_text(ours, our_run);
    run_text(theirs, their_run);
    return STRAIT_FAIL(STRAIT_EAUTH,
                       "'%s' belongs to run %s, '%s' to run %s: check the address, or start both "
                       "from the same run",
                       theirs->name, their_run, ours->name, our_run);
}

/* A long reason is cut rather than rejected: the peer should always learn why. */
strait_err strait_bye_pack(struct strait_msg_pool *pool, const strait_bye *bye,
                           struct strait_msg **out) {
    const size_t bytes = strnlen(bye->reason, STRAIT_BYE_REASON_MAX - 1);
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_BYE, 2 + bytes, out));
    strait_put_u16((*out)->body, (uint16_t)bye->why);
    memcpy((*out)->body + 2, bye->reason, bytes);
    return STRAIT_OK;
}

void strait_bye_unpack(const struct strait_msg *msg, strait_bye *out) {
    *out = (strait_bye){.why = STRAIT_ECLOSED};
    if (msg->size < 2) return;
    /* Only errors that a peer may report about us: others would trigger the wrong recovery. */
    switch (strait_get_u16(msg->body)) {
    case STRAIT_OK: out->why = STRAIT_OK; break;
    case STRAIT_EPROTO: out->why = STRAIT_EPROTO; break;
    case STRAIT_EAUTH: out->why = STRAIT_EAUTH; break;
    case STRAIT_ETIMEDOUT: out->why = STRAIT_ETIMEDOUT; break;
    default: break;
    }
    size_t bytes = msg->size - 2;
    if (bytes > STRAIT_BYE_REASON_MAX - 1) bytes = STRAIT_BYE_REASON_MAX - 1;
    memcpy(out->reason, msg->body + 2, bytes);
    strait_text_tame(out->reason);
}
