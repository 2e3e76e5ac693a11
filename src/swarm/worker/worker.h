/* worker.h - a worker: serves stages of a run on this machine.
 *
 * A worker dials the coordinator of an invite, reports what it can do, and then either waits as a
 * spare or serves a stage. It computes in the caller's thread, polls for messages many times a
 * second meanwhile, and sends a heartbeat each second. When its link breaks it dials again and
 * reports which snapshots it still holds. It reads only its key file and writes no
 * files. */
#pragma once

#include "config/run.h"
#include "swarm/invite.h"
#include "swarm/protocol.h"

/* Points in the life of a stage at which tests inject faults. */
typedef enum strait_worker_point {
    STRAIT_WORKER_BEGIN,    // before the first pass of a step
    STRAIT_WORKER_FORWARD,  // after a forward pass
    STRAIT_WORKER_BACKWARD, // after a backward pass
    STRAIT_WORKER_NORM,     // gradients computed, not yet reported
    STRAIT_WORKER_UPDATE,   // before the update
    STRAIT_WORKER_APPLIED,  // after the update
    STRAIT_WORKER_AVERAGE,  // before an average is applied (train.outer)
    STRAIT_WORKER_SNAPSHOT, // snapshot taken
    STRAIT_WORKER_COPY,     // some of it sent to a neighbour
    STRAIT_WORKER_COMMIT,   // update reported
    STRAIT_WORKER_VALIDATE, // before a validation
    STRAIT_WORKER_SAVE,     // before its snapshot is sent for a checkpoint
    STRAIT_WORKER_RESTORE,  // before it restores
    STRAIT_WORKER_POINTS
} strait_worker_point;

/* Returns the name of a point, as in "strait join --fault": "begin" and so on. */
const char *strait_worker_point_name(strait_worker_point point);

/* What a worker does and has done, for the person who lends the machine. */
typedef struct strait_worker_status {
    const strait_run_status *run; // as the coordinator tells; NULL: not admitted yet
    int is_connected;             // the link to the coordinator is up
    int stage;                    // that it serves; -1: none, it waits as a spare
    int replica, n_replicas;      // which of how many of that stage it is
    double need_bytes;            // of memory, for that stage
    double bytes_per_step;        // of crossings, sent and received
    double bytes_per_hour;        // the same, at the pace of the run; 0: not known yet
    int64_t n_steps, tokens;      // that it has computed its stage for, since it was started
    int64_t n_audits;             // intervals that it has audited
    int n_lost;                   // times that the link to the coordinator was lost
    double sent_bytes, received_bytes;
} strait_worker_status;

/* All but must_stop may be NULL. Called from the worker's thread. */
typedef struct strait_worker_events {
    void *user;
    void (*noted)(void *user, const char *text); // one line for the log
    int (*must_stop)(void *user); // 1: hand the stage over, then leave; 2: leave at once. Called at
                                  // every poll
    /* About once a second, and when the worker is admitted, gets a stage or loses it; once more at
     * the end. Borrowed during the call. */
    void (*status)(void *user, const strait_worker_status *status);
    /* A point was reached; for tests that inject faults. */
    void (*reached)(void *user, strait_worker_point point, int stage, int64_t step);
} strait_worker_events;

typedef struct strait_worker_spec {
    strait_invite invite;
    const struct strait_identity *identity; // borrowed
    char name[STRAIT_NAME_MAX];             // in logs
    char listen[STRAIT_ADDRESS_MAX];        // numeric host:port for neighbours; port 0: any
    char announce[STRAIT_ADDRESS_MAX];      // what neighbours dial, "host" or "host:port"; empty:
                                            // the address we listen at
    int cannot_listen;            // nobody can dial us: we dial all neighbours, or meet at a relay
    char device[STRAIT_RUN_NAME]; // cpu or cuda
    int ordinal, n_threads;
    double memory_bytes;     // that a stage may take; 0: what is free
    int is_forced;           // serve stages that seem too large, too
    double up_bps, down_bps; // bits per second of all links; 0: no limit
    int64_t give_up_ms;      // after the link to the coordinator broke; 0: never
    strait_worker_events events;
} strait_worker_spec;

/* Serves until the run has ended: STRAIT_OK. STRAIT_EINTERRUPTED after must_stop. STRAIT_EAUTH when
 * the coordinator refuses us, STRAIT_ETIMEDOUT when it is unreachable for too long, STRAIT_ENOMEM
 * when no stage of the run fits the memory of this machine. */
strait_err strait_worker_run(const strait_worker_spec *spec);
