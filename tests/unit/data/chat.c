#include "data/text/chat.h"

#include "check.h"

#include <stdio.h>

/* The runs of a line as text: trained ones in brackets. */
static const char *runs_of(const char *line, const char *shape) {
    static char out[1024];
    strait_chat chat = {0};
    size_t at = 0, start = 0;
    CHECK_OK(strait_chat_parse(&chat, line, strlen(line), shape));
    for (size_t i = 0; i < chat.n_runs; i++) {
        const int n = (int)(chat.runs[i].end - start);
        at += (size_t)snprintf(out + at, sizeof out - at,
                               chat.runs[i].is_trained ? "[%.*s]" : "%.*s", n,
                               (const char *)chat.text.data + start);
        CHECK(n > 0);
        start = chat.runs[i].end;
    }
    assert_int_equal(start, chat.text.n);
    strait_chat_fini(&chat);
    return out;
}

static void test_trains_on_completions_only(void **state) {
    (void)state;
    assert_string_equal(
        runs_of("{\"prompt\":\"ab\",\"completion\":\"cd\",\"id\":123456789012345678901}",
                strait_chat_plain),
        "ab[cd]");
    assert_string_equal(runs_of("{\"completion\":\"cd\",\"prompt\":\"\"}", strait_chat_plain),
                        "[cd]");
}

static void test_trains_on_messages_of_the_assistant(void **state) {
    (void)state;
    const char *line = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                       "{\"role\":\"assistant\",\"content\":\"b\"},"
                       "{\"role\":\"user\",\"content\":\"\"},"
                       "{\"role\":\"assistant\",\"content\":\"c\"}]}";
    assert_string_equal(runs_of(line, strait_chat_chatml),
                        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]"
                        "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n[c<|im_end|>\n]");
    assert_string_equal(
        runs_of(line, "{role}{content}\\n\\{role}."),
        "usera\n\\user.assistant[b\n\\assistant.]user\n\\user.assistant[c\n\\assistant.]");
    /* Without text after the content, an answer and the next message are two runs. */
    assert_string_equal(runs_of(line, "|{content}"), "|a|[b]||[c]");
}

static void test_says_what_a_line_lacks(void **state) {
    (void)state;
    static const struct {
        const char *line, *expected;
    } cases[] = {
        {"", "column 0"},
        {"{\"prompt\":\"a\"}", "\"prompt\" and \"completion\""},
        {"{\"prompt\":\"a\",\"completion\":1}", "\"prompt\" and \"completion\""},
        {"{\"prompt\":\"a\",\"completion\":\"\"}", "\"completion\" is empty"},
        {"{\"messages\":\"a\"}", "\"messages\" is not a list"},
        {"{\"messages\":[]}", "nothing to train on"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "nothing to train on"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}", "nothing to train on"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\"}]}",
         "message 2: \"content\" is not a text"},
        {"{\"messages\":[{\"content\":\"a\"}]}", "message 1: \"role\" is not a text"},
        {"[]", "\"prompt\" and \"completion\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strait_chat chat = {0};
        CHECK_FAILS(
            strait_chat_parse(&chat, cases[i].line, strlen(cases[i].line), strait_chat_plain),
            STRAIT_EDATA, cases[i].expected);
        strait_chat_fini(&chat);
    }
    CHECK_FAILS(strait_chat_check_template("{role}"), STRAIT_ECONFIG, "{content} nowhere");
    CHECK_FAILS(strait_chat_check_template("{content} {content}"), STRAIT_ECONFIG, "twice");
    CHECK_OK(strait_chat_check_template(strait_chat_chatml));
    CHECK_OK(strait_chat_check_template(strait_chat_plain));
}

/* The text of a chat up to where the answer begins, and what ends the answer. */
static void test_writes_a_chat_to_continue(void **state) {
    (void)state;
    strait_chat chat = {0};
    json_t *messages = json_pack("[{ss ss} {ss ss}]", "role", "system", "content", "s", "role",
                                 "user", "content", "u");
    static const struct {
        const char *shape, *text, *ending;
    } cases[] = {
        {strait_chat_chatml,
         "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
         "<|im_start|>assistant\n",
         "<|im_end|>"},
        {"{role}: {content}\\n", "system: s\nuser: u\nassistant: ", "\n"},
        {"{content}", "su", ""},
        {"[{role}]{content}[/{role}] \\n", "[system]s[/system] \n[user]u[/user] \n[assistant]",
         "[/assistant]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(strait_chat_prompt(&chat, messages, cases[i].shape));
        assert_int_equal(chat.text.n, strlen(cases[i].text));
        assert_memory_equal(chat.text.data, cases[i].text, chat.text.n);
        CHECK_OK(strait_chat_ending(&chat, cases[i].shape));
        assert_int_equal(chat.text.n, strlen(cases[i].ending));
        if (chat.text.n > 0) assert_memory_equal(chat.text.data, cases[i].ending, chat.text.n);
    }
    json_decref(messages);
    messages = json_pack("[{ss ss} {ss}]", "role", "a", "content", "b", "role", "user");
    CHECK_FAILS(strait_chat_prompt(&chat, messages, strait_chat_plain), STRAIT_EDATA, "message 2");
    json_decref(messages);
    messages = json_array();
    CHECK_FAILS(strait_chat_prompt(&chat, messages, strait_chat_plain), STRAIT_EDATA, "messages");
    json_decref(messages);
    strait_chat_fini(&chat);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trains_on_completions_only),
        cmocka_unit_test(test_trains_on_messages_of_the_assistant),
        cmocka_unit_test(test_says_what_a_line_lacks),
        cmocka_unit_test(test_writes_a_chat_to_continue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
