/* frame.c - writing and checking the header of docs/wire.md. */
#include "net/core/frame.h"

#include "base/bytes.h"

#include <xxhash.h>

/* Offsets of the fields, in the order of docs/wire.md. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 2,
    AT_TYPE = 3,
    AT_PRIORITY = 4,
    AT_FLAGS = 5,
    AT_BOUNDARY = 6,
    AT_RUN = 8,
    AT_STEP = 12,
    AT_MICROBATCH = 16,
    AT_BASIS = 18,
    AT_LENGTH = 20,
    AT_SEQUENCE = 24,
    AT_CHECKSUM = 28,
    MAGIC = 0x7453 // "St"
};

/* The hash of the header seeds that of the body, so that one number protects both. */
static uint32_t checksum(const unsigned char *header, const void *body, size_t bytes) {
    return (uint32_t)XXH3_64bits_withSeed(body, bytes, XXH3_64bits(header, AT_CHECKSUM));
}

void strait_frame_write(const struct strait_msg *msg, uint32_t run,
                        unsigned char out[STRAIT_FRAME_HEADER]) {
    strait_put_u16(out + AT_MAGIC, MAGIC);
    out[AT_VERSION] = STRAIT_FRAME_VERSION;
    out[AT_TYPE] = msg->type;
    out[AT_PRIORITY] = msg->priority;
    out[AT_FLAGS] = msg->flags;
    strait_put_u16(out + AT_BOUNDARY, msg->boundary);
    strait_put_u32(out + AT_RUN, run);
    strait_put_u32(out + AT_STEP, msg->step);
    strait_put_u16(out + AT_MICROBATCH, msg->microbatch);
    strait_put_u16(out + AT_BASIS, msg->basis);
    strait_put_u32(out + AT_LENGTH, (uint32_t)msg->size);
    strait_put_u32(out + AT_SEQUENCE, msg->sequence);
    strait_put_u32(out + AT_CHECKSUM, checksum(out, msg->body, msg->size));
}

/* Checks a complete header, before anything is allocated for its body. */
static strait_err check_header(const struct strait_frame_reader *reader) {
    const unsigned char *h = reader->header;
    if (strait_get_u16(h + AT_MAGIC) != MAGIC)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "frame starts with %02x%02x, expected 5374: the other end is not strait",
                           h[0], h[1]);
    /* A BYE keeps its layout in all versions: the peer may be telling us that ours is wrong. */
    const int is_bye = h[AT_TYPE] == STRAIT_MSG_BYE;
    if (h[AT_VERSION] != STRAIT_FRAME_VERSION && !is_bye)
        return strait_frame_refuse_version(h[AT_VERSION]);
    if (h[AT_PRIORITY] >= STRAIT_N_PRIORITIES)
        return STRAIT_FAIL(STRAIT_EPROTO, "frame of priority %d, expected 0 to %d", h[AT_PRIORITY],
                           STRAIT_N_PRIORITIES - 1);
    /* A HELLO of another run is let through: strait_hello_match names both runs in full. */
    const uint32_t run = strait_get_u32(h + AT_RUN);
    if (run != reader->run && !is_bye && h[AT_TYPE] != STRAIT_MSG_HELLO)
        return STRAIT_FAIL(STRAIT_EPROTO, "frame of run %08x, expected run %08x", run, reader->run);
    /* Checked before the body is allocated, so that a header alone cannot exhaust memory. */
    const uint32_t length = strait_get_u32(h + AT_LENGTH);
    if (length > reader->limit)
        return STRAIT_FAIL(STRAIT_EPROTO, "frame of %u bytes, expected at most %zu", length,
                           reader->limit);
    return STRAIT_OK;
}

/* Valid also for a frame that was refused: the version is what the refusal is about. */
int strait_frame_version(const struct strait_frame_reader *reader) {
    return reader->header[AT_VERSION];
}

strait_err strait_frame_refuse_version(int theirs) {
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "the peer uses protocol version %d, this program version %d: install the "
                       "same release of strait on both sides",
                       theirs, STRAIT_FRAME_VERSION);
}

/* Opens the message that a complete header describes. */
static strait_err begin_body(struct strait_frame_reader *reader) {
    STRAIT_TRY(check_header(reader));
    const unsigned char *h = reader->header;
    STRAIT_TRY(
        strait_msg_open(reader->pool, h[AT_TYPE], strait_get_u32(h + AT_LENGTH), &reader->msg));
    struct strait_msg *msg = reader->msg;
    msg->priority = h[AT_PRIORITY];
    msg->flags = h[AT_FLAGS];
    msg->boundary = strait_get_u16(h + AT_BOUNDARY);
    msg->step = strait_get_u32(h + AT_STEP);
    msg->microbatch = strait_get_u16(h + AT_MICROBATCH);
    msg->basis = strait_get_u16(h + AT_BASIS);
    msg->sequence = strait_get_u32(h + AT_SEQUENCE);
    reader->filled = 0;
    return STRAIT_OK;
}

/* Bytes are read straight into the message, so that a large body is not copied twice. */
unsigned char *strait_frame_space(struct strait_frame_reader *reader, size_t *out_capacity) {
    if (reader->msg == NULL) {
        *out_capacity = STRAIT_FRAME_HEADER - reader->filled;
        return reader->header + reader->filled;
    }
    *out_capacity = reader->msg->size - reader->filled;
    return reader->msg->body + reader->filled;
}

strait_err strait_frame_filled(struct strait_frame_reader *reader, size_t bytes,
                               struct strait_msg **out) {
    *out = NULL;
    reader->filled += bytes;
    if (reader->msg == NULL) {
        if (reader->filled < STRAIT_FRAME_HEADER) return STRAIT_OK;
        STRAIT_TRY(begin_body(reader));
    }
    struct strait_msg *msg = reader->msg;
    if (reader->filled < msg->size) return STRAIT_OK; // a body of 0 bytes is complete at once
    const uint32_t expected = strait_get_u32(reader->header + AT_CHECKSUM);
    const uint32_t found = checksum(reader->header, msg->body, msg->size);
    if (found != expected)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "frame with checksum %08x, expected %08x: it was damaged on the way or "
                           "by the sender",
                           found, expected);
    reader->msg = NULL;
    reader->filled = 0;
    *out = msg;
    return STRAIT_OK;
}

void strait_frame_reader_fini(struct strait_frame_reader *reader) {
    strait_msg_close(&reader->msg);
    reader->filled = 0;
}
