/* transport.h - moving whole messages between peers.
 *
 * A link carries messages both ways, whole, until it closes with a reason. Those of one priority
 * arrive in the order they were sent. Nothing here blocks except progress(), and nothing here is
 * locked: one thread, the net thread, makes every call but wake(). Other threads talk to the mesh
 * (mesh.h), which queues and wakes.
 *
 * Events are delivered only from inside progress(), so a handler may dial, send and close. A
 * handler that is given an error reads strait_err_detail() for the words.
 *
 * Addresses: a name for inproc, host:port for tls (port 0 lets the system choose). With
 * relay://host:port/token both sides of a tls link dial a relay (relay.h), one by listen().
 *
 * To add a transport: write net/NAME.c with one exported table, add its line to registry.c, and
 * pass tests/contract/transport.c. tls.c is not a transport: it is a stream that tcp.c wears. */
#pragma once

#include "net/core/handshake.h"
#include "net/core/identity.h"
#include "net/core/msg.h"
#include "net/core/stats.h"
#include "net/emulate/emulate.h"

enum {
    STRAIT_ADDRESS_MAX = 256
};

/* What a transport needs to know; all pointers are borrowed until it closes. Zeros mean the
 * default. */
typedef struct strait_transport_config {
    struct strait_msg_pool *pool;           // of the messages it receives
    const struct strait_identity *identity; // who we are
    unsigned char run[STRAIT_RUN_BYTES];    // peers of another run are refused
    char name[STRAIT_NAME_MAX];             // what peers call us in messages to people
    strait_emulate_spec emulate;            // of links that admit() and dial() leave alone
    int n_streams;                          // TCP streams of a link we dial; 0: 1 with BBR, else 4
    int max_streams;                        // most of a link that comes in; 0: what the wire knows
    int ping_ms;                            // between signs of life; 1000, or a third of dead_ms
    int peer_timeout_ms;                    // silence after which a peer counts as dead; 10000
    int handshake_ms;                       // for dialling and greeting together; 10000
    int linger_ms;                          // for the last words of a link that closes; 2000
    size_t message_max;                     // largest body accepted; 64 MiB
    size_t queue_bytes;                     // bodies a link queues before send() declines; 1 MiB
    struct strait_inproc_network *network;  // inproc only: where the transports meet
} strait_transport_config;

struct strait_transport {
    const struct strait_transport_ops *ops;
    const struct strait_transport_events *events;
    void *user; // passed to every event
    strait_transport_config config;
    void *state; // ops->state_size bytes, zeroed before init
};

/* The part of a link that everyone sees; the transport keeps its own part behind `state`. */
struct strait_link {
    struct strait_transport *transport;
    uint64_t id; // unique in this process, never reused
    void *user;  // the mesh's peer
    int is_dialled;
    int has_expected;            // only `expected` may answer
    strait_fingerprint expected; // whom we dialled
    strait_fingerprint peer;     // who is there; proved, from opened() on
    unsigned char
        source_address[8]; // of one that dialled us: its address, or its network; else zeros
    char peer_name[STRAIT_NAME_MAX];
    strait_emulate_spec emulate;
    void *state; // ops->link_size bytes, zeroed before dial or accept
};

struct strait_transport_events {
    /* A stranger dialled and proved that it holds this key. STRAIT_OK lets it in; STRAIT_EAUTH,
     * described, refuses it, and it is told the words. *emulate may be set. */
    strait_err (*admit)(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate);
    /* Someone who dialled us was turned away before there was a link; the words say who and why. */
    void (*refused)(void *user, strait_err why);
    /* Dialled or accepted, and ready to send. The first event of a link, unless it never opens. */
    void (*opened)(void *user, struct strait_link *link);
    /* A message arrived. Keep it by clearing *msg; otherwise it is closed after the call. */
    void (*received)(void *user, struct strait_link *link, struct strait_msg **msg);
    /* There is room again after send() said STRAIT_EAGAIN. */
    void (*writable)(void *user, struct strait_link *link);
    /* Always the last event of a link, which is freed when the handler returns. */
    void (*closed)(void *user, struct strait_link *link, strait_err why);
};

struct strait_transport_ops {
    const char *scheme;
    size_t state_size, link_size;

    strait_err (*init)(struct strait_transport *t); // fini tolerates a failed or absent init
    void (*fini)(struct strait_transport *t);       // closes every link; their events are delivered

    /* Writes the address that others can dial. STRAIT_EINVAL when it is taken or makes no sense. */
    strait_err (*listen)(struct strait_transport *t, const char *address,
                         char out[STRAIT_ADDRESS_MAX]);
    /* Begins connecting; opened() or closed() follows. */
    strait_err (*dial)(struct strait_link *link, const char *address);
    /* Takes *msg and clears it on STRAIT_OK. On STRAIT_EAGAIN the link is full and *msg stays
     * yours; a link with nothing queued takes a message of any size. STRAIT_ECLOSED while the link
     * is not open. */
    strait_err (*send)(struct strait_link *link, struct strait_msg **msg);
    /* Stops the link; closed(why) follows from progress(). With STRAIT_OK what was queued is sent
     * first, for at most linger_ms; otherwise it is dropped and the peer is told
     * strait_err_detail().
     */
    void (*close)(struct strait_link *link, strait_err why);
    /* While held, nothing is received and the peer is made to wait. */
    void (*pause)(struct strait_link *link, int is_paused);
    void (*stats)(struct strait_link *link, strait_link_stats *out);

    /* Moves bytes and delivers events, waiting up to timeout_ms for something to do; -1: for ever.
     */
    strait_err (*progress)(struct strait_transport *t, int timeout_ms);
    /* From any thread: make progress() return soon. */
    void (*wake)(struct strait_transport *t);
};

/* Copies `config`. STRAIT_EINVAL when no transport has this scheme. */
strait_err strait_transport_open(const char *scheme, const struct strait_transport_events *events,
                                 void *user, const strait_transport_config *config,
                                 struct strait_transport **out);
void strait_transport_close(struct strait_transport **t); // closes every link first; accepts NULL

strait_err strait_transport_listen(struct strait_transport *t, const char *address,
                                   char out[STRAIT_ADDRESS_MAX]);

/* `expected` may be NULL: then admit() decides. `emulate` may be NULL: then the config's. */
typedef struct strait_dial_params {
    const strait_fingerprint *expected;
    const strait_emulate_spec *emulate;
    void *user; // becomes link->user
} strait_dial_params;

strait_err strait_transport_dial(struct strait_transport *t, const char *address,
                                 strait_dial_params params, struct strait_link **out);

strait_err strait_link_send(struct strait_link *link, struct strait_msg **msg);
void strait_link_close(struct strait_link *link, strait_err why);

/* For transports: make the link of an accepted peer, and retire a link after its closed(). */
strait_err strait_link_new(struct strait_transport *t, struct strait_link **out);
void strait_link_free(struct strait_link *link);

/* For transports: may this key be at the other end of `link` (NULL: someone dialled us)? */
strait_err strait_transport_authorize(struct strait_transport *t, const struct strait_link *link,
                                      const strait_fingerprint *peer, strait_emulate_spec *emulate);

extern const struct strait_transport_ops *const strait_transports[]; // ends with NULL
