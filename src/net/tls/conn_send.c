/* conn_send.c - sending: messages become frames, frames TLS records, records bytes of the socket.
 *
 *     owner's queue -> staging (plain text) -> TLS -> send buffer (ciphertext) -> socket
 *
 * Each arrow moves only as much as the next stage can take, so that a message stays in the owner's
 * queue, where a more urgent one can still overtake it, as long as possible. */
#include "base/bytes.h"
#include "base/clock.h"
#include "net/tls/conn_internal.h"

#include <string.h>

enum {
    ENCRYPTED_AHEAD_MAX = 64 * 1024 // ciphertext that waits for the socket, without emulation
};

static struct strait_msg *next_message(struct strait_conn *c) {
    struct strait_msg *msg = NULL;
    const int owner_may = c->state == STRAIT_CONN_OPEN || c->is_flushing;
    if (c->is_flushing) msg = c->events->next(c); // our BYE comes after the owner's messages
    if (msg == NULL) msg = strait_priority_queue_pop(&c->control);
    if (msg == NULL && owner_may && !c->is_flushing) msg = c->events->next(c);
    return msg;
}

/* Copies the next part of the header or body; closes the message after its last byte. */
static size_t stage_part(struct strait_conn *c, unsigned char *out, size_t capacity) {
    struct strait_msg *msg = c->sending;
    const size_t total = STRAIT_FRAME_HEADER + msg->size;
    const unsigned char *from = c->header + c->n_sent;
    size_t n = STRAIT_FRAME_HEADER - c->n_sent;
    if (c->n_sent >= STRAIT_FRAME_HEADER) {
        from = msg->body + (c->n_sent - STRAIT_FRAME_HEADER);
        n = total - c->n_sent;
    }
    if (n > capacity) n = capacity;
    memcpy(out, from, n);
    c->n_sent += n;
    if (c->n_sent == total) strait_msg_close(&c->sending);
    return n;
}

/* Gathers one TLS record of frames; small messages share a record. *ready_ns is when the last of
 * them was queued, which is when a real wire could have started to send it. */
static size_t stage(struct strait_conn *c, int64_t *ready_ns) {
    size_t n = 0;
    *ready_ns = 0;
    while (n < sizeof c->staging) {
        if (c->sending == NULL) {
            c->sending = next_message(c);
            if (c->sending == NULL) break;
            strait_frame_write(c->sending, strait_get_u32(c->t->config.run), c->header);
            c->n_sent = 0;
        }
        if (c->sending->queued_ns > *ready_ns) *ready_ns = c->sending->queued_ns;
        n += stage_part(c, c->staging + n, sizeof c->staging - n);
    }
    return n;
}

void strait_conn_collect_ciphertext(struct strait_conn *c, int64_t ready_ns) {
    const int is_shaped = strait_emulate_is_on(&c->shaper->spec);
    for (;;) {
        size_t capacity = 0;
        unsigned char *space = strait_delay_line_space(&c->line, &capacity);
        const size_t n = capacity > 0 ? strait_tls_take(c->tls, space, capacity) : 0;
        if (n == 0) return;
        strait_delay_line_added(&c->line, n,
                                is_shaped ? strait_emulate_send(c->shaper, ready_ns, n) : 0);
        c->left_ns = c->shaper->free_ns;
    }
}

/* Encrypted bytes can no longer be overtaken, so only a few are kept ahead of the socket. An
 * emulated wire needs all bytes in flight in the buffer: it decides when they leave. */
static int can_accept_record(const struct strait_conn *c) {
    const size_t used = (size_t)(c->line.tail - c->line.head);
    if (!strait_emulate_is_on(&c->shaper->spec) && used >= ENCRYPTED_AHEAD_MAX) return 0;
    return strait_delay_line_capacity(&c->line) >= STRAIT_TLS_SEALED;
}

/* Encrypts messages into the send buffer. Returns whether it made progress. */
static int fill(struct strait_conn *c) {
    int has_moved = 0;
    const int64_t now = strait_clock_ns();
    while (can_accept_record(c)) {
        const int64_t send_ns = strait_emulate_next_send_ns(c->shaper, c->left_ns);
        if (send_ns > now) {
            if (send_ns < c->next_pump_ns) c->next_pump_ns = send_ns;
            break;
        }
        int64_t ready_ns = 0;
        const size_t n = stage(c, &ready_ns);
        if (n == 0) break;
        const strait_err err = strait_tls_write(c->tls, c->staging, n);
        if (err != STRAIT_OK) {
            strait_conn_abort(c, err);
            return 0;
        }
        strait_conn_collect_ciphertext(c, ready_ns);
        has_moved = 1;
    }
    return has_moved;
}

static void wrote(struct strait_conn *c, size_t bytes) {
    strait_delay_line_sent(&c->line, bytes);
    c->sent_bytes += bytes;
    strait_bandwidth_spend(c->t->config.up, c, bytes, strait_clock_ns());
}

static void lost(struct strait_conn *c, int status) {
    strait_conn_abort(
        c, STRAIT_FAIL(STRAIT_ECLOSED,
                       "connection lost: %s; see the peer's log if it does not come back",
                       uv_strerror(status)));
}

static void on_written(uv_write_t *request, int status) {
    struct strait_conn *c = request->handle->data;
    const size_t n = c->n_writing;
    c->n_writing = 0;
    if (c->state == STRAIT_CONN_CLOSED) return;
    if (status != 0) {
        lost(c, status);
        return;
    }
    wrote(c, n);
    strait_conn_pump(c);
}

/* How many of `n` bytes that are due may be sent now; 0: none before next_pump_ns. */
static size_t allowed(struct strait_conn *c, size_t n) {
    const int64_t now = strait_clock_ns();
    const int64_t due = strait_bandwidth_turn_ns(c->t->config.up, c, now);
    if (due > now) {
        if (due < c->next_pump_ns) c->next_pump_ns = due;
        return 0;
    }
    return strait_bandwidth_portion(c->t->config.up, n);
}

/* Writes to the socket what is due. When the socket is full, uv_write takes the rest and calls back
 * once it has been written; until then the send buffer must not move (n_writing). Returns whether
 * it made progress. */
static int flush(struct strait_conn *c) {
    int has_moved = 0;
    while (c->n_writing == 0 && c->state != STRAIT_CONN_CLOSED) {
        const int64_t due = strait_delay_line_release(&c->line, strait_clock_ns());
        size_t n = 0;
        unsigned char *bytes = strait_delay_line_ready(&c->line, &n);
        if (n == 0) {
            if (due < c->next_pump_ns) c->next_pump_ns = due;
            return has_moved;
        }
        n = allowed(c, n);
        if (n == 0) return has_moved;
        uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)n);
        const int took = uv_try_write((uv_stream_t *)&c->tcp, &buffer, 1);
        if (took > 0) {
            wrote(c, (size_t)took);
            has_moved = 1;
            continue;
        }
        const int status = took == UV_EAGAIN
                               ? uv_write(&c->write, (uv_stream_t *)&c->tcp, &buffer, 1, on_written)
                               : took;
        if (status != 0) {
            lost(c, status);
            return 0;
        }
        c->n_writing = n;
    }
    return has_moved;
}

static void on_shutdown(uv_shutdown_t *request, int status) {
    (void)request;
    (void)status; // either way the peer closes its side, or the deadline passes
}

/* Everything including BYE is sent: close our direction only. Closing the socket at once could
 * reset the connection and destroy what the peer has not read yet. */
static void shut_down_when_flushed(struct strait_conn *c) {
    if (c->state != STRAIT_CONN_CLOSING || c->sending != NULL || c->control.n_messages > 0 ||
        c->n_writing > 0 || !strait_delay_line_is_empty(&c->line))
        return;
    c->state = STRAIT_CONN_DRAINING;
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) != 0)
        strait_conn_abort(c, STRAIT_ECLOSED);
}

void strait_conn_pump(struct strait_conn *c) {
    if (c->state < STRAIT_CONN_TLS_HANDSHAKE || c->state > STRAIT_CONN_CLOSING) return;
    if (c->wanted_buffer > 0 && c->n_writing == 0) {
        const size_t wanted = c->wanted_buffer;
        c->wanted_buffer = 0;
        (void)strait_delay_line_reserve(&c->line, wanted); // if it fails, the link is only slower
    }
    c->next_pump_ns = INT64_MAX;
    int has_moved = 1; // encrypting yields bytes to write, and writing frees capacity to encrypt
    while (has_moved && c->state <= STRAIT_CONN_CLOSING) {
        has_moved = c->state >= STRAIT_CONN_HELLO && fill(c);
        has_moved |= flush(c);
    }
    shut_down_when_flushed(c);
}
