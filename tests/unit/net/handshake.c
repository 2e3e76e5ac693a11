/* HELLO, BYE, keys and fingerprints. */
#include "net/core/handshake.h"

#include "net/core/identity.h"
#include "pool_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void hello_has_the_documented_bytes(void **state) {
    (void)state;
    const strait_hello hello = {.run = {1, 2, 3, 4, [15] = 16},
                                .link = 0x1122334455667788,
                                .stream = 2,
                                .n_streams = 4,
                                .name = "stage-1"};
    static const unsigned char golden[] = {
        1,    2,    3,    4,    0,    0,    0,    0, 0, 0, 0,   0,   0,   0,   0,   16,  0x88,
        0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 2, 4, 7, 's', 't', 'a', 'g', 'e', '-', '1'};
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_hello_pack(pool, &hello, &msg));
    CHECK(msg->type == STRAIT_MSG_HELLO && msg->size == sizeof golden);
    assert_memory_equal(msg->body, golden, sizeof golden);
    strait_hello back;
    CHECK_OK(strait_hello_unpack(msg, &back));
    CHECK(back.link == hello.link && back.stream == 2 && back.n_streams == 4);
    CHECK(strcmp(back.name, "stage-1") == 0 && memcmp(back.run, hello.run, 16) == 0);
    CHECK(strait_hello_run(&back) == 0x04030201);
    strait_msg_close(&msg);
}

static void expect_refusal(const strait_hello *hello, long cut, const char *reason) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_hello_pack(pool, hello, &msg));
    msg->size = (size_t)((long)msg->size - cut);
    strait_hello back;
    CHECK_FAILS(strait_hello_unpack(msg, &back), STRAIT_EPROTO, reason);
    strait_msg_close(&msg);
}

static void refuses_malformed_hello(void **state) {
    (void)state;
    const strait_hello good = {.n_streams = 1, .name = "x"};
    expect_refusal(&good, 1, "HELLO of 27 bytes does not match its fields");
    expect_refusal(&good, 28, "HELLO of 0 bytes");
    expect_refusal(&good, -1, "HELLO of 29 bytes");
    expect_refusal(&(strait_hello){.n_streams = 0}, 0, "stream 0 of 0");
    expect_refusal(&(strait_hello){.n_streams = 17}, 0, "stream 0 of 17, expected at most 16");
    expect_refusal(&(strait_hello){.n_streams = 2, .stream = 2}, 0, "stream 2 of 2");
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(pool, 20, 40, &msg));
    strait_hello back;
    CHECK_FAILS(strait_hello_unpack(msg, &back), STRAIT_EPROTO, "type 20, expected a HELLO");
    strait_msg_close(&msg);
}

static void refuses_hello_of_another_run(void **state) {
    (void)state;
    const strait_hello a = {.run = {1}, .name = "alice"}, b = {.run = {2}, .name = "bob"};
    CHECK_OK(strait_hello_match(&a, &a));
    CHECK_FAILS(strait_hello_match(&a, &b), STRAIT_EAUTH,
                "'bob' belongs to run 02000000000000000000000000000000, 'alice' to run 01");
}

static void reads_any_bye_safely(void **state) {
    (void)state;
    const strait_bye bye = {.why = STRAIT_EAUTH, .reason = "no\nbell\a"};
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_bye_pack(pool, &bye, &msg));
    CHECK(msg->size == 10 && msg->body[0] == 22 && msg->body[1] == 0);
    strait_bye back;
    strait_bye_unpack(msg, &back);
    CHECK(back.why == STRAIT_EAUTH && strcmp(back.reason, "no?bell?") == 0);
    msg->body[0] = 200; // an error code of a later version
    strait_bye_unpack(msg, &back);
    CHECK(back.why == STRAIT_ECLOSED);
    msg->size = 1;
    strait_bye_unpack(msg, &back);
    CHECK(back.why == STRAIT_ECLOSED && back.reason[0] == 0);
    strait_msg_close(&msg);
    CHECK_OK(strait_msg_open(pool, STRAIT_MSG_BYE, 1000, &msg));
    memset(msg->body, 'x', 1000);
    strait_bye_unpack(msg, &back);
    CHECK(strlen(back.reason) == STRAIT_BYE_REASON_MAX - 1);
    strait_msg_close(&msg);
}

static void fingerprints_round_trip_as_text(void **state) {
    (void)state;
    struct strait_identity *a = NULL, *b = NULL;
    CHECK_OK(strait_identity_generate(&a));
    CHECK_OK(strait_identity_generate(&b));
    const strait_fingerprint *f = strait_identity_fingerprint(a);
    CHECK(!strait_fingerprint_equal(f, strait_identity_fingerprint(b)));
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(f, text);
    strait_fingerprint back;
    CHECK(strlen(text) == 64);
    CHECK_OK(strait_fingerprint_parse(text, &back));
    CHECK(strait_fingerprint_equal(f, &back));
    CHECK_FAILS(strait_fingerprint_parse("12ab", &back), STRAIT_ECONFIG,
                "'12ab': expected 64 hexadecimal digits");
    text[63] = 'g';
    CHECK_FAILS(strait_fingerprint_parse(text, &back), STRAIT_ECONFIG, "64 hexadecimal");
    strait_identity_close(&a);
    strait_identity_close(&b);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    (void)fputs(text, file);
    CHECK(fclose(file) == 0);
}

static void saves_and_loads_private_keys(void **state) {
    (void)state;
    char path[] = "/tmp/strait-key-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    struct strait_identity *a = NULL, *b = NULL;
    CHECK_OK(strait_identity_generate(&a));
    CHECK_FAILS(strait_identity_save(a, path), STRAIT_EIO, "file already exists");
    CHECK(unlink(path) == 0);
    CHECK_OK(strait_identity_save(a, path));
    struct stat status;
    CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
    CHECK_OK(strait_identity_load(path, &b));
    CHECK(strait_fingerprint_equal(strait_identity_fingerprint(a), strait_identity_fingerprint(b)));
    strait_identity_close(&b);
    CHECK(chmod(path, 0640) == 0);
    CHECK_FAILS(strait_identity_load(path, &b), STRAIT_ECONFIG, "run chmod 600");
    write_text(path, "not a key");
    CHECK(chmod(path, 0600) == 0);
    CHECK_FAILS(strait_identity_load(path, &b), STRAIT_ECONFIG, "expected an Ed25519 private key");
    CHECK(unlink(path) == 0 && b == NULL);
    CHECK_FAILS(strait_identity_load(path, &b), STRAIT_EIO, "no such file");
    strait_identity_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_has_the_documented_bytes),
        cmocka_unit_test(refuses_malformed_hello),
        cmocka_unit_test(refuses_hello_of_another_run),
        cmocka_unit_test(reads_any_bye_safely),
        cmocka_unit_test(fingerprints_round_trip_as_text),
        cmocka_unit_test(saves_and_loads_private_keys),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
