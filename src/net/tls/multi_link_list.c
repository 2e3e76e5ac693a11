/* bundles.c - what is done for all links of a transport in turn. */
#include "net/tls/multi_link.h"

#define LONGEST_TICK_NS INT64_C(1000000000) // a tick may take, though they come far more often

static void tick_link(struct strait_link *link, int64_t now_ns) {
    struct strait_multi_link *b = link->state;
    const strait_transport_config *config = &link->transport->config;
    int64_t received_ns = b->shaper.start_ns;
    for (int i = 0; i < b->n_streams; i++) {
        struct strait_conn *c = b->streams[i];
        if (c == NULL) continue;
        if (c->received_ns > received_ns) received_ns = c->received_ns;
        strait_conn_tick(c, now_ns);
    }
    if (b->is_closing || b->is_resolving) return;
    const int limit_ms = b->is_open ? config->peer_timeout_ms : config->handshake_ms;
    const int64_t since_ns = b->is_open ? received_ns : b->shaper.start_ns;
    if (!b->is_paused && now_ns - since_ns > (int64_t)limit_ms * 1000000) {
        strait_multi_link_abort(link,
                                STRAIT_FAIL(STRAIT_ETIMEDOUT, "no sign of life from '%s' for %d ms",
                                            link->peer_name, limit_ms));
        return;
    }
    if (!b->is_open || b->is_ping_queued ||
        now_ns - b->pinged_ns < (int64_t)config->ping_ms * 1000000)
        return;
    strait_multi_link_ping(link, now_ns);
}

/* Who was busy elsewhere has heard nobody, and what came meanwhile is read after this tick: that
 * time counts as the longest that a tick may take, and no more. */
static void extend_deadlines(struct strait_multi_link_list *all, int64_t blocked_ns) {
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *b = link->state;
        for (int i = 0; i < b->n_streams; i++)
            if (b->streams[i] != NULL) b->streams[i]->received_ns += blocked_ns;
        link = b->next;
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

static int64_t pump_if_due(struct strait_conn *c, int64_t now_ns) {
    if (c == NULL) return INT64_MAX;
    if (c->next_pump_ns <= now_ns) strait_conn_pump(c);
    return c->next_pump_ns;
}

int64_t strait_multi_link_list_pump_due(struct strait_transport *t, int64_t now_ns) {
    const struct strait_multi_link_list *all = t->state;
    int64_t soonest = INT64_MAX;
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *b = link->state;
        for (int i = 0; i < b->n_streams; i++) {
            const int64_t next_pump_ns = pump_if_due(b->streams[i], now_ns);
            if (next_pump_ns < soonest) soonest = next_pump_ns;
        }
        link = b->next;
    }
    for (struct strait_conn *c = all->pending; c != NULL; c = c->next) {
        const int64_t next_pump_ns = pump_if_due(c, now_ns);
        if (next_pump_ns < soonest) soonest = next_pump_ns;
    }
    return soonest;
}

/* The one place where a link ends. */
static void retire(struct strait_link **at) {
    struct strait_link *link = *at;
    struct strait_transport *t = link->transport;
    struct strait_multi_link *b = link->state;
    *at = b->next;
    strait_priority_queue_clear(&b->out);
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++) {
        while (b->out_of_order[p] != NULL) {
            struct strait_msg *m = b->out_of_order[p];
            b->out_of_order[p] = m->next;
            strait_msg_close(&m);
        }
    }
    strait_err_note(__FILE__, __LINE__, "%s", b->reason);
    t->events->closed(t->user, link, b->why);
    strait_link_free(link);
}

int strait_multi_link_list_sweep(struct strait_transport *t) {
    struct strait_multi_link_list *all = t->state;
    int n_events = 0;
    for (struct strait_link **at = &all->first; *at != NULL;) {
        struct strait_multi_link *b = (*at)->state;
        if (b->is_closing && b->n_live == 0 && !b->is_resolving) {
            retire(at);
            n_events++;
            continue;
        }
        if (b->wants_writable && !b->is_closing && b->out.n_bytes <= t->config.queue_bytes / 2) {
            b->wants_writable = 0;
            t->events->writable(t->user, *at);
            n_events++;
        }
        at = &b->next;
    }
    return n_events;
}
