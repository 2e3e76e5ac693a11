/* Secrets of relays: files, and the tokens that are made with them. */
#include "net/relay/relay_secret.h"

#include "check.h"
#include "net/core/identity.h"
#include "scratch.h"

#include <string.h>
#include <sys/stat.h>

static void accepts_only_tokens_of_the_secret(void **state) {
    (void)state;
    strait_relay_secret secret, other;
    strait_relay_token token;
    CHECK_OK(strait_identity_random(secret.bytes, sizeof secret.bytes));
    CHECK_OK(strait_identity_random(other.bytes, sizeof other.bytes));
    CHECK_OK(strait_identity_random(token.bytes, sizeof token.bytes));
    CHECK_FAILS(strait_relay_secret_check(&secret, &token), STRAIT_EAUTH, "not made with");
    CHECK_OK(strait_relay_secret_sign(&secret, &token));
    CHECK_OK(strait_relay_secret_check(&secret, &token));
    CHECK_FAILS(strait_relay_secret_check(&other, &token), STRAIT_EAUTH, "not made with");
    for (int bit = 0; bit < 8 * STRAIT_RELAY_TOKEN; bit++) {
        token.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_FAILS(strait_relay_secret_check(&secret, &token), STRAIT_EAUTH, "not made with");
        token.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

/* A relay and a host may be of different releases. The second half was computed by Python's hmac,
 * as section 6 of docs/wire.md says. */
static void signs_as_documented(void **state) {
    (void)state;
    static const unsigned char half[16] = {0x82, 0xb1, 0x66, 0xa6, 0xea, 0x16, 0x4c, 0xe7,
                                           0xbd, 0xe4, 0xcb, 0x0b, 0xbe, 0xc5, 0xb7, 0xe5};
    strait_relay_secret secret;
    strait_relay_token token = {{0}};
    for (int i = 0; i < 32; i++)
        secret.bytes[i] = (unsigned char)i;
    for (int i = 0; i < 16; i++)
        token.bytes[i] = (unsigned char)(100 + i);
    CHECK_OK(strait_relay_secret_sign(&secret, &token));
    assert_memory_equal(token.bytes + 16, half, sizeof half);
}

static void creates_a_file_once(void **state) {
    (void)state;
    scratch folder = scratch_open();
    char path[STRAIT_PATH_MAX];
    strait_relay_secret first, again;
    struct stat info;
    CHECK_OK(strait_file_path(path, "%s/relay.secret", folder.path));
    CHECK_OK(strait_relay_secret_create(path));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    CHECK_OK(strait_relay_secret_load(path, &first));
    CHECK_FAILS(strait_relay_secret_create(path), STRAIT_EEXISTS, "already exists");
    CHECK_OK(strait_relay_secret_load(path, &again));
    assert_memory_equal(first.bytes, again.bytes, sizeof first.bytes);
    CHECK_OK(strait_file_path(path, "%s/missing/relay.secret", folder.path));
    CHECK_FAILS(strait_relay_secret_create(path), STRAIT_EIO, "missing/relay.secret");
    CHECK_FAILS(strait_relay_secret_load(path, &first), STRAIT_EIO, "missing/relay.secret");
    scratch_close(&folder);
}

static void rejects_other_files(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "\n",
        "secret\n",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefa",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg"};
    static const char good[] =
        "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\r\n";
    scratch folder = scratch_open();
    char path[STRAIT_PATH_MAX];
    strait_relay_secret secret;
    CHECK_OK(strait_file_path(path, "%s/relay.secret", folder.path));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_OK(strait_file_write(path, texts[i], strlen(texts[i])));
        CHECK_FAILS(strait_relay_secret_load(path, &secret), STRAIT_ECONFIG,
                    "expected the secret of a relay, 64 hexadecimal digits");
    }
    CHECK_OK(strait_file_write(path, "0\0", 2));
    CHECK_FAILS(strait_relay_secret_load(path, &secret), STRAIT_ECONFIG, "expected the secret");
    static const char large[1000];
    CHECK_OK(strait_file_write(path, large, sizeof large));
    CHECK_FAILS(strait_relay_secret_load(path, &secret), STRAIT_ECONFIG, "expected the secret");
    CHECK_OK(strait_file_write(path, good, sizeof good - 1));
    assert_int_equal(chmod(path, 0640), 0); // a service may read it by its group
    CHECK_OK(strait_relay_secret_load(path, &secret));
    CHECK(secret.bytes[0] == 0x01 && secret.bytes[31] == 0xef);
    assert_int_equal(chmod(path, 0644), 0);
    CHECK_FAILS(strait_relay_secret_load(path, &secret), STRAIT_ECONFIG, "chmod 600");
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_only_tokens_of_the_secret),
        cmocka_unit_test(signs_as_documented),
        cmocka_unit_test(creates_a_file_once),
        cmocka_unit_test(rejects_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
