/* conn_meet.c - how a conn meets its peer at a relay, before either speaks TLS. */
#include "base/clock.h"
#include "net/tls/conn.h"

#include <string.h>

enum {
    PATIENCE_MS = 45000 // a relay that lives answers sooner, if only that nobody came
};

void strait_conn_handshake(struct strait_conn *c, struct strait_conn_greeting *meeting) {
    c->meeting = meeting;
    meeting->n_waiting++;
}

strait_err strait_conn_greet_relay(struct strait_conn *c) {
    unsigned char greeting[STRAIT_RELAY_GREETING];
    strait_relay_greeting_pack(c->meeting->role, &c->meeting->token, greeting);
    uv_buf_t buffer = uv_buf_init((char *)greeting, sizeof greeting);
    (void)uv_tcp_keepalive(&c->tcp, 1, 20);
    if (uv_try_write((uv_stream_t *)&c->tcp, &buffer, 1) != (int)sizeof greeting)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the relay does not take a greeting");
    c->sent_bytes += sizeof greeting;
    if (c->meeting->role == STRAIT_RELAY_LISTENS)
        c->deadline_ns = strait_clock_ns() + (int64_t)PATIENCE_MS * 1000000;
    return STRAIT_OK;
}

strait_err strait_conn_hear_relay(struct strait_conn *c) {
    const size_t there = c->read_end - c->read_at;
    const size_t wanted = sizeof c->reply - c->n_reply;
    const size_t n = there < wanted ? there : wanted;
    memcpy(c->reply + c->n_reply, c->incoming + c->read_at, n);
    c->n_reply += n;
    c->read_at += n;
    if (c->n_reply < sizeof c->reply) return STRAIT_EAGAIN;
    STRAIT_TRY(strait_relay_reply_unpack(c->reply));
    c->meeting->n_waiting--;
    c->meeting->n_met++;
    c->meeting = NULL;
    c->deadline_ns = strait_clock_ns() + (int64_t)c->t->config.handshake_ms * 1000000;
    return STRAIT_OK;
}
