/* transport_rig.h - two peers and a record of their events, for tests of transports.
 *
 * The test's own thread drives both in turn, so the order of events is deterministic except for the
 * network. */
#pragma once

#include "check.h"
#include "net/core/transport.h"
#include "net/inproc/endpoint.h"

enum {
    RIG_ARRIVALS_MAX = 8192
};

struct rig_node {
    struct strait_transport *t;
    struct strait_identity *identity;
    char address[STRAIT_ADDRESS_MAX];
    const strait_fingerprint *trusted;   // NULL: admits every key
    const strait_emulate_spec *admitted; // emulation of admitted links; NULL: as configured

    struct strait_link *link;
    int n_opened, n_closed, n_refused, n_writable;
    strait_err why, why_refused;
    char reason[STRAIT_REASON_MAX], reason_refused[STRAIT_REASON_MAX];

    int n_got;
    uint32_t steps[RIG_ARRIVALS_MAX]; // of the messages, in order of arrival
    struct strait_msg *kept;          // the latest, when must_keep
    int must_keep;
    void (*on_open)(struct rig_node *node);
    void (*on_message)(struct rig_node *node, struct strait_msg *msg);
};

struct rig {
    const char *scheme;
    struct strait_msg_pool *pool;
    struct strait_inproc_network *network;
    strait_transport_config config; // of both; may be changed before rig_start
    struct rig_node a, b;           // b listens
    int are_apart;                  // a belongs to another run than b
    int64_t seen_ns, longest_ns;    // when both were last driven; the longest pause
};

void rig_open(struct rig *r, const char *scheme);
void rig_start(struct rig *r);               // opens the transports, b listens
struct strait_link *rig_dial(struct rig *r); // a dials b, expecting b's key
void rig_connect(struct rig *r);             // rig_start, dial, and both are open
void rig_close(struct rig *r);

/* Drives both until `done`; returns 0 when timeout_ms passed first. */
int rig_drive(struct rig *r, int (*done)(const struct rig *r), int timeout_ms);
void rig_rest(struct rig *r, int ms); // drives both for that long

/* Seconds until b has answered a message of a, and until b has received n messages of a. */
double rig_ping(struct rig *r);
double rig_bulk(struct rig *r, int n, size_t bytes);

int rig_both_open(const struct rig *r);
int rig_both_closed(const struct rig *r);
int rig_a_closed(const struct rig *r);
int rig_b_refused(const struct rig *r);

/* A message of type 20 whose body is a pattern derived from `step`. */
struct strait_msg *rig_message(struct rig *r, strait_priority priority, uint32_t step, size_t size);
int rig_is_intact(const struct strait_msg *msg);

/* A test of one scheme, passed as its initial state; needs set_up and tear_down. */
#define ON(scheme, test)                                                         \
    {                                                                            \
        .name = scheme " " #test, .test_func = test, .setup_func = set_up,       \
        .teardown_func = tear_down, .initial_state = (void *)(uintptr_t)(scheme) \
    }
