/* relay_state.h - what relay.c, who comes and waits, and relay_pair.c, who is joined, share. */
#pragma once

#include "net/core/rate_limiter.h"
#include "net/relay/relay.h"
#include "net/relay/relay_wire.h"

#include <uv.h>

enum {
    STRAIT_RELAY_BUFFER = 65536
};

enum strait_relay_state {
    STRAIT_RELAY_NEW,     // has not greeted
    STRAIT_RELAY_WAITING, // has, and waits for the other
    STRAIT_RELAY_PAIRED,
    STRAIT_RELAY_CLOSED, // waiting for libuv to let go
    STRAIT_RELAY_N_STATES
};

struct strait_relay_conn { // one connection
    struct strait_relay *relay;
    struct strait_relay_conn *prev, *next; // in the list of its state, oldest first
    enum strait_relay_state state;
    struct strait_rate_limiter_entry *source; // NULL: not counted
    int64_t since_ns;                         // when it came into this state
    uv_tcp_t tcp;

    unsigned char request[STRAIT_RELAY_REQUEST];
    size_t n_request;
    strait_relay_role role;
    strait_relay_token token;

    struct strait_relay_conn *peer;        // while joined
    struct strait_relay_conn *paired_with; // the same for ever: freed together, as writes cross
    int is_handle_closed;
    unsigned char *buffer;  // what came from here on its way to the other
    size_t n_unwritten;     // of it, what the other has not taken
    uv_write_t write;       // to the other
    uv_shutdown_t shutdown; // of this one
    int is_eof, is_paused;  // nothing more comes; nothing is read for now
    int64_t received_ns;
    int64_t read_budget; // bytes that may be read until the next tick
};

struct strait_relay_list {
    struct strait_relay_conn *first, *last;
    int n;
};

struct strait_relay {
    strait_relay_config config;
    uv_loop_t loop;
    int has_loop;
    uv_async_t wake;
    uv_timer_t tick;
    uv_tcp_t listener;
    int is_listening, has_deferred; // one that there was no memory for
    struct strait_relay_list lists[STRAIT_RELAY_N_STATES];
    struct strait_rate_limiter limiter;
    int64_t ticked_ns;
    strait_relay_stats stats;
};

/* Moves it to the end of the list of `state`. */
void strait_relay_set_state(struct strait_relay_conn *conn, enum strait_relay_state state);
/* Hangs up on it, and on whom it is joined with. */
void strait_relay_close_conn(struct strait_relay_conn *conn);
/* Says why, and hangs up. */
void strait_relay_refuse(struct strait_relay_conn *conn, strait_relay_status status);
/* Starts reading; before it is joined, greetings. */
int strait_relay_read(struct strait_relay_conn *conn);

/* Joins two that have greeted; ends both when there is no memory for it. */
void strait_relay_pair(struct strait_relay_conn *a, struct strait_relay_conn *b);
/* Bytes for the other side, or the end of them (n < 0). */
void strait_relay_forward(struct strait_relay_conn *conn, ssize_t n);
/* Gives it its next share of bytes, and parts it when it has been silent for too long. */
void strait_relay_tick_pair(struct strait_relay_conn *conn, int64_t now_ns, int64_t share);
