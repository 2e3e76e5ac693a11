/* Little-endian numbers and bounded readers and writers, as all wire formats use them. */
#include "base/bytes.h"

#include "check.h"

static void writes_numbers_little_endian(void **state) {
    (void)state;
    unsigned char raw[8];
    strait_put_u16(raw, 0x1234);
    CHECK(raw[0] == 0x34 && raw[1] == 0x12 && strait_get_u16(raw) == 0x1234);
    strait_put_u32(raw, 0xdeadbeef);
    CHECK(raw[0] == 0xef && raw[3] == 0xde && strait_get_u32(raw) == 0xdeadbeef);
    strait_put_u64(raw, 0x0102030405060708);
    CHECK(raw[0] == 8 && raw[7] == 1 && strait_get_u64(raw) == 0x0102030405060708);
}

static void flags_reads_and_writes_past_the_end(void **state) {
    (void)state;
    unsigned char raw[7];
    strait_writer w = {.at = raw, .left = sizeof raw};
    strait_writer_uint(&w, 0x010203, 3);
    strait_writer_copy(&w, "abc", 3);
    CHECK(!w.is_short && w.left == 1);
    strait_writer_uint(&w, 7, 2);
    CHECK(w.is_short && w.left == 0);
    strait_reader r = {.at = raw, .left = 6};
    char text[3], none[2] = "x";
    CHECK(strait_reader_uint(&r, 3) == 0x010203);
    strait_reader_copy(&r, text, 3);
    CHECK(memcmp(text, "abc", 3) == 0 && !r.is_short);
    strait_reader_copy(&r, none, 1);
    CHECK(r.is_short && none[0] == 0 && strait_reader_uint(&r, 8) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes_numbers_little_endian),
                                       cmocka_unit_test(flags_reads_and_writes_past_the_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
