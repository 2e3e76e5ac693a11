/* Picking one of the addresses that a host name resolved to. */
#include "net/core/address.h"

#include "check.h"

static void picks_addresses_of_a_name_in_turn(void **state) {
    (void)state;
    struct sockaddr one;
    struct sockaddr two;
    struct addrinfo last = {.ai_addr = &two}, found = {.ai_addr = &one, .ai_next = &last};
    CHECK(strait_address_pick(&found, 0) == &one && strait_address_pick(&found, 1) == &two);
    CHECK(strait_address_pick(&found, 2) == &one && strait_address_pick(&last, 7) == &two);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(picks_addresses_of_a_name_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
