/* Which workers will dial which others, as the coordinator sees it. */
#include "check.h"
#include "swarm/host/state.h"

/* A worker seen at `from`, whose source address for limits is `source`, and that neighbours are
 * told to dial at `address`. */
struct seen {
    struct strait_link link;
    struct connection connection;
};

static struct seen see(const char *from, unsigned char source, const char *address) {
    struct seen s = {0};
    (void)snprintf(s.link.address, sizeof s.link.address, "%s", from);
    s.link.source_address[0] = source;
    (void)snprintf(s.connection.address, sizeof s.connection.address, "%s", address);
    return s;
}

static int can_dial(struct seen from, struct seen to) {
    from.connection.link = &from.link;
    to.connection.link = &to.link;
    return strait_host_can_dial(&from.connection, &to.connection);
}

static int is_near(struct seen a, struct seen b) {
    a.connection.link = &a.link;
    b.connection.link = &b.link;
    return strait_host_is_near(&a.connection, &b.connection);
}

static void anyone_dials_public_addresses_and_names(void **state) {
    const struct seen home = see("5.6.7.8:99", 1, "192.168.1.2:7");
    const struct seen server = see("9.9.9.9:99", 2, "9.9.9.9:7");
    const struct seen named = see("9.9.9.9:99", 2, "server.example:7");
    (void)state;
    CHECK(can_dial(home, server) && can_dial(home, named));
}

static void nobody_dials_a_private_address_elsewhere(void **state) {
    const struct seen home = see("5.6.7.8:99", 1, "192.168.1.2:7");
    const struct seen other = see("4.4.4.4:99", 2, "192.168.1.3:7");
    const struct seen deaf = see("4.4.4.4:99", 2, "");
    (void)state;
    CHECK(!can_dial(home, other) && !can_dial(other, home) && !can_dial(home, deaf));
    CHECK(!is_near(home, other));
}

static void workers_behind_one_address_dial_each_other(void **state) {
    const struct seen one = see("5.6.7.8:99", 1, "192.168.1.2:7");
    const struct seen two = see("5.6.7.8:98", 1, "192.168.1.3:7");
    const struct seen loop = see("5.6.7.8:98", 1, "127.0.0.1:7");
    (void)state;
    CHECK(is_near(one, two) && can_dial(one, two) && can_dial(two, one));
    CHECK(!can_dial(one, loop)); // another program on the dialler's own machine
}

static void workers_in_the_coordinators_network_dial_each_other(void **state) {
    const struct seen one = see("192.168.1.2:99", 1, "192.168.1.2:7");
    const struct seen two = see("10.0.0.3:98", 2, "10.0.0.3:7");
    const struct seen local = see("127.0.0.1:98", 3, "127.0.0.1:7");
    (void)state;
    CHECK(can_dial(one, two) && can_dial(two, one));
    CHECK(!is_near(one, one)); // no public address
    CHECK(can_dial(local, local) && !can_dial(one, local));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anyone_dials_public_addresses_and_names),
        cmocka_unit_test(nobody_dials_a_private_address_elsewhere),
        cmocka_unit_test(workers_behind_one_address_dial_each_other),
        cmocka_unit_test(workers_in_the_coordinators_network_dial_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
