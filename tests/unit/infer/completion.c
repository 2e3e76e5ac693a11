/* Tokens become text, and stop strings end it wherever tokens divide them. */
#include "infer/completion.h"

#include "check.h"

#include <string.h>

/* Byte-level tokens: a letter each, two pairs, and the bytes of an e with an accent. */
static const char file[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,"
    "\"\\u00c3\":5,\"\\u00a9\":6},\"merges\":[\"a b\",\"b c\"]},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"}}";

static struct strait_tokenizer *tokenizer;

/* Everything that is delivered for these tokens, until a stop string; "|" marks the stop. */
static const char *text_of(const int32_t *tokens, int n, const char *const *stops, int n_stops) {
    static char all[256];
    struct strait_completion c = {0};
    size_t used = 0;
    int is_stopped = 0;
    CHECK_OK(strait_completion_open(&c, tokenizer, stops, n_stops));
    for (int i = 0; i <= n && !is_stopped; i++) {
        const strait_completion_text t = i < n ? strait_completion_push(&c, tokens[i])
                                               : strait_completion_finish(&c);
        memcpy(all + used, t.bytes, t.n);
        used += t.n;
        is_stopped = t.is_stopped;
    }
    (void)snprintf(all + used, sizeof all - used, is_stopped ? "|" : "");
    strait_completion_close(&c);
    return all;
}

#define TEXT(stops, n_stops, ...)           \
    text_of((const int32_t[]){__VA_ARGS__}, \
            (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), stops, n_stops)

static void stops_wherever_tokens_divide_the_string(void **state) {
    (void)state;
    static const char *const stops[] = {"bca", "cc"};
    assert_string_equal(TEXT(stops, 2, 0, 1, 2, 1), "abcb");
    assert_string_equal(TEXT(stops, 2, 0, 4, 0, 1), "a|");
    assert_string_equal(TEXT(stops, 2, 3, 2, 0), "a|");
    assert_string_equal(TEXT(stops, 2, 3, 4, 4, 2, 0), "abbcb|"); // the first of the two
    assert_string_equal(TEXT(stops, 2, 2, 0, 2), "cac");          // the end holds nothing back
    assert_string_equal(TEXT(NULL, 0, 4, 0), "bca");
}

/* Half a character is held back until it is complete. */
static void delivers_whole_characters(void **state) {
    (void)state;
    struct strait_completion c = {0};
    CHECK_OK(strait_completion_open(&c, tokenizer, NULL, 0));
    assert_int_equal(strait_completion_prompt(&c, 0).n, 1);
    assert_int_equal(strait_completion_push(&c, 5).n, 0);
    const strait_completion_text t = strait_completion_push(&c, 6);
    assert_int_equal(t.n, 2);
    assert_memory_equal(t.bytes, "\xc3\xa9", 2);
    assert_int_equal(strait_completion_push(&c, 5).n, 0);
    assert_int_equal(strait_completion_finish(&c).n, 1);
    strait_completion_close(&c);
}

static void rejects_stop_strings_out_of_bounds(void **state) {
    (void)state;
    char longest[STRAIT_STOP_BYTES_MAX + 2];
    const char *many[STRAIT_STOPS_MAX + 1];
    struct strait_completion c = {0};
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    for (int i = 0; i <= STRAIT_STOPS_MAX; i++)
        many[i] = "a";
    CHECK_FAILS(strait_completion_open(&c, tokenizer, many, STRAIT_STOPS_MAX + 1), STRAIT_ECONFIG,
                "at most 16");
    CHECK_FAILS(strait_completion_open(&c, tokenizer, (const char *[]){""}, 1), STRAIT_ECONFIG,
                "0 bytes");
    CHECK_FAILS(strait_completion_open(&c, tokenizer, (const char *[]){longest}, 1), STRAIT_ECONFIG,
                "257 bytes");
    strait_completion_close(&c);
}

static int set_up(void **state) {
    (void)state;
    CHECK_OK(strait_tokenizer_parse(file, sizeof file - 1, &tokenizer));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_tokenizer_close(&tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_wherever_tokens_divide_the_string),
        cmocka_unit_test(delivers_whole_characters),
        cmocka_unit_test(rejects_stop_strings_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
