/* mesh_state.h - the state shared by mesh.c, which other threads call, and mesh_thread.c, the net
 * thread.
 *
 * One mutex guards it. The mutex is never held while the transport is called, because the events
 * that the transport delivers take it. */
#pragma once

#include "net/core/priority_queue.h"
#include "net/mesh/mesh.h"

#include <pthread.h>

/* A function for the net thread to run while the calling thread waits. Lives on the caller's stack.
 */
struct strait_mesh_call {
    struct strait_mesh_call *next;
    strait_err (*run)(struct strait_mesh *mesh, void *arg);
    void *arg;
    int is_done;
    strait_err err;
    char reason[STRAIT_REASON_MAX]; // error details are per thread, so they are copied
};

struct strait_mesh_peer_state { // guarded by mesh->mutex, except `link` and what follows
    int index;
    char name[STRAIT_NAME_MAX];
    strait_fingerprint key;
    char address[STRAIT_ADDRESS_MAX]; // "" when it dials us; never changes
    char dialled[STRAIT_ADDRESS_MAX]; // the one of its addresses that was dialled last
    char remote[STRAIT_ADDRESS_MAX];  // numeric, of the latest link; "" before the first
    unsigned dial_classes;            // 0: the config's; never changes
    int has_emulate;
    strait_emulate_spec emulate;
    struct strait_priority_queue out;
    int is_up;
    strait_err why; // why it is not up; STRAIT_EAUTH and STRAIT_EPROTO are final
    char reason[STRAIT_REASON_MAX];
    strait_link_stats past; // sums over closed links

    /* Used by the net thread only. */
    struct strait_link *link;
    int64_t redial_ns; // do not dial before this time
    int redial_ms;     // the next pause
    int next_address;  // which address to dial next, modulo their number
    int n_rejected;    // addresses in a row that refused us
};

struct strait_mesh {
    strait_mesh_config config;
    struct strait_msg_pool *pool;
    struct strait_transport *t; // net thread only, except wake()
    pthread_t thread;
    int has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t arrived; // the inbox has a message
    pthread_cond_t changed; // a link went up or down, a queue has capacity, or a call is done

    /* All guarded by mutex. */
    struct strait_mesh_peer_state *peers[STRAIT_PEERS_MAX];
    int n_peers;
    struct strait_priority_queue inbox;
    int is_paused; // links are paused because the inbox is too full
    int is_stopping;
    struct strait_mesh_call *calls;
    int64_t n_refused;
    char refused[STRAIT_REASON_MAX]; // reason of the latest refusal
};

extern const struct strait_transport_events strait_mesh_events;

/* The main function of the net thread of mesh `arg`; returns after is_stopping was set. */
void *strait_mesh_thread(void *arg);
