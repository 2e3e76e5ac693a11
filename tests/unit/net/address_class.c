/* Which addresses are public, and that a transport dials only those that it may. */
#include "net/core/address_class.h"

#include "tcp_rig.h"

static void classifies_addresses(void **state) {
    static const struct {
        const char *address;
        strait_address_class is;
    } cases[] = {
        {"8.8.8.8:1", STRAIT_ADDRESS_PUBLIC},
        {"172.15.0.1:1", STRAIT_ADDRESS_PUBLIC},
        {"172.32.0.1:1", STRAIT_ADDRESS_PUBLIC},
        {"100.128.0.1:1", STRAIT_ADDRESS_PUBLIC},
        {"10.1.2.3:1", STRAIT_ADDRESS_PRIVATE},
        {"172.16.0.1:1", STRAIT_ADDRESS_PRIVATE},
        {"172.31.255.255:1", STRAIT_ADDRESS_PRIVATE},
        {"192.168.1.1:1", STRAIT_ADDRESS_PRIVATE},
        {"100.64.0.1:1", STRAIT_ADDRESS_PRIVATE},
        {"192.0.2.2:1", STRAIT_ADDRESS_PRIVATE}, // of documentation, and of machines in labs
        {"198.51.100.2:1", STRAIT_ADDRESS_PRIVATE},
        {"203.0.113.2:1", STRAIT_ADDRESS_PRIVATE},
        {"169.254.169.254:80", STRAIT_ADDRESS_LINK_LOCAL},
        {"127.0.0.1:1", STRAIT_ADDRESS_LOOPBACK},
        {"127.255.0.1:1", STRAIT_ADDRESS_LOOPBACK},
        {"0.0.0.0:1", STRAIT_ADDRESS_NONE},
        {"0.1.2.3:1", STRAIT_ADDRESS_NONE},
        {"224.0.0.1:1", STRAIT_ADDRESS_NONE},
        {"255.255.255.255:1", STRAIT_ADDRESS_NONE},
        {"[2001:4860::1]:1", STRAIT_ADDRESS_PUBLIC},
        {"[fd00::1]:1", STRAIT_ADDRESS_PRIVATE},
        {"[fc12::1]:1", STRAIT_ADDRESS_PRIVATE},
        {"[fe80::1]:1", STRAIT_ADDRESS_LINK_LOCAL},
        {"[::1]:1", STRAIT_ADDRESS_LOOPBACK},
        {"[::]:1", STRAIT_ADDRESS_NONE},
        {"[ff02::1]:1", STRAIT_ADDRESS_NONE},
        /* An IPv4 address inside counts. */
        {"[::ffff:127.0.0.1]:1", STRAIT_ADDRESS_LOOPBACK},
        {"[::ffff:192.168.0.9]:1", STRAIT_ADDRESS_PRIVATE},
        {"[::ffff:8.8.8.8]:1", STRAIT_ADDRESS_PUBLIC},
        {"[::127.0.0.1]:1", STRAIT_ADDRESS_LOOPBACK},
        {"[64:ff9b::10.0.0.1]:1", STRAIT_ADDRESS_PRIVATE},
        {"[2002:7f00:1::1]:1", STRAIT_ADDRESS_LOOPBACK},
        {"localhost:1", STRAIT_ADDRESS_NONE}, // a name has no class
        {"nonsense", STRAIT_ADDRESS_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strait_address_class_of(cases[i].address) != cases[i].is)
            fail_msg("%s: class %d, expected %d", cases[i].address,
                     strait_address_class_of(cases[i].address), cases[i].is);
}

/* a, which may dial the bits `classes`, dials b at `address`, which ends in b's port. */
static void dial(unsigned classes, const char *host) {
    char address[STRAIT_ADDRESS_MAX];
    struct strait_link *link = NULL;
    const strait_dial_params params = {.expected = strait_identity_fingerprint(r.b.identity),
                                       .dial_classes = classes};
    r.a.n_opened = r.a.n_closed = 0;
    (void)snprintf(address, sizeof address, "%s:%d", host,
                   (int)ntohs(address_of(r.b.address).sin_port));
    CHECK_OK(strait_transport_dial(r.a.t, address, params, &link));
}

static int a_has_news(const struct rig *rig) {
    return rig->a.n_opened + rig->a.n_closed > 0;
}

static void refuses_addresses_of_other_classes(void **state) {
    (void)state;
    rig_start(&r);
    /* The name is resolved first: the address behind it counts. */
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        dial(STRAIT_ADDRESS_PUBLIC | STRAIT_ADDRESS_PRIVATE, hosts[i]);
        CHECK(rig_drive(&r, a_has_news, 60000));
        CHECK(r.a.n_opened == 0 && r.a.why == STRAIT_ENOTSUP);
        CHECK(strstr(r.a.reason, "refused to dial: it is an address of this machine") != NULL);
        CHECK(r.b.n_opened == 0 && r.b.n_refused == 0);
    }
}

static void dials_addresses_that_are_allowed(void **state) {
    (void)state;
    rig_start(&r);
    dial(STRAIT_ADDRESS_LOOPBACK, "127.0.0.1");
    CHECK(rig_drive(&r, rig_both_open, 60000));
    CHECK(strncmp(r.a.link->remote, "127.0.0.1:", 10) == 0);
}

/* Waiting at a relay is dialling, too. */
static void refuses_to_wait_at_a_relay_of_another_class(void **state) {
    char out[STRAIT_ADDRESS_MAX];
    char address[STRAIT_ADDRESS_MAX];
    (void)state;
    r.config.dial_classes = STRAIT_ADDRESS_PUBLIC;
    rig_start(&r);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    CHECK(bind(fd, (struct sockaddr *)&where, size) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&where, &size) == 0);
    (void)snprintf(address, sizeof address, "relay://127.0.0.1:%d/%064d", ntohs(where.sin_port), 1);
    CHECK_OK(strait_transport_listen(r.a.t, address, out));
    rig_rest(&r, 300);
    struct pollfd dialled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&dialled, 1, 0) == 0);
    (void)close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classifies_addresses),
        WITH_RIG(refuses_addresses_of_other_classes),
        WITH_RIG(dials_addresses_that_are_allowed),
        WITH_RIG(refuses_to_wait_at_a_relay_of_another_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
