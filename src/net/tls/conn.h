/* conn.h - one TCP stream wearing TLS: sockets below, messages above. Net thread only.
 *
 * A conn connects or is accepted, shakes hands, says HELLO, carries messages, says BYE, drains and
 * ends. Its owner hears of it through events, all from inside the loop; after ended() it is gone.
 * A conn pulls what it sends, one message after another, so that the choice is made late. */
#pragma once

#include "net/core/frame.h"
#include "net/core/priority_queue.h"
#include "net/core/rate_limiter.h"
#include "net/core/transport.h"
#include "net/emulate/delay_line.h"
#include "net/relay/relay_wire.h"
#include "net/tls/tls.h"

#include <uv.h>

struct strait_conn;

struct strait_conn_events {
    /* The peer holds this key. STRAIT_OK fills in what to say to it; an error refuses it. */
    strait_err (*authenticated)(struct strait_conn *c, const strait_fingerprint *peer,
                                strait_hello *out);
    /* It said this. An error refuses it. */
    strait_err (*hello_received)(struct strait_conn *c, const strait_hello *theirs);
    /* The next message to send, now the conn's; NULL when there is none. */
    struct strait_msg *(*next)(struct strait_conn *c);
    /* A message came; keep it by clearing *msg. An error ends the conn. */
    strait_err (*received)(struct strait_conn *c, struct strait_msg **msg);
    void (*closed)(struct strait_conn *c, strait_err why); // words in strait_err_detail()
};

enum strait_conn_state {
    STRAIT_CONN_IDLE,
    STRAIT_CONN_RENDEZVOUS,    // at a relay, where the peer is awaited
    STRAIT_CONN_TLS_HANDSHAKE, // TLS
    STRAIT_CONN_HELLO,         // our HELLO is out, theirs is awaited
    STRAIT_CONN_OPEN,
    STRAIT_CONN_CLOSING,  // last words are being sent
    STRAIT_CONN_DRAINING, // they are sent; waiting for the peer to hang up
    STRAIT_CONN_CLOSED    // waiting for libuv to let go
};

/* Where streams are joined with those of a peer that dials the same relay. The owner fills in the
 * first line and reads the second; it outlives the conns. */
struct strait_relay_rendezvous {
    strait_relay_token token;
    strait_relay_role role;
    int n_waiting, n_paired, n_lost; // streams that have not met, that have, that never will
};

struct strait_conn {
    struct strait_conn *next; // in the owner's list
    struct strait_transport *t;
    const struct strait_conn_events *events;
    struct strait_link *link; // NULL until an accepted stream has said which
    struct strait_rate_limiter_entry
        *source;                     // of an accepted one that has not said; NULL: not counted
    unsigned char source_address[8]; // where it came from, as callers know it; zeros: we dialled
    enum strait_conn_state state;

    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    size_t n_writing; // bytes libuv holds pointers to; 0: none
    int is_paused;

    struct strait_relay_rendezvous *rendezvous; // NULL: none, or it is over
    unsigned char reply[STRAIT_RELAY_REPLY];
    size_t n_reply;

    struct strait_tls *tls;
    strait_fingerprint peer;            // from secured() on
    strait_emulate_spec emulate;        // of accepted streams, as admit() set it
    struct strait_emulate own, *shaper; // the wire; bundled streams share their link's
    struct strait_delay_line line;
    size_t wanted_buffer; // to be reserved as soon as libuv lets go of the ring
    int64_t next_pump_ns; // when pump() should be called again

    struct strait_priority_queue control; // HELLO and BYE
    int is_flushing;                      // parting, but the owner's messages go first
    struct strait_msg *sending;
    size_t n_sent; // of header and body
    unsigned char header[STRAIT_FRAME_HEADER];
    struct strait_frame_reader reader;

    int64_t deadline_ns; // of greeting, and of parting
    int64_t received_ns; // when bytes last came
    strait_err why;
    char reason[STRAIT_REASON_MAX];

    uint64_t sent_bytes, received_bytes;
    size_t read_at, read_end; // what of `incoming` has not been taken by tls
    unsigned char incoming[64 * 1024];
    unsigned char staging[STRAIT_TLS_RECORD];
};

/* `shape` is the link's wire, or NULL for the conn's own; borrowed until ended(). */
strait_err strait_conn_open(uv_loop_t *loop, struct strait_transport *t,
                            const struct strait_conn_events *events, int is_server,
                            struct strait_emulate *shaper, struct strait_conn **out);

/* What is connected to is a relay. Before connecting. */
void strait_conn_use_relay(struct strait_conn *c, struct strait_relay_rendezvous *rendezvous);

strait_err strait_conn_connect(struct strait_conn *c, const struct sockaddr *address);
strait_err strait_conn_accept(struct strait_conn *c, uv_stream_t *listener);

/* Sends what there is to send and can be. */
void strait_conn_pump(struct strait_conn *c);

/* Moves ciphertext that tls made on its own to the wire; pump() sends it. */
void strait_conn_collect_ciphertext(struct strait_conn *c, int64_t ready_ns);

/* From now on on this wire. */
void strait_conn_attach(struct strait_conn *c, struct strait_link *link,
                        struct strait_emulate *shaper);

/* Ends it with words from strait_err_detail(); ended(why) follows. With `is_flushing` the owner's
 * messages go first. Has no effect on one that is ending. */
void strait_conn_close(struct strait_conn *c, strait_err why, int is_flushing);

/* Ends it without a word. */
void strait_conn_abort(struct strait_conn *c, strait_err why);

void strait_conn_pause(struct strait_conn *c, int is_paused);

/* Kills it when it took too long to greet or to part. */
void strait_conn_tick(struct strait_conn *c, int64_t now_ns);

/* For conn.c, in conn_meet.c: says what we come for; and reads the answer, STRAIT_EAGAIN until it
 * is whole, or when nobody came. After STRAIT_OK the peer is there. */
strait_err strait_conn_send_relay_request(struct strait_conn *c);
strait_err strait_conn_read_relay_reply(struct strait_conn *c);
