#include "data/shard.h"

#include "base/alloc.h"
#include "shards.h"

#include <unistd.h>

static const char fingerprint[] = "0123456789abcdef00112233445566ff";

static void test_writes_exact_bytes_of_two_byte_shard(void **state) {
    (void)state;
    const char *path = in_folder("exact.bin");
    struct strait_shard_writer *writer = NULL;
    CHECK_OK(strait_shard_writer_open(path, (strait_shard_spec){300, fingerprint, 0}, &writer));
    CHECK_OK(strait_shard_writer_append(writer, (const int32_t[]){1, 258, 299}, 3));
    assert_int_equal(strait_shard_writer_count(writer), 3);
    CHECK(!strait_file_exists(path)); // the file appears only when it is complete
    CHECK_OK(strait_shard_writer_finish(&writer));
    char *bytes = NULL;
    size_t n = 0;
    CHECK_OK(strait_file_read(path, 4096, &bytes, &n));
    assert_int_equal(n, 1024 + 6);
    const unsigned char start[] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 3,    0,    0,    0,   0,
                                   0,    0,    0,    0x2c, 1, 0, 0, 1, 0x23, 0x45, 0x67, 0x89};
    unsigned char expected[1030] = {0};
    memcpy(expected, start, sizeof start);
    expected[20] = 0x01, expected[24] = 0x89, expected[25] = 0xab, expected[26] = 0xcd;
    expected[27] = 0xef, expected[28] = 0x00, expected[29] = 0x11, expected[30] = 0x22;
    expected[31] = 0x33, expected[32] = 0x44, expected[33] = 0x55, expected[34] = 0x66;
    expected[35] = 0xff;
    memcpy(expected + 1024, (const unsigned char[]){1, 0, 2, 1, 0x2b, 1}, 6);
    assert_memory_equal(bytes, expected, sizeof expected);
    strait_alloc_free(bytes);
}

static void test_round_trips_both_id_widths(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        const char *path = in_folder("trip.bin");
        const int64_t vocab = wide ? 65537 : 65536;
        put_shard(path, 40000, 60000, (strait_shard_spec){vocab, fingerprint, 0});
        struct strait_shard shard;
        CHECK_OK(strait_shard_init(&shard, path));
        assert_int_equal(shard.id_bytes, wide ? 4 : 2);
        assert_int_equal(shard.n_tokens, 40000);
        assert_int_equal(shard.vocab, vocab);
        assert_string_equal(shard.tokenizer, fingerprint);
        int32_t ids[10];
        CHECK_OK(strait_shard_read(&shard, 5530, 10, vocab, ids));
        for (int i = 0; i < 10; i++)
            assert_int_equal(ids[i], (60000 + 5530 + i) % vocab);
        CHECK_OK(strait_shard_verify(&shard, 0));
        strait_shard_fini(&shard);
    }
}

/* A mapping would end the process with SIGBUS here. */
static void test_reports_file_that_shrinks_while_in_use(void **state) {
    (void)state;
    const char *path = in_folder("shrinks.bin");
    put_shard(path, 40000, 0, (strait_shard_spec){300, NULL, 0});
    struct strait_shard shard;
    int32_t ids[100];
    CHECK_OK(strait_shard_init(&shard, path));
    CHECK_OK(strait_shard_check(&shard));
    assert_int_equal(truncate(path, 1024 + 2 * 30050), 0);
    CHECK_FAILS(strait_shard_check(&shard), STRAIT_EDATA,
                "shrinks.bin: shrank from 81024 to 61124 bytes while in use");
    CHECK_OK(strait_shard_read(&shard, 29900, 100, 300, ids)); // what is left can be read
    CHECK_FAILS(strait_shard_read(&shard, 30000, 100, 300, ids), STRAIT_EDATA,
                "shrank from 81024 to 61124 bytes");
    CHECK_FAILS(strait_shard_verify(&shard, 0), STRAIT_EDATA, "shrank");
    strait_shard_fini(&shard);
}

static void test_rejects_ids_outside_the_vocabulary(void **state) {
    (void)state;
    const char *path = in_folder("large.bin");
    put_shard(path, 100, 0, (strait_shard_spec){100, NULL, 0});
    struct strait_shard shard;
    CHECK_OK(strait_shard_init(&shard, path));
    assert_string_equal(shard.tokenizer, "");
    int32_t ids[100];
    CHECK_OK(strait_shard_read(&shard, 0, 50, 50, ids));
    CHECK_FAILS(strait_shard_read(&shard, 40, 20, 50, ids), STRAIT_EDATA, "token 50 has id 50");
    CHECK_FAILS(strait_shard_verify(&shard, 99), STRAIT_EDATA, "vocabulary of 99");
    strait_shard_fini(&shard);
    struct strait_shard_writer *writer = NULL;
    CHECK_OK(strait_shard_writer_open(path, (strait_shard_spec){10, NULL, 0}, &writer));
    CHECK_FAILS(strait_shard_writer_append(writer, (const int32_t[]){3, 10}, 2), STRAIT_EINVAL,
                "id 10");
    CHECK_FAILS(strait_shard_writer_append(writer, (const int32_t[]){-1}, 1), STRAIT_EINVAL,
                "id -1");
    strait_shard_writer_close(&writer);
    CHECK(!strait_file_exists(in_folder("large.bin.tmp")));
    CHECK_OK(strait_shard_init(&shard, path)); // the existing file is untouched
    assert_int_equal(shard.n_tokens, 100);
    strait_shard_fini(&shard);
}

static void check_parse(const uint32_t words[5], size_t bytes, const char *expected) {
    static unsigned char data[2048];
    memset(data, 0, sizeof data);
    for (int i = 0; i < 5; i++)
        for (int b = 0; b < 4; b++)
            data[4 * i + b] = (unsigned char)(words[i] >> 8 * b);
    struct strait_shard shard = {0};
    if (expected == NULL)
        CHECK_OK(strait_shard_parse(&shard, data, bytes, "some.bin"));
    else
        CHECK_FAILS(strait_shard_parse(&shard, data, bytes, "some.bin"), STRAIT_EDATA, expected);
}

static void test_reads_other_programs_shards_and_rejects_truncated_ones(void **state) {
    (void)state;
    check_parse((const uint32_t[]){20240520, 1, 10, 0, 0}, 1024 + 20, NULL);
    check_parse((const uint32_t[]){20240801, 7, 10, 0, 0}, 1024 + 40, NULL);
    check_parse((const uint32_t[]){20240521, 1, 10, 0, 0}, 1044, "some.bin: not a token shard");
    check_parse((const uint32_t[]){20240520, 1, 10, 0, 0}, 3, "not a token shard");
    check_parse((const uint32_t[]){20240520, 1, 10, 0, 0}, 1023, "inside the header");
    check_parse((const uint32_t[]){20240520, 4, 10, 0, 0}, 1044, "shard version 4");
    check_parse((const uint32_t[]){20240801, 1, 10, 0, 0}, 1044, "shard version 1");
    check_parse((const uint32_t[]){20240520, 1, 10, 0, 0}, 1043,
                "announces 10 tokens, the file has 9");
    check_parse((const uint32_t[]){20240520, 2, 10, 0, 0}, 1044,
                "announces 10 tokens, the file has 5");
    check_parse((const uint32_t[]){20240520, 1, 10, 1, 0}, 1044, "announces 4294967306 tokens");
    check_parse((const uint32_t[]){20240520, 1, 10, 0x80000000u, 0}, 1044, "truncated");
    check_parse((const uint32_t[]){20240520, 1, 10, 0, 0}, 1045, "1 bytes follow");
    struct strait_shard shard;
    put_file(in_folder("empty.bin"), "", 0);
    CHECK_FAILS(strait_shard_init(&shard, in_folder("empty.bin")), STRAIT_EDATA, "is empty");
    CHECK_FAILS(strait_shard_init(&shard, in_folder("absent.bin")), STRAIT_EIO, "absent.bin");
}

/* A header may claim a vocabulary larger than int32_t; ids must not become negative then. */
static void test_rejects_negative_ids_despite_huge_vocabulary(void **state) {
    (void)state;
    static unsigned char data[1024 + 8];
    const uint32_t words[] = {20240520, 2, 2, 0, 0xfe000000u};
    const uint32_t ids[] = {1, 0x99000000u};
    struct strait_shard shard = {0};
    int32_t read[2];
    memcpy(data, words, sizeof words); // all supported machines are little-endian
    memcpy(data + 1024, ids, sizeof ids);
    CHECK_OK(strait_shard_parse(&shard, data, sizeof data, "huge.bin"));
    CHECK_OK(strait_shard_read(&shard, 0, 1, shard.vocab, read));
    CHECK_FAILS(strait_shard_read(&shard, 0, 2, shard.vocab, read), STRAIT_EDATA, "huge.bin");
    CHECK_FAILS(strait_shard_verify(&shard, 0), STRAIT_EDATA, "huge.bin");
}

static void test_writer_reports_errors(void **state) {
    (void)state;
    struct strait_shard_writer *writer = NULL;
    CHECK_FAILS(strait_shard_writer_open(in_folder("no/such.bin"), (strait_shard_spec){9, NULL, 0},
                                         &writer),
                STRAIT_EIO, "no/such.bin.tmp: cannot create");
    CHECK_FAILS(
        strait_shard_writer_open(in_folder("a.bin"), (strait_shard_spec){0, NULL, 0}, &writer),
        STRAIT_EINVAL, "vocabulary of 0");
    CHECK_FAILS(
        strait_shard_writer_open(in_folder("a.bin"), (strait_shard_spec){9, "12z", 0}, &writer),
        STRAIT_EINVAL, "32 hexadecimal");
    strait_alloc_fail_at(1);
    CHECK_FAILS(
        strait_shard_writer_open(in_folder("a.bin"), (strait_shard_spec){9, NULL, 0}, &writer),
        STRAIT_ENOMEM, "shard writer");
    strait_alloc_fail_at(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_exact_bytes_of_two_byte_shard),
        cmocka_unit_test(test_round_trips_both_id_widths),
        cmocka_unit_test(test_reports_file_that_shrinks_while_in_use),
        cmocka_unit_test(test_rejects_ids_outside_the_vocabulary),
        cmocka_unit_test(test_reads_other_programs_shards_and_rejects_truncated_ones),
        cmocka_unit_test(test_rejects_negative_ids_despite_huge_vocabulary),
        cmocka_unit_test(test_writer_reports_errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
