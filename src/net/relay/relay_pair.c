/* relay_pair.c - two connections joined: what one sends, the other gets, and nobody looks. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/relay/relay_state.h"

static int say_met(struct strait_relay_side *side) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    strait_relay_reply_pack(STRAIT_RELAY_MET, reply);
    uv_buf_t buffer = uv_buf_init((char *)reply, sizeof reply);
    return uv_try_write((uv_stream_t *)&side->tcp, &buffer, 1) == (int)sizeof reply;
}

static strait_err take_buffer(struct strait_relay_side *side) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, STRAIT_RELAY_BUFFER, "relayed bytes", &memory));
    side->buffer = memory;
    side->allowance = STRAIT_RELAY_BUFFER;
    side->heard_ns = strait_clock_ns();
    return STRAIT_OK;
}

void strait_relay_join(struct strait_relay_side *a, struct strait_relay_side *b) {
    if (take_buffer(a) != STRAIT_OK || take_buffer(b) != STRAIT_OK) {
        strait_relay_refuse(a, STRAIT_RELAY_FULL);
        strait_relay_refuse(b, STRAIT_RELAY_FULL);
        return;
    }
    a->other = a->mate = b;
    b->other = b->mate = a;
    strait_relay_enter(a, STRAIT_RELAY_JOINED);
    strait_relay_enter(b, STRAIT_RELAY_JOINED);
    a->relay->stats.n_joined++;
    if (!say_met(a) || !say_met(b)) strait_relay_end(a);
}

/* ---- reading goes on when the other has taken what came, and the rate allows ---- */

static void rest(struct strait_relay_side *side) {
    side->is_resting = 1;
    (void)uv_read_stop((uv_stream_t *)&side->tcp);
}

static void go_on(struct strait_relay_side *side) {
    const int is_limited = side->relay->config.bytes_per_s > 0 && side->allowance <= 0;
    if (!side->is_resting || side->n_rest > 0 || is_limited || side->has_ended) return;
    side->is_resting = 0;
    if (strait_relay_read(side) != 0) strait_relay_end(side);
}

static void on_written(uv_write_t *request, int status) {
    struct strait_relay_side *side = request->data; // whose bytes they were
    side->n_rest = 0;
    if (side->state != STRAIT_RELAY_JOINED) return;
    if (status != 0)
        strait_relay_end(side);
    else
        go_on(side);
}

static void on_shutdown(uv_shutdown_t *request, int status) {
    (void)request;
    (void)status; // the clock ends what this does not
}

/* One side has said its last: the other hears of it, and may still answer. */
static void end_half(struct strait_relay_side *side) {
    side->has_ended = 1;
    rest(side);
    if (side->other->has_ended ||
        uv_shutdown(&side->other->shutdown, (uv_stream_t *)&side->other->tcp, on_shutdown) != 0)
        strait_relay_end(side);
}

void strait_relay_pass(struct strait_relay_side *side, ssize_t n) {
    if (n == UV_EOF) {
        end_half(side);
        return;
    }
    if (n < 0) {
        strait_relay_end(side);
        return;
    }
    side->heard_ns = strait_clock_ns();
    side->relay->stats.bytes += n;
    side->allowance -= n;
    uv_buf_t buffer = uv_buf_init((char *)side->buffer, (unsigned)n);
    const int took = uv_try_write((uv_stream_t *)&side->other->tcp, &buffer, 1);
    if (took < 0 && took != UV_EAGAIN) {
        strait_relay_end(side);
        return;
    }
    const size_t done = took > 0 ? (size_t)took : 0;
    side->n_rest = (size_t)n - done;
    if (side->n_rest > 0) {
        buffer = uv_buf_init((char *)side->buffer + done, (unsigned)side->n_rest);
        side->write.data = side;
        rest(side);
        if (uv_write(&side->write, (uv_stream_t *)&side->other->tcp, &buffer, 1, on_written) != 0)
            strait_relay_end(side);
    } else if (side->relay->config.bytes_per_s > 0 && side->allowance <= 0) {
        rest(side);
    }
}

void strait_relay_tick_joined(struct strait_relay_side *side, int64_t now_ns, int64_t share) {
    const int64_t limit_ns = (int64_t)side->relay->config.idle_ms * 1000000;
    const int64_t heard_ns = side->heard_ns > side->other->heard_ns ? side->heard_ns
                                                                    : side->other->heard_ns;
    if (now_ns - heard_ns > limit_ns) {
        strait_relay_end(side);
        return;
    }
    side->allowance += share;
    if (side->allowance > STRAIT_RELAY_BUFFER && side->allowance > share)
        side->allowance = share > STRAIT_RELAY_BUFFER ? share : STRAIT_RELAY_BUFFER;
    go_on(side);
}
