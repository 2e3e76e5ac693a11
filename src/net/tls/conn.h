/* conn.h - one TCP stream encrypted by TLS: sockets below, messages above. Net thread only.
 *
 * A conn connects or is accepted, performs the TLS handshake, exchanges HELLOs, carries messages,
 * sends BYE, drains and closes. Its owner, the multi-stream link (multi_link.h), follows it through
 * events, which are all delivered from inside the event loop; after closed() the conn is freed.
 * A conn pulls the messages that it sends from its owner one at a time, so that the choice of the
 * most urgent message is made as late as possible.
 *
 *     conn.c             connecting, receiving, states and deadlines
 *     conn_send.c        sending: frames, TLS records, the send buffer, the socket
 *     conn_rendezvous.c  meeting the peer at a relay, before TLS
 *     conn_abort.c       closing at once; every file above may call it */
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
    /* The peer has proven that it holds this key. STRAIT_OK fills in our HELLO; an error refuses
     * the peer, which is sent the reason. */
    strait_err (*authenticated)(struct strait_conn *c, const strait_fingerprint *peer,
                                strait_hello *out);
    /* The peer's HELLO arrived. An error refuses the peer, which is sent the reason. */
    strait_err (*hello_received)(struct strait_conn *c, const strait_hello *theirs);
    /* Returns the next message to send, which then belongs to the conn; NULL when there is none. */
    struct strait_msg *(*next)(struct strait_conn *c);
    /* A message arrived; keep it by clearing *msg. An error closes the conn. */
    strait_err (*received)(struct strait_conn *c, struct strait_msg **msg);
    /* The last event. The reason is in strait_err_detail(), without the peer's address and key. */
    void (*closed)(struct strait_conn *c, strait_err why);
};

/* In the order in which a conn passes through them; comparisons rely on it. */
enum strait_conn_state {
    STRAIT_CONN_IDLE,
    STRAIT_CONN_RENDEZVOUS, // connected to a relay, waiting for the peer to come there
    STRAIT_CONN_TLS_HANDSHAKE,
    STRAIT_CONN_HELLO, // our HELLO is queued, waiting for the peer's
    STRAIT_CONN_OPEN,
    STRAIT_CONN_CLOSING,  // flushing the last messages and BYE
    STRAIT_CONN_DRAINING, // all sent; waiting for the peer to close its side
    STRAIT_CONN_CLOSED    // waiting for libuv to close the handle
};

/* Where streams are paired with those of a peer that connects to the same relay. The owner sets
 * token and role and reads the counters; it must outlive the conns that use it. */
struct strait_relay_rendezvous {
    strait_relay_token token;
    strait_relay_role role;
    int n_waiting; // streams that wait for a peer
    int n_paired;  // streams that have been paired so far
    int n_lost;    // streams that closed before they were paired
};

struct strait_conn {
    struct strait_conn *next; // in the owner's list
    struct strait_transport *t;
    const struct strait_conn_events *events;
    struct strait_link *link; // NULL until the HELLO of an accepted stream names its link
    struct strait_rate_limiter_entry *source; // of a pending accepted stream; NULL: not counted
    unsigned char source_address[STRAIT_SOURCE_BYTES]; // of an accepted stream; zeros: dialled
    char remote[STRAIT_ADDRESS_MAX]; // address of the other end, for error messages
    enum strait_conn_state state;

    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    size_t n_writing; // bytes of the send buffer that libuv still points to
    int is_paused;    // the owner wants no more messages for now

    int is_relayed;                             // meets, or has met, its peer at a relay
    struct strait_relay_rendezvous *rendezvous; // NULL: direct, or paired already
    unsigned char reply[STRAIT_RELAY_REPLY];    // of the relay, as far as received
    size_t n_reply;

    struct strait_tls *tls;
    strait_fingerprint peer;       // from authenticated() on
    int has_peer;                  // `peer` is valid
    strait_emulate_spec emulate;   // of an accepted stream, as admit() set it
    struct strait_emulate own;     // shaper of a stream that has no link yet
    struct strait_emulate *shaper; // the emulated wire; all streams of a link share one
    int64_t left_ns;               // when the latest bytes of this stream leave that wire
    size_t portion;                // most bytes of the latest read
    int64_t waited_ns;             // when more bytes, which were there already, could enter the
                                   // emulated home; 0: none were there
    struct strait_delay_line line; // send buffer: ciphertext, with the times it may be sent
    size_t wanted_buffer; // capacity to reserve once libuv no longer points into the buffer
    int64_t next_pump_ns; // when strait_conn_pump has to be called again
    int64_t read_ns;      // when the limit on receiving allows more; INT64_MAX: it does now

    struct strait_priority_queue control; // our own HELLO and BYE
    int is_flushing;                      // closing, but the owner's messages are sent first
    struct strait_msg *sending;           // partly staged
    size_t n_sent;                        // bytes staged of its header and body
    unsigned char header[STRAIT_FRAME_HEADER];
    struct strait_frame_reader reader;

    int64_t deadline_ns; // for the handshake, later for closing
    int64_t received_ns; // when bytes were last received
    strait_err why;
    char reason[STRAIT_REASON_MAX]; // the first error; later ones follow from it

    uint64_t sent_bytes, received_bytes;
    size_t read_at, read_end; // the part of `incoming` that TLS has not taken yet
    unsigned char incoming[64 * 1024];
    unsigned char staging[STRAIT_TLS_RECORD];
};

/* Allocates a conn. `shaper` is the link's emulated wire, borrowed until closed(), or NULL for one
 * of its own. STRAIT_ENOMEM. */
strait_err strait_conn_open(uv_loop_t *loop, struct strait_transport *t,
                            const struct strait_conn_events *events, int is_server,
                            struct strait_emulate *shaper, struct strait_conn **out);

/* Makes the conn meet its peer at a relay. Call before connecting to the relay's address. */
void strait_conn_use_relay(struct strait_conn *c, struct strait_relay_rendezvous *rendezvous);

/* Start the conn. After an error the caller has to abort it. */
strait_err strait_conn_connect(struct strait_conn *c, const struct sockaddr *address);
strait_err strait_conn_accept(struct strait_conn *c, uv_stream_t *listener);

/* Sends as much as the socket and the emulated wire accept now. */
void strait_conn_pump(struct strait_conn *c);

/* Makes an accepted stream part of `link`; from now on it uses the link's shaper. */
void strait_conn_attach(struct strait_conn *c, struct strait_link *link,
                        struct strait_emulate *shaper);

/* Closes the conn in an orderly way: the peer is sent a BYE with strait_err_detail() as the reason,
 * and closed(why) follows. With `is_flushing` the owner's messages are sent first. Has no effect on
 * a conn that is closing. */
void strait_conn_close(struct strait_conn *c, strait_err why, int is_flushing);

/* Closes the conn without telling the peer. The reason is strait_err_detail(); closed(why) follows
 * from the event loop. */
void strait_conn_abort(struct strait_conn *c, strait_err why);

/* Stops or resumes reading from the socket; TCP then makes the peer wait. */
void strait_conn_pause(struct strait_conn *c, int is_paused);

/* Reads from the socket again; call it at read_ns. */
void strait_conn_resume(struct strait_conn *c);

/* Aborts the conn when its deadline for the handshake or for closing has passed. */
void strait_conn_tick(struct strait_conn *c, int64_t now_ns);
