/* Frames: the bytes of docs/wire.md, and what a hostile or broken peer may send. */
#include "net/core/frame.h"

#include "base/alloc.h"
#include "pool_fixture.h"

#include <stdlib.h>

/* The example of docs/wire.md. */
static const unsigned char golden[] = {0x53, 0x74, 0x0d, 0x14, 0x01, 0x80, 0x03, 0x00, 0x0d, 0x0c,
                                       0x0b, 0x0a, 0x07, 0x00, 0x01, 0x00, 0x05, 0x00, 0x02, 0x00,
                                       0x06, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0xa2, 0x05,
                                       0xfc, 0x0d, 's',  't',  'r',  'a',  'i',  't'};

static struct strait_msg *golden_message(void) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(pool, 20, 6, &msg));
    msg->priority = STRAIT_PRIORITY_GRADIENT;
    msg->flags = 0x80;
    msg->boundary = 3;
    msg->step = 65543;
    msg->microbatch = 5;
    msg->basis = 2;
    msg->sequence = 9;
    memcpy(msg->body, "strait", 6);
    return msg;
}

static void writes_the_documented_bytes(void **state) {
    (void)state;
    struct strait_msg *msg = golden_message();
    unsigned char header[STRAIT_FRAME_HEADER];
    strait_frame_write(msg, 0x0a0b0c0d, header);
    assert_memory_equal(header, golden, sizeof header);
    strait_msg_close(&msg);
}

static struct strait_frame_reader new_reader(void) {
    return (struct strait_frame_reader){.pool = pool, .run = 0x0a0b0c0d, .limit = 4096};
}

/* Feeds bytes in pieces of `piece`; returns the last message or the first error. */
static strait_err feed(struct strait_frame_reader *reader, const unsigned char *bytes, size_t n,
                       size_t piece, struct strait_msg **out) {
    *out = NULL;
    while (n > 0) {
        size_t capacity = 0;
        unsigned char *space = strait_frame_space(reader, &capacity);
        CHECK(capacity > 0);
        size_t take = piece < capacity ? piece : capacity;
        if (take > n) take = n;
        memcpy(space, bytes, take);
        bytes += take;
        n -= take;
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_frame_filled(reader, take, &msg));
        if (msg == NULL) continue;
        strait_msg_close(out);
        *out = msg;
    }
    return STRAIT_OK;
}

static void reads_frames_in_pieces_of_any_size(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 50; piece++) {
        struct strait_frame_reader reader = new_reader();
        struct strait_msg *msg = NULL;
        CHECK_OK(feed(&reader, golden, sizeof golden, piece, &msg));
        CHECK(msg != NULL && msg->type == 20 && msg->priority == STRAIT_PRIORITY_GRADIENT);
        CHECK(msg->flags == 0x80 && msg->boundary == 3 && msg->step == 65543);
        CHECK(msg->microbatch == 5 && msg->basis == 2 && msg->sequence == 9 && msg->size == 6);
        assert_memory_equal(msg->body, "strait", 6);
        strait_msg_close(&msg);
        strait_frame_reader_fini(&reader);
    }
}

/* One flipped bit anywhere is an error, or makes the reader wait for a longer body; no message. */
static void detects_every_flipped_bit(void **state) {
    (void)state;
    for (size_t bit = 0; bit < sizeof golden * 8; bit++) {
        unsigned char bytes[sizeof golden];
        memcpy(bytes, golden, sizeof bytes);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        struct strait_frame_reader reader = new_reader();
        struct strait_msg *msg = NULL;
        const strait_err err = feed(&reader, bytes, sizeof bytes, 64, &msg);
        CHECK(err == STRAIT_EPROTO || reader.filled > 0); // or it waits for a longer body
        CHECK(msg == NULL);
        strait_frame_reader_fini(&reader);
    }
}

static void expect_refusal(size_t at, unsigned char value, const char *reason) {
    unsigned char bytes[sizeof golden];
    memcpy(bytes, golden, sizeof bytes);
    bytes[at] = value;
    struct strait_frame_reader reader = new_reader();
    struct strait_msg *msg = NULL;
    CHECK_FAILS(feed(&reader, bytes, STRAIT_FRAME_HEADER, 64, &msg), STRAIT_EPROTO, reason);
    strait_frame_reader_fini(&reader);
}

static void refuses_invalid_headers(void **state) {
    (void)state;
    expect_refusal(0, 'G', "frame starts with 4774, expected 5374");
    expect_refusal(
        2, 0,
        "the peer uses protocol version 0, this program version 13: install the same release");
    expect_refusal(2, 1, "the peer uses protocol version 1, this program version 13");
    expect_refusal(4, 3, "priority 3, expected 0 to 2");
    expect_refusal(8, 0x0e, "frame of run 0a0b0c0e, expected run 0a0b0c0d");
    const int64_t before = strait_alloc_count();
    expect_refusal(21, 0x10, "frame of 4102 bytes, expected at most 4096");
    expect_refusal(23, 0xff, "expected at most 4096");
    CHECK(strait_alloc_count() == before); // refused before its body is allocated
}

static void accepts_bye_of_another_version(void **state) {
    (void)state;
    struct strait_msg *bye = NULL;
    CHECK_OK(strait_msg_open(pool, STRAIT_MSG_BYE, 3, &bye));
    memcpy(bye->body, "\x15\0x", 3);
    unsigned char header[STRAIT_FRAME_HEADER];
    strait_frame_write(bye, 1, header); // of another run too
    strait_msg_close(&bye);
    struct strait_frame_reader reader = new_reader();
    struct strait_msg *msg = NULL;
    CHECK_OK(feed(&reader, header, sizeof header, 32, &msg));
    CHECK_OK(feed(&reader, (const unsigned char *)"\x15\0x", 3, 3, &msg));
    CHECK(msg != NULL && msg->type == STRAIT_MSG_BYE && msg->size == 3);
    strait_msg_close(&msg);
}

static void pool_reuses_messages_and_outlives_its_owner(void **state) {
    (void)state;
    struct strait_msg_pool *other = NULL;
    struct strait_msg *a = NULL, *b = NULL;
    CHECK_OK(strait_msg_pool_open(&other));
    CHECK_OK(strait_msg_open(other, 20, 1000, &a));
    const struct strait_msg *first = a;
    CHECK(a->capacity == 1024 && (uintptr_t)a->body % 64 == 0);
    strait_msg_close(&a);
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_msg_open(other, 21, 513, &b));
    CHECK(b == first && b->type == 21 && b->size == 513 && b->step == 0);
    CHECK(strait_alloc_count() == before);
    strait_msg_pool_close(&other);
    memset(b->body, 1, 513); // valid after its pool was closed
    strait_msg_close(&b);    // frees the pool too, which the leak checker verifies
    strait_alloc_fail_at(1);
    CHECK_FAILS(strait_msg_open(pool, 20, 1 << 20, &a), STRAIT_ENOMEM, "message");
    strait_alloc_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_documented_bytes),
        cmocka_unit_test(reads_frames_in_pieces_of_any_size),
        cmocka_unit_test(detects_every_flipped_bit),
        cmocka_unit_test(refuses_invalid_headers),
        cmocka_unit_test(accepts_bye_of_another_version),
        cmocka_unit_test(pool_reuses_messages_and_outlives_its_owner),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
