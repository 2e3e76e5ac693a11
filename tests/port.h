/* port.h - loopback ports for tests that listen again on the same port after a restart. */
#pragma once

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns a free port below the range that the kernel uses for outgoing connections, so that it is
 * still free when the test listens again. Every call returns another one. */
static inline int port_choose(void) {
    static int n_tried;
    const int first = (int)(getpid() % 1500 * 13);
    int is_free = 0, port = 0;
    while (!is_free) {
        CHECK(n_tried < 20000);
        port = 10000 + (first + n_tried++) % 20000;
        const struct sockaddr_in where = {.sin_family = AF_INET,
                                          .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                                          .sin_port = htons((uint16_t)port)};
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        is_free = bind(fd, (const struct sockaddr *)&where, sizeof where) == 0;
        (void)close(fd);
    }
    return port;
}
