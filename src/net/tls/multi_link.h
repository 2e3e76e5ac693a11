/* multi_link.h - a link of the tls transport: one or more TCP streams with one order and one end.
 *
 * Several streams fill a long path that the congestion control of one stream would leave half empty
 * (socket.h). Each message is sent whole on whichever stream has capacity; sequence numbers, one
 * series per priority, restore the order. When one stream closes they all do. Net thread only. */
#pragma once

#include "net/tls/conn.h"
#include "net/tls/reorder.h"

struct strait_multi_link { // link->state of the tls transport
    struct strait_link *next;
    struct strait_conn *streams[STRAIT_STREAMS_MAX]; // NULL: not connected yet, or closed
    int n_streams;
    int n_ready;      // streams that have received the peer's HELLO
    int n_live;       // streams that exist
    int first_stream; // the stream that is offered a message first; rotates
    uint64_t nonce;   // the dialler's HELLO.link: tells which streams belong together
    int is_resolving; // a host name is being resolved; the link must not be freed meanwhile
    int is_open, is_closing, is_paused;
    int wants_writable; // send() declined: writable() is owed
    strait_err why;
    char reason[STRAIT_REASON_MAX]; // the first error, without address and key

    struct strait_emulate shaper; // the emulated wire of our direction, shared by the streams
    struct strait_priority_queue out;
    uint32_t next_out[STRAIT_N_PRIORITIES];      // sequence numbers
    struct strait_reorder in;                    // received messages whose turn has not come
    struct strait_msg *held[STRAIT_STREAMS_MAX]; // of each stream: for which `in` has no space yet
    int n_held;

    int64_t pinged_ns;  // when the latest PING was queued
    int is_ping_queued; // it is still in `out`; another one would tell the peer nothing more
    strait_link_stats stats;
};

/* All links of a transport. It is the first member of the transport's state (tcp.c asserts it), and
 * the only part of it that multi_link.c and relay_listener.c know. */
struct strait_multi_link_list {
    struct strait_link *first;
    struct strait_conn *pending; // accepted streams whose HELLO has not arrived, newest first
    int n_pending;
    int64_t tick_ns; // when strait_multi_link_list_tick last ran
};

extern const struct strait_conn_events strait_multi_link_conn_events;

/* Initialises the state of `link` and adds it to its transport's list. */
void strait_multi_link_init(struct strait_link *link, int n_streams, uint64_t nonce);

/* The operations of transport.h. */
strait_err strait_multi_link_send(struct strait_link *link, struct strait_msg **msg);
void strait_multi_link_close(struct strait_link *link, strait_err why);
void strait_multi_link_pause(struct strait_link *link, int is_paused);
void strait_multi_link_stats(struct strait_link *link, strait_link_stats *out);

/* Takes held messages for which there is space now and reads their streams again. Returns how many.
 * Not from within an event of a stream. */
int strait_multi_link_release(struct strait_link *link);
/* Closes the link without a BYE, because the peer cannot be reached. */
void strait_multi_link_abort(struct strait_link *link, strait_err why);
/* Queues a PING. */
void strait_multi_link_ping(struct strait_link *link, int64_t now_ns);

/* Adds an accepted stream to the list of pending ones. */
void strait_multi_link_list_add_pending(struct strait_multi_link_list *all, struct strait_conn *c);

/* Checks the deadlines of all links and pending streams and sends PINGs. Call it often. */
void strait_multi_link_list_tick(struct strait_transport *t, int64_t now_ns);
/* Pumps the streams that are due; returns when the next one will be, or INT64_MAX. */
int64_t strait_multi_link_list_pump_due(struct strait_transport *t, int64_t now_ns);
/* Delivers outstanding writable() and closed() events; returns how many. */
int strait_multi_link_list_sweep(struct strait_transport *t);
