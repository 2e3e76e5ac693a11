/* Invites: format and parse are inverse, and damaged lines are rejected. */
#include "swarm/invite.h"

#include "check.h"

#include <stdio.h>

static strait_invite sample(void) {
    strait_invite invite = {.address = "[2001:db8::7]:7000", .uses = 12, .expires = 1800000000};
    for (int i = 0; i < 32; i++)
        invite.key.bytes[i] = (unsigned char)(255 - i);
    for (int i = 0; i < 16; i++) {
        invite.run[i] = (unsigned char)i;
        invite.token[i] = (unsigned char)(i * 17);
    }
    return invite;
}

static void parses_what_it_formats(void **state) {
    (void)state;
    static const char *const addresses[] = {"a:1", "10.1.2.3:7000,[2001:db8::7]:7000",
                                            "host.example.org:65535"};
    for (int i = 0; i < 3; i++) { // lengths of every remainder by three
        strait_invite invite = sample();
        strait_invite back;
        char text[STRAIT_INVITE_TEXT];
        char padded[STRAIT_INVITE_TEXT + 8];
        memset(invite.address, 0, sizeof invite.address);
        (void)snprintf(invite.address, sizeof invite.address, "%s", addresses[i]);
        CHECK_OK(strait_invite_format(&invite, text));
        assert_int_equal(strspn(text + 8, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789-_"),
                         strlen(text) - 8);
        (void)snprintf(padded, sizeof padded, " \n%s\r\n ", text);
        CHECK_OK(strait_invite_parse(padded, &back));
        assert_memory_equal(&invite, &back, sizeof back);
    }
}

static void rejects_damaged_lines(void **state) {
    (void)state;
    const strait_invite invite = sample();
    strait_invite back;
    char text[STRAIT_INVITE_TEXT];
    CHECK_OK(strait_invite_format(&invite, text));
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        char other[STRAIT_INVITE_TEXT];
        memcpy(other, text, n + 1);
        other[i] = other[i] == 'Q' ? 'R' : 'Q';
        assert_int_equal(strait_invite_parse(other, &back), STRAIT_ECONFIG);
        other[i] = '%';
        assert_int_equal(strait_invite_parse(other, &back), STRAIT_ECONFIG);
        memcpy(other, text, i);
        other[i] = '\0';
        assert_int_equal(strait_invite_parse(other, &back), STRAIT_ECONFIG);
    }
    char longer[STRAIT_INVITE_TEXT + 600];
    memset(longer, 'A', sizeof longer);
    memcpy(longer, "strait1:", 8);
    longer[sizeof longer - 1] = '\0';
    CHECK_FAILS(strait_invite_parse(longer, &back), STRAIT_ECONFIG, "cut short");
    CHECK_FAILS(strait_invite_parse("", &back), STRAIT_ECONFIG, "strait1:");
    CHECK_FAILS(strait_invite_parse("strait2:AAAA", &back), STRAIT_ECONFIG, "whole line");
}

static void rejects_empty_and_long_addresses(void **state) {
    (void)state;
    strait_invite invite = sample();
    char text[STRAIT_INVITE_TEXT];
    memset(invite.address, 'a', 200);
    invite.address[200] = '\0';
    CHECK_OK(strait_invite_format(&invite, text));
    assert_true(strlen(text) < STRAIT_INVITE_TEXT);
    memset(invite.address, 'a', 201);
    invite.address[201] = '\0';
    CHECK_FAILS(strait_invite_format(&invite, text), STRAIT_EINVAL, "200");
    invite.address[0] = '\0';
    CHECK_FAILS(strait_invite_format(&invite, text), STRAIT_EINVAL, "address");
}

/* The checksum is right, but the list of addresses is invalid. */
static void rejects_invalid_lists_of_addresses(void **state) {
    (void)state;
    static const char *const lists[] = {",", ",a:1", "a:1,", "a:1,,b:2", "a:1 b:2"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        strait_invite invite = sample();
        strait_invite back;
        char text[STRAIT_INVITE_TEXT];
        (void)snprintf(invite.address, sizeof invite.address, "%s", lists[i]);
        CHECK_OK(strait_invite_format(&invite, text));
        CHECK_FAILS(strait_invite_parse(text, &back), STRAIT_ECONFIG, "has an invalid address");
    }
}

static void compares_every_byte_of_tokens(void **state) {
    (void)state;
    const strait_invite a = sample();
    strait_invite b = sample();
    assert_true(strait_invite_is_token(a.token, b.token));
    for (int i = 0; i < STRAIT_TOKEN_BYTES; i++) {
        b.token[i] ^= 0x80;
        assert_false(strait_invite_is_token(a.token, b.token));
        b.token[i] ^= 0x80;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_what_it_formats),
        cmocka_unit_test(rejects_damaged_lines),
        cmocka_unit_test(rejects_empty_and_long_addresses),
        cmocka_unit_test(rejects_invalid_lists_of_addresses),
        cmocka_unit_test(compares_every_byte_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
