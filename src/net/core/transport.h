/* transport.h - the interface of a transport: it moves whole messages between peers.
 *
 * A link carries messages in both directions, each of them whole, until it closes with a reason.
 * Messages of one priority arrive in the order they were sent. Nothing blocks except progress(),
 * and nothing is locked: one thread, the net thread, makes every call but wake(). Other threads use
 * the mesh (mesh.h), which queues messages and wakes the net thread.
 *
 * Events are delivered only from inside progress(), so a handler may dial, send and close. A
 * handler that is given an error reads strait_err_detail() for the reason, which names the peer's
 * address and, once it is known, its key.
 *
 * Addresses: a name for inproc, rank-R:PORT for mpi, host:port for tls (port 0 lets the system
 * choose). With
 * relay://host:port/token both sides of a tls link connect to a relay (relay.h), one of them by
 * listen().
 *
 * To add a transport: write net/NAME/NAME.c with one exported table, add its line to registry.c,
 * and pass tests/contract/transport.c. tls/tls.c is not a transport: it encrypts the streams of
 * tls/tcp.c, which is. */
#pragma once

#include "net/core/bandwidth.h"
#include "net/core/handshake.h"
#include "net/core/identity.h"
#include "net/core/msg.h"
#include "net/core/priority_queue.h"
#include "net/core/stats.h"
#include "net/emulate/emulate.h"

enum {
    STRAIT_ADDRESS_MAX = 256,
    STRAIT_PEER_TEXT = 160,  // of strait_peer_describe
    STRAIT_REASON_MAX = 512, // of an error kept for later, with the terminating zero
    STRAIT_SOURCE_BYTES = 8  // of a source address as the rate limiter counts it
};

/* Settings of a transport. All pointers are borrowed until it closes. Zero means the default. */
typedef struct strait_transport_config {
    struct strait_msg_pool *pool;           // for the messages it receives
    const struct strait_identity *identity; // our key
    unsigned char run[STRAIT_RUN_BYTES];    // peers of another run are refused
    char name[STRAIT_NAME_MAX];             // our name in messages to people
    strait_emulate_spec emulate;            // for links that admit() and dial() do not change
    unsigned dial_classes; // kinds of addresses that may be dialled (address_class.h); 0: all
    struct strait_bandwidth *up, *down; // limits, shared with other transports; NULL: none
    int n_streams;       // TCP streams of a link we dial; default: 1 with BBR, else 4
    int max_streams;     // most streams of an accepted link; default: STRAIT_STREAMS_MAX
    int ping_ms;         // interval of keep-alives; default: 1000, or a third of the timeout
    int peer_timeout_ms; // a peer that sends nothing for this long is lost; default: 10000
    int handshake_ms;    // for connecting and the handshake together; default: 10000
    int linger_ms;       // for flushing a link that closes; default: 2000
    size_t message_max;  // largest body accepted; default: 64 MiB
    size_t queue_bytes;  // bodies a link queues before send() declines; default: 1 MiB
    struct strait_inproc_network *network; // inproc only: the transports that can reach each other
} strait_transport_config;

struct strait_transport {
    const struct strait_transport_ops *ops;
    const struct strait_transport_events *events;
    void *user; // passed to every event
    strait_transport_config config;
    struct strait_emulate_home home; // of all its links whose emulation has rates of a home
    void *state;                     // ops->state_size bytes, zeroed before init
};

/* The public part of a link; the transport keeps its private part in `state`. */
struct strait_link {
    struct strait_transport *transport;
    uint64_t id; // unique in this process, never reused
    void *user;  // the owner's, for example the mesh's peer
    int is_dialled;
    int has_expected;                 // only the key `expected` may answer
    strait_fingerprint expected;      // the key of the peer that was dialled
    strait_fingerprint peer;          // the peer's key; proven, valid from opened() on
    char address[STRAIT_ADDRESS_MAX]; // the address dialled, or where the peer connected from
    char remote[STRAIT_ADDRESS_MAX];  // numeric, of the other end, once open; tls only
    unsigned char source_address[STRAIT_SOURCE_BYTES]; // of an accepted link: its address or /64
                                                       // network, for limits; else zeros
    char peer_name[STRAIT_NAME_MAX];                   // as the peer calls itself
    strait_emulate_spec emulate;
    /* tls: largest body accepted from the peer. Begins as config.message_max; the owner may change
     * it at any time, for messages whose header arrives after that. */
    size_t message_max;
    unsigned dial_classes; // of a dialled link; 0: all
    void *state;           // ops->link_size bytes, zeroed before dial or accept
};

struct strait_transport_events {
    /* An unknown peer dialled and proved that it holds this key. STRAIT_OK admits it; STRAIT_EAUTH,
     * described, refuses it, and the peer is sent that reason. *emulate may be set. */
    strait_err (*admit)(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate);
    /* A connection was refused before it became a link; strait_err_detail() says whose and why. */
    void (*refused)(void *user, strait_err why);
    /* A dialled or accepted link is ready to send. The first event of a link, if it ever opens. */
    void (*opened)(void *user, struct strait_link *link);
    /* A message arrived. Keep it by clearing *msg; otherwise it is closed after the call. */
    void (*received)(void *user, struct strait_link *link, struct strait_msg **msg);
    /* The link accepts messages again after send() returned STRAIT_EAGAIN. */
    void (*writable)(void *user, struct strait_link *link);
    /* Always the last event of a link, which is freed when the handler returns. */
    void (*closed)(void *user, struct strait_link *link, strait_err why);
};

struct strait_transport_ops {
    const char *scheme;
    size_t state_size, link_size;

    strait_err (*init)(struct strait_transport *t); // fini tolerates a failed or absent init
    void (*fini)(struct strait_transport *t);       // closes every link; their events are delivered

    /* Listens and writes the address that others can dial. STRAIT_EINUSE when the address is taken,
     * STRAIT_EINVAL when it is malformed or not ours. */
    strait_err (*listen)(struct strait_transport *t, const char *address,
                         char out[STRAIT_ADDRESS_MAX]);
    /* Starts connecting; opened() or closed() follows. */
    strait_err (*dial)(struct strait_link *link, const char *address);
    /* Takes *msg and clears it on STRAIT_OK. On STRAIT_EAGAIN the queue is full and *msg stays with
     * the caller; a link with an empty queue takes a message of any size. STRAIT_ECLOSED while the
     * link is not open. */
    strait_err (*send)(struct strait_link *link, struct strait_msg **msg);
    /* Stops the link; closed(why) follows from progress(). With STRAIT_OK queued messages are sent
     * first, for at most linger_ms; with an error they are dropped and the peer is sent
     * strait_err_detail() as the reason. */
    void (*close)(struct strait_link *link, strait_err why);
    /* While paused, nothing is received and the peer's sends block (back-pressure). */
    void (*pause)(struct strait_link *link, int is_paused);
    void (*stats)(struct strait_link *link, strait_link_stats *out);

    /* Sends, receives and delivers events, waiting up to timeout_ms for something to do; -1:
     * without limit. */
    strait_err (*progress)(struct strait_transport *t, int timeout_ms);
    /* Makes progress() return soon. The only function that other threads may call. */
    void (*wake)(struct strait_transport *t);
};

/* Opens the transport called `scheme`. Copies `config`. STRAIT_EINVAL when there is none or the
 * configuration is incomplete. */
strait_err strait_transport_open(const char *scheme, const struct strait_transport_events *events,
                                 void *user, const strait_transport_config *config,
                                 struct strait_transport **out);
void strait_transport_close(struct strait_transport **t); // closes every link first; accepts NULL

/* See ops->listen. */
strait_err strait_transport_listen(struct strait_transport *t, const char *address,
                                   char out[STRAIT_ADDRESS_MAX]);

typedef struct strait_dial_params {
    const strait_fingerprint *expected; // NULL: admit() decides on the key that answers
    const strait_emulate_spec *emulate; // NULL: the config's
    unsigned dial_classes;              // 0: the config's
    void *user;                         // becomes link->user
} strait_dial_params;

/* Starts connecting to `address`. The link belongs to the transport and is valid until its closed()
 * event. An error, which names the address, means that there is no link and no event follows. */
strait_err strait_transport_dial(struct strait_transport *t, const char *address,
                                 strait_dial_params params, struct strait_link **out);

/* See ops->send and ops->close. */
strait_err strait_link_send(struct strait_link *link, struct strait_msg **msg);
void strait_link_close(struct strait_link *link, strait_err why);

/* Formats an address and, unless NULL, the first digits of a key for an error message:
 * "10.0.0.7:7000 (key 1f0c42aa)". The token of a relay address is a secret and is left out. */
void strait_peer_describe(const char *address, const strait_fingerprint *key,
                          char out[STRAIT_PEER_TEXT]);

/* For transports: allocates the link of an accepted peer, and frees a link after its closed(). */
strait_err strait_link_new(struct strait_transport *t, struct strait_link **out);
void strait_link_free(struct strait_link *link);

/* For transports: the first half of ops->send. Checks that the link is open and the message not too
 * large, stamps it and queues it; takes *msg only on success. STRAIT_EAGAIN, without a text: the
 * queue is full, and the link must report when it is writable again. */
strait_err strait_link_queue(const struct strait_link *link, int is_open,
                             struct strait_priority_queue *queue, struct strait_msg **msg);

/* For transports: puts the link's address and key before strait_err_detail(). */
void strait_link_prefix_error(const struct strait_link *link);

/* For transports: checks the key at the other end of `link`, or of a connection that was accepted
 * (NULL). STRAIT_EAUTH when it is not the expected one or admit() refuses it. */
strait_err strait_transport_authorize(struct strait_transport *t, const struct strait_link *link,
                                      const strait_fingerprint *peer, strait_emulate_spec *emulate);

extern const struct strait_transport_ops *const strait_transports[]; // ends with NULL
