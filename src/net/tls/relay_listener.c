/* relay_listener.c - keeps one connection waiting at each relay that we listen at. */
#include "net/tls/relay_listener.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/address.h"
#include "net/tls/multi_link.h"

#include <stdio.h>
#include <string.h>

enum {
    PAUSE_MS = 50,       // before the first redial; doubles up to the maximum
    PAUSE_MAX_MS = 2000, // a peer that dials must not wait long for us to be back
    DIALS_PER_S = 32,    // on average; a relay takes no more from one address by default
    DIALS_BURST = 64,    // at once: one for each stream of some links
    HANDSHAKES_MAX = 32, // with peers that all relays say have come
    NS_PER_MS = 1000000
};

strait_err strait_relay_listener_open(struct strait_relay_listeners *listeners,
                                      struct strait_transport *t, uv_loop_t *loop,
                                      const char *address) {
    char where[STRAIT_ADDRESS_MAX];
    struct strait_relay_listener listener = {.listeners = listeners,
                                             .t = t,
                                             .loop = loop,
                                             .pause_ms = PAUSE_MS,
                                             .allowance = DIALS_BURST,
                                             .refilled_ns = strait_clock_ns()};
    listener.rendezvous.role = STRAIT_RELAY_LISTENS;
    STRAIT_TRY(
        strait_relay_address_parse(address, where, sizeof where, &listener.rendezvous.token));
    STRAIT_TRY(strait_address_split(where, listener.host, &listener.port));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof listener, "relay listener", &memory));
    listener.next = listeners->first;
    *(struct strait_relay_listener *)memory = listener;
    listeners->first = memory;
    return STRAIT_OK;
}

void strait_relay_listeners_fini(struct strait_relay_listeners *listeners) {
    while (listeners->first != NULL) {
        struct strait_relay_listener *listener = listeners->first;
        listeners->first = listener->next;
        strait_alloc_free(listener);
    }
}

/* Plans the next attempt; the pause doubles with every failure. */
static void back_off(struct strait_relay_listener *listener, int64_t now_ns) {
    listener->not_before_ns = now_ns + (int64_t)listener->pause_ms * NS_PER_MS;
    listener->pause_ms = 2 * listener->pause_ms < PAUSE_MAX_MS ? 2 * listener->pause_ms
                                                               : PAUSE_MAX_MS;
}

/* Opens the connection that waits at the relay; it is a TLS server, since the peer dials. */
static void connect_to(struct strait_relay_listener *listener, const struct sockaddr *where) {
    struct strait_multi_link_list *all = listener->t->state;
    struct strait_conn *c = NULL;
    if (strait_conn_open(listener->loop, listener->t, &strait_multi_link_conn_events, 1, NULL,
                         &c) != STRAIT_OK) {
        back_off(listener, strait_clock_ns());
        return;
    }
    strait_multi_link_list_add_pending(all, c);
    strait_conn_use_relay(c, &listener->rendezvous);
    const strait_err err = strait_conn_connect(c, where);
    if (err != STRAIT_OK) strait_conn_abort(c, err);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct strait_relay_listener *listener = request->data;
    listener->is_looking_up = 0;
    if (!listener->listeners->is_closed) {
        if (status == 0)
            connect_to(listener, strait_address_pick(found, listener->n_lookups++));
        else
            back_off(listener, strait_clock_ns());
    }
    uv_freeaddrinfo(found);
}

/* Name lookups run in a thread of libuv, because getaddrinfo blocks. */
static void dial(struct strait_relay_listener *listener) {
    struct sockaddr_storage where;
    char service[8];
    memset(&where, 0, sizeof where);
    if (strait_address_numeric(listener->host, listener->port, &where)) {
        connect_to(listener, (struct sockaddr *)&where);
        return;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    (void)snprintf(service, sizeof service, "%d", listener->port);
    listener->lookup.data = listener;
    listener->is_looking_up = uv_getaddrinfo(listener->loop, &listener->lookup, on_looked_up,
                                             listener->host, service, &hints) == 0;
    if (!listener->is_looking_up) back_off(listener, strait_clock_ns());
}

/* A relay that pairs us with nobody at once would otherwise keep this thread busy. */
static int may_dial(struct strait_relay_listener *listener, int64_t now_ns) {
    listener->allowance += (double)(now_ns - listener->refilled_ns) * 1e-9 * DIALS_PER_S;
    if (listener->allowance > DIALS_BURST) listener->allowance = DIALS_BURST;
    listener->refilled_ns = now_ns;
    if (listener->allowance < 1.0) return 0;
    listener->allowance -= 1.0;
    return 1;
}

/* The conns count their outcomes in the rendezvous; changes since the last call are acted on here.
 */
static void serve(struct strait_relay_listener *listener, int64_t now_ns) {
    if (listener->rendezvous.n_paired !=
        listener->n_paired) { // the relay works: no back-off is needed
        listener->pause_ms = PAUSE_MS;
        listener->not_before_ns = 0;
    }
    if (listener->rendezvous.n_lost != listener->n_lost) back_off(listener, now_ns);
    listener->n_paired = listener->rendezvous.n_paired;
    listener->n_lost = listener->rendezvous.n_lost;
    if (listener->rendezvous.n_waiting == 0 && !listener->is_looking_up &&
        now_ns >= listener->not_before_ns && may_dial(listener, now_ns))
        dial(listener);
}

static int is_in_handshake(const struct strait_conn *c) {
    return c->is_relayed && c->state > STRAIT_CONN_RENDEZVOUS && c->state < STRAIT_CONN_CLOSED;
}

/* All come from the relay's address, which knows no limit: the oldest gives way, since a peer that
 * is there completes its handshake at once. As many as that leave places for those who dial us. */
static void limit_handshakes(const struct strait_multi_link_list *all) {
    int n = 0;
    for (struct strait_conn *c = all->pending; c != NULL; c = c->next) // newest first
        if (is_in_handshake(c) && ++n > HANDSHAKES_MAX)
            strait_conn_abort(c, STRAIT_FAIL(STRAIT_EAUTH,
                                             "refused: more than %d connections through relays "
                                             "are in the handshake",
                                             HANDSHAKES_MAX));
}

/* No new connections once the transport closes: it waits until all streams have ended. */
void strait_relay_listeners_serve(struct strait_relay_listeners *listeners, int64_t now_ns) {
    for (struct strait_relay_listener *listener = listeners->first;
         listener != NULL && !listeners->is_closed; listener = listener->next) {
        serve(listener, now_ns);
        limit_handshakes(listener->t->state);
    }
}
