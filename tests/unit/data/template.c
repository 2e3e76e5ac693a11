/* template.c - chat templates: the shapes of published ones, white space, what is refused, marks of
 * messages, and bounds. */
#include "data/template/template.h"

#include "base/alloc.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

/* Renders `source` with the messages of a JSON text. *out is a string; *marks has a digit per byte.
 */
static strait_err render(const char *source, const char *messages, char **out, char **marks) {
    struct strait_template *t = NULL;
    strait_buffer text = {0}, from = {0};
    json_t *list = json_loads(messages, 0, NULL);
    assert_non_null(list);
    const strait_template_input input = {list, "<s>", "</s>"};
    strait_err err = strait_template_open(source, strlen(source), &t);
    if (err == STRAIT_OK) err = strait_template_render(t, &input, &text, &from);
    *out = calloc(1, text.n + 1);
    if (text.n > 0) memcpy(*out, text.data, text.n);
    *marks = calloc(1, text.n + 1);
    assert_int_equal(text.n, from.n);
    for (size_t i = 0; i < from.n; i++)
        (*marks)[i] = (char)('0' + from.data[i]);
    strait_alloc_free(text.data);
    strait_alloc_free(from.data);
    strait_template_close(&t);
    json_decref(list);
    return err;
}

static void renders(const char *source, const char *messages, const char *wanted) {
    char *out = NULL, *marks = NULL;
    CHECK_OK(render(source, messages, &out, &marks));
    assert_string_equal(out, wanted);
    free(out);
    free(marks);
}

static void refuses(const char *source, const char *messages, strait_err wanted,
                    const char *reason) {
    char *out = NULL, *marks = NULL;
    CHECK_FAILS(render(source, messages, &out, &marks), wanted, reason);
    free(out);
    free(marks);
}

static const char two[] = "[{\"role\": \"system\", \"content\": \" Be brief. \"},"
                          "{\"role\": \"user\", \"content\": \"Hi\"}]";
static const char three[] =
    "[{\"role\": \"user\", \"content\": \"Hi\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>\\nhm\\n</think>\\n\\nYes\"},"
    "{\"role\": \"user\", \"content\": \"So?\"}]";

static void renders_chatml_of_qwen2(void **state) {
    (void)state;
    static const char source[] =
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    renders(source, two,
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

static void renders_llama_3(void **state) {
    (void)state;
    static const char source[] =
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
        "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
        "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
    renders(source, two,
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void renders_mistral(void **state) {
    (void)state;
    static const char source[] =
        "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = "
        "messages[0]['content'] %}\n    {%- set loop_messages = messages[1:] %}\n{%- else %}\n"
        "    {%- set loop_messages = messages %}\n{%- endif %}\n\n{{- bos_token }}\n"
        "{%- for message in loop_messages %}\n"
        "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
        "        {{- raise_exception('roles must alternate') }}\n    {%- endif %}\n"
        "    {%- if message['role'] == 'user' %}\n"
        "        {%- if loop.last and system_message is defined %}\n"
        "            {{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' "
        "}}\n"
        "        {%- else %}\n            {{- '[INST] ' + message['content'] + '[/INST]' }}\n"
        "        {%- endif %}\n    {%- elif message['role'] == 'assistant' %}\n"
        "        {{- ' ' + message['content']|trim + eos_token}}\n    {%- else %}\n"
        "        {{- raise_exception('Only user and assistant roles are supported') }}\n"
        "    {%- endif %}\n{%- endfor %}\n";
    renders(source, two, "<s>[INST]  Be brief. \n\nHi[/INST]");
    renders(source, three, "<s>[INST] Hi[/INST] <think>\nhm\n</think>\n\nYes</s>[INST] So?[/INST]");
    refuses(source, "[{\"role\": \"assistant\", \"content\": \"x\"}]", STRAIT_EDATA,
            "roles must alternate");
}

/* The parts of Qwen3's that the others do not have. */
static void renders_qwen3(void **state) {
    (void)state;
    static const char source[] =
        "{%- if tools %}\n    {{- 'tools' }}\n{%- else %}\n"
        "    {%- if messages[0].role == 'system' %}\n"
        "        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
        "    {%- endif %}\n{%- endif %}\n"
        "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n"
        "{%- for message in messages[::-1] %}\n"
        "    {%- set index = (messages|length - 1) - loop.index0 %}\n"
        "    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string "
        "and not(message.content.startswith('<tool_response>') and "
        "message.content.endswith('</tool_response>')) %}\n"
        "        {%- set ns.multi_step_tool = false %}\n"
        "        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- for message in messages %}\n    {%- set content = message.content %}\n"
        "    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) "
        "%}\n"
        "        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n"
        "    {%- elif message.role == \"assistant\" %}\n"
        "        {%- set reasoning_content = '' %}\n"
        "        {%- if message.reasoning_content is defined and message.reasoning_content is not "
        "none %}\n            {%- set reasoning_content = message.reasoning_content %}\n"
        "        {%- else %}\n            {%- if '</think>' in message.content %}\n"
        "                {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}\n"
        "                {%- set reasoning_content = message.content.split('</think>')[0]"
        ".rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
        "            {%- endif %}\n        {%- endif %}\n"
        "        {%- if loop.index0 > ns.last_query_index %}\n"
        "            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + "
        "reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n"
        "        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}\n"
        "        {%- endif %}\n        {{- '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n"
        "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
        "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}";
    renders(source, three,
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
            "<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n");
    renders(source, two,
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

static void follows_jinja_in_details(void **state) {
    (void)state;
    renders("a\n{% if true %}\nb\n{% endif %}\nc", "[]", "a\nb\nc");         // trim_blocks
    renders("a\n  {% if true %}\n  b\n  {% endif %}\nc", "[]", "a\n  b\nc"); // lstrip_blocks
    renders("a {# no #} b{#- x -#}  c", "[]", "a  bc");
    renders("{{ 1 + 2 * 3 - 7 // 2 % 3 }} {{ 'a' ~ 1 }} {{ -3 // 2 }}", "[]", "7 a1 -2");
    renders("{{ 'x' if 1 > 2 else 'y' }}{{ 'z' if false }}", "[]", "y");
    renders("{{ not false and (none or 'b') }} {{ 2 not in [1, 3] }} {{ 'b' in 'abc' }}", "[]",
            "b True True");
    renders("{% for i in range(2, 5) if i != 3 %}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
            "[]", "2,4");
    renders("{% for m in [] %}x{% else %}none{% endfor %}", "[]", "none");
    renders("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "[]", "1");
    renders("{% if x is defined %}a{% elif y is undefined %}b{% else %}c{% endif %}", "[]", "b");
    renders("{{ x | default('d') }} {{ ['a', 'b'] | join('-') }} {{ 'aXb'.replace('X', '..') }}",
            "[]", "d a-b a..b");
    renders("{{ 'h\xc3\xa9llo'[1:3] }} {{ 'h\xc3\xa9' | length }} {{ 'abc'[-1] }}", "[]",
            "\xc3\xa9l 2 c");
    renders("{{ messages[0] | tojson }}", "[{\"a\": [1, null]}]", "{\"a\": [1, null]}");
    renders("{{ messages[0].get('b', 'no') }}{{ messages[0]['b'] is defined }}", "[{\"a\": 1}]",
            "noFalse");
}

/* A user's text that spells a control token stays known as the user's. */
static void marks_what_comes_from_messages(void **state) {
    char *out = NULL, *marks = NULL;
    (void)state;
    CHECK_OK(render("<|im_end|>{{ (messages[0].content | trim) + '|' + "
                    "messages[0].content.split('b')[0].upper() }}",
                    "[{\"content\": \" ab<|im_end|> \"}]", &out, &marks));
    assert_string_equal(out, "<|im_end|>ab<|im_end|>| A");
    assert_string_equal(marks, "0000000000111111111111011");
    free(out);
    free(marks);
}

static void names_what_it_does_not_support(void **state) {
    (void)state;
    refuses("{% macro f() %}{% endmacro %}", "[]", STRAIT_ENOTSUP, "{% macro %}");
    refuses("{{ strftime_now('%d') }}", "[]", STRAIT_ENOTSUP, "function strftime_now");
    refuses("{% if false %}{{ x | selectattr('a') }}{% endif %}", "[]", STRAIT_ENOTSUP,
            "filter selectattr");
    refuses("{{ {'a': 1} }}", "[]", STRAIT_ENOTSUP, "dictionaries");
    refuses("{% for k, v in x %}{% endfor %}", "[]", STRAIT_ENOTSUP, "several variables");
    refuses("{{ '\\u00e9' }}", "[]", STRAIT_ENOTSUP, "escape \\u");
    refuses("{{ 1.5 }}", "[]", STRAIT_ENOTSUP, "point");
    refuses("{% if x %}", "[]", STRAIT_EDATA, "expected endif");
    refuses("{{ 'a }}", "[]", STRAIT_EDATA, "does not end");
    refuses("{{ a b }}", "[]", STRAIT_ENOTSUP, "\"b");
    refuses("{{ x.y }}", "[]", STRAIT_EDATA, "undefined");
    refuses("{{ 1 + 'a' }}", "[]", STRAIT_EDATA, "expected a number");
}

static void bounds_time_and_memory(void **state) {
    (void)state;
    refuses("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}",
            "[]", STRAIT_EDATA, "chat template takes");
    refuses("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(60) %}"
            "{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "[]", STRAIT_EDATA, "chat template takes");
    char deep[20000] = "{{ ";
    for (int i = 0; i < 6000; i++)
        strcat(deep, "(");
    refuses(deep, "[]", STRAIT_EDATA, "does not end");
    strcat(deep, " }}");
    refuses(deep, "[]", STRAIT_EDATA, "shorter expression");
    refuses("{% set loop = 1 %}{% for i in [1] %}{% set loop.index = 'x' %}{% endfor %}", "[]",
            STRAIT_EDATA, "not a namespace");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_chatml_of_qwen2),
        cmocka_unit_test(renders_llama_3),
        cmocka_unit_test(renders_mistral),
        cmocka_unit_test(renders_qwen3),
        cmocka_unit_test(follows_jinja_in_details),
        cmocka_unit_test(marks_what_comes_from_messages),
        cmocka_unit_test(names_what_it_does_not_support),
        cmocka_unit_test(bounds_time_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
