/* mesh_state.h - what mesh.c, for other threads, and mesh_net.c, the net thread, share.
 *
 * One lock guards it. It is never held while the transport is called, whose events take it. */
#pragma once

#include "net/core/mesh.h"
#include "net/core/priority_queue.h"

#include <pthread.h>

struct strait_mesh_call { // work that only the net thread may do, for a thread that waits
    struct strait_mesh_call *next;
    strait_err (*run)(struct strait_mesh *mesh, void *arg);
    void *arg;
    int is_done;
    strait_err err;
    char reason[STRAIT_REASON_MAX];
};

struct strait_mesh_member { // guarded by mesh->mutex, but for `link` and what follows
    int index;
    char name[STRAIT_NAME_MAX];
    strait_fingerprint key;
    char address[STRAIT_ADDRESS_MAX]; // "" when it dials us; never changes
    char dialled[STRAIT_ADDRESS_MAX]; // the part of it that was dialled last
    int has_emulate;
    strait_emulate_spec emulate;
    struct strait_priority_queue out;
    int is_up;
    strait_err why; // why it is not up; STRAIT_EAUTH and STRAIT_EPROTO are final
    char reason[STRAIT_REASON_MAX];
    strait_link_stats past; // of links that have ended

    struct strait_link *link; // net thread only
    int64_t redial_ns;        // net thread only: not before
    int redial_ms;            // net thread only: the next pause
    int next_address;         // net thread only: which address is next
    int n_rejected;           // net thread only: addresses in a row where we were refused
};

struct strait_mesh {
    strait_mesh_config config;
    struct strait_msg_pool *pool;
    struct strait_transport *t; // net thread only, but for wake()
    pthread_t thread;
    int has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t arrived; // the inbox has something
    pthread_cond_t changed; // a link went up or down, a queue has room, a call is done
    struct strait_mesh_member *members[STRAIT_PEERS_MAX]; // guarded by mutex
    int n_members;                                        // guarded by mutex
    struct strait_priority_queue inbox;                   // guarded by mutex
    int is_paused;                                        // guarded by mutex: inbox too full
    int is_stopping;                                      // guarded by mutex
    struct strait_mesh_call *calls;                       // guarded by mutex
    int64_t n_refused;                                    // guarded by mutex
    char refused[STRAIT_REASON_MAX];                      // guarded by mutex
};

extern const struct strait_transport_events strait_mesh_events;

void *strait_mesh_thread(void *arg); // the net thread of mesh `arg`; ends after is_stopping
