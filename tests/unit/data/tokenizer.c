#include "data/tokenizer/tokenizer.h"

#include "folder.h"
#include "tokenizers.h"

static void check_rejected(const strait_test_file *file, const char *expected) {
    struct strait_tokenizer *tokenizer = NULL;
    const char *text = test_file_text(file);
    CHECK_FAILS(strait_tokenizer_parse(text, strlen(text), &tokenizer), STRAIT_EDATA, expected);
    CHECK(tokenizer == NULL);
}

static void test_names_unsupported_settings(void **state) {
    (void)state;
    const struct {
        strait_test_file file;
        const char *expected;
    } cases[] = {
        {{.normalizer = "{\"type\":\"Lowercase\"}"}, "\"normalizer\" of type \"Lowercase\""},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"}]}"}, "\"Nmt\""},
        {{.normalizer = "{\"type\":\"NFC\",\"extra\":1}"}, "key \"extra\""},
        {{.normalizer = "3"}, "\"normalizer\" is not an object"},
        {{.pre_tokenizer = "{\"type\":\"BertPreTokenizer\"}"}, "\"BertPreTokenizer\""},
        {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL
                           ",{\"type\":\"Digits\"}]}"},
         "after ByteLevel"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
                           "\"Isolated\",\"invert\":false}"},
         "pattern \"(\""},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":"
                           "\"Isolated\"}"},
         "[ inside [ ]"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\h\"},\"behavior\":"
                           "\"Isolated\"}"},
         "\\h"},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
                           "\"Sideways\"}"},
         "behavior \"Sideways\""},
        {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Glob\":\"a\"},\"behavior\":"
                           "\"Isolated\"}"},
         "key \"Glob\""},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, "\"decoder\": type \"WordPiece\""},
        {{.post_processor = "{\"type\":\"BertProcessing\"}"}, "\"post_processor\": type"},
        {{.options = "\"dropout\":0.1,"}, "\"model\": \"dropout\" is set"},
        {{.options = "\"end_of_word_suffix\":\"</w>\","}, "end_of_word_suffix"},
        {{.options = "\"colour\":1,"}, "key \"colour\""},
        {{.options = "\"unk_token\":\"zz\","}, "\"unk_token\": \"zz\" is not in \"vocab\""},
        {{.options = "\"fuse_unk\":1,"}, "\"fuse_unk\" is not true or false"},
        {{.merges = "[\"a z\"]"}, "item 0, \"a z\""},
        {{.merges = "[\"a b\",\"a c\"]"}, "item 1"},
        {{.merges = "[\"abc\"]"}, "item 0 is neither"},
        {{.merges = "[[\"a\",\"b\",\"c\"]]"}, "item 0 is neither"},
        {{.vocab = "{}"}, "\"vocab\" is empty"},
        {{.vocab = "{\"a\":0,\"b\":0}"}, "id 0, which another token has"},
        {{.vocab = "{\"a\":-1}"}, "has id -1"},
        {{.vocab = "{\"a\":\"x\"}"}, "not an integer"},
        {{.vocab = "{\"a\":99999999999}"}, "has id 99999999999"},
        {{.added = "[{\"id\":5,\"content\":\"<x>\"}]"}, "id 5 is \"ab\""},
        {{.added = "[{\"id\":-5,\"content\":\"<x>\"}]"}, "item 0: id -5"},
        {{.added = "[{\"content\":\"<x>\"}]"}, "\"id\" is missing"},
        {{.added = "[{\"id\":11,\"content\":\"<x>\",\"weight\":1}]"}, "key \"weight\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rejected(&cases[i].file, cases[i].expected);
}

static void test_rejects_other_files(void **state) {
    (void)state;
    struct strait_tokenizer *t = NULL;
    CHECK_FAILS(strait_tokenizer_parse("{}", 2, &t), STRAIT_EDATA, "\"model\" is missing");
    CHECK_FAILS(strait_tokenizer_parse("[]", 2, &t), STRAIT_EDATA, "not an object");
    CHECK_FAILS(strait_tokenizer_parse("{\"x\":1}", 7, &t), STRAIT_EDATA, "key \"x\"");
    CHECK_FAILS(strait_tokenizer_parse("{\"model\":{\"type\":\"Unigram\"}}", 28, &t), STRAIT_EDATA,
                "type \"Unigram\" is not supported; expected BPE");
    CHECK_FAILS(strait_tokenizer_parse("{\"padding\":{}}", 14, &t), STRAIT_EDATA,
                "\"padding\" is not supported");
    put_file(in_folder("bad.json"), "{", 1);
    CHECK_FAILS(strait_tokenizer_open(in_folder("bad.json"), &t), STRAIT_EDATA, "bad.json: line 1");
    CHECK_FAILS(strait_tokenizer_open(in_folder("none.json"), &t), STRAIT_EIO, "none.json");
}

static void test_finds_tokens_and_their_bytes(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .added = "[{\"id\":12,\"content\":\"<|endoftext|>\",\"special\":true}]"});
    assert_int_equal(strait_tokenizer_vocab(t), 13);
    assert_int_equal(strait_tokenizer_count(t), 11);
    assert_int_equal(strait_tokenizer_find(t, " a", 2), 8);
    assert_int_equal(strait_tokenizer_find(t, "<|endoftext|>", 13), 12);
    assert_int_equal(strait_tokenizer_find(t, "zz", 2), -1);
    assert_int_equal(strait_tokenizer_end(t), 12);
    CHECK(strait_tokenizer_is_special(t, 12) && !strait_tokenizer_is_special(t, 5));
    CHECK(!strait_tokenizer_is_special(t, 99) && !strait_tokenizer_is_special(t, -1));
    size_t n = 0;
    assert_memory_equal(strait_tokenizer_bytes(t, 8, &n), " a", 2);
    assert_int_equal(n, 2);
    (void)strait_tokenizer_bytes(t, 11, &n);
    assert_int_equal(n, 0);
    CHECK(strait_tokenizer_bytes(t, 13, &n) == NULL);
    strait_tokenizer_close(&t);
}

static void test_fingerprint_changes_with_the_ids_only(void **state) {
    (void)state;
    const strait_test_file files[] = {
        {.added = NULL},
        {.merges = "[\"a b\",\"c d\",\"ab cd\",\"b c\",\"\\u0120 a\"]"},
        {.normalizer = "{\"type\":\"NFC\"}"},
        {.options = "\"ignore_merges\":true,"},
        {.added = "[{\"id\":10,\"content\":\"<x>\"}]"},
        {.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
    };
    char fingerprints[6][33];
    for (int i = 0; i < 6; i++) {
        struct strait_tokenizer *t = open_test_file(&files[i]);
        memcpy(fingerprints[i], strait_tokenizer_fingerprint(t), 33);
        assert_int_equal(strlen(fingerprints[i]), 32);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(fingerprints[i], fingerprints[k]) != 0);
        strait_tokenizer_close(&t);
    }
    /* Shards and checkpoints store the fingerprint: it must never change. */
    assert_string_equal(fingerprints[0], "7c73c65a9a9edf9b4421da288bd4b9aa");
    struct strait_tokenizer *same = open_test_file(&(strait_test_file){
        .merges = "[[\"a\",\"b\"],[\"c\",\"d\"],[\"ab\",\"cd\"],[\"\\u0120\",\"a\"],[\"b\",\"c\"]]",
        .options = "\"dropout\":null,\"fuse_unk\":false,",
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"});
    assert_string_equal(strait_tokenizer_fingerprint(same), fingerprints[0]);
    strait_tokenizer_close(&same);
}

/* As InternLM 2 and Command R+ have them: SentencePiece's token of the character NUL, and keys of
 * ByteLevel in a template. The ids are those of the tokenizers library. */
static void test_reads_a_token_of_nul_and_a_template_with_extra_keys(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .pre_tokenizer = "null",
        .decoder = "{\"type\":\"Fuse\"}",
        .vocab = "{\"<s>\":0,\"\\u0000\" : 1,\"a\":2,\"b\":3,\"ab\":4}",
        .merges = "[\"a b\"]",
        .post_processor = "{\"type\":\"TemplateProcessing\",\"add_prefix_space\":true,"
                          "\"trim_offsets\":false,\"use_regex\":true,\"pair\":[],\"single\":"
                          "[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":"
                          "{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":"
                          "{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}}"});
    assert_string_equal(ids_of(t, "ab\0a", 4, 0), "4 1 2");
    assert_string_equal(ids_of(t, "b", 1, STRAIT_ENCODE_TEMPLATE), "0 3");
    check_round_trip(t, "a\0\0b", 4);
    assert_int_equal(strait_tokenizer_find(t, "", 1), 1);
    strait_tokenizer_close(&t);
    /* A file that has U+FFFF itself leaves nothing to stand for the NUL. */
    const char *both = test_file_text(
        &(strait_test_file){.vocab = "{\"\\u0000\":0,\"\\uffff\":1}", .merges = "[]"});
    CHECK_FAILS(strait_tokenizer_parse(both, strlen(both), &t), STRAIT_EDATA, "NUL byte");
}

static void test_survives_failing_allocations(void **state) {
    (void)state;
    const strait_test_file file = {
        .added = "[{\"id\":12,\"content\":\"<e\\u0301>\",\"normalized\":true}]",
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
                      "\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"y\"}]}",
        .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                          "\"a\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                          "\"pair\":[],\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":[0],"
                          "\"tokens\":[\"a\"]}}}"};
    const char *text = test_file_text(&file);
    struct strait_tokenizer *t = NULL;
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_tokenizer_parse(text, strlen(text), &t));
    const int64_t n_allocations = strait_alloc_count() - before;
    CHECK(n_allocations > 20);
    for (int64_t n = 1; n <= n_allocations; n++) {
        struct strait_tokenizer *again = NULL;
        strait_alloc_fail_at(n);
        const strait_err err = strait_tokenizer_parse(text, strlen(text), &again);
        strait_alloc_fail_at(0);
        CHECK((err == STRAIT_OK) ==
              (again != NULL)); // PCRE2 works without its JIT if that gets no memory
        if (err != STRAIT_OK) assert_int_equal(err, STRAIT_ENOMEM);
        strait_tokenizer_close(&again);
    }
    for (int n = 1; n <= 40; n++) {
        struct strait_encoder *encoder = NULL;
        const int32_t *ids = NULL;
        size_t n_ids = 0;
        strait_alloc_fail_at(n);
        strait_err err = strait_encoder_open(t, &encoder);
        if (err == STRAIT_OK)
            err = strait_encoder_encode(encoder,
                                        "abcd e\xcc\x81 abcdabcdabcdabcdabcdabcdabcdabcdabcd", 45,
                                        0, &ids, &n_ids);
        strait_alloc_fail_at(0);
        if (err != STRAIT_OK) assert_int_equal(err, STRAIT_ENOMEM);
        CHECK(n > 1 || err == STRAIT_ENOMEM);
        CHECK(n < 40 || err == STRAIT_OK);
        strait_encoder_close(&encoder);
    }
    strait_tokenizer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_unsupported_settings),
        cmocka_unit_test(test_rejects_other_files),
        cmocka_unit_test(test_finds_tokens_and_their_bytes),
        cmocka_unit_test(test_fingerprint_changes_with_the_ids_only),
        cmocka_unit_test(test_reads_a_token_of_nul_and_a_template_with_extra_keys),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
