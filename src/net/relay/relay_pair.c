/* relay_pair.c - forwards bytes between two paired connections, unread.
 *
 * Each connection has one buffer. Nothing more is read from it until the peer's socket has accepted
 * the whole buffer, so a slow receiver slows its sender down through TCP. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/relay/relay_state.h"

static int send_ok(struct strait_relay_conn *conn) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    strait_relay_reply_pack(STRAIT_RELAY_OK, reply);
    uv_buf_t buffer = uv_buf_init((char *)reply, sizeof reply);
    return uv_try_write((uv_stream_t *)&conn->tcp, &buffer, 1) == (int)sizeof reply;
}

static strait_err allocate_buffer(struct strait_relay_conn *conn) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, STRAIT_RELAY_BUFFER, "relayed bytes", &memory));
    conn->buffer = memory;
    conn->read_budget = STRAIT_RELAY_BUFFER;
    conn->received_ns = strait_clock_ns();
    return STRAIT_OK;
}

void strait_relay_pair(struct strait_relay_conn *a, struct strait_relay_conn *b) {
    if (allocate_buffer(a) != STRAIT_OK || allocate_buffer(b) != STRAIT_OK) {
        strait_relay_refuse(a, STRAIT_RELAY_FULL);
        strait_relay_refuse(b, STRAIT_RELAY_FULL);
        return;
    }
    a->peer = a->paired_with = b;
    b->peer = b->paired_with = a;
    strait_relay_set_state(a, STRAIT_RELAY_PAIRED);
    strait_relay_set_state(b, STRAIT_RELAY_PAIRED);
    a->relay->stats.n_paired++;
    if (!send_ok(a) || !send_ok(b)) strait_relay_close_conn(a); // closes both
}

/* ---- reading is paused while the peer's socket is full or the rate limit is reached ---- */

static void pause_reading(struct strait_relay_conn *conn) {
    conn->is_paused = 1;
    (void)uv_read_stop((uv_stream_t *)&conn->tcp);
}

/* Does nothing unless every reason for the pause is over. */
static void resume_reading(struct strait_relay_conn *conn) {
    const int is_limited = conn->relay->config.bytes_per_s > 0 && conn->read_budget <= 0;
    if (!conn->is_paused || conn->n_unwritten > 0 || is_limited || conn->is_eof) return;
    conn->is_paused = 0;
    if (strait_relay_read(conn) != 0) strait_relay_close_conn(conn);
}

static void on_written(uv_write_t *request, int status) {
    struct strait_relay_conn *conn = request->data; // the conn whose buffer was written
    conn->n_unwritten = 0;
    if (conn->state != STRAIT_RELAY_PAIRED) return;
    if (status != 0)
        strait_relay_close_conn(conn);
    else
        resume_reading(conn);
}

static void on_shutdown(uv_shutdown_t *request, int status) {
    (void)request;
    (void)status; // if it failed, the idle timeout closes the pair
}

/* One direction has ended: passes that on, while the other direction may continue. */
static void forward_eof(struct strait_relay_conn *conn) {
    conn->is_eof = 1;
    pause_reading(conn);
    if (conn->peer->is_eof ||
        uv_shutdown(&conn->peer->shutdown, (uv_stream_t *)&conn->peer->tcp, on_shutdown) != 0)
        strait_relay_close_conn(conn);
}

void strait_relay_forward(struct strait_relay_conn *conn, ssize_t n) {
    if (n == UV_EOF) {
        forward_eof(conn);
        return;
    }
    if (n < 0) {
        strait_relay_close_conn(conn);
        return;
    }
    conn->received_ns = strait_clock_ns();
    conn->relay->stats.bytes += n;
    conn->read_budget -= n;
    uv_buf_t buffer = uv_buf_init((char *)conn->buffer, (unsigned)n);
    /* Usually the socket accepts everything at once, which saves a callback. */
    const int took = uv_try_write((uv_stream_t *)&conn->peer->tcp, &buffer, 1);
    if (took < 0 && took != UV_EAGAIN) {
        strait_relay_close_conn(conn);
        return;
    }
    const size_t done = took > 0 ? (size_t)took : 0;
    conn->n_unwritten = (size_t)n - done;
    if (conn->n_unwritten > 0) {
        buffer = uv_buf_init((char *)conn->buffer + done, (unsigned)conn->n_unwritten);
        conn->write.data = conn;
        pause_reading(conn);
        if (uv_write(&conn->write, (uv_stream_t *)&conn->peer->tcp, &buffer, 1, on_written) != 0)
            strait_relay_close_conn(conn);
    } else if (conn->relay->config.bytes_per_s > 0 && conn->read_budget <= 0) {
        pause_reading(conn);
    }
}

void strait_relay_tick_pair(struct strait_relay_conn *conn, int64_t now_ns, int64_t share) {
    const int64_t limit_ns = (int64_t)conn->relay->config.idle_timeout_ms * 1000000;
    const int64_t received_ns = conn->received_ns > conn->peer->received_ns
                                    ? conn->received_ns
                                    : conn->peer->received_ns;
    if (now_ns - received_ns > limit_ns) {
        strait_relay_close_conn(conn);
        return;
    }
    /* Unused budget accumulates to one buffer at most, so that a burst stays short. */
    conn->read_budget += share;
    if (conn->read_budget > STRAIT_RELAY_BUFFER && conn->read_budget > share)
        conn->read_budget = share > STRAIT_RELAY_BUFFER ? share : STRAIT_RELAY_BUFFER;
    resume_reading(conn);
}
