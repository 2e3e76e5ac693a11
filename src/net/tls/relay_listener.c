#include "net/tls/relay_listener.h"

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

strait_err strait_relay_listener_open(struct strait_relay_listeners *listeners,
                                      struct strait_transport *t, uv_loop_t *loop,
                                      const char *address) {
    char where[STRAIT_ADDRESS_MAX];
    struct strait_relay_listener send_mail = {
        .listeners = listeners, .t = t, .loop = loop, .pause_ms = PAUSE_MS};
    send_mail.rendezvous.role = STRAIT_RELAY_LISTENS;
    STRAIT_TRY(
        strait_relay_address_parse(address, where, sizeof where, &send_mail.rendezvous.token));
    STRAIT_TRY(strait_address_split(where, send_mail.host, &send_mail.port));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof send_mail, "post at a relay", &memory));
    send_mail.next = listeners->first;
    *(struct strait_relay_listener *)memory = send_mail;
    listeners->first = memory;
    return STRAIT_OK;
}

void strait_relay_listeners_fini(struct strait_relay_listeners *listeners) {
    while (listeners->first != NULL) {
        struct strait_relay_listener *send_mail = listeners->first;
        listeners->first = send_mail->next;
        strait_alloc_free(send_mail);
    }
}

static void wait_a_little(struct strait_relay_listener *send_mail, int64_t now_ns) {
    send_mail->not_before_ns = now_ns + (int64_t)send_mail->pause_ms * NS_PER_MS;
    send_mail->pause_ms = 2 * send_mail->pause_ms < PAUSE_MAX_MS ? 2 * send_mail->pause_ms
                                                                 : PAUSE_MAX_MS;
}

static void go_to(struct strait_relay_listener *send_mail, const struct sockaddr *where) {
    struct strait_multi_link_list *all = send_mail->t->state;
    struct strait_conn *c = NULL;
    if (strait_conn_open(send_mail->loop, send_mail->t, &strait_multi_link_conn_events, 1, NULL,
                         &c) != STRAIT_OK) {
        wait_a_little(send_mail, strait_clock_ns());
        return;
    }
    c->next = all->pending;
    all->pending = c;
    all->n_pending++;
    strait_conn_use_relay(c, &send_mail->rendezvous);
    const strait_err err = strait_conn_connect(c, where);
    if (err != STRAIT_OK) strait_conn_abort(c, err);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct strait_relay_listener *send_mail = request->data;
    send_mail->is_looking_up = 0;
    if (!send_mail->listeners->is_closed) {
        if (status == 0)
            go_to(send_mail, strait_address_pick(found, send_mail->n_lookups++));
        else
            wait_a_little(send_mail, strait_clock_ns());
    }
    uv_freeaddrinfo(found);
}

static void go(struct strait_relay_listener *send_mail) {
    struct sockaddr_storage where;
    char service[8];
    memset(&where, 0, sizeof where);
    if (strait_address_numeric(send_mail->host, send_mail->port, &where)) {
        go_to(send_mail, (struct sockaddr *)&where);
        return;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    (void)snprintf(service, sizeof service, "%d", send_mail->port);
    send_mail->lookup.data = send_mail;
    send_mail->is_looking_up = uv_getaddrinfo(send_mail->loop, &send_mail->lookup, on_looked_up,
                                              send_mail->host, service, &hints) == 0;
    if (!send_mail->is_looking_up) wait_a_little(send_mail, strait_clock_ns());
}

static void serve(struct strait_relay_listener *send_mail, int64_t now_ns) {
    if (send_mail->rendezvous.n_paired != send_mail->n_paired) { // the relay is well
        send_mail->pause_ms = PAUSE_MS;
        send_mail->not_before_ns = 0;
    }
    if (send_mail->rendezvous.n_lost != send_mail->n_lost) wait_a_little(send_mail, now_ns);
    send_mail->n_paired = send_mail->rendezvous.n_paired;
    send_mail->n_lost = send_mail->rendezvous.n_lost;
    if (send_mail->rendezvous.n_waiting == 0 && !send_mail->is_looking_up &&
        now_ns >= send_mail->not_before_ns)
        go(send_mail);
}

void strait_relay_listeners_serve(struct strait_relay_listeners *listeners, int64_t now_ns) {
    for (struct strait_relay_listener *send_mail = listeners->first;
         send_mail != NULL && !listeners->is_closed; send_mail = send_mail->next)
        serve(send_mail, now_ns);
}
