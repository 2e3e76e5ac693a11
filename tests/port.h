/* port.h - ports of the loopback for tests that stop and come back to the same one. */
#pragma once

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* One that nobody uses, below those that the system gives to whoever connects somewhere: it is
 * still free when a test comes back. Another one in every call. */
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
