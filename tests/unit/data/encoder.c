#include "data/tokenizer/encoder.h"

#include "folder.h"
#include "tokenizers.h"

static void test_applies_merges_in_order_of_rank(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){0});
    CHECK_IDS(t, "abcd", "7");
    CHECK_IDS(t, "abc", "5 2");             // a+b comes before b+c
    CHECK_IDS(t, "bcd", "1 6");             // c+d before b+c
    CHECK_IDS(t, "bca", "9 0");             // only b+c applies
    CHECK_IDS(t, "abcdab abcd", "7 5 4 7"); // a+b comes before space+a
    CHECK_IDS(t, "", "");
    CHECK_IDS(t, "a z a", "0 4 8"); // z has no token, and there is no unknown token
    strait_tokenizer_close(&t);
    t = open_test_file(
        &(strait_test_file){.options = "\"ignore_merges\":true,", .merges = "[\"a b\"]"});
    CHECK_IDS(t, "abcd", "7"); // the whole word is a token, although no merges lead to it
    CHECK_IDS(t, "abcda", "5 2 3 0");
    strait_tokenizer_close(&t);
}

/* Long words are merged with a heap; the result must be the same. */
static void test_long_words_follow_the_same_rule(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){0});
    char word[400];
    char expected[1000] = "";
    for (int i = 0; i < 99; i++) {
        memcpy(word + (size_t)i * 4, "abcd", 4);
        add_text(expected, sizeof expected, i == 0 ? "7" : " 7");
    }
    word[396] = '\0';
    CHECK_IDS(t, word, expected);
    strait_tokenizer_close(&t);
    t = open_test_file(&(strait_test_file){.vocab = "{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaa\":3}",
                                           .merges = "[\"a a\",\"aa aa\",\"aa a\"]"});
    memset(word, 'a', sizeof word);
    for (int n = 1; n < 200; n++) { // pairs from the left, then pairs of pairs, then the rest
        word[n] = '\0';
        expected[0] = '\0';
        for (int k = 0; k < n / 4; k++)
            add_text(expected, sizeof expected, k == 0 ? "2" : " 2");
        const char *const rest[] = {"", "0", "1", "3"};
        if (n / 4 > 0 && n % 4 > 0) add_text(expected, sizeof expected, " ");
        add_text(expected, sizeof expected, rest[n % 4]);
        CHECK_IDS(t, word, expected);
        word[n] = 'a';
    }
    strait_tokenizer_close(&t);
}

static void test_matches_added_tokens(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .added = "[{\"id\":20,\"content\":\"<x>\",\"special\":true},"
                 "{\"id\":21,\"content\":\"<x><x>\",\"special\":true},"
                 "{\"id\":22,\"content\":\"<l>\",\"lstrip\":true,\"special\":true},"
                 "{\"id\":23,\"content\":\"<r>\",\"rstrip\":true,\"special\":true},"
                 "{\"id\":24,\"content\":\"cab\",\"single_word\":true,\"special\":true}]"});
    CHECK_IDS(t, "a<x>b", "0 20 1");
    CHECK_IDS(t, "<x><x><x>", "21 20"); // the longest first
    CHECK_IDS(t, "a \t<l> b", "0 22 4 1");
    CHECK_IDS(t,
              "a <r> \n\xc2\xa0"
              "b",
              "0 4 23 1");
    CHECK_IDS(t, "a cab a", "0 4 24 8");
    CHECK_IDS(t, "acab cabd", "0 2 5 4 2 5 3");
    CHECK_IDS(t, "<x", "");
    CHECK(!strait_tokenizer_can_split_lines(t));
    strait_tokenizer_close(&t);
}

/* Where the rest of a longer token is missing, or the text ends, a shorter one is found. */
static void test_finds_the_longest_of_added_tokens_that_start_alike(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(
        &(strait_test_file){.added = "[{\"id\":23,\"content\":\"<abd\",\"special\":true},"
                                     "{\"id\":21,\"content\":\"<a\",\"special\":true},"
                                     "{\"id\":20,\"content\":\"<\",\"special\":true},"
                                     "{\"id\":22,\"content\":\"<abc\",\"special\":true},"
                                     "{\"id\":24,\"content\":\"<a\",\"special\":true},"
                                     "{\"id\":25,\"content\":\"<d\",\"normalized\":true}]"});
    CHECK_IDS(t, "<aba", "21 1 0"); // of equal ones the first in the file
    CHECK_IDS(t, "<abc<abd", "22 23");
    CHECK_IDS(t, "<ab", "21 1");
    CHECK_IDS(t, "<c<d", "20 2 20 3"); // those of the text come before those of its normalised form
    CHECK_IDS(t, "<<<a<", "20 20 21 20");
    strait_tokenizer_close(&t);
}

/* Text of a user that spells a special token stays text; other added tokens are words. */
static void test_marked_text_has_no_special_tokens(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .added = "[{\"id\":20,\"content\":\"ab\",\"special\":true},"
                 "{\"id\":21,\"content\":\"cd\",\"special\":true,\"rstrip\":true},"
                 "{\"id\":22,\"content\":\"da\",\"special\":false}]"});
    struct strait_encoder *e = NULL;
    CHECK_OK(strait_encoder_open(t, &e));
    const struct {
        const char *text, *marks;
        size_t n;
        int32_t ids[4];
    } cases[] = {
        {"abcd", "\0\0\0\0", 2, {20, 21}},   {"abcd", "\1\1\0\0", 2, {5, 21}}, // a+b is a merge
        {"abcd", "\1\1\1\1", 1, {7}},        // all of a user: one word
        {"abab", "\1\0\0\0", 2, {5, 20}},    // one byte of a user is enough
        {"cd ab", "\0\0\1\1\1", 2, {21, 5}}, // the template's token strips the user's space
        {"bdab", "\1\1\1\1", 3, {1, 22, 1}}, // not special: no control token
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t *ids = NULL;
        size_t n = 0;
        CHECK_OK(strait_encoder_encode_marked(e, cases[i].text,
                                              (const unsigned char *)cases[i].marks,
                                              strlen(cases[i].text), &ids, &n));
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, n * sizeof *ids);
    }
    strait_encoder_close(&e);
    CHECK_IDS(t, "abab", "20 20"); // as ever without marks
    strait_tokenizer_close(&t);
}

static void test_normalizes_before_matching(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .added = "[{\"id\":20,\"content\":\"XY\",\"normalized\":true},"
                 "{\"id\":21,\"content\":\"<x>\",\"normalized\":false}]",
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":"
                      "{\"String\":\"X\"},\"content\":\"a\"},{\"type\":\"Replace\",\"pattern\":"
                      "{\"Regex\":\"Y+\"},\"content\":\"b\"},{\"type\":\"Prepend\",\"prepend\":"
                      "\"c\"}]}"});
    CHECK_IDS(t, "XYY", "20"); // cab, as the added token after normalisation
    CHECK_IDS(t, "XXd", "2 0 0 3");
    CHECK_IDS(t, "d<x>d", "6 21 6"); // each section gets its c
    strait_tokenizer_close(&t);
    t = open_test_file(
        &(strait_test_file){.normalizer = "{\"type\":\"NFC\"}",
                            .vocab = "{\"\\u00c3\":0,\"\\u00a9\":1,\"\\u00c3\\u00a9\":2}",
                            .merges = "[\"\\u00c3 \\u00a9\"]"});
    CHECK_IDS(t, "e\xcc\x81\xc3\xa9", "2 2");
    strait_tokenizer_close(&t);
}

static void check_split(const char *split, const char *text, const char *expected) {
    char pre[1024];
    (void)snprintf(pre, sizeof pre, "{\"type\":\"Sequence\",\"pretokenizers\":[%s]}", split);
    /* The merges join everything they can, so the ids show where the text was split. */
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .pre_tokenizer = pre,
        .decoder = "null",
        .vocab = "{\"a\":0,\"-\":1,\"a-\":2,\"-a\":3,\"--\":4,\"aa\":5,\"a-a\":6,"
                 "\"1\":7,\"a1\":8,\"11\":9,\" \":10,\"\\u2581\":11,"
                 "\"\\u2581a\":12,\"\\u2581\\u2581\":13}",
        .merges = "[\"a -\",\"- a\",\"- -\",\"a a\",\"a- a\",\"a 1\",\"1 1\","
                  "\"\\u2581 a\",\"\\u2581 \\u2581\"]"});
    CHECK_IDS(t, text, expected);
    strait_tokenizer_close(&t);
}

#define SPLIT(behavior, invert)                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"" behavior \
    "\",\"invert\":" invert "}"

static void test_splits_as_each_pre_tokenizer_says(void **state) {
    (void)state;
    check_split(SPLIT("Isolated", "false"), "a-a--a", "0 1 0 1 1 0");
    check_split(SPLIT("Removed", "false"), "a-a--a", "0 0 0");
    check_split(SPLIT("Removed", "true"), "a-a--a", "1 1 1");
    check_split(SPLIT("Contiguous", "false"), "a-a--a", "0 1 0 4 0");
    check_split(SPLIT("MergedWithPrevious", "false"), "-a-a--a", "1 2 2 1 0");
    check_split(SPLIT("MergedWithNext", "false"), "a-a--a-", "0 3 1 3 1");
    check_split("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=a)\"},\"behavior\":\"Isolated\"}",
                "aa-a", "0 2 0");
    check_split("{\"type\":\"Digits\",\"individual_digits\":true}", "a11", "0 7 7");
    check_split("{\"type\":\"Digits\"}", "a11", "0 9");
    check_split("{\"type\":\"Punctuation\"}", "a-a", "0 1 0");
    check_split("{\"type\":\"WhitespaceSplit\"}",
                "a-  a\xe3\x80\x80"
                "aa",
                "2 0 5");
    check_split("{\"type\":\"Whitespace\"}", "a-- a1", "0 4 8");
    check_split(
        "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"always\"}",
        "a a  a", "12 12 11 12");
    check_split("{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"never\"}",
                "a a", "0 12");
    check_split("{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"split\":false}", "  a",
                "11 12"); // not split: the merge of lowest rank, metaspace and a, is applied first
}

static const char llama_vocab[] = "{\"<unk>\":0,\"<0xC3>\":1,\"<0xA9>\":2,\"<0xFF>\":3,\"a\":4,"
                                  "\"\\u2581\":5,\"\\u2581a\":6,\"aa\":7,\"b\":8}";
static const char llama_decoder[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
    "\"\\u2581\"},"
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
    "\"content\":\" \",\"start\":1,\"stop\":0}]}";
static const char llama_normalizer[] =
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"},{"
    "\"type\":"
    "\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]}";

static void test_falls_back_to_bytes_or_unknown_token(void **state) {
    (void)state;
    strait_test_file file = {.options = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
                                        "\"byte_fallback\":true,",
                             .vocab = llama_vocab,
                             .merges = "[\"\\u2581 a\",\"a a\"]",
                             .normalizer = llama_normalizer,
                             .pre_tokenizer = "null",
                             .decoder = llama_decoder};
    struct strait_tokenizer *t = open_test_file(&file);
    CHECK_IDS(t, "a a", "6 6");
    CHECK_IDS(t, "aaa  ab", "6 7 5 6 8");
    CHECK_IDS(t, "\xc3\xa9", "5 1 2"); // the tokens of its bytes
    CHECK_IDS(t,
              "\xc3\xab\xc3\xab"
              "a",
              "5 0 4"); // no token for byte 0xab: one unknown token for the run
    CHECK_IDS(t,
              "a\xff"
              "a",
              "6 3 4"); // not UTF-8: the byte's token, and no metaspace after it
    check_round_trip(t, "a a  aab \xc3\xa9 \xff a", 15);
    strait_tokenizer_close(&t);
    file.options = "\"unk_token\":\"<unk>\",";
    t = open_test_file(&file);
    CHECK_IDS(t, "zza", "5 0 0 4");
    CHECK_IDS(t,
              "a\xff"
              "a",
              "6 0 4");
    strait_tokenizer_close(&t);
}

static void test_adds_template_tokens_on_request(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .post_processor =
            "{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL
            ",{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"d\","
            "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":"
            "\"c\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"d\":{\"id\":\"d\",\"ids\":[3]"
            ","
            "\"tokens\":[\"d\"]},\"c\":{\"id\":\"c\",\"ids\":[2,2],\"tokens\":[\"c\",\"c\"]}}}]}"});
    CHECK_IDS(t, "a", "0");
    assert_string_equal(ids_of(t, "a", 1, STRAIT_ENCODE_TEMPLATE), "3 0 2 2");
    assert_string_equal(ids_of(t, "", 0, STRAIT_ENCODE_TEMPLATE), "3 2 2");
    strait_tokenizer_close(&t);
}

static void test_adds_prefix_space_once(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(
        &(strait_test_file){.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"});
    CHECK_IDS(t, "ad", "8 3");
    CHECK_IDS(t, " ad", "8 3");
    strait_tokenizer_close(&t);
}

/* The decoder writes whole characters only, and all remaining bytes at the end. */
static void test_decoder_emits_whole_characters(void **state) {
    (void)state;
    struct strait_tokenizer *t = open_test_file(&(strait_test_file){
        .vocab = "{\"\\u00e2\":0,\"\\u0138\":1,\"\\u0123\":2,\"a\":3}", .merges = "[]"});
    strait_decoder decoder;
    unsigned char out[16];
    strait_decoder_init(&decoder, t);
    assert_int_equal(strait_decoder_push(&decoder, 0, out), 0); // e2
    assert_int_equal(strait_decoder_push(&decoder, 1, out), 0); // 96
    assert_int_equal(strait_decoder_push(&decoder, 2, out), 3); // 81
    assert_memory_equal(out, "\xe2\x96\x81", 3);
    assert_int_equal(strait_decoder_push(&decoder, 0, out), 0);
    assert_int_equal(strait_decoder_push(&decoder, 3, out),
                     2); // an incomplete character is written as it is
    assert_memory_equal(out,
                        "\xe2"
                        "a",
                        2);
    assert_int_equal(strait_decoder_push(&decoder, 99, out), 0);
    assert_int_equal(strait_decoder_push(&decoder, 0, out), 0);
    assert_int_equal(strait_decoder_finish(&decoder, out), 1);
    assert_int_equal(strait_decoder_finish(&decoder, out), 0);
    strait_tokenizer_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_applies_merges_in_order_of_rank),
        cmocka_unit_test(test_long_words_follow_the_same_rule),
        cmocka_unit_test(test_matches_added_tokens),
        cmocka_unit_test(test_finds_the_longest_of_added_tokens_that_start_alike),
        cmocka_unit_test(test_marked_text_has_no_special_tokens),
        cmocka_unit_test(test_normalizes_before_matching),
        cmocka_unit_test(test_splits_as_each_pre_tokenizer_says),
        cmocka_unit_test(test_falls_back_to_bytes_or_unknown_token),
        cmocka_unit_test(test_adds_template_tokens_on_request),
        cmocka_unit_test(test_adds_prefix_space_once),
        cmocka_unit_test(test_decoder_emits_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
