/* relay_rig.h - a relay in a thread, machines that use it, and a proxy that corrupts a byte. */
#pragma once

#include "check.h"
#include "net/mesh/mesh.h"
#include "net/relay/relay.h"
#include "net/relay/relay_secret.h"

#include <pthread.h>
#include <stdatomic.h>

struct relay_rig {
    struct strait_relay *relay;
    pthread_t thread;
    int is_running;
    char where[STRAIT_ADDRESS_MAX];
    char address[STRAIT_ADDRESS_MAX]; // relay://where/token
    strait_relay_token token;
};

/* Starts a relay at `where`, for example 127.0.0.1:0. */
void relay_rig_open(struct relay_rig *r, const strait_relay_config *config, const char *where);
void relay_rig_stop(struct relay_rig *r,
                    strait_relay_stats *out); // stops and closes it; may be called twice

struct relay_node {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    int peer;
};

/* Two nodes that know each other: `a` dials at address_a, `b` listens at address_b. */
void relay_rig_pair(struct relay_node *a, struct relay_node *b, const char *address_a,
                    const char *address_b, int n_streams);
void relay_node_close(struct relay_node *node);

/* Sends messages of irregular sizes in both directions and compares every byte. */
void relay_rig_exchange(struct relay_node *a, struct relay_node *b, int n_messages, size_t largest);

void relay_rig_rest(int ms);

/* A plain connection to host:port from a loopback address, 127.0.0.`from`; -1 on failure. */
int relay_rig_connect(const char *where, int from);

/* The same, and a request; the caller closes it. */
int relay_rig_request(const char *where, int from, strait_relay_role role,
                      const strait_relay_token *token);
/* Reads the relay's reply; STRAIT_EINVAL when it closed without one. */
strait_err relay_rig_reply(int fd);
/* Sends a bad request and waits for the reply; by then the relay has read all earlier requests. */
void relay_rig_settle(const char *where);

/* Forwards bytes between its clients and `target`, and flips a bit of byte number `corrupt_at` that
 * the first client sends; -1: none. */
struct relay_corrupter {
    char where[STRAIT_ADDRESS_MAX]; // dial this instead of the target
    char target[STRAIT_ADDRESS_MAX];
    int listener;
    int64_t corrupt_at; // its thread only
    atomic_int n_corrupted, is_over;
    pthread_t thread;
};
void relay_corrupter_open(struct relay_corrupter *m, const char *target, int64_t corrupt_at);
void relay_corrupter_close(struct relay_corrupter *m);
