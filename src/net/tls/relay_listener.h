/* relay_listener.h - listening at a relay: for a worker that cannot accept
 * connections.
 *
 * One of our connections always waits at the relay. When the relay pairs it with a peer's, it
 * becomes a pending stream like an accepted one, and the next connection goes to wait. When the
 * relay cannot be reached, or closes the connection because no peer came, it is dialled again, with
 * growing pauses. A relay is not trusted: how often it is dialled, and how many streams it may say
 * are paired that have not proven a key, is limited. Net thread only. */
#pragma once

#include "net/tls/conn.h"

struct strait_relay_listener {
    struct strait_relay_listener *next;
    struct strait_relay_listeners *listeners; // the list it is in
    struct strait_transport *t;
    uv_loop_t *loop;
    char host[STRAIT_ADDRESS_MAX]; // of the relay
    int port;
    struct strait_relay_rendezvous rendezvous;
    int n_lost, n_paired; // of the rendezvous, as of the last call of serve
    uv_getaddrinfo_t lookup;
    int is_looking_up;
    unsigned n_lookups; // so that the addresses of a name are tried in turn
    int pause_ms;       // the next pause
    int64_t not_before_ns;
    double allowance; // dials that may be made now
    int64_t refilled_ns;
};

struct strait_relay_listeners {
    struct strait_relay_listener *first;
    int is_closed; // no more dialling
};

/* Starts listening at `address`, relay://HOST:PORT/TOKEN. STRAIT_EINVAL when it is malformed. */
strait_err strait_relay_listener_open(struct strait_relay_listeners *listeners,
                                      struct strait_transport *t, uv_loop_t *loop,
                                      const char *address);

/* Dials every relay at which no connection waits. Call often. */
void strait_relay_listeners_serve(struct strait_relay_listeners *listeners, int64_t now_ns);

/* Frees the listeners. Call after their streams and the loop have closed. */
void strait_relay_listeners_fini(struct strait_relay_listeners *listeners);
