/* tcp_rig.h - two TLS transports on loopback, and plain sockets to them. */
#pragma once

#include "base/clock.h"
#include "contract/transport/transport_fixture.h"
#include "net/core/frame.h"
#include "net/tls/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

static inline struct sockaddr_in address_of(const char *text) {
    struct sockaddr_in where = {.sin_family = AF_INET};
    const char *colon = strrchr(text, ':');
    CHECK(colon != NULL);
    where.sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
}

static inline int connect_to(const char *text) {
    const struct sockaddr_in where = address_of(text);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&where, sizeof where) == 0);
    return fd;
}

/* ---- a proxy that counts ---- */

#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
