/* tcp.c - the tls transport: its event loop, listening, dialling and timers.
 *
 * The links themselves are in multi_link.c, their streams in conn.c. Connections that have not yet
 * completed a handshake are "pending". Since anyone can open them, their number is bounded in all
 * and per source address, and the oldest of the address that has most is evicted for a new one. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/address.h"
#include "net/tls/multi_link.h"
#include "net/tls/relay_listener.h"
#include "net/tls/socket.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    BACKLOG = 256,
    PENDING_MAX = 64, // connections in the handshake at once
    PENDING_AND_CLOSING_MAX =
        96, // with those whose handles libuv is closing: they still take memory
    PENDING_PER_ADDRESS_MAX = 48, // pending connections from one address
    CONNECTIONS_PER_S = 100,      // new connections from one address
    DEFERRED_MAX = 8,             // listeners that wait for pending connections to close
    TICKS_PER_DEADLINE = 8        // a deadline is noticed at most an eighth late
};

#define SWEEP_NS INT64_C(1000000000) // interval of rate limiter sweeps

struct tcp {
    struct strait_multi_link_list links; // first: multi_link.c sees only this
    uv_loop_t loop;
    int has_loop;
    uv_async_t wake;
    uv_timer_t timeout; // of progress()
    uv_timer_t tick;
    uv_poll_t alarm; // a timerfd: libuv's timers are only accurate to a millisecond
    int alarm_fd;
    int64_t alarm_ns; // the time it is set to
    int n_streams;
    unsigned n_lookups; // counts dials of host names, so that their addresses are tried in turn
    struct strait_relay_listeners listeners;
    uv_tcp_t discard; // accepts and closes connections for which there is no memory
    int is_discarding;
    struct strait_rate_limiter limiter;
    int64_t swept_ns;
    uv_stream_t *deferred[DEFERRED_MAX]; // listeners with a connection to be accepted later
    int n_deferred;
};

struct tcp_link {
    struct strait_multi_link multi; // first: link->state is also this
    uv_getaddrinfo_t lookup;
    int is_relayed;
    struct strait_relay_rendezvous rendezvous; // if is_relayed
};

_Static_assert(offsetof(struct tcp, links) == 0, "multi_link.c casts the state to its list");
_Static_assert(offsetof(struct tcp_link, multi) == 0, "multi_link.c casts link->state");

static void do_nothing_async(uv_async_t *handle) {
    (void)handle;
}

static void do_nothing_timer(uv_timer_t *handle) {
    (void)handle;
}

static void on_tick(uv_timer_t *handle) {
    strait_multi_link_list_tick(handle->data, strait_clock_ns());
}

static void on_alarm(uv_poll_t *handle, int status, int events) {
    (void)status;
    (void)events;
    struct strait_transport *t = handle->data;
    struct tcp *self = t->state;
    uint64_t n_expired = 0;
    if (read(self->alarm_fd, &n_expired, sizeof n_expired) > 0) self->alarm_ns = INT64_MAX;
}

/* Often enough to notice any deadline within an eighth of it. */
static uint64_t tick_ms(const strait_transport_config *config) {
    int shortest = config->peer_timeout_ms;
    if (config->ping_ms < shortest) shortest = config->ping_ms;
    if (config->handshake_ms < shortest) shortest = config->handshake_ms;
    if (config->linger_ms < shortest) shortest = config->linger_ms;
    const int ms = shortest / TICKS_PER_DEADLINE;
    return (uint64_t)(ms < 5 ? 5 : ms);
}

static strait_err init(struct strait_transport *t) {
    struct tcp *self = t->state;
    self->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    self->alarm_ns = INT64_MAX;
    self->limiter.max_open = PENDING_PER_ADDRESS_MAX;
    self->limiter.max_per_s = CONNECTIONS_PER_S;
    self->n_streams = strait_socket_streams(t->config.n_streams);
    self->has_loop = uv_loop_init(&self->loop) == 0;
    if (self->alarm_fd < 0 || !self->has_loop ||
        uv_async_init(&self->loop, &self->wake, do_nothing_async) != 0 ||
        uv_timer_init(&self->loop, &self->timeout) != 0 ||
        uv_timer_init(&self->loop, &self->tick) != 0 ||
        uv_poll_init(&self->loop, &self->alarm, self->alarm_fd) != 0)
        return STRAIT_FAIL(
            STRAIT_ENOMEM,
            "cannot create an event loop: out of memory or file descriptors; raise ulimit -n");
    self->tick.data = t;
    self->alarm.data = t;
    (void)uv_timer_start(&self->tick, on_tick, tick_ms(&t->config), tick_ms(&t->config));
    (void)uv_poll_start(&self->alarm, UV_READABLE, on_alarm);
    return STRAIT_OK;
}

static void free_listener(uv_handle_t *handle) {
    strait_alloc_free(handle);
}

/* The loop's TCP handles are by now only listeners, which were allocated on their own. */
static void close_handle(uv_handle_t *handle, void *loop) {
    (void)loop;
    if (uv_is_closing(handle)) return;
    uv_close(handle, handle->type == UV_TCP ? free_listener : NULL);
}

/* Closed before the links: peers that keep dialling would otherwise keep the loop busy. */
static void close_listener(uv_handle_t *handle, void *t) {
    if (handle->type == UV_TCP && handle->data == t && !uv_is_closing(handle))
        uv_close(handle, free_listener);
}

static strait_err progress(struct strait_transport *t, int timeout_ms);

static void fini(struct strait_transport *t) {
    struct tcp *self = t->state;
    self->listeners.is_closed = 1;
    if (self->has_loop) {
        uv_walk(&self->loop, close_listener, t);
        for (struct strait_link *link = self->links.first; link != NULL;
             link = ((struct strait_multi_link *)link->state)->next)
            strait_multi_link_close(link, STRAIT_OK);
        for (struct strait_conn *c = self->links.pending; c != NULL; c = c->next)
            strait_conn_abort(c, STRAIT_OK);
        while (self->links.first != NULL || self->links.pending != NULL)
            (void)progress(t, 100); // ends: every link has a deadline for closing
        uv_walk(&self->loop, close_handle, NULL);
        while (uv_run(&self->loop, UV_RUN_DEFAULT) != 0) {
        }
        (void)uv_loop_close(&self->loop);
    }
    strait_relay_listeners_fini(&self->listeners);
    strait_rate_limiter_fini(&self->limiter);
    if (self->alarm_fd > 0) (void)close(self->alarm_fd);
}

/* ---- listening ---- */

static void on_discarded(uv_handle_t *handle) {
    ((struct tcp *)handle->data)->is_discarding = 0;
}

/* Accepts and closes a connection. One that is left in the queue would stop the listener: libuv
 * does not report the next one before it has been accepted. */
static void discard(struct tcp *self, uv_stream_t *listener) {
    if (self->is_discarding || uv_tcp_init(&self->loop, &self->discard) != 0) return;
    self->is_discarding = 1;
    self->discard.data = self;
    (void)uv_accept(listener, (uv_stream_t *)&self->discard);
    uv_close((uv_handle_t *)&self->discard, on_discarded);
}

/* Chooses the pending connection to evict: a real peer completes its handshake at once, so an old
 * one is probably idle. It is the oldest of the address that has most, so that no address can
 * displace others. */
static struct strait_conn *choose_eviction(const struct tcp *self) {
    struct strait_conn *oldest = self->links.pending;
    for (struct strait_conn *c = oldest; c != NULL; c = c->next) { // newest first
        if (c->state == STRAIT_CONN_CLOSED || c->source == NULL) continue;
        if (oldest->source == NULL || c->source->n_open >= oldest->source->n_open) oldest = c;
    }
    return oldest;
}

/* Counts the connection towards its source address; an error refuses it. */
static strait_err apply_rate_limit(struct tcp *self, struct strait_conn *c) {
    struct sockaddr_storage from;
    int size = (int)sizeof from;
    const int64_t now = strait_clock_ns();
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&from, &size) != 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the connection closed before it was accepted");
    if (now - self->swept_ns > SWEEP_NS) {
        strait_rate_limiter_sweep(&self->limiter, now);
        self->swept_ns = now;
    }
    if (strait_rate_limiter_acquire(&self->limiter, (struct sockaddr *)&from, now, &c->source) !=
        STRAIT_OK)
        return STRAIT_EAUTH; // EAGAIN would count as "no peer at the relay" and go unreported
    memcpy(c->source_address, c->source->address, sizeof c->source_address);
    return STRAIT_OK;
}

static void on_connection(uv_stream_t *listener, int status) {
    struct strait_transport *t = listener->data;
    struct tcp *self = t->state;
    struct strait_conn *c = NULL;
    if (status != 0) return;
    /* Leave it in the kernel's queue for now: accepting it would exceed the memory bound. */
    if (self->links.n_pending >= PENDING_AND_CLOSING_MAX && self->n_deferred < DEFERRED_MAX) {
        self->deferred[self->n_deferred++] = listener;
        return;
    }
    if (strait_conn_open(&self->loop, t, &strait_multi_link_conn_events, 1, NULL, &c) !=
        STRAIT_OK) {
        discard(self, listener);
        return;
    }
    strait_multi_link_list_add_pending(&self->links, c);
    strait_err err = strait_conn_accept(c, listener);
    if (err == STRAIT_OK) err = apply_rate_limit(self, c);
    if (err != STRAIT_OK)
        strait_conn_abort(c, err);
    else if (self->links.n_pending > PENDING_MAX)
        strait_conn_abort(choose_eviction(self),
                          STRAIT_FAIL(STRAIT_EAUTH,
                                      "refused: more than %d connections are in the handshake",
                                      PENDING_MAX));
}

static void accept_deferred(struct tcp *self) {
    while (self->n_deferred > 0 && self->links.n_pending < PENDING_AND_CLOSING_MAX)
        on_connection(self->deferred[--self->n_deferred], 0);
}

static strait_err listen_at(struct strait_transport *t, const char *address,
                            char out[STRAIT_ADDRESS_MAX]) {
    struct tcp *self = t->state;
    void *memory = NULL;
    if (strait_relay_is_address(address)) {
        STRAIT_TRY(strait_relay_listener_open(&self->listeners, t, &self->loop, address));
        (void)snprintf(out, STRAIT_ADDRESS_MAX, "%s", address); // peers dial the same address
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_alloc(1, sizeof(uv_tcp_t), "listener", &memory));
    uv_tcp_t *listener = memory;
    const int status = uv_tcp_init(&self->loop, listener);
    if (status != 0) {
        strait_alloc_free(listener);
        return STRAIT_FAIL(STRAIT_ENOMEM, "cannot create a listener for %s: %s", address,
                           uv_strerror(status));
    }
    listener->data = t;
    const strait_err err = strait_address_listen(listener, address, BACKLOG, on_connection, out);
    if (err != STRAIT_OK) uv_close((uv_handle_t *)listener, free_listener);
    return err;
}

/* ---- dialling ---- */

/* Connects all streams of a link to the same address: they have to reach the same process. */
static strait_err connect_streams(struct strait_link *link, const struct sockaddr *where) {
    struct tcp *self = link->transport->state;
    struct tcp_link *l = link->state;
    struct strait_multi_link *ml = &l->multi;
    for (int i = 0; i < ml->n_streams; i++) {
        struct strait_conn *c = NULL;
        STRAIT_TRY(strait_conn_open(&self->loop, link->transport, &strait_multi_link_conn_events, 0,
                                    &ml->shaper, &c));
        c->link = link;
        ml->streams[i] = c;
        ml->n_live++;
        if (l->is_relayed) strait_conn_use_relay(c, &l->rendezvous);
        const strait_err err = strait_conn_connect(c, where);
        if (err != STRAIT_OK) return err;
    }
    return STRAIT_OK;
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct strait_link *link = request->data;
    struct tcp *self = link->transport->state;
    struct strait_multi_link *ml = link->state;
    ml->is_resolving = 0;
    strait_emulate_init(&ml->shaper, &link->emulate, &link->transport->home, strait_clock_ns());
    if (!ml->is_closing) {
        strait_err err = STRAIT_OK;
        if (status == 0)
            err = connect_streams(link, strait_address_pick(found, self->n_lookups++));
        else
            err = STRAIT_FAIL(STRAIT_ECLOSED,
                              "cannot resolve the host name: %s; check the name and "
                              "this machine's DNS",
                              uv_strerror(status));
        if (err != STRAIT_OK) strait_multi_link_close(link, err);
    }
    uv_freeaddrinfo(found);
}

static strait_err dial(struct strait_link *link, const char *address) {
    struct tcp *self = link->transport->state;
    struct tcp_link *l = link->state;
    char host[STRAIT_ADDRESS_MAX], there[STRAIT_ADDRESS_MAX], service[8];
    int port = 0;
    struct sockaddr_storage where;
    memset(&where, 0, sizeof where);
    l->is_relayed = strait_relay_is_address(address); // role 0, already set, is the dialling side
    if (l->is_relayed)
        STRAIT_TRY(strait_relay_address_parse(address, there, sizeof there, &l->rendezvous.token));
    STRAIT_TRY(strait_address_split(l->is_relayed ? there : address, host, &port));
    uint64_t nonce = 0;
    STRAIT_TRY(strait_identity_random(&nonce, sizeof nonce));
    strait_multi_link_init(link, self->n_streams, nonce);
    if (strait_address_numeric(host, port, &where)) {
        const strait_err err = connect_streams(link, (struct sockaddr *)&where);
        if (err != STRAIT_OK) strait_multi_link_close(link, err); // reported by closed()
        return STRAIT_OK;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    (void)snprintf(service, sizeof service, "%d", port);
    l->lookup.data = link;
    const int status = uv_getaddrinfo(&self->loop, &l->lookup, on_looked_up, host, service, &hints);
    l->multi.is_resolving = status == 0;
    if (status != 0)
        strait_multi_link_close(link, STRAIT_FAIL(STRAIT_ECLOSED, "cannot resolve '%s': %s", host,
                                                  uv_strerror(status)));
    return STRAIT_OK;
}

/* ---- the loop ---- */

/* Sets the timer that ends progress() when an emulated wire can send the next bytes. */
static void set_alarm(struct tcp *self, int64_t when_ns) {
    if (when_ns == self->alarm_ns) return;
    self->alarm_ns = when_ns;
    struct itimerspec spec = {{0, 0}, {0, 0}}; // disarms
    if (when_ns != INT64_MAX) {
        spec.it_value.tv_sec = when_ns / 1000000000;
        spec.it_value.tv_nsec = when_ns % 1000000000;
    }
    (void)timerfd_settime(self->alarm_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static strait_err progress(struct strait_transport *t, int timeout_ms) {
    struct tcp *self = t->state;
    strait_relay_listeners_serve(&self->listeners, strait_clock_ns());
    set_alarm(self, strait_multi_link_list_pump_due(t, strait_clock_ns()));
    const int n_before = strait_multi_link_list_sweep(t);
    /* With events delivered the caller must run before anything is waited for. */
    const int must_wait = timeout_ms != 0 && n_before == 0;
    if (must_wait && timeout_ms > 0) {
        uv_update_time(&self->loop);
        (void)uv_timer_start(&self->timeout, do_nothing_timer, (uint64_t)timeout_ms, 0);
    }
    (void)uv_run(&self->loop, must_wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    (void)uv_timer_stop(&self->timeout);
    accept_deferred(self);
    (void)strait_multi_link_list_sweep(t);
    return STRAIT_OK;
}

static void wake(struct strait_transport *t) {
    (void)uv_async_send(&((struct tcp *)t->state)->wake);
}

const struct strait_transport_ops strait_transport_tls = {
    .scheme = "tls",
    .state_size = sizeof(struct tcp),
    .link_size = sizeof(struct tcp_link),
    .init = init,
    .fini = fini,
    .listen = listen_at,
    .dial = dial,
    .send = strait_multi_link_send,
    .close = strait_multi_link_close,
    .pause = strait_multi_link_pause,
    .stats = strait_multi_link_stats,
    .progress = progress,
    .wake = wake,
};
