/* relay_state.h - the state shared by relay.c, which accepts connections and lets them wait, and
 * relay_pair.c, which forwards bytes between two of them. */
#pragma once

#include "net/core/rate_limiter.h"
#include "net/relay/relay.h"
#include "net/relay/relay_secret.h"

#include <uv.h>

enum {
    STRAIT_RELAY_BUFFER = 65536 // bytes buffered per direction of a pair
};

enum strait_relay_state {
    STRAIT_RELAY_NEW,     // its request has not arrived
    STRAIT_RELAY_WAITING, // waits for the peer with the same token
    STRAIT_RELAY_PAIRED,
    STRAIT_RELAY_CLOSED, // waiting for libuv to close the handle
    STRAIT_RELAY_N_STATES
};

struct strait_relay_conn { // one connection of a peer
    struct strait_relay *relay;
    struct strait_relay_conn *prev, *next; // in the list of its state, oldest first
    enum strait_relay_state state;
    struct strait_rate_limiter_entry *source; // NULL: not counted
    int64_t since_ns;                         // when it entered this state
    uv_tcp_t tcp;

    unsigned char request[STRAIT_RELAY_REQUEST];
    size_t n_request;
    strait_relay_role role;
    strait_relay_token token;

    struct strait_relay_conn *peer;        // while paired
    struct strait_relay_conn *paired_with; // never reset: both are freed together, because each
                                           // writes from the other's buffer
    int is_handle_closed;
    unsigned char *buffer;  // received here, to be sent to the peer
    size_t n_unwritten;     // bytes of it that the peer's socket has not accepted
    uv_write_t write;       // to the peer's socket
    uv_shutdown_t shutdown; // of this socket
    int is_eof;             // the peer has closed its direction
    int is_paused;          // reading is stopped
    int64_t received_ns;
    int64_t read_budget; // bytes that may be read until the next tick, under a rate limit
};

struct strait_relay_list {
    struct strait_relay_conn *first, *last;
    int n;
};

struct strait_relay {
    strait_relay_config config;
    strait_relay_secret secret; // config.secret points to it
    uv_loop_t loop;
    int has_loop;
    uv_async_t wake;
    uv_timer_t tick;
    uv_tcp_t listener;
    int is_listening;
    int has_deferred;                   // a connection could not be accepted for lack of memory
    unsigned char refused_versions[32]; // bit set: versions reported to config.peer_refused
    int has_denied;                     // a token was reported to it
    struct strait_relay_list lists[STRAIT_RELAY_N_STATES];
    struct strait_rate_limiter limiter;
    int64_t ticked_ns;
    strait_relay_stats stats;
};

/* Moves `conn` to the end of the list of `state`. */
void strait_relay_set_state(struct strait_relay_conn *conn, enum strait_relay_state state);
/* Closes `conn` and the peer it is paired with. */
void strait_relay_close_conn(struct strait_relay_conn *conn);
/* Sends a reply that says why, and closes `conn`. */
void strait_relay_refuse(struct strait_relay_conn *conn, strait_relay_status status);
/* Starts reading: the request, or once paired, bytes to forward. Returns a libuv status. */
int strait_relay_read(struct strait_relay_conn *conn);

/* Refuses the oldest connection of the address that has most of them if the list has more than
 * `most`. */
void strait_relay_evict(struct strait_relay_list *list, int most);
/* The request of `conn` is complete. */
void strait_relay_request_received(struct strait_relay_conn *conn);

/* Pairs two waiting connections; refuses both when there is no memory for their buffers. */
void strait_relay_pair(struct strait_relay_conn *a, struct strait_relay_conn *b);
/* Forwards the `n` bytes in the buffer of `conn`, or handles the end of its stream (n < 0). */
void strait_relay_forward(struct strait_relay_conn *conn, ssize_t n);
/* Adds `share` bytes to the read budget of `conn`; closes the pair when both were idle too long. */
void strait_relay_tick_pair(struct strait_relay_conn *conn, int64_t now_ns, int64_t share);
