/* lend.h - lending this machine to a run: the life of a worker.
 *
 * A worker dials the coordinator of an invite, says what it is, and does what it is told: rests, or
 * serves a stage. It computes in the caller's thread, looks up from that many times a second to
 * hear orders, and sends a pulse each second. When its link breaks it dials again and says what it
 * still holds. It writes no file and opens none but its key. */
#pragma once

#include "config/run.h"
#include "swarm/invite.h"

/* Where in the life of a stage a worker is: what tests aim at. Beginning, in the midst of both
 * passes, with its norms not told, before and after the update, its image made, some of it sent,
 * the update told, before a validation, its image for a checkpoint not sent, before it restores. */
typedef enum strait_worker_point {
    STRAIT_WORKER_BEGIN,
    STRAIT_WORKER_FORWARD,
    STRAIT_WORKER_BACKWARD,
    STRAIT_WORKER_NORM,
    STRAIT_WORKER_UPDATE,
    STRAIT_WORKER_APPLIED,
    STRAIT_WORKER_SNAPSHOT,
    STRAIT_WORKER_COPY,
    STRAIT_WORKER_COMMIT,
    STRAIT_WORKER_VALIDATE,
    STRAIT_WORKER_SAVE,
    STRAIT_WORKER_RESTORE,
    STRAIT_WORKER_POINTS
} strait_worker_point;

const char *strait_worker_point_name(strait_worker_point point);

/* All but must_stop may be NULL. Called from the worker's thread. */
typedef struct strait_worker_events {
    void *user;
    void (*noted)(void *user, const char *text); // something happened; one line
    int (*must_stop)(void *user);                // 1: leave politely; 2: leave at once. Asked often
    void (*passes)(void *user, strait_worker_point point, int stage,
                   int64_t step); // comes by there
} strait_worker_events;

typedef struct strait_worker_spec {
    strait_invite invite;
    const struct strait_identity *identity; // borrowed
    char name[STRAIT_NAME_MAX];             // for people
    char listen[STRAIT_ADDRESS_MAX];        // numeric host:port for neighbours; port 0: any
    char announce[STRAIT_ADDRESS_MAX]; // what neighbours dial, "host" or "host:port"; empty: as
                                       // above
    int cannot_listen;                 // nobody can dial us: we dial all neighbours
    char device[STRAIT_RUN_NAME];      // kind
    int ordinal, n_threads;
    int64_t give_up_ms; // without the coordinator; 0: never
    strait_worker_events events;
} strait_worker_spec;

/* Works until the run is over: STRAIT_OK. STRAIT_EINTERRUPTED after must_stop. STRAIT_EAUTH when
 * the coordinator refuses us, STRAIT_ETIMEDOUT when it is gone for too long. */
strait_err strait_worker_run(const strait_worker_spec *spec);
