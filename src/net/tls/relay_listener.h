/* relay_post.h - listening at a relay: always one connection of ours waits there. Net thread only.
 *
 * When somebody is joined with it, it becomes a stream like one that was accepted, and the next one
 * goes to wait. When the relay is out of reach, or hangs up because nobody came, it is dialled
 * again, with growing pauses. */
#pragma once

#include "net/tls/conn.h"

struct strait_relay_listener {
    struct strait_relay_listener *next;
    struct strait_relay_listeners *listeners;
    struct strait_transport *t;
    uv_loop_t *loop;
    char host[STRAIT_ADDRESS_MAX];
    int port;
    struct strait_relay_rendezvous rendezvous;
    int n_lost, n_paired; // of the meeting, as far as seen
    uv_getaddrinfo_t lookup;
    int is_looking_up;
    unsigned n_lookups;
    int pause_ms;
    int64_t not_before_ns;
};

struct strait_relay_listeners {
    struct strait_relay_listener *first;
    int is_closed; // no more dialling
};

/* `address` is relay://HOST:PORT/TOKEN. */
strait_err strait_relay_listener_open(struct strait_relay_listeners *listeners,
                                      struct strait_transport *t, uv_loop_t *loop,
                                      const char *address);

/* Sends out those that should be waiting and are not. Call often. */
void strait_relay_listeners_serve(struct strait_relay_listeners *listeners, int64_t now_ns);

/* After their streams and the loop have ended. */
void strait_relay_listeners_fini(struct strait_relay_listeners *listeners);
