/* conn.c - connecting, receiving, states and deadlines of a conn. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/core/address.h"
#include "net/core/address_class.h"
#include "net/tls/conn_internal.h"
#include "net/tls/socket.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    HANDSHAKE_MAX = 1024, // largest body before the peer's HELLO: a HELLO or a BYE
    LATE_NS = 200000000   // that a busy machine may be late; a longer pause means an idle wire
};

static int64_t after_ms(int ms) {
    return strait_clock_ns() + (int64_t)ms * 1000000;
}

strait_err strait_conn_open(uv_loop_t *loop, struct strait_transport *t,
                            const struct strait_conn_events *events, int is_server,
                            struct strait_emulate *shaper, struct strait_conn **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_conn), "stream", &memory));
    struct strait_conn *c = memory;
    c->t = t;
    c->events = events;
    c->emulate = t->config.emulate;
    strait_emulate_init(&c->own, &c->emulate, &t->home, strait_clock_ns());
    c->shaper = shaper != NULL ? shaper : &c->own;
    c->next_pump_ns = c->read_ns = INT64_MAX;
    c->reader = (struct strait_frame_reader){.pool = t->config.pool};
    c->deadline_ns = after_ms(t->config.handshake_ms);
    c->received_ns = strait_clock_ns();
    strait_err err = strait_tls_open(t->config.identity, is_server, &c->tls);
    if (err == STRAIT_OK)
        err = strait_delay_line_reserve(&c->line, strait_emulate_in_flight(&c->shaper->spec));
    if (err == STRAIT_OK && uv_tcp_init(loop, &c->tcp) != 0)
        err = STRAIT_FAIL(STRAIT_ENOMEM,
                          "cannot create a socket: out of memory or file descriptors");
    if (err != STRAIT_OK) {
        strait_delay_line_fini(&c->line);
        strait_tls_close(&c->tls);
        strait_alloc_free(c);
        return err;
    }
    c->tcp.data = c;
    (void)snprintf(c->remote, sizeof c->remote, "unknown address");
    *out = c;
    return STRAIT_OK;
}

void strait_conn_attach(struct strait_conn *c, struct strait_link *link,
                        struct strait_emulate *shaper) {
    c->link = link;
    c->shaper = shaper;
    /* libuv may be writing from the buffer, which growing moves: strait_conn_pump grows it later.
     */
    c->wanted_buffer = strait_emulate_in_flight(&shaper->spec);
}

void strait_conn_close(struct strait_conn *c, strait_err why, int is_flushing) {
    if (c->state >= STRAIT_CONN_CLOSING) return;
    strait_conn_set_reason(c, why);
    if (c->state <= STRAIT_CONN_RENDEZVOUS) { // there is no peer to tell
        strait_conn_abort(c, why);
        return;
    }
    c->is_flushing = is_flushing && c->state == STRAIT_CONN_OPEN;
    if (c->state >= STRAIT_CONN_HELLO) { // before, the stream cannot carry frames
        strait_bye bye = {.why = why};
        struct strait_msg *msg = NULL;
        if (why != STRAIT_OK)
            (void)snprintf(bye.reason, sizeof bye.reason, "%.*s", (int)sizeof bye.reason - 1,
                           c->reason);
        if (strait_bye_pack(c->t->config.pool, &bye, &msg) == STRAIT_OK)
            strait_priority_queue_push(&c->control, &msg);
    }
    strait_conn_collect_ciphertext(c, strait_clock_ns()); // a TLS alert, if the handshake failed
    c->state = STRAIT_CONN_CLOSING;
    c->deadline_ns = after_ms(c->t->config.linger_ms);
    if (c->is_paused) strait_conn_pause(c, 0); // else the peer's close would never be read
    strait_conn_pump(c);
}

void strait_conn_tick(struct strait_conn *c, int64_t now_ns) {
    if (now_ns < c->deadline_ns || c->state == STRAIT_CONN_OPEN) return;
    if (c->state == STRAIT_CONN_RENDEZVOUS)
        strait_conn_abort(c,
                          STRAIT_FAIL(STRAIT_ETIMEDOUT,
                                      "the peer did not connect to the relay in time; check that "
                                      "it runs and uses the same relay address"));
    else if (c->state < STRAIT_CONN_OPEN)
        strait_conn_close(
            c,
            STRAIT_FAIL(STRAIT_ETIMEDOUT,
                        "no complete handshake within %d ms: the other end is not strait, is "
                        "overloaded, or the network drops packets",
                        c->t->config.handshake_ms),
            0);
    else
        strait_conn_abort(c, c->why);
}

/* ---- receiving ---- */

/* Turns the peer's BYE into an error. */
static strait_err error_of_bye(struct strait_conn *c, const struct strait_msg *msg) {
    strait_bye bye;
    strait_bye_unpack(msg, &bye);
    /* The peer's text is written from its point of view, so the mismatch is described again. */
    const int version = strait_frame_version(&c->reader);
    if (version != STRAIT_FRAME_VERSION) return strait_frame_refuse_version(version);
    if (c->state == STRAIT_CONN_HELLO)
        return STRAIT_FAIL(bye.why == STRAIT_OK ? STRAIT_ECLOSED : bye.why, "refused by peer: %s",
                           bye.reason);
    if (bye.why == STRAIT_OK) return STRAIT_FAIL(STRAIT_ECLOSED, "peer closed the link");
    return STRAIT_FAIL(STRAIT_ECLOSED, "peer closed the link: %s", bye.reason);
}

/* Acts on a whole message. */
static strait_err handle(struct strait_conn *c, struct strait_msg **msg) {
    if ((*msg)->type == STRAIT_MSG_BYE) {
        strait_conn_abort(c, error_of_bye(c, *msg));
        return STRAIT_OK;
    }
    if (c->state == STRAIT_CONN_OPEN) return c->events->received(c, msg);
    strait_hello theirs;
    STRAIT_TRY(strait_hello_unpack(*msg, &theirs));
    STRAIT_TRY(c->events->hello_received(c, &theirs));
    if (c->state == STRAIT_CONN_HELLO) c->state = STRAIT_CONN_OPEN;
    return STRAIT_OK;
}

/* The TLS handshake is complete: the owner checks the key, and we introduce ourselves. */
static strait_err send_hello(struct strait_conn *c) {
    strait_hello ours = {.run = {0}};
    c->peer = *strait_tls_peer(c->tls);
    c->has_peer = 1;
    c->state = STRAIT_CONN_HELLO;
    STRAIT_TRY(c->events->authenticated(c, &c->peer, &ours));
    c->reader.run = strait_hello_run(&ours);
    struct strait_msg *hello = NULL;
    STRAIT_TRY(strait_hello_pack(c->t->config.pool, &ours, &hello));
    hello->queued_ns = strait_clock_ns();
    strait_priority_queue_push(&c->control, &hello);
    return STRAIT_OK;
}

/* Anyone on the path can corrupt bytes below TLS. On a stream of a link this must not count as a
 * protocol violation of the peer, which would be final: dialling again may help. */
static strait_err as_path_error(const struct strait_conn *c, strait_err err) {
    return err == STRAIT_EPROTO && c->link != NULL ? STRAIT_ECLOSED : err;
}

static strait_err continue_handshake(struct strait_conn *c) {
    const strait_err err = strait_tls_handshake(c->tls);
    if (err == STRAIT_EAGAIN) return STRAIT_OK;
    return err == STRAIT_OK ? send_hello(c) : as_path_error(c, err);
}

/* The largest body that the peer may send now. It need not have joined anything yet, so it must not
 * make us allocate more than what it is expected to say. */
static size_t body_limit(const struct strait_conn *c) {
    return c->state == STRAIT_CONN_OPEN ? c->link->message_max : HANDSHAKE_MAX;
}

/* Decrypts the next part of a frame; *out_bytes is 0 when TLS has no more plain text. */
static strait_err read_part(struct strait_conn *c, size_t *out_bytes) {
    size_t capacity = 0;
    c->reader.limit = body_limit(c);
    unsigned char *space = strait_frame_space(&c->reader, &capacity);
    STRAIT_TRY(as_path_error(c, strait_tls_read(c->tls, space, capacity, out_bytes)));
    struct strait_msg *msg = NULL;
    if (*out_bytes == 0) return STRAIT_OK;
    STRAIT_TRY(strait_frame_filled(&c->reader, *out_bytes, &msg));
    const strait_err err = msg != NULL ? handle(c, &msg) : STRAIT_OK;
    strait_msg_close(&msg);
    return err;
}

/* Advances the handshake or reads messages as far as the bytes that TLS holds allow. */
static strait_err advance(struct strait_conn *c) {
    if (c->state == STRAIT_CONN_TLS_HANDSHAKE) STRAIT_TRY(continue_handshake(c));
    size_t n = c->state > STRAIT_CONN_TLS_HANDSHAKE;
    while (n > 0 && !c->is_paused && c->state < STRAIT_CONN_CLOSING)
        STRAIT_TRY(read_part(c, &n));
    return STRAIT_OK;
}

/* Passes what was read from the socket through TLS to the owner, until it is used up or the owner
 * pauses. The rest stays in `incoming` and is processed when it resumes. */
static void process_input(struct strait_conn *c) {
    strait_err err = STRAIT_OK;
    size_t fed = 1;
    while (err == STRAIT_OK && fed > 0 && !c->is_paused && c->state < STRAIT_CONN_CLOSING) {
        fed = strait_tls_feed(c->tls, c->incoming + c->read_at, c->read_end - c->read_at);
        c->read_at += fed;
        err = advance(c);
    }
    if (c->state >= STRAIT_CONN_CLOSING) {
        c->read_at = c->read_end; // closing: nothing more is delivered
        return;
    }
    if (err != STRAIT_OK) {
        c->read_at = c->read_end;
        strait_conn_close(c, err, 0);
        return;
    }
    strait_conn_collect_ciphertext(c, strait_clock_ns());
    strait_conn_pump(c);
}

/* Handles bytes from a relay: first its reply, then the TLS handshake with the peer. */
static void continue_rendezvous(struct strait_conn *c) {
    const strait_err err = strait_conn_read_relay_reply(c);
    if (err == STRAIT_OK) {
        c->state = STRAIT_CONN_TLS_HANDSHAKE;
        process_input(c);
    } else if (err != STRAIT_EAGAIN || c->n_reply == sizeof c->reply) {
        strait_conn_abort(c, err);
    }
}

static void provide_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    (void)suggested;
    struct strait_conn *c = handle->data;
    const size_t most = strait_bandwidth_portion(c->t->config.down, sizeof c->incoming);
    const size_t bytes = strait_emulate_portion(c->shaper->spec.down_bps, most);
    c->portion = bytes;
    *out = uv_buf_init((char *)c->incoming, (unsigned)bytes);
}

/* Stops reading until what was read is paid for, and has passed the emulated way into this home;
 * strait_conn_resume continues. */
static void limit_reading(struct strait_conn *c, size_t bytes) {
    const int64_t now = strait_clock_ns();
    strait_bandwidth_spend(c->t->config.down, NULL, bytes, now);
    int64_t due = strait_bandwidth_due_ns(c->t->config.down, now);
    /* A full portion: more was waiting when its turn came. That this thread was late to read it is
     * not the wire's fault. */
    const int is_late = c->waited_ns > 0 && now - c->waited_ns < LATE_NS;
    const int64_t entered = strait_emulate_receive(c->shaper, is_late ? c->waited_ns : now, bytes);
    c->waited_ns = bytes == c->portion ? entered : 0;
    if (entered > due) due = entered;
    if (due <= now) return;
    c->read_ns = due;
    (void)uv_read_stop((uv_stream_t *)&c->tcp);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    (void)buffer;
    struct strait_conn *c = stream->data;
    if (n == 0 || c->state == STRAIT_CONN_CLOSED) return;
    if (n < 0) {
        if (n == UV_EOF)
            (void)STRAIT_FAIL(
                STRAIT_ECLOSED,
                "the peer closed the connection%s without a BYE: its process ended or "
                "was killed; see its log",
                c->reader.filled > 0 ? " in mid-frame" : "");
        else
            (void)STRAIT_FAIL(STRAIT_ECLOSED,
                              "connection lost: %s; see the peer's log if it does not come back",
                              uv_strerror((int)n));
        strait_conn_abort(c, STRAIT_ECLOSED);
        return;
    }
    c->received_bytes += (uint64_t)n;
    c->received_ns = strait_clock_ns();
    limit_reading(c, (size_t)n);
    c->read_at = 0;
    c->read_end = (size_t)n;
    if (c->state == STRAIT_CONN_RENDEZVOUS)
        continue_rendezvous(c);
    else
        process_input(c);
}

void strait_conn_pause(struct strait_conn *c, int is_paused) {
    if (c->is_paused == is_paused || c->state == STRAIT_CONN_CLOSED) return;
    c->is_paused = is_paused;
    if (is_paused) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp);
        return;
    }
    c->received_ns = strait_clock_ns(); // silence while paused is not the peer's fault
    process_input(c);                   // what was read before the pause
    if (c->is_paused || c->state == STRAIT_CONN_CLOSED || c->read_ns != INT64_MAX) return;
    (void)uv_read_start((uv_stream_t *)&c->tcp, provide_buffer, on_read);
}

void strait_conn_resume(struct strait_conn *c) {
    c->read_ns = INT64_MAX;
    if (c->is_paused || c->state == STRAIT_CONN_CLOSED) return;
    (void)uv_read_start((uv_stream_t *)&c->tcp, provide_buffer, on_read);
}

/* ---- connecting ---- */

/* BBR is meant for long paths; on the loopback the default is faster. */
static int is_loopback(const struct strait_conn *c) {
    struct sockaddr_storage name;
    int size = sizeof name;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&name, &size) != 0) return 0;
    if (name.ss_family == AF_INET)
        return ((const unsigned char *)&((struct sockaddr_in *)&name)->sin_addr)[0] == 127;
    return name.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&name)->sin6_addr);
}

/* The socket is connected: begins with the relay or with TLS. */
static void start(struct strait_conn *c) {
    uv_os_fd_t fd = -1;
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0)
        strait_socket_tune(fd, c->t->config.peer_timeout_ms, !is_loopback(c));
    strait_address_remote(&c->tcp, c->remote);
    c->state = c->rendezvous != NULL ? STRAIT_CONN_RENDEZVOUS : STRAIT_CONN_TLS_HANDSHAKE;
    c->received_ns = strait_clock_ns();
    const strait_err err = c->rendezvous != NULL ? strait_conn_send_relay_request(c) : STRAIT_OK;
    if (err != STRAIT_OK) {
        strait_conn_abort(c, err);
        return;
    }
    (void)uv_read_start((uv_stream_t *)&c->tcp, provide_buffer, on_read);
    if (c->rendezvous == NULL) process_input(c); // the dialling side sends the first TLS record
}

static strait_err connect_error(int status) {
    return STRAIT_FAIL(
        STRAIT_ECLOSED,
        "cannot connect: %s; check that the peer is running and that its address and "
        "firewall allow connections",
        uv_strerror(status));
}

static void on_connect(uv_connect_t *request, int status) {
    struct strait_conn *c = request->handle->data;
    if (c->state == STRAIT_CONN_CLOSED) return;
    if (status != 0)
        strait_conn_abort(c, connect_error(status));
    else
        start(c);
}

/* Checked here, on the very address that is dialled: a name could resolve to another one between a
 * check and the dial. */
strait_err strait_conn_connect(struct strait_conn *c, const struct sockaddr *address) {
    STRAIT_TRY(strait_address_may_dial(address, c->link != NULL ? c->link->dial_classes
                                                                : c->t->config.dial_classes));
    const int status = uv_tcp_connect(&c->connect, &c->tcp, address, on_connect);
    if (status == 0) return STRAIT_OK;
    return connect_error(status);
}

strait_err strait_conn_accept(struct strait_conn *c, uv_stream_t *listener) {
    const int status = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (status != 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot accept a connection: %s", uv_strerror(status));
    start(c);
    return STRAIT_OK;
}
