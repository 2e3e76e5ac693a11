/* multi_link_list.c - what the transport does for all its links: deadlines, pumping, closing. */
#include "net/tls/multi_link.h"

#define LONGEST_TICK_NS \
    INT64_C(1000000000) // normal time between ticks; more: the event loop was blocked

/* Checks the deadlines of one link. A link is alive if any of its streams is. */
static void tick_link(struct strait_link *link, int64_t now_ns) {
    struct strait_multi_link *ml = link->state;
    const strait_transport_config *config = &link->transport->config;
    int64_t received_ns = ml->shaper.start_ns;
    for (int i = 0; i < ml->n_streams; i++) {
        struct strait_conn *c = ml->streams[i];
        if (c == NULL) continue;
        if (c->received_ns > received_ns) received_ns = c->received_ns;
        strait_conn_tick(c, now_ns);
    }
    if (ml->is_closing || ml->is_resolving) return;
    const int limit_ms = ml->is_open ? config->peer_timeout_ms : config->handshake_ms;
    /* Until it is open, the whole handshake counts: bytes of some streams do not extend it. */
    const int64_t since_ns = ml->is_open ? received_ns : ml->shaper.start_ns;
    if (!ml->is_paused && now_ns - since_ns > (int64_t)limit_ms * 1000000) {
        strait_multi_link_abort(link,
                                STRAIT_FAIL(STRAIT_ETIMEDOUT,
                                            "no data received from '%s' for %d ms: its process has "
                                            "stopped or the network is down",
                                            link->peer_name, limit_ms));
        return;
    }
    if (!ml->is_open || ml->is_ping_queued ||
        now_ns - ml->pinged_ns < (int64_t)config->ping_ms * 1000000)
        return;
    strait_multi_link_ping(link, now_ns);
}

/* After the event loop has been blocked, extends every peer's liveness deadline by that time: bytes
 * that arrived meanwhile are read only after this tick. */
static void extend_deadlines(struct strait_multi_link_list *all, int64_t blocked_ns) {
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *ml = link->state;
        for (int i = 0; i < ml->n_streams; i++)
            if (ml->streams[i] != NULL) ml->streams[i]->received_ns += blocked_ns;
        link = ml->next;
    }
}

void strait_multi_link_list_tick(struct strait_transport *t, int64_t now_ns) {
    struct strait_multi_link_list *all = t->state;
    const int64_t blocked_ns = all->tick_ns > 0 ? now_ns - all->tick_ns - LONGEST_TICK_NS : 0;
    if (blocked_ns > 0) extend_deadlines(all, blocked_ns);
    all->tick_ns = now_ns;
    for (struct strait_link *link = all->first; link != NULL;
         link = ((struct strait_multi_link *)link->state)->next)
        tick_link(link, now_ns);
    for (struct strait_conn *c = all->pending; c != NULL; c = c->next)
        strait_conn_tick(c, now_ns);
}

/* Streams of an emulated or limited link have to be pumped, or read, when their next bytes are due,
 * not when the socket becomes ready. Returns when that is. */
static int64_t pump_if_due(struct strait_conn *c, int64_t now_ns) {
    if (c == NULL) return INT64_MAX;
    if (c->read_ns <= now_ns) strait_conn_resume(c);
    if (c->next_pump_ns <= now_ns) strait_conn_pump(c);
    return c->next_pump_ns < c->read_ns ? c->next_pump_ns : c->read_ns;
}

int64_t strait_multi_link_list_pump_due(struct strait_transport *t, int64_t now_ns) {
    const struct strait_multi_link_list *all = t->state;
    int64_t soonest = INT64_MAX;
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *ml = link->state;
        for (int i = 0; i < ml->n_streams; i++) {
            const int64_t next_pump_ns = pump_if_due(ml->streams[i], now_ns);
            if (next_pump_ns < soonest) soonest = next_pump_ns;
        }
        link = ml->next;
    }
    for (struct strait_conn *c = all->pending; c != NULL; c = c->next) {
        const int64_t next_pump_ns = pump_if_due(c, now_ns);
        if (next_pump_ns < soonest) soonest = next_pump_ns;
    }
    return soonest;
}

/* Frees a link after its closed() event; the only place that does. */
static void retire(struct strait_link **at) {
    struct strait_link *link = *at;
    struct strait_transport *t = link->transport;
    struct strait_multi_link *ml = link->state;
    *at = ml->next;
    strait_priority_queue_clear(&ml->out);
    strait_reorder_clear(&ml->in);
    for (int i = 0; i < STRAIT_STREAMS_MAX; i++)
        strait_msg_close(&ml->held[i]);
    strait_err_note(__FILE__, __LINE__, "%s", ml->reason);
    strait_link_prefix_error(link);
    t->events->closed(t->user, link, ml->why);
    strait_link_free(link);
}

int strait_multi_link_list_sweep(struct strait_transport *t) {
    struct strait_multi_link_list *all = t->state;
    int n_events = 0;
    for (struct strait_link **at = &all->first; *at != NULL;) {
        struct strait_multi_link *ml = (*at)->state;
        if (ml->is_closing && ml->n_live == 0 && !ml->is_resolving) {
            retire(at);
            n_events++;
            continue;
        }
        n_events += strait_multi_link_release(*at);
        /* Half empty, so that the owner is not called for every message sent. */
        if (ml->wants_writable && !ml->is_closing && ml->out.n_bytes <= t->config.queue_bytes / 2) {
            ml->wants_writable = 0;
            t->events->writable(t->user, *at);
            n_events++;
        }
        at = &ml->next;
    }
    return n_events;
}
