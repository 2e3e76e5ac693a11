/* lend_state.h - what the files of a worker share. */
#pragma once

#include "stage/service_state.h"
#include "swarm/snapshot.h"
#include "swarm/worker/worker.h"

enum {
    STRAIT_WORKER_COPIES = 2 // of each neighbour: one whole, one on its way
};

struct lend {
    struct strait_service server; // first: the pipeline's callbacks are given this
    const strait_worker_spec *spec;
    strait_swarm_report report;
    struct strait_mesh *control; // one peer: the coordinator
    int is_joined;               // has asked to be let in on this link
    int64_t down_ns;             // since when the link has been down; 0: it is up
    strait_err refusal;          // the coordinator will not have us; with its words
    char refusal_words[STRAIT_REASON_MAX];

    strait_task task; // the one at hand, or the last
    uint32_t generation;
    int has_stage;
    int is_broken;               // a neighbour was lost in this epoch
    int64_t step;                // steps our stage has done
    char text[STRAIT_TASK_TEXT]; // the run file our stage was made from
    struct strait_msg *next;     // an order or task that came while we were busy
    struct strait_snapshot own[STRAIT_SWARM_SNAPSHOTS]; // of our stage
    struct strait_snapshot copies[2]
                                 [STRAIT_WORKER_COPIES]; // of the stage before, and of that behind
    struct strait_snapshot incoming;                     // to restore from
    int n_refused[2]; // copies that made no sense, since the last reply: by strait_codec_side
    int32_t *ids;     // room for a microbatch

    const struct strait_snapshot *sending; // in the background; NULL: nothing
    size_t sent;
    double credit;     // bytes that may be sent now; below 0: too many were
    int64_t credit_ns; // when that was counted
    int is_urgent;     // no need to spare the link
    int is_giving;     // a copy of a neighbour's stage is being sent back to it
    double rate_bps;   // of the link to the neighbour, lately
    int64_t rate_ns;   // when that was asked

    int64_t pulse_ns;
    uint32_t progress;
    int is_over, has_left;
    int64_t left_ns;       // when it asked to go
    double snapshot_s;     // what the latest image cost
    size_t snapshot_bytes; // of the newest
};

void strait_worker_note(struct lend *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- lend_say.c: what we say ---- */
void strait_worker_pass(const struct lend *l, strait_worker_point point, int64_t step);
void strait_worker_send(struct lend *l, struct strait_msg **msg); // takes *msg
void strait_worker_send_join(struct lend *l);
void strait_worker_heartbeat(struct lend *l);
strait_err strait_worker_reply(struct lend *l, int kind, uint16_t sequence, strait_err err,
                               strait_reply *reply);

/* ---- lend_stage.c: a stage's life ---- */
strait_err strait_worker_take(struct lend *l, char address[STRAIT_ADDRESS_MAX]);
/* Lets neighbours in, then dials. On an error *missing is the boundary whose other side did not
 * come. */
strait_err strait_worker_meet(struct lend *l, int *missing);
strait_err strait_worker_restore(struct lend *l, strait_reply *reply);
/* An image of the stage as it is: one of each step, or there would be no place for the next. */
strait_err strait_worker_current_snapshot(struct lend *l, struct strait_snapshot **out);
/* The same, to be copied by a neighbour. */
strait_err strait_worker_keep(struct lend *l, int is_urgent);
void strait_worker_drop_stage(struct lend *l);

/* ---- lend_image.c: images kept, copied and sent ---- */
struct strait_snapshot *strait_worker_find(struct strait_snapshot *snapshots, int n, int stage,
                                           int64_t step);
/* Where a new image of ours goes: never over the one being sent or the newest. */
struct strait_snapshot *strait_worker_place(struct lend *l);
void strait_worker_inventory(const struct lend *l, strait_snapshot_inventory *out);
void strait_worker_trim(struct lend *l, int64_t step);
/* How long a copy of so many bytes takes to reach the neighbour, about. */
double strait_worker_copy_seconds(struct lend *l, size_t bytes);
/* Sends the next piece to the neighbour if the link's share allows it. */
void strait_worker_send_some(struct lend *l);
/* Sends all of it at once, and looks up between pieces. `image` must not change meanwhile. */
strait_err strait_worker_send_all(struct lend *l, struct strait_mesh *mesh, int peer,
                                  const struct strait_snapshot *snapshot, strait_priority priority);
/* A piece from a neighbour or the coordinator. */
strait_err strait_worker_piece(struct lend *l, const struct strait_msg *msg, int is_host);

/* ---- lend.c ---- */
/* Hears what has come and sends a pulse when it is due. STRAIT_EINTERRUPTED when there is something
 * newer to do than what we are at. */
strait_err strait_worker_poll(struct lend *l);
/* The same, but for what neighbours say. */
strait_err strait_worker_lookup(struct lend *l);
