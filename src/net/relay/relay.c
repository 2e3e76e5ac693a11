/* relay.c - the relay: who comes, who waits, and the clocks of both. */
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
    OTHER_FILES = 32, // that the process has open beside its connections
    NS_PER_MS = 1000000
};

/* ---- lists ---- */

static void leave(struct strait_relay_side *side) {
    struct strait_relay_list *list = &side->relay->lists[side->state];
    if (side->prev != NULL)
        side->prev->next = side->next;
    else
        list->first = side->next;
    if (side->next != NULL)
        side->next->prev = side->prev;
    else
        list->last = side->prev;
    list->n--;
}

static void append(struct strait_relay_side *side, enum strait_relay_state state) {
    struct strait_relay_list *list = &side->relay->lists[state];
    side->state = state;
    side->since_ns = strait_clock_ns();
    side->next = NULL;
    side->prev = list->last;
    if (list->last != NULL)
        list->last->next = side;
    else
        list->first = side;
    list->last = side;
    list->n++;
}

void strait_relay_enter(struct strait_relay_side *side, enum strait_relay_state state) {
    leave(side);
    append(side, state);
}

/* ---- endings ---- */

static void release(struct strait_relay_side *side) {
    strait_alloc_free(side->buffer);
    strait_alloc_free(side);
}

/* libuv holds pointers to a buffer until it has let go of the side that it is written to. */
static void let_go(uv_handle_t *handle) {
    struct strait_relay_side *side = handle->data;
    leave(side);
    if (side->host != NULL) strait_rate_limiter_left(side->host);
    side->is_released = 1;
    if (side->mate != NULL && !side->mate->is_released) return;
    if (side->mate != NULL) release(side->mate);
    release(side);
}

static void hang_up(struct strait_relay_side *side) {
    if (side->state == STRAIT_RELAY_GONE) return;
    strait_relay_enter(side, STRAIT_RELAY_GONE);
    uv_close((uv_handle_t *)&side->tcp, let_go);
}

void strait_relay_end(struct strait_relay_side *side) {
    struct strait_relay_side *other = side->other;
    if (side->state == STRAIT_RELAY_GONE) return;
    if (other != NULL) {
        side->other = other->other = NULL;
        hang_up(other);
    }
    hang_up(side);
}

void strait_relay_refuse(struct strait_relay_side *side, strait_relay_status status) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    strait_relay_reply_pack(status, reply);
    uv_buf_t buffer = uv_buf_init((char *)reply, sizeof reply);
    (void)uv_try_write((uv_stream_t *)&side->tcp, &buffer, 1);
    side->relay->stats.n_refused += status != STRAIT_RELAY_ALONE;
    strait_relay_end(side);
}

/* ---- greetings ---- */

/* Looks at every one that waits, whether or not it has been found: the time tells nothing. */
static struct strait_relay_side *find_other(const struct strait_relay_side *side) {
    struct strait_relay_side *found = NULL;
    for (struct strait_relay_side *s = side->relay->lists[STRAIT_RELAY_WAITING].first; s != NULL;
         s = s->next) {
        const int is_same = strait_relay_token_equal(&s->token, &side->token);
        if (is_same && s->role != side->role) found = s; // the latest is the likeliest alive
    }
    return found;
}

static void greeted(struct strait_relay_side *side) {
    struct strait_relay *relay = side->relay;
    if (strait_relay_greeting_unpack(side->greeting, &side->role, &side->token) != STRAIT_OK) {
        strait_relay_refuse(side, STRAIT_RELAY_UNCLEAR);
        return;
    }
    struct strait_relay_side *other = find_other(side);
    if (other != NULL) {
        strait_relay_join(other, side);
        return;
    }
    strait_relay_enter(side, STRAIT_RELAY_WAITING);
    if (relay->lists[STRAIT_RELAY_WAITING].n > relay->config.waiting)
        strait_relay_refuse(relay->lists[STRAIT_RELAY_WAITING].first, STRAIT_RELAY_FULL);
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct strait_relay_side *side = handle->data;
    static char nowhere[64]; // for bytes that nobody may send; never looked at
    (void)suggested;
    if (side->state == STRAIT_RELAY_JOINED) {
        int64_t capacity = STRAIT_RELAY_BUFFER;
        if (side->relay->config.bytes_per_s > 0 && side->allowance < capacity)
            capacity = side->allowance;
        *out = uv_buf_init((char *)side->buffer, (unsigned)(capacity > 0 ? capacity : 1));
    } else if (side->state == STRAIT_RELAY_STRANGER) {
        *out = uv_buf_init((char *)side->greeting + side->n_greeting,
                           (unsigned)(sizeof side->greeting - side->n_greeting));
    } else {
        *out = uv_buf_init(nowhere, sizeof nowhere);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    struct strait_relay_side *side = stream->data;
    (void)buffer;
    if (n == 0 || side->state == STRAIT_RELAY_GONE) return;
    if (side->state == STRAIT_RELAY_JOINED) {
        strait_relay_pass(side, n);
    } else if (n < 0 || side->state == STRAIT_RELAY_WAITING) {
        strait_relay_end(side); // left, or spoke before its turn
    } else {
        side->n_greeting += (size_t)n;
        if (side->n_greeting == sizeof side->greeting) greeted(side);
    }
}

int strait_relay_read(struct strait_relay_side *side) {
    return uv_read_start((uv_stream_t *)&side->tcp, give_room, on_read);
}

/* ---- arrivals ---- */

static int n_connections(const struct strait_relay *relay) {
    int n = 0;
    for (int i = 0; i < STRAIT_RELAY_N_STATES; i++)
        n += relay->lists[i].n;
    return n;
}

static strait_err count_in(struct strait_relay_side *side) {
    struct sockaddr_storage from;
    int size = sizeof from;
    memset(&from, 0, sizeof from);
    if (n_connections(side->relay) > side->relay->config.connections)
        return STRAIT_FAIL(STRAIT_EAGAIN, "too many connections");
    if (uv_tcp_getpeername(&side->tcp, (struct sockaddr *)&from, &size) != 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "gone already");
    return strait_rate_limiter_come(&side->relay->hosts, (struct sockaddr *)&from,
                                    strait_clock_ns(), &side->host);
}

static void on_arrival(uv_stream_t *listener, int status) {
    struct strait_relay *relay = listener->data;
    void *memory = NULL;
    if (status != 0) return;
    relay->has_arrival = strait_alloc(1, sizeof(struct strait_relay_side), "connection", &memory) !=
                         STRAIT_OK;
    if (relay->has_arrival) return; // libuv offers no other before this one: on_tick tries again
    struct strait_relay_side *side = memory;
    side->relay = relay;
    (void)uv_tcp_init(&relay->loop, &side->tcp);
    side->tcp.data = side;
    append(side, STRAIT_RELAY_STRANGER);
    relay->stats.n_accepted++;
    if (uv_accept(listener, (uv_stream_t *)&side->tcp) != 0) {
        strait_relay_end(side);
    } else if (count_in(side) != STRAIT_OK) {
        strait_relay_refuse(side, STRAIT_RELAY_FULL);
    } else {
        (void)uv_tcp_nodelay(&side->tcp, 1);
        (void)uv_tcp_keepalive(&side->tcp, 1, 20);
        if (strait_relay_read(side) != 0) strait_relay_end(side);
    }
    struct strait_relay_list *strangers = &relay->lists[STRAIT_RELAY_STRANGER];
    if (strangers->n > relay->config.strangers)
        strait_relay_refuse(strangers->first, STRAIT_RELAY_FULL);
}

strait_err strait_relay_listen(struct strait_relay *relay, const char *address, char *out,
                               size_t capacity) {
    char bound[STRAIT_ADDRESS_MAX];
    if (relay->is_listening) return STRAIT_FAIL(STRAIT_EINVAL, "the relay listens already");
    STRAIT_TRY(strait_address_listen(&relay->listener, address, BACKLOG, on_arrival, bound));
    relay->is_listening = 1;
    if (strlen(bound) >= capacity) return STRAIT_FAIL(STRAIT_EINVAL, "no room for an address");
    memcpy(out, bound, strlen(bound) + 1);
    return STRAIT_OK;
}

/* ---- clocks ---- */

/* Refuses those at the front of a list that have been there for too long. A greeting that did not
 * come may still be on its way: whoever sent it is to come again. */
static void expire(struct strait_relay *relay, enum strait_relay_state state, int limit_ms,
                   strait_relay_status status, int64_t now_ns) {
    struct strait_relay_list *list = &relay->lists[state];
    while (list->first != NULL && now_ns - list->first->since_ns > (int64_t)limit_ms * NS_PER_MS)
        strait_relay_refuse(list->first, status);
}

static void on_tick(uv_timer_t *timer) {
    struct strait_relay *relay = timer->data;
    const int64_t now_ns = strait_clock_ns();
    const double passed_s = (double)(now_ns - relay->ticked_ns) * 1e-9;
    const int64_t share = (int64_t)((double)relay->config.bytes_per_s * passed_s);
    relay->ticked_ns = now_ns;
    expire(relay, STRAIT_RELAY_STRANGER, relay->config.greeting_ms, STRAIT_RELAY_ALONE, now_ns);
    expire(relay, STRAIT_RELAY_WAITING, relay->config.waiting_ms, STRAIT_RELAY_ALONE, now_ns);
    for (struct strait_relay_side *s = relay->lists[STRAIT_RELAY_JOINED].first; s != NULL;) {
        struct strait_relay_side *next = s->next;
        strait_relay_tick_joined(s, now_ns, share);
        if (next != NULL && next->state != STRAIT_RELAY_JOINED) break; // parted: the rest later
        s = next;
    }
    strait_rate_limiter_sweep(&relay->hosts, now_ns);
    if (relay->has_arrival) on_arrival((uv_stream_t *)&relay->listener, 0);
}

/* ---- life ---- */

static void set_default(int *value, int otherwise) {
    if (*value <= 0) *value = otherwise;
}

static void set_limit(int *value, int64_t most) {
    if (*value > most) *value = most > 1 ? (int)most : 1;
}

/* Whoever waits must go before the process has no descriptors left: newcomers would be dropped. */
static void fit(strait_relay_config *c) {
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)c->connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    if (limit.rlim_cur < wanted) {
        struct rlimit more = limit;
        more.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
    }
    if (limit.rlim_cur < wanted) set_limit(&c->connections, (int64_t)limit.rlim_cur - OTHER_FILES);
    set_limit(&c->waiting, c->connections / 2);
    set_limit(&c->strangers, c->connections / 4);
}

static void set_defaults(strait_relay_config *c) {
    set_default(&c->connections, 4096);
    set_default(&c->strangers, 256);
    set_default(&c->waiting, 1024);
    set_default(&c->per_host, 64);
    set_default(&c->per_host_rate, 32);
    set_default(&c->greeting_ms, 5000);
    set_default(&c->waiting_ms, 30000);
    set_default(&c->idle_ms, 60000);
    fit(c);
}

static void on_wake(uv_async_t *handle) {
    uv_stop(handle->loop);
}

strait_err strait_relay_open(const strait_relay_config *config, struct strait_relay **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_relay), "relay", &memory));
    struct strait_relay *relay = memory;
    relay->config = *config;
    set_defaults(&relay->config);
    relay->hosts.n_max = relay->config.per_host;
    relay->hosts.per_s = relay->config.per_host_rate;
    relay->ticked_ns = strait_clock_ns();
    relay->has_loop = uv_loop_init(&relay->loop) == 0;
    if (!relay->has_loop || uv_async_init(&relay->loop, &relay->wake, on_wake) != 0 ||
        uv_timer_init(&relay->loop, &relay->tick) != 0 ||
        uv_tcp_init(&relay->loop, &relay->listener) != 0) {
        strait_relay_close(&relay);
        return STRAIT_FAIL(STRAIT_ENOMEM, "no event loop can be made: out of file descriptors?");
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
    for (int i = 0; i < STRAIT_RELAY_GONE; i++)
        while (r->lists[i].first != NULL)
            strait_relay_end(r->lists[i].first);
    if (r->has_loop) {
        uv_walk(&r->loop, close_handle, NULL);
        while (uv_run(&r->loop, UV_RUN_DEFAULT) != 0) {
        }
        (void)uv_loop_close(&r->loop);
    }
    strait_rate_limiter_fini(&r->hosts);
    strait_alloc_free(r);
    *relay = NULL;
}

void strait_relay_run(struct strait_relay *relay) {
    (void)uv_run(&relay->loop, UV_RUN_DEFAULT);
}

void strait_relay_stop(struct strait_relay *relay) {
    (void)uv_async_send(&relay->wake);
}

void strait_relay_count(const struct strait_relay *relay, strait_relay_stats *out) {
    *out = relay->stats;
    out->strangers = relay->lists[STRAIT_RELAY_STRANGER].n;
    out->waiting = relay->lists[STRAIT_RELAY_WAITING].n;
    out->pairs = relay->lists[STRAIT_RELAY_JOINED].n / 2;
}
