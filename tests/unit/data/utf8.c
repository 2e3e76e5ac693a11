#include "base/text/utf8.h"

#include "base/alloc.h"
#include "check.h"
#include "data/tokenizer/alphabet.h"
#include "data/tokenizer/normalize.h"

#include <stdlib.h>
#include <utf8proc.h>

static size_t length_of(const char *text, size_t n) {
    return strait_utf8_length((const unsigned char *)text, n);
}

static void test_length_rejects_malformed_characters(void **state) {
    (void)state;
    assert_int_equal(length_of("a", 1), 1);
    assert_int_equal(length_of("\xc3\xa9", 2), 2);
    assert_int_equal(length_of("\xe2\x96\x81", 3), 3);
    assert_int_equal(length_of("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(length_of("\xf4\x8f\xbf\xbf", 4), 4);
    assert_int_equal(length_of("", 0), 0);
    static const char *const broken[] = {"\x80",         "\xc0\x80",
                                         "\xc1\xbf",     "\xe0\x9f\xbf",
                                         "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                         "\xf5\x80\x80", "\xf4\x90\x80\x80",
                                         "\xe2\x96",     "\xc3z",
                                         "\xff"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_int_equal(length_of(broken[i], strlen(broken[i])), 0);
}

static void test_every_character_round_trips(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        unsigned char text[4];
        const size_t n = strait_utf8_encode(c, text);
        if (c >= 0xd800 && c < 0xe000) {
            assert_int_equal(strait_utf8_length(text, n), 0);
            continue;
        }
        assert_int_equal(strait_utf8_length(text, n), n);
        assert_int_equal(strait_utf8_decode(text), c);
        for (size_t k = 1; k < n; k++)
            assert_int_equal(strait_utf8_incomplete(text, k), k);
        assert_int_equal(strait_utf8_incomplete(text, n), 0);
    }
}

static void test_valid_stops_at_first_invalid_byte(void **state) {
    (void)state;
    unsigned char text[64];
    for (size_t at = 0; at < 40; at++) {
        memset(text, 'x', sizeof text);
        text[at] = 0xff;
        assert_int_equal(strait_utf8_valid(text, sizeof text), at);
    }
    assert_int_equal(strait_utf8_valid((const unsigned char *)"\xe2\x96\x81 abcdefgh\xe2\x96", 14),
                     12);
    assert_int_equal(strait_utf8_incomplete((const unsigned char *)"ab\xe0\x9f", 4), 0);
    assert_int_equal(strait_utf8_incomplete((const unsigned char *)"ab\xe0", 3), 1);
    assert_int_equal(strait_utf8_incomplete((const unsigned char *)"\x80\x80\x80", 3), 0);
}

static void test_byte_alphabet_round_trips(void **state) {
    (void)state;
    assert_int_equal(strait_alphabet_of_byte('A'), 'A');
    assert_int_equal(strait_alphabet_of_byte(' '), 0x120);
    assert_int_equal(strait_alphabet_of_byte('\n'), 0x10a);
    assert_int_equal(strait_alphabet_of_byte(0x7f), 0x121);
    assert_int_equal(strait_alphabet_of_byte(0xa0), 0x142);
    assert_int_equal(strait_alphabet_of_byte(0xad), 0x143);
    unsigned char all[256], back[512];
    char text[512];
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    const size_t n = strait_alphabet_encode(all, 256, text);
    assert_int_equal(strait_alphabet_decode(text, n, back), 256);
    assert_memory_equal(all, back, 256);
    assert_int_equal(strait_alphabet_decode(" ", 1, back), -1);
    assert_int_equal(strait_alphabet_decode("\xe2\x96\x81", 3, back), -1);
}

static void check_nfc(const char *text, const char *expected) {
    strait_ids scratch = {0};
    strait_buffer out = {0};
    CHECK_OK(strait_normalize(STRAIT_FORM_NFC, (const unsigned char *)text, strlen(text), &scratch,
                              &out));
    assert_int_equal(out.n, strlen(expected));
    assert_memory_equal(out.data, expected, out.n);
    strait_alloc_free(scratch.data);
    strait_alloc_free(out.data);
}

static void test_nfc_composes_known_characters(void **state) {
    (void)state;
    check_nfc("plain", "plain");
    check_nfc("e\xcc\x81", "\xc3\xa9");                                // e + acute
    check_nfc("xe\xcc\x81y", "x\xc3\xa9y");                            // between plain characters
    check_nfc("q\xcc\x81", "q\xcc\x81");                               // no composed letter exists
    check_nfc("\xe2\x84\xab", "\xc3\x85");                             // Angstrom sign
    check_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"); // Hangul jamo
    check_nfc("\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81");             // syllable and final
    check_nfc("\xe3\x81\x8b\xe3\x82\x99", "\xe3\x81\x8c");             // kana and voicing
    check_nfc("a\xcc\xa3\xcc\x87", "\xe1\xba\xa1\xcc\x87");            // marks are reordered
    check_nfc("\xcc\x81 a", "\xcc\x81 a");                             // mark at the start
}

/* The fast path must agree with utf8proc on random runs of characters of all kinds. */
static void test_nfc_fast_path_equals_utf8proc(void **state) {
    (void)state;
    static const uint32_t blocks[] = {
        0x41,   0xc0,   0x300,  0x370,  0x410,  0x480,  0x5b0,  0x915,   0x1100,  0x1161, 0x11a8,
        0x2010, 0x3040, 0x3099, 0x4e00, 0xac00, 0xf900, 0xff10, 0x1d15e, 0x1f600, 0x2126, 0x0b47};
    uint32_t seed = 7;
    strait_ids scratch = {0};
    strait_buffer out = {0};
    for (int run = 0; run < 3000; run++) {
        unsigned char text[64];
        size_t n = 0;
        for (int i = 0; i < 12; i++) {
            seed = seed * 1664525u + 1013904223u;
            const uint32_t block = blocks[(seed >> 8) % (sizeof blocks / sizeof *blocks)];
            n += strait_utf8_encode(block + (seed >> 24) % 32, text + n);
        }
        utf8proc_uint8_t *expected = NULL;
        const utf8proc_ssize_t length = utf8proc_map(
            text, (utf8proc_ssize_t)n, &expected,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        out.n = 0;
        CHECK_OK(strait_normalize(STRAIT_FORM_NFC, text, n, &scratch, &out));
        assert_int_equal(out.n, length);
        assert_memory_equal(out.data, expected, out.n);
        free(expected);
    }
    strait_alloc_free(scratch.data);
    strait_alloc_free(out.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_rejects_malformed_characters),
        cmocka_unit_test(test_every_character_round_trips),
        cmocka_unit_test(test_valid_stops_at_first_invalid_byte),
        cmocka_unit_test(test_byte_alphabet_round_trips),
        cmocka_unit_test(test_nfc_composes_known_characters),
        cmocka_unit_test(test_nfc_fast_path_equals_utf8proc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
