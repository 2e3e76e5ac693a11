/* Mails between ranks: every kind survives the way, and a malformed head is refused. */
#include "base/bytes.h"
#include "net/mpi/wire.h"
#include "pool_fixture.h"

static const unsigned char run[STRAIT_RUN_BYTES] = {1, 2, 3, 4};

/* Sends a mail through its bytes. */
static void carry(struct strait_mail *mail, struct strait_mail *out) {
    unsigned char head[STRAIT_MPI_HEAD];
    size_t bytes = 0;
    struct strait_msg *body = NULL, *got = NULL;
    int has_frame = 0;
    CHECK_OK(strait_mpi_pack(pool, run, mail, head, &bytes, &body));
    CHECK(mail->msg == NULL);
    CHECK_OK(strait_mpi_unpack(head, bytes, out, &has_frame));
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
    for (int kind = 0; kind < STRAIT_N_MAIL_KINDS; kind++) {
        struct strait_mail mail = {
            .kind = (strait_mail_kind)kind,
            .to = 7,
            .from = 1ull << 40,
            .reply_to = 3ull << 32 | 5,
            .number = 99,
            .key = {{9}},
            .hello = {.run = {1, 2, 3, 4}, .n_streams = 1, .name = "stage 1"},
            .bye = {STRAIT_EPROTO, "step 7 came after 9"}};
        struct strait_mail got;
        if (mail.kind == STRAIT_MAIL_MESSAGE) {
            CHECK_OK(strait_msg_open(pool, 20, 33, &mail.msg));
            memset(mail.msg->body, 5, 33);
            mail.msg->step = 12;
        }
        carry(&mail, &got);
        CHECK(got.kind == mail.kind && got.to == 7 && got.from == 1ull << 40);
        CHECK(got.reply_to == (3ull << 32 | 5) && got.number == 99 && got.key.bytes[0] == 9);
        if (kind == STRAIT_MAIL_CONNECT || kind == STRAIT_MAIL_ACCEPT)
            CHECK(strcmp(got.hello.name, "stage 1") == 0 && got.hello.run[3] == 4);
        if (kind == STRAIT_MAIL_BYE)
            CHECK(got.bye.why == STRAIT_EPROTO && strcmp(got.bye.reason, mail.bye.reason) == 0);
        if (kind == STRAIT_MAIL_MESSAGE)
            CHECK(got.msg->size == 33 && got.msg->body[32] == 5 && got.msg->step == 12);
        strait_msg_close(&got.msg);
    }
}

static void refuses_malformed_heads(void **state) {
    (void)state;
    unsigned char head[STRAIT_MPI_HEAD] = {STRAIT_MAIL_PING};
    struct strait_mail mail;
    int has_frame = 0;
    CHECK_OK(strait_mpi_unpack(head, STRAIT_MPI_PREFIX, &mail, &has_frame));
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_PREFIX - 1, &mail, &has_frame), STRAIT_EPROTO,
                "malformed head of 71 bytes");
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_HEAD, &mail, &has_frame), STRAIT_EPROTO,
                "head of 104 bytes");
    head[0] = STRAIT_MAIL_MESSAGE; // without its frame
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_PREFIX, &mail, &has_frame), STRAIT_EPROTO,
                "head of 72 bytes");
    head[0] = STRAIT_N_MAIL_KINDS;
    CHECK_FAILS(strait_mpi_unpack(head, STRAIT_MPI_HEAD, &mail, &has_frame), STRAIT_EPROTO,
                "malformed head");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(carries_every_kind),
                                       cmocka_unit_test(refuses_malformed_heads)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
