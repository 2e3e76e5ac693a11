#include "data/corpus.h"

#include "base/alloc.h"
#include "shards.h"

static const char print_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char print_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/* Three shards of 10, 7 and 5 tokens holding 0 to 21, and their manifest. */
static void put_three(void) {
    const strait_shard_spec spec = {50, print_a, 0};
    put_shard(in_folder("x-00000.bin"), 10, 0, spec);
    put_shard(in_folder("x-00001.bin"), 7, 10, spec);
    put_shard(in_folder("x-00002.bin"), 5, 17, spec);
    const strait_corpus_shard shards[] = {{in_folder("x-00000.bin"), 10},
                                          {in_folder("x-00001.bin"), 7},
                                          {in_folder("x-00002.bin"), 5}};
    const char *const sources[] = {"a.txt", "b.txt"};
    CHECK_OK(strait_corpus_write_manifest(
        in_folder("x.json"), &(strait_corpus_spec){shards, 3, 50, print_a, sources, 2}));
}

static void check_contents(const char *path) {
    struct strait_corpus *corpus = NULL;
    CHECK_OK(strait_corpus_open(path, &corpus));
    assert_int_equal(corpus->n_tokens, 22);
    assert_int_equal(corpus->vocab, 50);
    assert_string_equal(corpus->tokenizer, print_a);
    int32_t ids[22];
    for (int64_t first = 0; first <= 22; first++) {
        for (int64_t n = 0; n <= 22 - first; n++) {
            memset(ids, 0xff, sizeof ids);
            CHECK_OK(strait_corpus_read(corpus, first, n, ids));
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(ids[i], first + i);
            if (n < 22) assert_int_equal(ids[n], -1);
        }
    }
    CHECK_FAILS(strait_corpus_read(corpus, 20, 3, ids), STRAIT_EINVAL, "20 to 23 are outside");
    CHECK_FAILS(strait_corpus_read(corpus, -1, 3, ids), STRAIT_EINVAL, "-1");
    CHECK_OK(strait_corpus_verify(corpus));
    strait_corpus_close(&corpus);
}

static void test_manifest_and_list_give_the_same_tokens(void **state) {
    (void)state;
    put_three();
    check_contents(in_folder("x.json"));
    char list[1024];
    (void)snprintf(list, sizeof list, "%s,%s,%s", in_folder("x-00000.bin"),
                   in_folder("x-00001.bin"), in_folder("x-00002.bin"));
    check_contents(list);
    struct strait_corpus *corpus = NULL;
    add_text(list, sizeof list, ",");
    CHECK_FAILS(strait_corpus_open(list, &corpus), STRAIT_ECONFIG, "an empty name");
}

static void test_pattern_gives_files_in_order_of_their_bytes(void **state) {
    (void)state;
    put_three();
    check_contents(in_folder("x-*.bin"));
    char list[1024];
    (void)snprintf(list, sizeof list, "%s,%s", in_folder("x-0000[01].bin"),
                   in_folder("x-?0002.bin"));
    check_contents(list);
    struct strait_corpus *corpus = NULL;
    CHECK_FAILS(strait_corpus_open(in_folder("y-*.bin"), &corpus), STRAIT_EIO,
                "y-*.bin: no file matches");
    /* A file of that very name is no pattern. */
    put_shard(in_folder("z[1].bin"), 9, 0, (strait_shard_spec){50, NULL, 0});
    CHECK_OK(strait_corpus_open(in_folder("z[1].bin"), &corpus));
    assert_int_equal(corpus->n_tokens, 9);
    strait_corpus_close(&corpus);
}

/* As numpy's tofile writes them. */
static void test_reads_raw_ids(void **state) {
    (void)state;
    unsigned char narrow[2000], wide[4000];
    for (int i = 0; i < 1000; i++) {
        narrow[2 * i] = wide[4 * i] = (unsigned char)(i & 255);
        narrow[2 * i + 1] = wide[4 * i + 1] = (unsigned char)(i >> 8);
        wide[4 * i + 2] = wide[4 * i + 3] = 0;
    }
    put_file(in_folder("narrow.bin"), narrow, sizeof narrow);
    put_file(in_folder("wide.bin"), wide, sizeof wide);
    put_file(in_folder("odd.bin"), wide, 1001);
    put_shard(in_folder("shard.bin"), 10, 0, (strait_shard_spec){2000, NULL, 0});
    struct strait_corpus *corpus = NULL;
    char list[1024];
    (void)snprintf(list, sizeof list, "%s,%s", in_folder("narrow.bin"), in_folder("shard.bin"));
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        int32_t ids[10];
        CHECK_OK(is_wide
                     ? strait_corpus_open_as(in_folder("wide.bin"), STRAIT_CORPUS_UINT32, &corpus)
                     : strait_corpus_open_as(list, STRAIT_CORPUS_UINT16, &corpus));
        assert_int_equal(corpus->n_tokens, is_wide ? 1000 : 1010);
        CHECK_OK(strait_corpus_read(corpus, 996, 4, ids));
        assert_int_equal(ids[0], 996);
        assert_int_equal(ids[3], 999);
        CHECK_OK(strait_corpus_check(corpus));
        CHECK_OK(strait_corpus_expect(corpus, is_wide ? 999 : 2000, NULL));
        if (is_wide)
            CHECK_FAILS(strait_corpus_read(corpus, 990, 10, ids), STRAIT_EDATA,
                        "token 999 has id 999, outside the vocabulary of 999");
        else
            CHECK_OK(strait_corpus_verify(corpus));
        strait_corpus_close(&corpus);
    }
    CHECK_FAILS(strait_corpus_open(in_folder("narrow.bin"), &corpus), STRAIT_EDATA,
                "set data.format to uint16");
    CHECK_FAILS(strait_corpus_open_as(in_folder("wide.bin"), STRAIT_CORPUS_UINT16, &corpus),
                STRAIT_EDATA, "set data.format to uint32");
    CHECK_FAILS(strait_corpus_open_as(in_folder("odd.bin"), STRAIT_CORPUS_UINT16, &corpus),
                STRAIT_EDATA, "1001 bytes are not a whole number of 16-bit token ids");
}

static void test_rejects_other_vocabulary_or_tokenizer(void **state) {
    (void)state;
    put_three();
    struct strait_corpus *corpus = NULL;
    CHECK_OK(strait_corpus_open(in_folder("x.json"), &corpus));
    CHECK_FAILS(strait_corpus_expect(corpus, 49, NULL), STRAIT_EDATA,
                "tokenized for a vocabulary of 50");
    CHECK_FAILS(strait_corpus_expect(corpus, 50, print_b), STRAIT_EDATA, print_b);
    CHECK_OK(strait_corpus_expect(corpus, 64, print_a));
    assert_int_equal(corpus->vocab, 64);
    strait_corpus_close(&corpus);
}

static void test_finds_damaged_shards(void **state) {
    (void)state;
    put_three();
    struct strait_corpus *corpus = NULL;
    put_shard(in_folder("x-00001.bin"), 7, 11, (strait_shard_spec){50, print_a, 0});
    CHECK_OK(strait_corpus_open(in_folder("x.json"), &corpus));
    CHECK_FAILS(strait_corpus_verify(corpus), STRAIT_EDATA, "x-00001.bin: damaged");
    strait_corpus_close(&corpus);
    put_shard(in_folder("x-00001.bin"), 8, 10, (strait_shard_spec){50, print_a, 0});
    CHECK_FAILS(strait_corpus_open(in_folder("x.json"), &corpus), STRAIT_EDATA,
                "x-00001.bin: 8 tokens, but the manifest");
    put_shard(in_folder("x-00001.bin"), 7, 10, (strait_shard_spec){51, print_a, 0});
    CHECK_FAILS(strait_corpus_open(in_folder("x.json"), &corpus), STRAIT_EDATA, "vocabulary of 51");
    put_shard(in_folder("x-00001.bin"), 7, 10, (strait_shard_spec){50, print_b, 0});
    CHECK_FAILS(strait_corpus_open(in_folder("x.json"), &corpus), STRAIT_EDATA, print_b);
    CHECK_OK(strait_file_move(in_folder("x-00001.bin"), in_folder("gone.bin")));
    CHECK_FAILS(strait_corpus_open(in_folder("x.json"), &corpus), STRAIT_EIO, "x-00001.bin");
}

static void check_manifest(const char *text, const char *expected) {
    struct strait_corpus *corpus = NULL;
    put_file(in_folder("bad.json"), text, strlen(text));
    CHECK_FAILS(strait_corpus_open(in_folder("bad.json"), &corpus), STRAIT_EDATA, expected);
    CHECK(strstr(strait_err_detail(), "bad.json") != NULL);
}

static void test_rejects_bad_manifests(void **state) {
    (void)state;
    check_manifest("{", "line 1");
    check_manifest("{}", "not a manifest of token shards: \"format\" is missing");
    check_manifest("{\"format\":\"other\"}", "expected \"strait-corpus\"");
    check_manifest("{\"format\":\"strait-corpus\",\"version\":2}", "manifest version 2");
    check_manifest("{\"format\":\"strait-corpus\",\"version\":1,\"shards\":[]}", "names no file");
    check_manifest("{\"format\":\"strait-corpus\",\"version\":1,\"shards\":[3]}",
                   "shard 0: \"file\" is missing");
    check_manifest("{\"format\":\"strait-corpus\",\"version\":1,\"shards\":[{\"file\":\"x.bin\","
                   "\"tokens\":1,\"hash\":\"12\"}]}",
                   "hash \"12\" is not");
}

static void check_beside(const char *text, strait_err err, const char *expected) {
    struct strait_corpus *corpus = NULL;
    if (text != NULL) put_file(in_folder("x.json"), text, strlen(text));
    if (err == STRAIT_OK)
        CHECK_OK(strait_corpus_open(in_folder("x-0000?.bin"), &corpus));
    else
        CHECK_FAILS(strait_corpus_open(in_folder("x-0000?.bin"), &corpus), err, expected);
    strait_corpus_close(&corpus);
}

/* A shard that is named itself. A file of another program may have the name of a manifest. */
static void test_compares_a_shard_with_the_manifest_beside_it(void **state) {
    (void)state;
    put_three();
    check_beside(NULL, STRAIT_OK, NULL);
    put_shard(in_folder("x-00002.bin"), 6, 17, (strait_shard_spec){50, print_a, 0});
    check_beside(NULL, STRAIT_EDATA, "x.json says 5");
    check_beside("{\"format\":\"strait-corpus\",\"version\":1,\"shards\":[{\"file\":\"y.bin\","
                 "\"tokens\":1,\"hash\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}",
                 STRAIT_OK, NULL);
    check_beside("{\"format\":\"other\"}", STRAIT_OK, NULL);
    check_beside("{", STRAIT_EDATA, "x-00000.bin cannot be used: restore it, or remove it");
    CHECK(strstr(strait_err_detail(), "x.json: line 1") != NULL);
    check_beside("{\"format\":\"strait-corpus\",\"version\":1,\"shards\":[3]}", STRAIT_EDATA,
                 "x.json: shard 0: \"file\" is missing");
    struct strait_corpus *corpus = NULL; // raw files of other programs have no manifest
    CHECK_OK(strait_corpus_open_as(in_folder("x-00000.bin"), STRAIT_CORPUS_UINT16, &corpus));
    strait_corpus_close(&corpus);
    put_three();
    CHECK_OK(strait_corpus_open(in_folder("x-00001.bin"), &corpus));
    CHECK_OK(strait_corpus_verify(corpus));
    put_shard(in_folder("x-00001.bin"), 7, 11, (strait_shard_spec){50, print_a, 0});
    CHECK_FAILS(strait_corpus_verify(corpus), STRAIT_EDATA, "x-00001.bin: damaged");
    strait_corpus_close(&corpus);
}

static void test_survives_failing_allocations(void **state) {
    (void)state;
    put_three();
    struct strait_corpus *corpus = NULL;
    for (int n = 1; corpus == NULL; n++) {
        strait_alloc_fail_at(n);
        const strait_err err = strait_corpus_open(in_folder("x.json"), &corpus);
        strait_alloc_fail_at(0);
        CHECK((err == STRAIT_OK) == (corpus != NULL));
        if (err != STRAIT_OK) assert_int_equal(err, STRAIT_ENOMEM);
        CHECK(n < 100);
    }
    strait_corpus_close(&corpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest_and_list_give_the_same_tokens),
        cmocka_unit_test(test_pattern_gives_files_in_order_of_their_bytes),
        cmocka_unit_test(test_reads_raw_ids),
        cmocka_unit_test(test_rejects_other_vocabulary_or_tokenizer),
        cmocka_unit_test(test_finds_damaged_shards),
        cmocka_unit_test(test_rejects_bad_manifests),
        cmocka_unit_test(test_compares_a_shard_with_the_manifest_beside_it),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
