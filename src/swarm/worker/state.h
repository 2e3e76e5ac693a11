/* state.h - what the files of a swarm's worker share. One thread, the caller's of
 * strait_worker_run, uses all of it. */
#pragma once

#include "stage/service.h"
#include "swarm/protocol.h"
#include "swarm/snapshot.h"
#include "swarm/worker/worker.h"

enum {
    STRAIT_WORKER_COPIES = 2 // of each neighbour: one complete, one being received
};

/* The link to the coordinator. */
struct worker_control {
    struct strait_mesh *mesh; // one peer: the coordinator
    int is_joined;            // the request to join was sent on this link
    int64_t down_ns;          // since when the link has been down; 0: it is up
    strait_err refusal;       // the coordinator does not admit us; STRAIT_OK: it does
    char refusal_reason[STRAIT_REASON_MAX];
    int64_t heartbeat_ns; // when the last one was sent
};

/* Snapshots in memory, and the one that is being sent to a neighbour in the background. */
struct worker_snapshots {
    struct strait_snapshot own[STRAIT_SWARM_SNAPSHOTS];
    struct strait_snapshot copies[2][STRAIT_WORKER_COPIES]; // of the previous and the next stage
    struct strait_snapshot incoming;                        // to restore from
    int rejected_prev, rejected_next;      // copies found unusable since the last reply
    const struct strait_snapshot *sending; // one of `own`; NULL: none
    size_t sent;                           // bytes of it
    int is_urgent;                         // ignore the limit on the share of the link
    int is_giving; // a copy is being sent back to its stage, so it must not change
    double credit; // bytes that may be sent now; below 0: too many were
    int64_t credit_ns;
    double rate_bps; // of the link to the neighbour, as last measured
    int64_t rate_ns;
    double cost_s; // of the newest snapshot
    size_t bytes;  // of the newest snapshot
};

struct worker {
    const strait_worker_spec *spec;
    strait_swarm_report report;
    struct worker_control control;

    uint32_t generation;     // of the assignment that `has_stage` belongs to
    int has_stage;           // the coordinator gave us a stage in this generation
    int is_broken;           // a neighbour was lost in this generation
    int stage;               // the one last taken
    int64_t step;            // steps our stage has done
    struct strait_msg *next; // a command or task received while busy; only the newest counts

    struct strait_service *service; // NULL: no stage was built
    strait_run run;                 // that the service was built from
    char *run_text;                 // the same as it was received, to compare; NULL: none
    struct strait_mesh *mesh;       // to the neighbours, of this generation; NULL: none
    int prev, next_peer;            // peers of `mesh`; -1: none
    int32_t *ids;                   // memory for a microbatch of token ids

    struct worker_snapshots snapshots;
    uint32_t progress; // rises with everything done, for the coordinator to see
    int is_over, has_left;
    int64_t left_ns; // when we asked to leave
};

void strait_worker_note(struct worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- messages.c: what a worker sends to its coordinator ---- */
/* Reports that the worker passes this point, for tests that aim faults at it. */
void strait_worker_pass(const struct worker *w, strait_worker_point point, int64_t step);
/* Takes *msg. Nothing is sent while the link is down: it would arrive too late to matter. */
void strait_worker_send(struct worker *w, struct strait_msg **msg);
void strait_worker_send_join(struct worker *w);
void strait_worker_send_heartbeat(struct worker *w);
/* Adds the rejected copies and sends the reply behind a heartbeat. */
strait_err strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);

/* ---- stage.c: taking a stage, connecting it, bringing it to a step ---- */
strait_err strait_worker_take(struct worker *w, const strait_task *task,
                              char address[STRAIT_ADDRESS_MAX]);
/* MEET admits neighbours that will dial; DIAL dials the others and waits for all. On an error
 * *missing is the boundary whose other side did not connect. */
strait_err strait_worker_connect(struct worker *w, const strait_task *task, int *missing);
strait_err strait_worker_restore(struct worker *w, const strait_task *task,
                                 strait_task_reply *reply);
/* The snapshot of the stage as it is, taken unless there is one of this step. */
strait_err strait_worker_current_snapshot(struct worker *w, struct strait_snapshot **out);
/* The same, to be copied by a neighbour. */
strait_err strait_worker_keep(struct worker *w, int is_urgent);
void strait_worker_drop_stage(struct worker *w);

/* ---- snapshots.c: snapshots kept, copied and sent ---- */
/* The complete one of `stage` at `step`; NULL: none. */
struct strait_snapshot *strait_worker_find(struct strait_snapshot *snapshots, int n, int stage,
                                           int64_t step);
/* Where a new snapshot of ours goes: never over the newest or the one being sent. */
struct strait_snapshot *strait_worker_place(struct worker *w);
void strait_worker_inventory(const struct worker *w, strait_snapshot_inventory *out);
/* Forgets every snapshot of a later step. */
void strait_worker_trim(struct worker *w, int64_t step);
/* How long a neighbour would take to copy so many bytes in the background. */
double strait_worker_copy_seconds(struct worker *w, size_t bytes);
/* Sends the neighbour as much of the snapshot as its share of the link allows now. */
void strait_worker_send_some(struct worker *w);
/* Sends all of a snapshot, which must not change meanwhile, and polls between pieces. */
strait_err strait_worker_send_all(struct worker *w, struct strait_mesh *mesh, int peer,
                                  const struct strait_snapshot *snapshot, strait_priority priority);
/* Takes a piece from a neighbour or the coordinator. */
strait_err strait_worker_take_piece(struct worker *w, const struct strait_msg *msg,
                                    int is_from_host);

/* ---- worker.c ---- */
/* Handles everything received and sends a heartbeat when one is due. STRAIT_EINTERRUPTED when the
 * coordinator wants something newer than what we are doing. */
strait_err strait_worker_poll(struct worker *w);
/* The same without the neighbours' messages, which a computing stage receives itself. */
strait_err strait_worker_poll_control(struct worker *w);

/* ---- commands.c: what the service asks of its worker ---- */
strait_service_hooks strait_worker_hooks(struct worker *w);
