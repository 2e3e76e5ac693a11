/* envelope.h - links that exchange envelopes, and the interface of the endpoints that move them.
 *
 * Transports that move whole units without a stream (between threads, or by MPI) share one
 * implementation of links, envelope_transport.c: handshake, credit, keep-alives, priorities and
 * emulation. An envelope is a message, or a control unit, with the address of a link. Endpoints
 * send envelopes to each other, in order. Links address each other by id, never by pointer, so an
 * envelope to a link that has closed is simply dropped. */
#pragma once

#include "net/core/transport.h"
#include "net/envelope/arrivals.h"

typedef enum strait_envelope_kind {
    STRAIT_ENVELOPE_CONNECT, // a link dials
    STRAIT_ENVELOPE_ACCEPT,  // the answer, from the new link at the other end
    STRAIT_ENVELOPE_MESSAGE,
    STRAIT_ENVELOPE_CREDIT, // a message was received: the sender may send as many bytes again
    STRAIT_ENVELOPE_PING,
    STRAIT_ENVELOPE_PONG,
    STRAIT_ENVELOPE_BYE,
    STRAIT_N_ENVELOPE_KINDS
} strait_envelope_kind;

struct strait_envelope {
    struct strait_envelope *next;
    strait_envelope_kind kind;
    int64_t due_ns;         // when it may be received; INT64_MAX: lost
    uint64_t to, from;      // ids of links
    uint64_t reply_to;      // number of the sender's endpoint, in CONNECT and ACCEPT
    struct strait_msg *msg; // MESSAGE
    uint64_t number;        // bytes of CREDIT, sender's clock of PING and PONG
    strait_fingerprint key; // CONNECT and ACCEPT
    strait_hello hello;     // CONNECT and ACCEPT
    strait_bye bye;         // BYE
};

/* Moves envelopes between endpoints, which have numbers that are unique among all that can reach
 * each other and are never reused. One thread uses an endpoint, except for wake. */
struct strait_endpoint_ops {
    const char *scheme; // stands for the address of a peer that dialled us
    strait_err (*open)(const strait_transport_config *config, void **out_endpoint);
    void (*close)(void **endpoint); // sends what was given to send, for at most linger_ms
    uint64_t (*number)(void *endpoint);
    /* Gives the endpoint an address that others can dial. STRAIT_EINVAL when it is taken or
     * malformed. */
    strait_err (*bind)(void *endpoint, const char *address, char out[STRAIT_ADDRESS_MAX]);
    /* The number of the endpoint at an address. STRAIT_ECLOSED when it is known that there is none.
     */
    strait_err (*find)(void *endpoint, const char *address, uint64_t *out);
    /* Sends an envelope and takes its message on success. One that is due at INT64_MAX is lost on
     * the way, which is a success. STRAIT_ECLOSED when endpoint `to` is closed. */
    strait_err (*send)(void *endpoint, uint64_t to, struct strait_envelope *envelope);
    /* Waits until `until_ns` for an envelope that is due; returns 0 when there was none. */
    int (*receive)(void *endpoint, int64_t until_ns, struct strait_envelope *out);
    void (*wake)(void *endpoint); // ends a wait early; any thread
    /* STRAIT_ECLOSED, described, once it is known that endpoint `number` will not answer again.
     * NULL: a silent peer is only noticed by its timeout. */
    strait_err (*check)(void *endpoint, uint64_t number);
};

/* The state of a transport of envelopes. Its table has STRAIT_ENVELOPE_TRANSPORT and an `init`
 * that calls strait_envelope_init. */
struct strait_envelope_transport {
    const struct strait_endpoint_ops *ops;
    void *endpoint;
    struct strait_link *links;
};

/* The private part of a link. */
struct strait_envelope_link {
    struct strait_link *next;                           // in the transport's list
    uint64_t peer_endpoint;                             // may be closed: send checks
    uint64_t peer_id;                                   // 0 until opened
    int is_open, is_closing, wants_writable, is_paused; // as in struct strait_multi_link
    strait_bye bye;                                     // why we close it
    struct strait_emulate shaper;
    struct strait_priority_queue out;  // not yet sent
    struct strait_priority_queue held; // received while paused
    struct strait_arrivals arriving;   // on the emulated way into this home
    size_t in_flight;                  // bytes for which the peer has returned no credit
    int64_t received_ns, pinged_ns, checked_ns, start_ns;
    strait_link_stats stats;
};

/* Opens the endpoint. */
strait_err strait_envelope_init(struct strait_transport *t, const struct strait_endpoint_ops *ops);

/* See strait_transport_ops. */
void strait_envelope_fini(struct strait_transport *t);
strait_err strait_envelope_listen(struct strait_transport *t, const char *address,
                                  char out[STRAIT_ADDRESS_MAX]);
strait_err strait_envelope_dial(struct strait_link *link, const char *address);
strait_err strait_envelope_send(struct strait_link *link, struct strait_msg **msg);
void strait_envelope_close(struct strait_link *link, strait_err why);
void strait_envelope_pause(struct strait_link *link, int is_paused);
void strait_envelope_stats(struct strait_link *link, strait_link_stats *out);
strait_err strait_envelope_progress(struct strait_transport *t, int timeout_ms);
void strait_envelope_wake(struct strait_transport *t);

/* The entries of a table of transport operations that all transports of envelopes share. */
#define STRAIT_ENVELOPE_TRANSPORT                                                                 \
    .state_size = sizeof(struct strait_envelope_transport),                                       \
    .link_size = sizeof(struct strait_envelope_link), .fini = strait_envelope_fini,               \
    .listen = strait_envelope_listen, .dial = strait_envelope_dial, .send = strait_envelope_send, \
    .close = strait_envelope_close, .pause = strait_envelope_pause,                               \
    .stats = strait_envelope_stats, .progress = strait_envelope_progress,                         \
    .wake = strait_envelope_wake
