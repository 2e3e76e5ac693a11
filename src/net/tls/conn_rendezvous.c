/* conn_rendezvous.c - how a conn meets its peer at a relay, before the TLS handshake. */
#include "base/clock.h"
#include "net/tls/conn_internal.h"

#include <string.h>

enum {
    /* A working relay answers sooner, if only to say that no peer came (relay.h: 30 s). */
    RELAY_WAIT_MS = 45000,
    KEEPALIVE_S = 20 // shorter than the idle timeout of common NAT gateways
};

void strait_conn_use_relay(struct strait_conn *c, struct strait_relay_rendezvous *rendezvous) {
    c->is_relayed = 1;
    c->rendezvous = rendezvous;
    rendezvous->n_waiting++;
}

strait_err strait_conn_send_relay_request(struct strait_conn *c) {
    unsigned char request[STRAIT_RELAY_REQUEST];
    strait_relay_request_pack(c->rendezvous->role, &c->rendezvous->token, request);
    uv_buf_t buffer = uv_buf_init((char *)request, sizeof request);
    (void)uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    /* The buffer of a new socket has capacity for 40 bytes: a short write means it is broken. */
    if (uv_try_write((uv_stream_t *)&c->tcp, &buffer, 1) != (int)sizeof request)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the relay closed the connection before our request");
    c->sent_bytes += sizeof request;
    /* The listening side waits for a peer; the dialling side keeps its handshake deadline. */
    if (c->rendezvous->role == STRAIT_RELAY_LISTENS)
        c->deadline_ns = strait_clock_ns() + (int64_t)RELAY_WAIT_MS * 1000000;
    return STRAIT_OK;
}

strait_err strait_conn_read_relay_reply(struct strait_conn *c) {
    const size_t available = c->read_end - c->read_at;
    const size_t wanted = sizeof c->reply - c->n_reply;
    const size_t n = available < wanted ? available : wanted;
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
