#include "base/digest/sha256.h"

#include "check.h"

#include <string.h>

static const unsigned char of_abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                       0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                       0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                       0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad}; // FIPS 180

static void hashes_at_once_and_in_parts(void **state) {
    (void)state;
    strait_digest whole;
    strait_digest parts;
    struct strait_sha256 *hash = NULL;
    CHECK_OK(strait_sha256("abc", 3, &whole));
    assert_memory_equal(whole.bytes, of_abc, sizeof of_abc);
    CHECK_OK(strait_sha256_open(&hash));
    CHECK_OK(strait_sha256_add(hash, "a", 1));
    CHECK_OK(strait_sha256_add(hash, "", 0));
    CHECK_OK(strait_sha256_add(hash, "bc", 2));
    CHECK_OK(strait_sha256_finish(&hash, &parts));
    assert_null(hash);
    assert_true(strait_digest_equal(&whole, &parts));
    parts.bytes[31] ^= 1;
    assert_false(strait_digest_equal(&whole, &parts));
}

static void gives_up_without_a_leak(void **state) {
    (void)state;
    struct strait_sha256 *hash = NULL;
    CHECK_OK(strait_sha256_open(&hash));
    CHECK_OK(strait_sha256_add(hash, "abc", 3));
    strait_sha256_close(&hash);
    assert_null(hash);
    strait_sha256_close(&hash);
}

static void signs_with_a_key(void **state) {
    (void)state;
    static const unsigned char expected[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                             0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                             0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                             0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    strait_digest digest; // RFC 4231, test case 2
    CHECK_OK(strait_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, &digest));
    assert_memory_equal(digest.bytes, expected, sizeof expected);
}

static void tells_messages_and_their_order_apart(void **state) {
    (void)state;
    static const char *const messages[][2] = {{"ab", "c"}, {"a", "bc"}, {"c", "ab"}};
    strait_digest digests[4] = {{{0}}};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            CHECK_OK(
                strait_digest_extend(&digests[i], messages[i % 3][k], strlen(messages[i % 3][k])));
    assert_true(strait_digest_equal(&digests[0], &digests[3]));
    assert_false(strait_digest_equal(&digests[0], &digests[1]));
    assert_false(strait_digest_equal(&digests[0], &digests[2]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_at_once_and_in_parts), cmocka_unit_test(gives_up_without_a_leak),
        cmocka_unit_test(signs_with_a_key), cmocka_unit_test(tells_messages_and_their_order_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
