/* address.h - network addresses: parsing "host:port", listening, and picking one of several
 * results.
 *
 * People write host:port or [IPv6]:port; sockets want a struct sockaddr. These functions convert
 * between the two and are the only place that knows the syntax. All functions may be called from
 * any thread, except that those with a uv_tcp_t belong to the thread of its loop. */
#pragma once

#include "net/core/transport.h"

#include <uv.h>

/* Splits "host:port" or "[host]:port" into its parts. STRAIT_EINVAL when it is neither, or when the
 * port exceeds 65535. */
strait_err strait_address_split(const char *address, char host[STRAIT_ADDRESS_MAX], int *port);

/* Returns 1 and fills *out when `host` is a numeric IPv4 or IPv6 address, 0 when it is a name that
 * has to be resolved first. */
int strait_address_numeric(const char *host, int port, struct sockaddr_storage *out);

/* Picks one of the addresses that a name resolved to: number `n_tries` modulo their count. A caller
 * that counts its attempts thereby tries every address in turn. Borrowed from `found`, which must
 * not be empty. */
const struct sockaddr *strait_address_pick(const struct addrinfo *found, unsigned n_tries);

/* Writes the numeric address that `tcp` is bound to. */
void strait_address_bound(const uv_tcp_t *tcp, char out[STRAIT_ADDRESS_MAX]);

/* Writes the numeric address of the other end of `tcp`, or "unknown address" after it has gone. */
void strait_address_remote(const uv_tcp_t *tcp, char out[STRAIT_ADDRESS_MAX]);

/* Listens at a numeric address and writes the one that was bound, which differs when the port was
 * 0. *listener must be initialised and its data set; after an error the caller closes it.
 * STRAIT_EINUSE when another program listens there, STRAIT_EINVAL when the address is malformed or
 * none of this machine. */
strait_err strait_address_listen(uv_tcp_t *listener, const char *address, int backlog,
                                 uv_connection_cb on_connection, char out[STRAIT_ADDRESS_MAX]);
