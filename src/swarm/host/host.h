/* host.h - coordinating a run: `strait host`.
 *
 * The caller's thread does everything: it listens, admits workers, drives the coordinator
 * (coordinator.h) and the run's session (train/session.h), whose executor is the swarm. What must
 * survive a crash is in the metastore (metastore/metastore.h); a host that is started again on the
 * same folder continues with the same invite. */
#pragma once

#include "swarm/coordinator/coordinator.h"
#include "swarm/invite.h"
#include "train/outlook/outlook_members.h"
#include "train/session.h"

/* The state of a swarm at one moment. */
typedef struct strait_host_status {
    const struct strait_coordinator *coordinator; // borrowed
    const strait_link_stats *links;               // of each worker to the host; borrowed
    int64_t n_refused;                            // connections refused so far
    uint64_t ids_bytes;                           // of token ids sent to workers
    int is_paused;                                // the metastore is unreachable
    /* Of audits: intervals whose result was right, was wrong so that somebody was banned, or could
     * not be told; all 0 where nothing is audited. */
    int64_t n_approved, n_convicted, n_dropped;
    int has_audits;
    strait_outlook_more more; // what one more worker would bring; gain 0: unknown
} strait_host_status;

/* All may be NULL. Called from the host's thread. */
typedef struct strait_host_events {
    void *user;
    void (*invited)(void *user, const char *line);
    void (*noted)(void *user, const char *text);                   // a line for the log
    void (*changed)(void *user, const strait_host_status *status); // about once a second
    /* An unknown key asks to join. 1 admits it; after 0 it is asked again later. NULL admits every
     * worker that has the token. */
    int (*approves)(void *user, const strait_fingerprint *key, const char *name);
} strait_host_events;

typedef struct strait_host_spec {
    const strait_run *run;
    const char *folder; // the run's
    int resumes;
    int is_forced;                          // do not check first whether memory and disk are enough
    const struct strait_identity *identity; // borrowed
    const char *listen;   // numeric host:port; port 0: any, the same after a restart
    const char *announce; // addresses for the invite, separated by commas; NULL: as listen
    const char *relay;    // host:port, for neighbours that cannot reach each other; NULL: none
    const struct strait_relay_secret *relay_secret; // that the relay asks for; NULL: none
    double relay_bps;  // most that averages may send through it in each direction; 0: no limit
    const char *store; // metastore; NULL: a journal in the folder
    const char *store_ca, *store_cert, *store_key; // PEM files for etcd over https; may be NULL
    double store_wait_s;     // how long the run waits for an unreachable metastore
    uint32_t uses;           // how many workers the invite admits; 0: any number
    uint64_t valid_s;        // lifetime of the invite from the start of the run; 0: unlimited
    double max_lost_work_s;  // most work that a failure may cost, in seconds
    double lease_s, stall_s; // lease_ns and stall_timeout_ns of coordinator.h
    double probe_s;          // between two measurements of the links of a run; 0: one at its start
    double rebalance_s;      // between two moves of stages to faster workers; 0: stages do not move
    int64_t n_spares;        // workers that are kept as spares; others become replicas
    double audit_share;      // of all stage-steps, that spares compute again; 0: none
    strait_session_events session;
    strait_host_events events;
} strait_host_spec;

/* Runs to the end, with the errors of strait_session_run. STRAIT_ENOMEM, STRAIT_EIO: memory or disk
 * are not enough for the coordinator, checked before workers are invited. */
strait_err strait_host(const strait_host_spec *spec);
