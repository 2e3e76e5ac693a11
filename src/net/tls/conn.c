#include "net/tls/conn.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/tls/socket.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static int64_t after_ms(int ms) {
    return strait_clock_ns() + (int64_t)ms * 1000000;
}

/* The first reason counts; what follows from it does not. */
static void remember(struct strait_conn *c, strait_err why) {
    if (c->words[0] != 0) return;
    c->why = why;
    (void)snprintf(c->words, sizeof c->words, "%s",
                   why == STRAIT_OK ? "closed as asked" : strait_err_detail());
}

static void let_go(uv_handle_t *handle) {
    struct strait_conn *c = handle->data;
    if (c->meeting != NULL) {
        c->meeting->n_waiting--;
        c->meeting->n_lost++;
    }
    strait_err_note(__FILE__, __LINE__, "%s", c->words);
    c->events->ended(c, c->why);
    strait_priority_queue_clear(&c->own_words);
    strait_msg_close(&c->sending);
    strait_frame_reader_fini(&c->reader);
    strait_delay_line_fini(&c->line);
    strait_tls_close(&c->tls);
    strait_alloc_free(c);
}

void strait_conn_kill(struct strait_conn *c, strait_err why) {
    if (c->state == STRAIT_CONN_CLOSED) return;
    remember(c, why);
    c->state = STRAIT_CONN_CLOSED;
    c->wake_ns = INT64_MAX;
    uv_close((uv_handle_t *)&c->tcp, let_go);
}

strait_err strait_conn_open(uv_loop_t *loop, struct strait_transport *t,
                            const struct strait_conn_events *events, int is_server,
                            struct strait_emulate *shape, struct strait_conn **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_conn), "stream", &memory));
    struct strait_conn *c = memory;
    c->t = t;
    c->events = events;
    c->emulate = t->config.emulate;
    strait_emulate_init(&c->own, &c->emulate, strait_clock_ns());
    c->shape = shape != NULL ? shape : &c->own;
    c->wake_ns = INT64_MAX;
    c->reader = (struct strait_frame_reader){.pool = t->config.pool,
                                             .limit = t->config.message_max};
    c->deadline_ns = after_ms(t->config.handshake_ms);
    c->heard_ns = strait_clock_ns();
    strait_err err = strait_tls_open(t->config.identity, is_server, &c->tls);
    if (err == STRAIT_OK)
        err = strait_delay_line_reserve(&c->line, strait_emulate_in_flight(&c->shape->spec));
    if (err == STRAIT_OK && uv_tcp_init(loop, &c->tcp) != 0)
        err = STRAIT_FAIL(STRAIT_ENOMEM, "no socket can be made");
    if (err != STRAIT_OK) {
        strait_delay_line_fini(&c->line);
        strait_tls_close(&c->tls);
        strait_alloc_free(c);
        return err;
    }
    c->tcp.data = c;
    *out = c;
    return STRAIT_OK;
}

void strait_conn_join(struct strait_conn *c, struct strait_link *link,
                      struct strait_emulate *shape) {
    c->link = link;
    c->shape = shape;
    c->wanted_line = strait_emulate_in_flight(&shape->spec);
}

void strait_conn_finish(struct strait_conn *c, strait_err why, int is_flushing) {
    if (c->state >= STRAIT_CONN_PARTING) return;
    remember(c, why);
    if (c->state <= STRAIT_CONN_MEETING) {
        strait_conn_kill(c, why);
        return;
    }
    c->is_flushing = is_flushing && c->state == STRAIT_CONN_OPEN;
    if (c->state >= STRAIT_CONN_GREETING) {
        strait_bye bye = {.why = why};
        struct strait_msg *msg = NULL;
        if (why != STRAIT_OK) memcpy(bye.words, c->words, sizeof bye.words);
        if (strait_bye_pack(c->t->config.pool, &bye, &msg) == STRAIT_OK)
            strait_priority_queue_push(&c->own_words, &msg);
    }
    strait_conn_collect(c, strait_clock_ns()); // a TLS alert, if that is what went wrong
    c->state = STRAIT_CONN_PARTING;
    c->deadline_ns = after_ms(c->t->config.linger_ms);
    if (c->is_held) strait_conn_hold(c, 0);
    strait_conn_pump(c);
}

void strait_conn_tick(struct strait_conn *c, int64_t now_ns) {
    if (now_ns < c->deadline_ns || c->state == STRAIT_CONN_OPEN) return;
    if (c->state == STRAIT_CONN_MEETING)
        strait_conn_kill(c,
                         STRAIT_FAIL(STRAIT_ETIMEDOUT, "the other side did not come to the relay"));
    else if (c->state < STRAIT_CONN_OPEN)
        strait_conn_finish(
            c,
            STRAIT_FAIL(STRAIT_ETIMEDOUT, "no handshake within %d ms", c->t->config.handshake_ms),
            0);
    else
        strait_conn_kill(c, c->why);
}

/* ---- receiving ---- */

static strait_err refused(struct strait_conn *c, const struct strait_msg *msg) {
    strait_bye bye;
    strait_bye_unpack(msg, &bye);
    if (c->state == STRAIT_CONN_GREETING)
        return STRAIT_FAIL(bye.why == STRAIT_OK ? STRAIT_ECLOSED : bye.why, "refused by peer: %s",
                           bye.words);
    if (bye.why == STRAIT_OK) return STRAIT_FAIL(STRAIT_ECLOSED, "peer closed the link");
    return STRAIT_FAIL(STRAIT_ECLOSED, "peer closed the link: %s", bye.words);
}

static strait_err handle(struct strait_conn *c, struct strait_msg **msg) {
    if ((*msg)->type == STRAIT_MSG_BYE) {
        strait_conn_kill(c, refused(c, *msg));
        return STRAIT_OK;
    }
    if (c->state == STRAIT_CONN_OPEN) return c->events->received(c, msg);
    strait_hello theirs;
    STRAIT_TRY(strait_hello_unpack(*msg, &theirs));
    STRAIT_TRY(c->events->greeted(c, &theirs));
    if (c->state == STRAIT_CONN_GREETING) c->state = STRAIT_CONN_OPEN;
    return STRAIT_OK;
}

static strait_err greet(struct strait_conn *c) {
    strait_hello ours = {.run = {0}};
    c->peer = *strait_tls_peer(c->tls);
    c->state = STRAIT_CONN_GREETING;
    STRAIT_TRY(c->events->secured(c, &c->peer, &ours));
    c->reader.run = strait_hello_run(&ours);
    struct strait_msg *hello = NULL;
    STRAIT_TRY(strait_hello_pack(c->t->config.pool, &ours, &hello));
    hello->queued_ns = strait_clock_ns();
    strait_priority_queue_push(&c->own_words, &hello);
    return STRAIT_OK;
}

/* Anybody on the way can spoil bytes: that is no breach of the peer's, and dialling again helps. */
static strait_err blame_the_way(const struct strait_conn *c, strait_err err) {
    return err == STRAIT_EPROTO && c->link != NULL ? STRAIT_ECLOSED : err;
}

static strait_err shake(struct strait_conn *c) {
    const strait_err err = strait_tls_handshake(c->tls);
    if (err == STRAIT_EAGAIN) return STRAIT_OK;
    return err == STRAIT_OK ? greet(c) : blame_the_way(c, err);
}

/* Takes the next piece of a frame from tls; *out_bytes is 0 when there is none. */
static strait_err take_piece(struct strait_conn *c, size_t *out_bytes) {
    size_t capacity = 0;
    unsigned char *space = strait_frame_space(&c->reader, &capacity);
    STRAIT_TRY(blame_the_way(c, strait_tls_read(c->tls, space, capacity, out_bytes)));
    struct strait_msg *msg = NULL;
    if (*out_bytes == 0) return STRAIT_OK;
    STRAIT_TRY(strait_frame_filled(&c->reader, *out_bytes, &msg));
    const strait_err err = msg != NULL ? handle(c, &msg) : STRAIT_OK;
    strait_msg_close(&msg);
    return err;
}

/* Goes as far as the bytes that tls has. */
static strait_err advance(struct strait_conn *c) {
    if (c->state == STRAIT_CONN_SHAKING) STRAIT_TRY(shake(c));
    size_t n = c->state > STRAIT_CONN_SHAKING;
    while (n > 0 && !c->is_held && c->state < STRAIT_CONN_PARTING)
        STRAIT_TRY(take_piece(c, &n));
    return STRAIT_OK;
}

/* Works through what was read from the socket, as far as the owner wants it. */
static void digest(struct strait_conn *c) {
    strait_err err = STRAIT_OK;
    size_t fed = 1;
    while (err == STRAIT_OK && fed > 0 && !c->is_held && c->state < STRAIT_CONN_PARTING) {
        fed = strait_tls_feed(c->tls, c->incoming + c->read_at, c->read_end - c->read_at);
        c->read_at += fed;
        err = advance(c);
    }
    if (c->state >= STRAIT_CONN_PARTING) {
        c->read_at = c->read_end; // too late to matter
        return;
    }
    if (err != STRAIT_OK) {
        c->read_at = c->read_end;
        strait_conn_finish(c, err, 0);
        return;
    }
    strait_conn_collect(c, strait_clock_ns());
    strait_conn_pump(c);
}

/* Goes on with what came from a relay. */
static void meet(struct strait_conn *c) {
    const strait_err err = strait_conn_hear_relay(c);
    if (err == STRAIT_OK) {
        c->state = STRAIT_CONN_SHAKING;
        digest(c);
    } else if (err != STRAIT_EAGAIN || c->n_reply == sizeof c->reply) {
        strait_conn_kill(c, err);
    }
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    (void)suggested;
    struct strait_conn *c = handle->data;
    *out = uv_buf_init((char *)c->incoming, sizeof c->incoming);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    (void)buffer;
    struct strait_conn *c = stream->data;
    if (n == 0 || c->state == STRAIT_CONN_CLOSED) return;
    if (n < 0) {
        if (n == UV_EOF)
            (void)STRAIT_FAIL(STRAIT_ECLOSED, "peer vanished%s, without a goodbye",
                              c->reader.filled > 0 ? " in mid-frame" : "");
        else
            (void)STRAIT_FAIL(STRAIT_ECLOSED, "connection lost: %s", uv_strerror((int)n));
        strait_conn_kill(c, STRAIT_ECLOSED);
        return;
    }
    c->received_bytes += (uint64_t)n;
    c->heard_ns = strait_clock_ns();
    c->read_at = 0;
    c->read_end = (size_t)n;
    if (c->state == STRAIT_CONN_MEETING)
        meet(c);
    else
        digest(c);
}

void strait_conn_hold(struct strait_conn *c, int is_held) {
    if (c->is_held == is_held || c->state == STRAIT_CONN_CLOSED) return;
    c->is_held = is_held;
    if (is_held) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp);
        return;
    }
    c->heard_ns = strait_clock_ns();
    digest(c); // what had been read before
    if (c->is_held || c->state == STRAIT_CONN_CLOSED) return;
    (void)uv_read_start((uv_stream_t *)&c->tcp, give_buffer, on_read);
}

/* ---- connecting ---- */

static int is_loopback(const struct strait_conn *c) {
    struct sockaddr_storage name;
    int size = sizeof name;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&name, &size) != 0) return 0;
    if (name.ss_family == AF_INET)
        return ((const unsigned char *)&((struct sockaddr_in *)&name)->sin_addr)[0] == 127;
    return name.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&name)->sin6_addr);
}

static void begin(struct strait_conn *c) {
    uv_os_fd_t fd = -1;
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0)
        strait_socket_tune(fd, c->t->config.dead_ms, !is_loopback(c));
    c->state = c->meeting != NULL ? STRAIT_CONN_MEETING : STRAIT_CONN_SHAKING;
    c->heard_ns = strait_clock_ns();
    const strait_err err = c->meeting != NULL ? strait_conn_greet_relay(c) : STRAIT_OK;
    if (err != STRAIT_OK) {
        strait_conn_kill(c, err);
        return;
    }
    (void)uv_read_start((uv_stream_t *)&c->tcp, give_buffer, on_read);
    if (c->meeting == NULL) digest(c); // the dialler speaks first
}

static void on_connect(uv_connect_t *request, int status) {
    struct strait_conn *c = request->handle->data;
    if (c->state == STRAIT_CONN_CLOSED) return;
    if (status != 0)
        strait_conn_kill(c, STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: %s", uv_strerror(status)));
    else
        begin(c);
}

strait_err strait_conn_connect(struct strait_conn *c, const struct sockaddr *address) {
    const int status = uv_tcp_connect(&c->connect, &c->tcp, address, on_connect);
    if (status == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: %s", uv_strerror(status));
}

strait_err strait_conn_accept(struct strait_conn *c, uv_stream_t *listener) {
    const int status = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (status != 0) return STRAIT_FAIL(STRAIT_ECLOSED, "cannot accept: %s", uv_strerror(status));
    begin(c);
    return STRAIT_OK;
}
