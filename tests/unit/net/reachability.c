/* The address that a worker announces to its neighbours. */
#include "net/core/reachability.h"

#include "check.h"

static void expect(const char *bound, const char *wanted, const char *towards,
                   const char *expected) {
    char out[STRAIT_ADDRESS_MAX];
    strait_reachability_address(bound, wanted, towards, out);
    assert_string_equal(out, expected);
}

static void completes_the_announced_address(void **state) {
    (void)state;
    expect("10.1.2.3:7000", "", "127.0.0.1:1", "10.1.2.3:7000");
    expect("0.0.0.0:7000", "", "127.0.0.1:1", "127.0.0.1:7000"); // the source address towards it
    expect("0.0.0.0:7000", "attic.example.org", "127.0.0.1:1", "attic.example.org:7000");
    expect("0.0.0.0:7000", "attic.example.org:99", "127.0.0.1:1", "attic.example.org:99");
    expect("[::]:7000", "2001:db8::1", "127.0.0.1:1", "[2001:db8::1]:7000");
    expect("[::]:7000", "[2001:db8::1]:80", "127.0.0.1:1", "[2001:db8::1]:80");
    expect("0.0.0.0:7000", "", "nonsense", "0.0.0.0:7000");
    expect("relay://x:1/abc", "", "127.0.0.1:1", "relay://x:1/abc");
}

static void rejects_malformed_addresses(void **state) {
    (void)state;
    static const char *const good[] = {"10.0.0.1:7070", "[::1]:7070", "a-b.example:1", "h_1:65535"};
    static const char *const hosts[] = {"10.0.0.1", "::1", "fe80::1%eth0", "[2001:db8::5]",
                                        "example.org"};
    static const char *const bad[] = {"",     "a b",     "a!:7",   "a:port",  "a:",  ":7",
                                      "a:-1", "a:65536", "[::1:7", "a:7070x", "a:0", "a/b:7",
                                      "[]",   "[[::1]]", "[[]",    "[::1]7"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_OK(strait_reachability_check(good[i], 1));
        CHECK_OK(strait_reachability_check(good[i], 0));
    }
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        CHECK_OK(strait_reachability_check(hosts[i], 0));
        CHECK_FAILS(strait_reachability_check(hosts[i], 1), STRAIT_ECONFIG, "expected HOST:PORT");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(strait_reachability_check(bad[i], 0), STRAIT_ECONFIG,
                    "expected HOST or HOST:PORT");
    char longest[STRAIT_ADDRESS_MAX + 1];
    memset(longest, 'a', STRAIT_ADDRESS_MAX);
    longest[STRAIT_ADDRESS_MAX] = '\0';
    CHECK_FAILS(strait_reachability_check(longest, 0), STRAIT_ECONFIG, "expected HOST");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rejects_malformed_addresses),
                                       cmocka_unit_test(completes_the_announced_address)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
