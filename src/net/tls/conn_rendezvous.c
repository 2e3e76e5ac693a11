/* conn_meet.c - how a conn meets its peer at a relay, before either speaks TLS. */
#include "base/clock.h"
#include "net/tls/conn.h"

#include <string.h>

enum {
    RELAY_WAIT_MS = 45000 // a relay that lives answers sooner, if only that nobody came
};

void strait_conn_use_relay(struct strait_conn *c, struct strait_relay_rendezvous *rendezvous) {
    c->rendezvous = rendezvous;
    rendezvous->n_waiting++;
}

strait_err strait_conn_send_relay_request(struct strait_conn *c) {
    unsigned char greeting[STRAIT_RELAY_REQUEST];
    strait_relay_request_pack(c->rendezvous->role, &c->rendezvous->token, greeting);
    uv_buf_t buffer = uv_buf_init((char *)greeting, sizeof greeting);
    (void)uv_tcp_keepalive(&c->tcp, 1, 20);
    if (uv_try_write((uv_stream_t *)&c->tcp, &buffer, 1) != (int)sizeof greeting)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the relay does not take a greeting");
    c->sent_bytes += sizeof greeting;
    if (c->rendezvous->role == STRAIT_RELAY_LISTENS)
        c->deadline_ns = strait_clock_ns() + (int64_t)RELAY_WAIT_MS * 1000000;
    return STRAIT_OK;
}

strait_err strait_conn_read_relay_reply(struct strait_conn *c) {
    const size_t there = c->read_end - c->read_at;
    const size_t wanted = sizeof c->reply - c->n_reply;
    const size_t n = there < wanted ? there : wanted;
    memcpy(c->reply + c->n_reply, c->incoming + c->read_at, n);
    c->n_reply += n;
    c->read_at += n;
    if (c->n_reply < sizeof c->reply) return STRAIT_EAGAIN;
    STRAIT_TRY(strait_relay_reply_unpack(c->reply));
    c->rendezvous->n_waiting--;
    c->rendezvous->n_paired++;
    c->rendezvous = NULL;
    c->deadline_ns = strait_clock_ns() + (int64_t)c->t->config.handshake_ms * 1000000;
    return STRAIT_OK;
}
