#include <strait/corpus.h>
#include <strait/tokenizer.h>

#include "data/corpus.h"
#include "data/corpus_writer.h"
#include "data/text/text.h"
#include "folder.h"
#include "mixed.h"
#include "tokenizers.h"

#include <dirent.h>
#include <stdatomic.h>

enum {
    TEXT_BYTES = 900000
};
static char text[TEXT_BYTES];
static size_t n_text;
static const char *const patterns[] = {"gpt2", "llama3"};
static struct strait_tokenizer *tokenizers[2];

static int prepare(void **state) {
    if (make_folder(state) != 0) return 1;
    n_text = make_mixed(text, sizeof text, 11);
    static const char *const specials[] = {"<|endoftext|>"};
    const char *paths[] = {in_folder("mixed.txt")};
    put_file(paths[0], text, n_text);
    for (int i = 0; i < 2; i++) {
        int32_t n = 0;
        const strait_tokenizer_train_spec spec = {.text = {.paths = paths, .n_paths = 1},
                                                  .vocab = 350,
                                                  .pattern = patterns[i],
                                                  .specials = specials,
                                                  .n_specials = 1};
        const char *out = in_folder("t.json");
        if (strait_tokenizer_train(&spec, out, &n) != STRAIT_OK) return 1;
        if (strait_tokenizer_open(out, &tokenizers[i]) != STRAIT_OK) return 1;
    }
    return 0;
}

static int finish(void **state) {
    for (int i = 0; i < 2; i++)
        strait_tokenizer_close(&tokenizers[i]);
    return remove_folder(state);
}

/* Splitting at every allowed offset must not change an id. */
static void test_splitting_at_lines_keeps_ids(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        CHECK(strait_tokenizer_can_split_lines(tokenizers[i]));
        struct strait_encoder *encoder = NULL;
        struct strait_encoder *parts = NULL;
        const int32_t *whole = NULL, *part = NULL;
        size_t n_whole = 0, n_part = 0, at = 0, start = 0, n_splits = 0;
        CHECK_OK(strait_encoder_open(tokenizers[i], &encoder));
        CHECK_OK(strait_encoder_open(tokenizers[i], &parts));
        CHECK_OK(strait_encoder_encode(encoder, text, n_text, 0, &whole, &n_whole));
        for (size_t end = 1; end <= n_text; end++) {
            const unsigned char *bytes = (const unsigned char *)text + start;
            /* `end` allows a split if it is the last such offset in the text up to its character.
             */
            if (end < n_text && strait_text_find_split(bytes, end - start + 1) != end - start)
                continue;
            CHECK_OK(strait_encoder_encode(parts, bytes, end - start, 0, &part, &n_part));
            CHECK(at + n_part <= n_whole);
            assert_memory_equal(part, whole + at, n_part * sizeof *part);
            at += n_part;
            start = end;
            n_splits++;
        }
        assert_int_equal(at, n_whole);
        CHECK(n_splits > 1000);
        strait_encoder_close(&encoder);
        strait_encoder_close(&parts);
    }
}

static void check_corpus(const char *path, int n_shards, const int32_t *expected, size_t n) {
    struct strait_corpus *corpus = NULL;
    int32_t *ids = NULL;
    CHECK_OK(strait_corpus_open(path, &corpus));
    assert_int_equal(corpus->n_shards, n_shards);
    assert_int_equal(corpus->n_tokens, n);
    assert_string_equal(corpus->tokenizer, strait_tokenizer_fingerprint(tokenizers[0]));
    CHECK_OK(strait_corpus_verify(corpus));
    CHECK_OK(strait_alloc(n, sizeof *ids, "ids", (void **)&ids));
    CHECK_OK(strait_corpus_read(corpus, 0, (int64_t)n, ids));
    assert_memory_equal(ids, expected, n * sizeof *ids);
    strait_alloc_free(ids);
    strait_corpus_close(&corpus);
}

static void test_shards_are_independent_of_threads(void **state) {
    (void)state;
    put_file(in_folder("lines.jsonl"), "{\"text\":\"the quick\"}\n{\"text\":\"\"}\n", 33);
    const char *paths[] = {in_folder("mixed.txt"), in_folder("lines.jsonl")};
    struct strait_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t n = 0;
    strait_ids expected = {0};
    const int32_t end = strait_tokenizer_end(tokenizers[0]);
    assert_int_equal(end, 0);
    CHECK_OK(strait_encoder_open(tokenizers[0], &encoder));
    CHECK_OK(strait_encoder_encode(encoder, text, n_text, 0, &ids, &n));
    CHECK_OK(strait_ids_append(&expected, ids, n));
    CHECK_OK(strait_ids_append(&expected, &end, 1));
    CHECK_OK(strait_encoder_encode(encoder, "the quick", 9, 0, &ids, &n));
    CHECK_OK(strait_ids_append(&expected, ids, n));
    CHECK_OK(strait_ids_append(&expected, &end, 1));
    for (int threads = 1; threads <= 3; threads++) {
        strait_tokenize_counts counts = {0};
        strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                     .text = {.paths = paths, .n_paths = 2},
                                     .out = in_folder("out.bin"),
                                     .n_threads = threads,
                                     .end = end};
        CHECK_OK(strait_tokenize_run(&spec, &counts));
        assert_int_equal(counts.tokens, expected.n);
        assert_int_equal(counts.documents, 2);
        assert_int_equal(counts.dropped, 0);
        check_corpus(in_folder("out.bin"), 1, expected.data, expected.n);
        check_corpus(in_folder("out.json"), 1, expected.data, expected.n);
        spec.out = in_folder("many.bin");
        spec.shard_tokens = (int64_t)expected.n / 4; // the rest goes to a fifth shard
        if (expected.n % 4 == 0) spec.shard_tokens--;
        CHECK_OK(strait_tokenize_run(&spec, &counts));
        assert_int_equal(counts.shards, 5);
        check_corpus(in_folder("many.json"), 5, expected.data, expected.n);
        spec.keeps_old = 1;
        CHECK_FAILS(strait_tokenize_run(&spec, &counts), STRAIT_EEXISTS, "already exists");
    }
    strait_alloc_free(expected.data);
    strait_encoder_close(&encoder);
}

static void test_rejects_empty_and_bad_input(void **state) {
    (void)state;
    put_file(in_folder("none.txt"), "", 0);
    put_file(in_folder("bad.jsonl"), "{\"text\":\"a\"}\n{\"text\":1}\n", 24);
    const char *empty[] = {in_folder("none.txt")};
    const char *bad[] = {in_folder("mixed.txt"), in_folder("bad.jsonl")};
    strait_tokenize_counts counts = {0};
    strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                 .text = {.paths = empty, .n_paths = 1},
                                 .out = in_folder("x.bin"),
                                 .end = -1};
    CHECK_FAILS(strait_tokenize_run(&spec, &counts), STRAIT_EDATA, "contain no text");
    spec.text = (strait_text_spec){.paths = bad, .n_paths = 2};
    CHECK_FAILS(strait_tokenize_run(&spec, &counts), STRAIT_EDATA, "bad.jsonl: line 2");
    CHECK(!strait_file_exists(in_folder("x.bin")) && !strait_file_exists(in_folder("x.bin.tmp")));
    CHECK(!strait_file_exists(in_folder("x.json")));
    spec.out = "x";
    CHECK_FAILS(strait_tokenize_run(&spec, &counts), STRAIT_ECONFIG, "ends in .bin");
}

/* The number of files whose names start with `name`. */
static int n_files(const char *name) {
    int n = 0;
    const struct dirent *entry;
    DIR *all = opendir(folder);
    assert_non_null(all);
    while ((entry = readdir(all)) != NULL) // NOLINT(concurrency-mt-unsafe): our own handle
        n += strncmp(entry->d_name, name, strlen(name)) == 0;
    (void)closedir(all);
    return n;
}

/* A stop callback that returns true on its n-th call. */
static int stop_after_n_calls(void *arg) {
    return atomic_fetch_sub((atomic_int *)arg, 1) <= 1;
}

static void note_tokens(void *arg, const strait_tokenize_counts *counts) {
    *(int64_t *)arg = counts->tokens;
}

static void remove_corpus(const char *name) {
    char path[STRAIT_PATH_MAX];
    CHECK_OK(strait_corpus_writer_find_existing(in_folder(name), path));
    CHECK(path[0] != '\0');
    while (path[0] != '\0') {
        assert_int_equal(unlink(path), 0);
        CHECK_OK(strait_corpus_writer_find_existing(in_folder(name), path));
    }
}

static void test_stops_on_request_and_leaves_nothing(void **state) {
    (void)state;
    const char *paths[] = {in_folder("mixed.txt")};
    for (int threads = 1; threads <= 2; threads++) {
        int64_t most = 0;
        int is_done = 0;
        for (int n = 1; !is_done; n++) {
            atomic_int left = n;
            int64_t tokens = 0;
            strait_tokenize_counts counts = {0};
            const strait_tokenize_spec spec = {
                .tokenizer = tokenizers[0],
                .text = {.paths = paths, .n_paths = 1, .stop = {stop_after_n_calls, &left}},
                .out = in_folder("stopped.bin"),
                .shard_tokens = 20000,
                .n_threads = threads,
                .end = -1,
                .progress = note_tokens,
                .arg = &tokens};
            const strait_err err = strait_tokenize_run(&spec, &counts);
            is_done = err == STRAIT_OK;
            if (is_done) break;
            CHECK_FAILS(err, STRAIT_EINTERRUPTED, "stopped.bin: stopped; nothing was kept");
            assert_int_equal(n_files("stopped"), 0);
            if (tokens > most) most = tokens;
        }
        CHECK(most >= 20000); // some stops came after a complete shard
        remove_corpus("stopped.bin");
    }
}

static void test_replaces_corpus_of_another_shard_size(void **state) {
    (void)state;
    static const char *const others[] = {"c-0007.bin", "cc.bin", "c-old.bin", "c-00007.json",
                                         "c-00007.bin.gz"};
    static const struct {
        int64_t shard_tokens;
        int n_shards;
    } sizes[] = {{0, 1}, {5, 3}, {7, 2}, {0, 1}, {5, 3}};
    put_file(in_folder("some.txt"), "the quick Brown fox", 19);
    put_file(in_folder("c-123456.bin"), "old", 3);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        put_file(in_folder(others[i]), "other", 5);
    const char *paths[] = {in_folder("some.txt")};
    struct strait_encoder *encoder = NULL;
    const int32_t *ids = NULL;
    size_t n = 0;
    CHECK_OK(strait_encoder_open(tokenizers[0], &encoder));
    CHECK_OK(strait_encoder_encode(encoder, "the quick Brown fox", 19, 0, &ids, &n));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        strait_tokenize_counts counts = {0};
        const strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                           .text = {.paths = paths, .n_paths = 1},
                                           .out = in_folder("c.bin"),
                                           .shard_tokens = sizes[i].shard_tokens,
                                           .n_threads = 1,
                                           .end = -1};
        CHECK_OK(strait_tokenize_run(&spec, &counts));
        check_corpus(in_folder("c.json"), sizes[i].n_shards, ids, n);
        assert_int_equal(n_files("c"),
                         (int)(sizeof others / sizeof *others) + 1 + sizes[i].n_shards);
        assert_int_equal(strait_file_exists(in_folder("c.bin")), sizes[i].shard_tokens == 0);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(unlink(in_folder(others[i])), 0);
    remove_corpus("c.bin");
    strait_encoder_close(&encoder);
}

static void test_failure_keeps_existing_corpus(void **state) {
    (void)state;
    put_file(in_folder("some.txt"), "the quick Brown fox", 19);
    put_file(in_folder("bad.jsonl"), "{\"text\":1}\n", 11);
    const char *paths[] = {in_folder("some.txt"), in_folder("bad.jsonl")};
    strait_tokenize_counts counts = {0};
    strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                 .text = {.paths = paths, .n_paths = 1},
                                 .out = in_folder("old.bin"),
                                 .shard_tokens = 5,
                                 .n_threads = 1,
                                 .end = -1};
    char before[STRAIT_HASH_TEXT];
    char after[STRAIT_HASH_TEXT];
    CHECK_OK(strait_tokenize_run(&spec, &counts));
    CHECK_OK(strait_hash_file(in_folder("old.json"), before));
    spec.text.n_paths = 2;
    spec.shard_tokens = 2;
    CHECK_FAILS(strait_tokenize_run(&spec, &counts), STRAIT_EDATA, "bad.jsonl: line 1");
    CHECK_OK(strait_hash_file(in_folder("old.json"), after));
    assert_string_equal(before, after);
    assert_int_equal(n_files("old"), 4);
    struct strait_corpus *corpus = NULL;
    CHECK_OK(strait_corpus_open(in_folder("old.json"), &corpus));
    CHECK_OK(strait_corpus_verify(corpus));
    strait_corpus_close(&corpus);
    remove_corpus("old.bin");
}

static void test_removes_files_of_a_killed_process(void **state) {
    (void)state;
    put_file(in_folder("few.txt"), "the quick Brown fox", 19);
    const char *paths[] = {in_folder("few.txt")};
    strait_tokenize_counts counts = {0};
    const strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                       .text = {.paths = paths, .n_paths = 1},
                                       .out = in_folder("k.bin"),
                                       .n_threads = 1,
                                       .end = -1};
    CHECK_OK(strait_file_make_folders(in_folder("k.bin.tmp")));
    put_file(in_folder("k.bin.tmp/.lock"), "", 0);
    put_file(in_folder("k.bin.tmp/k-00000.bin"), "whole", 5);
    put_file(in_folder("k.bin.tmp/k-00001.bin.tmp"), "half", 4);
    CHECK_OK(strait_tokenize_run(&spec, &counts));
    assert_int_equal(n_files("k"), 2); // k.bin and k.json
    put_file(in_folder("k.bin.tmp"), "a file", 6);
    CHECK_OK(strait_tokenize_run(&spec, &counts));
    assert_int_equal(n_files("k"), 2);
    remove_corpus("k.bin");
}

static void test_survives_failing_allocations(void **state) {
    (void)state;
    put_file(in_folder("few.txt"), "the quick Brown fox", 19);
    const char *paths[] = {in_folder("few.txt")};
    const char *out = in_folder("few.bin");
    strait_tokenize_counts counts = {0};
    const strait_tokenize_spec spec = {.tokenizer = tokenizers[0],
                                       .text = {.paths = paths, .n_paths = 1},
                                       .out = out,
                                       .n_threads = 1,
                                       .end = 0};
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_tokenize_run(&spec, &counts));
    const int64_t n_allocations = strait_alloc_count() - before;
    CHECK(n_allocations > 20);
    for (int64_t n = 1; n <= n_allocations; n++) {
        strait_alloc_fail_at(n);
        const strait_err err = strait_tokenize_run(&spec, &counts);
        strait_alloc_fail_at(0);
        if (err != STRAIT_OK) assert_int_equal(err, STRAIT_ENOMEM);
        assert_int_equal(n_files("few"), 3); // few.txt, few.bin, few.json
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splitting_at_lines_keeps_ids),
        cmocka_unit_test(test_shards_are_independent_of_threads),
        cmocka_unit_test(test_rejects_empty_and_bad_input),
        cmocka_unit_test(test_stops_on_request_and_leaves_nothing),
        cmocka_unit_test(test_replaces_corpus_of_another_shard_size),
        cmocka_unit_test(test_failure_keeps_existing_corpus),
        cmocka_unit_test(test_removes_files_of_a_killed_process),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, prepare, finish);
}
