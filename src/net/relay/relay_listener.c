#include "net/relay/relay_listener.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/address.h"
#include "net/tls/multi_link.h"

#include <stdio.h>
#include <string.h>

enum {
    PAUSE_MS = 50,
    PAUSE_MAX_MS = 2000,
    NS_PER_MS = 1000000
};

strait_err strait_relay_listener_open(struct strait_relay_listeners *posts,
                                      struct strait_transport *t, uv_loop_t *loop,
                                      const char *address) {
    char where[STRAIT_ADDRESS_MAX];
    struct strait_relay_listener post = {
        .posts = posts, .t = t, .loop = loop, .pause_ms = PAUSE_MS};
    post.meeting.role = STRAIT_RELAY_LISTENS;
    STRAIT_TRY(strait_relay_address_parse(address, where, sizeof where, &post.meeting.token));
    STRAIT_TRY(strait_address_split(where, post.host, &post.port));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof post, "post at a relay", &memory));
    post.next = posts->first;
    *(struct strait_relay_listener *)memory = post;
    posts->first = memory;
    return STRAIT_OK;
}

void strait_relay_listeners_fini(struct strait_relay_listeners *posts) {
    while (posts->first != NULL) {
        struct strait_relay_listener *post = posts->first;
        posts->first = post->next;
        strait_alloc_free(post);
    }
}

static void wait_a_little(struct strait_relay_listener *post, int64_t now_ns) {
    post->not_before_ns = now_ns + (int64_t)post->pause_ms * NS_PER_MS;
    post->pause_ms = 2 * post->pause_ms < PAUSE_MAX_MS ? 2 * post->pause_ms : PAUSE_MAX_MS;
}

static void go_to(struct strait_relay_listener *post, const struct sockaddr *where) {
    struct strait_multi_link_list *all = post->t->state;
    struct strait_conn *c = NULL;
    if (strait_conn_open(post->loop, post->t, &strait_multi_link_conn_events, 1, NULL, &c) !=
        STRAIT_OK) {
        wait_a_little(post, strait_clock_ns());
        return;
    }
    c->next = all->strangers;
    all->strangers = c;
    all->n_strangers++;
    strait_conn_handshake(c, &post->meeting);
    const strait_err err = strait_conn_connect(c, where);
    if (err != STRAIT_OK) strait_conn_kill(c, err);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct strait_relay_listener *post = request->data;
    post->is_looking_up = 0;
    if (!post->posts->is_closed) {
        if (status == 0)
            go_to(post, strait_address_pick(found, post->n_lookups++));
        else
            wait_a_little(post, strait_clock_ns());
    }
    uv_freeaddrinfo(found);
}

static void go(struct strait_relay_listener *post) {
    struct sockaddr_storage where;
    char service[8];
    memset(&where, 0, sizeof where);
    if (strait_address_numeric(post->host, post->port, &where)) {
        go_to(post, (struct sockaddr *)&where);
        return;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    (void)snprintf(service, sizeof service, "%d", post->port);
    post->lookup.data = post;
    post->is_looking_up = uv_getaddrinfo(post->loop, &post->lookup, on_looked_up, post->host,
                                         service, &hints) == 0;
    if (!post->is_looking_up) wait_a_little(post, strait_clock_ns());
}

static void serve(struct strait_relay_listener *post, int64_t now_ns) {
    if (post->meeting.n_met != post->n_met) { // the relay is well
        post->pause_ms = PAUSE_MS;
        post->not_before_ns = 0;
    }
    if (post->meeting.n_lost != post->n_lost) wait_a_little(post, now_ns);
    post->n_met = post->meeting.n_met;
    post->n_lost = post->meeting.n_lost;
    if (post->meeting.n_waiting == 0 && !post->is_looking_up && now_ns >= post->not_before_ns)
        go(post);
}

void strait_relay_listeners_serve(struct strait_relay_listeners *posts, int64_t now_ns) {
    for (struct strait_relay_listener *post = posts->first; post != NULL && !posts->is_closed;
         post = post->next)
        serve(post, now_ns);
}
