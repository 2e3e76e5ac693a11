/* Which address a worker tells its neighbours. */
#include "net/reach.h"

#include "check.h"

static void expect(const char *bound, const char *wanted, const char *towards, const char *said) {
    char out[STRAIT_ADDRESS_MAX];
    strait_reach_address(bound, wanted, towards, out);
    assert_string_equal(out, said);
}

static void addresses(void **state) {
    (void)state;
    expect("10.1.2.3:7000", "", "127.0.0.1:1", "10.1.2.3:7000");
    expect("0.0.0.0:7000", "", "127.0.0.1:1", "127.0.0.1:7000"); // as seen on the way there
    expect("0.0.0.0:7000", "attic.example.org", "127.0.0.1:1", "attic.example.org:7000");
    expect("0.0.0.0:7000", "attic.example.org:99", "127.0.0.1:1", "attic.example.org:99");
    expect("[::]:7000", "2001:db8::1", "127.0.0.1:1", "[2001:db8::1]:7000");
    expect("[::]:7000", "[2001:db8::1]:80", "127.0.0.1:1", "[2001:db8::1]:80");
    expect("0.0.0.0:7000", "", "nonsense", "0.0.0.0:7000");
    expect("relay://x:1/abc", "", "127.0.0.1:1", "relay://x:1/abc");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
