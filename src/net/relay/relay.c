/* relay.c - accepts connections, reads their requests, lets them wait, and enforces all limits. */
#include "net/relay/relay.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/address.h"
#include "net/relay/relay_state.h"

#include <string.h>
#include <sys/resource.h>

enum {
    BACKLOG = 512,
    TICK_MS = 50,
    OTHER_FILES = 32, // file descriptors of the process besides its connections
    NS_PER_MS = 1000000
};

/* ---- lists ---- */

static void remove_from_list(struct strait_relay_conn *conn) {
    struct strait_relay_list *list = &conn->relay->lists[conn->state];
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        list->first = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    else
        list->last = conn->prev;
    list->n--;
}

static void append(struct strait_relay_conn *conn, enum strait_relay_state state) {
    struct strait_relay_list *list = &conn->relay->lists[state];
    conn->state = state;
    conn->since_ns = strait_clock_ns();
    conn->next = NULL;
    conn->prev = list->last;
    if (list->last != NULL)
        list->last->next = conn;
    else
        list->first = conn;
    list->last = conn;
    list->n++;
}

void strait_relay_set_state(struct strait_relay_conn *conn, enum strait_relay_state state) {
    remove_from_list(conn);
    append(conn, state);
}

/* ---- closing ---- */

static void free_conn(struct strait_relay_conn *conn) {
    strait_alloc_free(conn->buffer);
    strait_alloc_free(conn);
}

/* A buffer is in use until the handle of the peer, to which it is written, is closed too: the
 * second of a pair to close frees both. */
static void on_closed(uv_handle_t *handle) {
    struct strait_relay_conn *conn = handle->data;
    remove_from_list(conn);
    if (conn->source != NULL) strait_rate_limiter_release(conn->source);
    conn->is_handle_closed = 1;
    if (conn->paired_with != NULL && !conn->paired_with->is_handle_closed) return;
    if (conn->paired_with != NULL) free_conn(conn->paired_with);
    free_conn(conn);
}

/* Closing is asynchronous: the conn counts towards the limits until on_closed frees it. */
static void close_one(struct strait_relay_conn *conn) {
    if (conn->state == STRAIT_RELAY_CLOSED) return;
    strait_relay_set_state(conn, STRAIT_RELAY_CLOSED);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
}

void strait_relay_close_conn(struct strait_relay_conn *conn) {
    struct strait_relay_conn *peer = conn->peer;
    if (conn->state == STRAIT_RELAY_CLOSED) return;
    if (peer != NULL) {
        conn->peer = peer->peer = NULL;
        close_one(peer);
    }
    close_one(conn);
}

void strait_relay_refuse(struct strait_relay_conn *conn, strait_relay_status status) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    strait_relay_reply_pack(status, reply);
    uv_buf_t buffer = uv_buf_init((char *)reply, sizeof reply);
    (void)uv_try_write((uv_stream_t *)&conn->tcp, &buffer, 1); // best effort: it is closed anyway
    conn->relay->stats.n_refused += status != STRAIT_RELAY_NO_PEER;
    strait_relay_close_conn(conn);
}

/* ---- limits ---- */

static int n_of_address(const struct strait_relay_conn *conn) {
    return conn->source != NULL ? conn->source->n_open : 0;
}

/* Refuses the oldest connection of the address that has most of them: an address that opens many
 * displaces its own, and not those of machines that wait for a peer. */
void strait_relay_evict(struct strait_relay_list *list, int most) {
    struct strait_relay_conn *worst = list->first;
    if (worst == NULL || list->n <= most) return;
    for (struct strait_relay_conn *s = list->first; s != NULL; s = s->next)
        if (n_of_address(s) > n_of_address(worst)) worst = s;
    strait_relay_refuse(worst, STRAIT_RELAY_FULL);
}

static void provide_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct strait_relay_conn *conn = handle->data;
    static char unused[64]; // for bytes sent while waiting, which close the connection
    (void)suggested;
    if (conn->state == STRAIT_RELAY_PAIRED) {
        int64_t capacity = STRAIT_RELAY_BUFFER;
        if (conn->relay->config.bytes_per_s > 0 && conn->read_budget < capacity)
            capacity = conn->read_budget;
        /* libuv treats an empty buffer as an error; reading is paused when the budget is used up.
         */
        *out = uv_buf_init((char *)conn->buffer, (unsigned)(capacity > 0 ? capacity : 1));
    } else if (conn->state == STRAIT_RELAY_NEW) {
        *out = uv_buf_init((char *)conn->request + conn->n_request,
                           (unsigned)(sizeof conn->request - conn->n_request));
    } else {
        *out = uv_buf_init(unused, sizeof unused);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    struct strait_relay_conn *conn = stream->data;
    (void)buffer;
    if (n == 0 || conn->state == STRAIT_RELAY_CLOSED) return;
    if (conn->state == STRAIT_RELAY_PAIRED) {
        strait_relay_forward(conn, n);
    } else if (n < 0 || conn->state == STRAIT_RELAY_WAITING) {
        strait_relay_close_conn(conn); // it left, or sent bytes before it was paired
    } else {
        conn->n_request += (size_t)n;
        if (conn->n_request == sizeof conn->request) strait_relay_request_received(conn);
    }
}

int strait_relay_read(struct strait_relay_conn *conn) {
    return uv_read_start((uv_stream_t *)&conn->tcp, provide_buffer, on_read);
}

/* ---- connections ---- */

/* Includes connections that are closing, because they still hold file descriptors. */
static int n_connections(const struct strait_relay *relay) {
    int n = 0;
    for (int i = 0; i < STRAIT_RELAY_N_STATES; i++)
        n += relay->lists[i].n;
    return n;
}

/* Refuses a connection that exceeds the limits in all or of its address. */
static strait_err apply_limits(struct strait_relay_conn *conn) {
    struct sockaddr_storage from;
    int size = sizeof from;
    memset(&from, 0, sizeof from);
    if (n_connections(conn->relay) > conn->relay->config.max_connections)
        return STRAIT_FAIL(STRAIT_EAGAIN, "refused: too many connections in all");
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&from, &size) != 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the connection closed before it was accepted");
    return strait_rate_limiter_acquire(&conn->relay->limiter, (struct sockaddr *)&from,
                                       strait_clock_ns(), &conn->source);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct strait_relay *relay = listener->data;
    void *memory = NULL;
    if (status != 0) return;
    relay->has_deferred = strait_alloc(1, sizeof(struct strait_relay_conn), "connection",
                                       &memory) != STRAIT_OK;
    if (relay->has_deferred)
        return; // libuv reports no other before this one is accepted: on_tick retries
    struct strait_relay_conn *conn = memory;
    conn->relay = relay;
    (void)uv_tcp_init(&relay->loop, &conn->tcp);
    conn->tcp.data = conn;
    append(conn, STRAIT_RELAY_NEW);
    relay->stats.n_accepted++;
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0) {
        strait_relay_close_conn(conn);
    } else if (apply_limits(conn) != STRAIT_OK) {
        strait_relay_refuse(conn, STRAIT_RELAY_FULL);
    } else {
        (void)uv_tcp_nodelay(&conn->tcp, 1);
        (void)uv_tcp_keepalive(&conn->tcp, 1, 20);
        if (strait_relay_read(conn) != 0) strait_relay_close_conn(conn);
    }
    strait_relay_evict(&relay->lists[STRAIT_RELAY_NEW], relay->config.max_new);
}

strait_err strait_relay_listen(struct strait_relay *relay, const char *address, char *out,
                               size_t capacity) {
    char bound[STRAIT_ADDRESS_MAX];
    if (relay->is_listening) return STRAIT_FAIL(STRAIT_EINVAL, "this relay listens already");
    STRAIT_TRY(strait_address_listen(&relay->listener, address, BACKLOG, on_connection, bound));
    relay->is_listening = 1;
    if (strlen(bound) >= capacity)
        return STRAIT_FAIL(STRAIT_EINVAL, "the buffer for the address is too small");
    memcpy(out, bound, strlen(bound) + 1);
    return STRAIT_OK;
}

/* ---- timers ---- */

/* Refuses the connections at the front of a list, the oldest, that have been in it for too long. A
 * request that did not arrive may have been lost, so NO_PEER tells its sender to connect again. */
static void expire(struct strait_relay *relay, enum strait_relay_state state, int limit_ms,
                   strait_relay_status status, int64_t now_ns) {
    struct strait_relay_list *list = &relay->lists[state];
    while (list->first != NULL && now_ns - list->first->since_ns > (int64_t)limit_ms * NS_PER_MS)
        strait_relay_refuse(list->first, status);
}

static void on_tick(uv_timer_t *timer) {
    struct strait_relay *relay = timer->data;
    const int64_t now_ns = strait_clock_ns();
    /* Computed from the clock: ticks may be late. */
    const double passed_s = (double)(now_ns - relay->ticked_ns) * 1e-9;
    const int64_t share = (int64_t)((double)relay->config.bytes_per_s * passed_s);
    relay->ticked_ns = now_ns;
    expire(relay, STRAIT_RELAY_NEW, relay->config.request_timeout_ms, STRAIT_RELAY_NO_PEER, now_ns);
    expire(relay, STRAIT_RELAY_WAITING, relay->config.waiting_timeout_ms, STRAIT_RELAY_NO_PEER,
           now_ns);
    for (struct strait_relay_conn *s = relay->lists[STRAIT_RELAY_PAIRED].first; s != NULL;) {
        struct strait_relay_conn *next = s->next;
        strait_relay_tick_pair(s, now_ns, share);
        if (next != NULL && next->state != STRAIT_RELAY_PAIRED)
            break; // closing a pair removes two: the rest next time
        s = next;
    }
    strait_rate_limiter_sweep(&relay->limiter, now_ns);
    if (relay->has_deferred) on_connection((uv_stream_t *)&relay->listener, 0);
}

/* ---- opening and closing ---- */

static void set_default(int *value, int fallback) {
    if (*value <= 0) *value = fallback;
}

static void set_limit(int *value, int64_t most) {
    if (*value > most) *value = most > 1 ? (int)most : 1;
}

/* Raises the limit of open files, or lowers our limits to it: without a free descriptor the oldest
 * waiting connection could not be evicted in favour of a new one. */
static void fit_to_file_limit(strait_relay_config *c) {
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)c->max_connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_cur < wanted) {
        struct rlimit more = limit;
        more.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
    }
    if (limit.rlim_cur < wanted)
        set_limit(&c->max_connections, (int64_t)limit.rlim_cur - OTHER_FILES);
    set_limit(&c->max_waiting, c->max_connections / 2);
    set_limit(&c->max_new, c->max_connections / 4);
}

static void set_defaults(strait_relay_config *c) {
    set_default(&c->max_connections, 4096);
    set_default(&c->max_new, 256);
    set_default(&c->max_waiting, 1024);
    set_default(&c->max_per_address, 64);
    set_default(&c->max_new_per_s, 32);
    set_default(&c->request_timeout_ms, 5000);
    set_default(&c->waiting_timeout_ms, 30000);
    set_default(&c->idle_timeout_ms, 60000);
    fit_to_file_limit(c);
}

/* uv_async_send is the only call of libuv that other threads and signal handlers may make. */
static void on_wake(uv_async_t *handle) {
    uv_stop(handle->loop);
}

strait_err strait_relay_open(const strait_relay_config *config, struct strait_relay **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_relay), "relay", &memory));
    struct strait_relay *relay = memory;
    relay->config = *config;
    if (config->secret != NULL) {
        relay->secret = *config->secret;
        relay->config.secret = &relay->secret;
    }
    set_defaults(&relay->config);
    relay->limiter.max_open = relay->config.max_per_address;
    relay->limiter.max_per_s = relay->config.max_new_per_s;
    relay->ticked_ns = strait_clock_ns();
    relay->has_loop = uv_loop_init(&relay->loop) == 0;
    if (!relay->has_loop || uv_async_init(&relay->loop, &relay->wake, on_wake) != 0 ||
        uv_timer_init(&relay->loop, &relay->tick) != 0 ||
        uv_tcp_init(&relay->loop, &relay->listener) != 0) {
        strait_relay_close(&relay);
        return STRAIT_FAIL(
            STRAIT_ENOMEM,
            "cannot create an event loop: out of memory or file descriptors; raise ulimit -n");
    }
    relay->tick.data = relay->listener.data = relay;
    (void)uv_timer_start(&relay->tick, on_tick, TICK_MS, TICK_MS);
    *out = relay;
    return STRAIT_OK;
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

void strait_relay_close(struct strait_relay **relay) {
    struct strait_relay *r = *relay;
    if (r == NULL) return;
    for (int i = 0; i < STRAIT_RELAY_CLOSED; i++)
        while (r->lists[i].first != NULL)
            strait_relay_close_conn(r->lists[i].first);
    if (r->has_loop) {
        uv_walk(&r->loop, close_handle, NULL);
        while (uv_run(&r->loop, UV_RUN_DEFAULT) != 0) {
        }
        (void)uv_loop_close(&r->loop);
    }
    strait_rate_limiter_fini(&r->limiter);
    strait_alloc_free(r);
    *relay = NULL;
}

void strait_relay_run(struct strait_relay *relay) {
    (void)uv_run(&relay->loop, UV_RUN_DEFAULT);
}

void strait_relay_stop(struct strait_relay *relay) {
    (void)uv_async_send(&relay->wake);
}

void strait_relay_read_stats(const struct strait_relay *relay, strait_relay_stats *out) {
    *out = relay->stats;
    out->n_new = relay->lists[STRAIT_RELAY_NEW].n;
    out->n_waiting = relay->lists[STRAIT_RELAY_WAITING].n;
    out->n_pairs = relay->lists[STRAIT_RELAY_PAIRED].n / 2;
}
