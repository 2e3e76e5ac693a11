/* bundle.h - a link made of one or more TCP streams: order, signs of life, one ending.
 *
 * Each message goes whole over whichever stream has room; sequence numbers, counted for every
 * priority apart, put them in order again. When one stream ends they all do. Net thread only. */
#pragma once

#include "net/tls/conn.h"

struct strait_multi_link { // the state of a link of tcp.c
    struct strait_link *next;
    struct strait_conn *streams[STRAIT_STREAMS_MAX];
    int n_streams, n_ready, n_live;
    int first_stream; // who is asked first to take a message; goes round
    uint64_t nonce;   // the dialler's HELLO.link
    int is_resolving; // a name is being looked up
    int is_open, is_closing, wants_writable, is_paused;
    strait_err why;
    char reason[STRAIT_REASON_MAX];

    struct strait_emulate shaper; // our direction of the wire, shared by the streams
    struct strait_priority_queue out;
    uint32_t next_out[STRAIT_N_PRIORITIES], next_in[STRAIT_N_PRIORITIES];
    struct strait_msg *out_of_order[STRAIT_N_PRIORITIES]; // came before their turn, in order
    size_t out_of_order_bytes;

    int64_t pinged_ns;  // when the latest was queued
    int is_ping_queued; // one is in `out`
    strait_link_stats stats;
};

struct strait_multi_link_list { // all of a transport; the first part of its state
    struct strait_link *first;
    struct strait_conn *pending; // accepted, not yet part of a link
    int n_pending;
    int64_t tick_ns; // the last look at who is alive
};

extern const struct strait_conn_events strait_multi_link_conn_events;

/* Adds `link` to the transport, with the wire it says. */
void strait_multi_link_init(struct strait_link *link, int n_streams, uint64_t nonce);

strait_err strait_multi_link_send(struct strait_link *link, struct strait_msg **msg);
void strait_multi_link_close(struct strait_link *link, strait_err why);
/* Ends the link without a word to the peer, which is out of reach. */
void strait_multi_link_abort(struct strait_link *link, strait_err why);
void strait_multi_link_ping(struct strait_link *link, int64_t now_ns);
void strait_multi_link_pause(struct strait_link *link, int is_paused);
void strait_multi_link_stats(struct strait_link *link, strait_link_stats *out);

/* Deadlines and signs of life of all links and strangers. */
void strait_multi_link_list_tick(struct strait_transport *t, int64_t now_ns);
/* Pumps the streams whose time has come; returns when the next one's will, or INT64_MAX. */
int64_t strait_multi_link_list_pump_due(struct strait_transport *t, int64_t now_ns);
/* Delivers writable() and closed() where they are due; returns how many. */
int strait_multi_link_list_sweep(struct strait_transport *t);
