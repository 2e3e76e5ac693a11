/* address.h - host:port, as people write it and as sockets want it. */
#pragma once

#include "net/core/transport.h"

#include <uv.h>

/* Splits "host:port" or "[host]:port". STRAIT_EINVAL. */
strait_err strait_address_split(const char *address, char host[STRAIT_ADDRESS_MAX], int *port);

/* Whether `host` is numeric; then *out is the address. */
int strait_address_numeric(const char *host, int port, struct sockaddr_storage *out);

/* Of the addresses of a name, one after the other, from the first on. */
const struct sockaddr *strait_address_pick(const struct addrinfo *found, unsigned n_tries);

/* The address that `tcp` is bound to, numeric. */
void strait_address_bound(const uv_tcp_t *tcp, char out[STRAIT_ADDRESS_MAX]);

/* Listens at a numeric address and writes the one that was bound. *listener is initialised, with
 * its data set; on an error it is for the caller to close. STRAIT_EINVAL. */
strait_err strait_address_listen(uv_tcp_t *listener, const char *address, int backlog,
                                 uv_connection_cb on_connection, char out[STRAIT_ADDRESS_MAX]);
