/* Envelopes between ranks: every kind survives the way, and a malformed head is refused. */
#include "base/bytes.h"
#include "net/mpi/wire.h"
#include "pool_fixture.h"

static const unsigned char run[STRAIT_RUN_BYTES] = {1, 2, 3, 4};

/* Sends an envelope through its bytes. */
static void carry(struct strait_envelope *envelope, struct strait_envelope *out) {
    unsigned char head[STRAIT_MPI_HEAD];
    size_t bytes = 0;
    struct strait_msg *body = NULL, *got = NULL;
    int has_frame = 0;
    CHECK_OK(strait_mpi_pack(pool, run, envelope, head, &bytes, &body));
    CHECK(envelope->msg == NULL);
    CHECK_OK(strait_mpi_unpack(head, bytes, 3, out, &has_frame));
    CHECK(has_frame == (body != NULL));
    if (!has_frame) return;
    struct strait_frame_reader reader = {
        .pool = pool, .run = strait_get_u32(run), .limit = 4096, .filled = STRAIT_FRAME_HEADER};
    memcpy(reader.header, head + STRAIT_MPI_PREFIX, STRAIT_FRAME_HEADER);
    CHECK_OK(strait_frame_filled(&reader, 0, &got));
    if (got == NULL) {
        size_t capacity = 0;
        unsigned char *space = strait_frame_space(&reader, &capacity);
        CHECK(capacity == body->size);
        memcpy(space, body->body, capacity);
        CHECK_OK(strait_frame_filled(&reader, capacity, &got));
    }
    CHECK_OK(strait_mpi_complete(out, &got));
    CHECK(got == NULL);
    strait_msg_close(&body);
}

static void carries_every_kind(void **state) {
    (void)state;
    for (int kind = 0; kind < STRAIT_N_ENVELOPE_KINDS; kind++) {
        struct strait_envelope envelope = {
            .kind = (strait_envelope_kind)kind,
            .to = 7,
            .from = 1ull << 40,
            .reply_to = 3ull << 32 | 5,
            .number = 99,
            .key = {{9}},
            .hello = {.run = {1, 2, 3, 4}, .n_streams = 1, .name = "stage 1"},
            .bye = {STRAIT_EPROTO, "step 7 came after 9"}};
        struct strait_envelope got;
        if (envelope.kind == STRAIT_ENVELOPE_MESSAGE) {
            CHECK_OK(strait_msg_open(pool, 20, 33, &envelope.msg));
            memset(envelope.msg->body, 5, 33);
            envelope.msg->step = 12;
        }
        carry(&envelope, &got);
        CHECK(got.kind == envelope.kind && got.to == 7 && got.from == 1ull << 40);
        CHECK(got.reply_to == (3ull << 32 | 5) && got.number == 99 && got.key.bytes[0] == 9);
        if (kind == STRAIT_ENVELOPE_CONNECT || kind == STRAIT_ENVELOPE_ACCEPT)
            CHECK(strcmp(got.hello.name, "stage 1") == 0 && got.hello.run[3] == 4);
        if (kind == STRAIT_ENVELOPE_BYE)
            CHECK(got.bye.why == STRAIT_EPROTO && strcmp(got.bye.reason, envelope.bye.reason) == 0);
        if (kind == STRAIT_ENVELOPE_MESSAGE)
            CHECK(got.msg->size == 33 && got.msg->body[32] == 5 && got.msg->step == 12);
        strait_msg_close(&got.msg);
    }
}

static void refuses_malformed_heads(void **state) {
    (void)state;
    unsigned char head[STRAIT_MPI_HEAD] = {STRAIT_ENVELOPE_PING};
    struct strait_envelope envelope;
    int has_frame = 0;
    CHECK_OK(strait_mpi_unpack(head, STRAIT_MPI_PREFIX, 3, &envelope, &has_frame));
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_PREFIX - 1, 3, &envelope, &has_frame),
                STRAIT_EPROTO, "malformed head of 71 bytes");
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_HEAD, 3, &envelope, &has_frame), STRAIT_EPROTO,
                "head of 104 bytes");
    head[0] = STRAIT_ENVELOPE_MESSAGE; // without its frame
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_PREFIX, 3, &envelope, &has_frame), STRAIT_EPROTO,
                "head of 72 bytes");
    head[0] = STRAIT_N_ENVELOPE_KINDS;
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_HEAD, 3, &envelope, &has_frame), STRAIT_EPROTO,
                "malformed head");
}

/* Answers go to the rank that asks, on a port that has tags. */
static void refuses_answers_to_elsewhere(void **state) {
    (void)state;
    const struct {
        uint64_t reply_to;
        int is_good;
    } cases[] = {{3ull << 32 | 5, 1},
                 {2ull << 32 | 5, 0},          // another rank
                 {70000ull << 32 | 5, 0},      // no rank at all
                 {3ull << 32, 0},              // no port
                 {3ull << 32 | 0x7fffffff, 0}, // a port without tags
                 {UINT64_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strait_envelope envelope = {.kind = STRAIT_ENVELOPE_CONNECT,
                                           .reply_to = cases[i].reply_to,
                                           .hello = {.n_streams = 1, .name = "stage 1"}};
        struct strait_envelope got;
        unsigned char head[STRAIT_MPI_HEAD];
        size_t bytes = 0;
        struct strait_msg *body = NULL;
        int has_frame = 0;
        CHECK_OK(strait_mpi_pack(pool, run, &envelope, head, &bytes, &body));
        if (cases[i].is_good)
            CHECK_OK(strait_mpi_unpack(head, bytes, 3, &got, &has_frame));
        else
            CHECK_FAILS(strait_mpi_unpack(head, bytes, 3, &got, &has_frame), STRAIT_EPROTO,
                        "rank 3 wants its answers at rank");
        strait_msg_close(&body);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(carries_every_kind),
                                       cmocka_unit_test(refuses_malformed_heads),
                                       cmocka_unit_test(refuses_answers_to_elsewhere)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
