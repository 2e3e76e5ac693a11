#include <strait/tokenizer.h>

#include "base/json.h"
#include "folder.h"
#include "mixed.h"
#include "tokenizers.h"

static int32_t train(const char *const *paths, int n_paths, int32_t vocab, const char *pattern,
                     int n_threads, const char *out) {
    static const char *const specials[] = {"<|endoftext|>", "<pad>"};
    int32_t n = 0;
    CHECK_OK(strait_tokenizer_train(
        &(strait_tokenizer_train_spec){.text = {.paths = paths, .n_paths = n_paths},
                                       .vocab = vocab,
                                       .pattern = pattern,
                                       .specials = specials,
                                       .n_specials = 2,
                                       .n_threads = n_threads},
        out, &n));
    return n;
}

static void check_merges(const char *path, const char *const *expected, size_t n) {
    json_t *document = NULL;
    CHECK_OK(strait_json_load(path, 1 << 24, &document));
    const json_t *merges = json_object_get(json_object_get(document, "model"), "merges");
    assert_int_equal(json_array_size(merges), n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(json_string_value(json_array_get(merges, i)), expected[i]);
    json_decref(document);
}

/* The expected merges are computed by hand below. */
static void test_merges_most_frequent_pairs_first(void **state) {
    (void)state;
    const char *paths[] = {in_folder("hand.txt")};
    put_file(paths[0], "abab abab cc cc cc xy", 21);
    const int32_t n = train(paths, 1, 300, "gpt2", 1, in_folder("hand.json"));
    /* Words: "abab" 1, " abab" 1, " cc" 3, " xy" 1. a+b occurs 4 times. c+c and space+c occur 3
     * times each; c has the smaller id, because the space is a late character of the byte-level
     * alphabet. Then space+cc 3 and ab+ab 2. Pairs that occur once are not merged. */
    static const char *const expected[] = {"a b", "c c", "\xc4\xa0 cc", "ab ab"};
    check_merges(in_folder("hand.json"), expected, 4);
    assert_int_equal(n, 2 + 256 + 4);
    struct strait_tokenizer *t = NULL;
    CHECK_OK(strait_tokenizer_open(in_folder("hand.json"), &t));
    assert_int_equal(strait_tokenizer_vocab(t), 262);
    assert_int_equal(strait_tokenizer_end(t), 0);
    assert_int_equal(strait_tokenizer_find(t, "!", 1), 2);
    CHECK_IDS(t, "abab cc<|endoftext|>ab<pad>", "261 260 0 258 1");
    strait_tokenizer_close(&t);
}

static void test_counts_overlapping_pairs(void **state) {
    (void)state;
    const char *paths[] = {in_folder("over.txt")};
    put_file(paths[0], "aaaaa aaaa", 10);
    (void)train(paths, 1, 300, NULL, 1, in_folder("over.json"));
    static const char *const expected[] = {"a a", "aa aa"};
    check_merges(in_folder("over.json"), expected, 2);
}

static char text[300000];

static void test_result_is_independent_of_threads_and_file_order(void **state) {
    (void)state;
    const size_t n = make_mixed(text, sizeof text, 5);
    const size_t m = make_mixed(text, sizeof text / 2, 6);
    const char *a = in_folder("a.txt");
    const char *b = in_folder("b.txt");
    put_file(b, text, m);
    (void)make_mixed(text, sizeof text, 5);
    put_file(a, text, n);
    const char *ab[] = {a, b};
    const char *ba[] = {b, a};
    for (int llama = 0; llama < 2; llama++) {
        const char *pattern = llama ? "llama3" : "gpt2";
        char *first = NULL, *second = NULL;
        const int32_t n1 = train(ab, 2, 400, pattern, 1, in_folder("1.json"));
        const int32_t n2 = train(ba, 2, 400, pattern, 3, in_folder("2.json"));
        CHECK(n1 == n2 && n1 > 320);
        CHECK_OK(strait_file_read(in_folder("1.json"), 1 << 24, &first, NULL));
        CHECK_OK(strait_file_read(in_folder("2.json"), 1 << 24, &second, NULL));
        assert_string_equal(first, second);
        struct strait_tokenizer *t = NULL;
        CHECK_OK(strait_tokenizer_open(in_folder("1.json"), &t));
        CHECK(strait_tokenizer_can_split_lines(t));
        check_round_trip(t, text, n);
        unsigned char bytes[4096];
        uint32_t seed = 9;
        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = (unsigned char)(seed >> 24);
        }
        check_round_trip(t, bytes, sizeof bytes);
        strait_tokenizer_close(&t);
        strait_alloc_free(first);
        strait_alloc_free(second);
    }
}

static void check_rejected(strait_tokenizer_train_spec spec, strait_err err, const char *expected) {
    int32_t n = 0;
    const char *out = in_folder("no.json");
    CHECK_FAILS(strait_tokenizer_train(&spec, out, &n), err, expected);
    CHECK(!strait_file_exists(in_folder("no.json")));
}

static void test_rejects_bad_settings(void **state) {
    (void)state;
    const char *paths[] = {in_folder("empty.txt")};
    put_file(paths[0], "", 0);
    const strait_text_spec none = {.paths = paths, .n_paths = 1};
    const char *const twice[] = {"<a>", "<a>"};
    const char *const spaced[] = {"< >"};
    check_rejected((strait_tokenizer_train_spec){.text = none, .vocab = 300}, STRAIT_EDATA,
                   "contain no text");
    check_rejected((strait_tokenizer_train_spec){.text = none, .vocab = 255}, STRAIT_ECONFIG,
                   "vocabulary of 255");
    check_rejected((strait_tokenizer_train_spec){.text = none, .vocab = 300, .pattern = "x"},
                   STRAIT_ECONFIG, "pattern \"x\"");
    check_rejected(
        (strait_tokenizer_train_spec){
            .text = none, .vocab = 300, .specials = twice, .n_specials = 2},
        STRAIT_ECONFIG, "given twice");
    check_rejected(
        (strait_tokenizer_train_spec){
            .text = none, .vocab = 300, .specials = spaced, .n_specials = 1},
        STRAIT_ECONFIG, "visible ASCII");
}

static void test_survives_failing_allocations(void **state) {
    (void)state;
    const char *paths[] = {in_folder("few.txt")};
    const char *out = in_folder("few.json");
    put_file(paths[0], "abab abab", 9);
    int32_t n_tokens = 0;
    const strait_tokenizer_train_spec spec = {
        .text = {.paths = paths, .n_paths = 1}, .vocab = 260, .n_threads = 1};
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_tokenizer_train(&spec, out, &n_tokens));
    const int64_t n_allocations = strait_alloc_count() - before;
    CHECK(n_allocations > 30);
    for (int64_t n = 1; n <= n_allocations; n++) {
        strait_alloc_fail_at(n);
        const strait_err err = strait_tokenizer_train(&spec, out, &n_tokens);
        strait_alloc_fail_at(0);
        if (err != STRAIT_OK) assert_int_equal(err, STRAIT_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_most_frequent_pairs_first),
        cmocka_unit_test(test_counts_overlapping_pairs),
        cmocka_unit_test(test_result_is_independent_of_threads_and_file_order),
        cmocka_unit_test(test_rejects_bad_settings),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
