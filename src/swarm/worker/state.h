/* state.h - what the files of a worker share. One thread, the one that called strait_worker_run,
 * uses all of it. */
#pragma once

#include "stage/service.h"
#include "swarm/protocol.h"
#include "swarm/snapshot/snapshot.h"
#include "swarm/worker/worker.h"

enum {
    STRAIT_WORKER_COPIES = 2,      // of each neighbour: one complete, one being received
    STRAIT_WORKER_BROKEN_SAME = 2, // of broken_side: the link to another replica of our stage
    /* Instead of a peer of the mesh: who sends the snapshot to restore. */
    STRAIT_WORKER_FROM_NONE = -1,
    STRAIT_WORKER_FROM_HOST = -2
};

/* The link to the coordinator. */
struct worker_control {
    struct strait_mesh *mesh; // one peer: the coordinator
    int is_joined;            // the request to join was sent on this link
    int64_t down_ns;          // since when the link has been down; 0: it is up
    strait_err refusal;       // why the coordinator does not admit us; STRAIT_OK: not refused
    char refusal_reason[STRAIT_REASON_MAX];
    int64_t heartbeat_ns; // when the last one was sent
};

/* Snapshots in memory, and the one that is being sent to a neighbour in the background. */
struct worker_snapshots {
    struct strait_snapshot own[STRAIT_SWARM_SNAPSHOTS];
    struct strait_snapshot copies[2][STRAIT_WORKER_COPIES]; // of the previous and the next stage
    struct strait_snapshot incoming;                        // to restore from
    int giver;             // whose pieces it takes: a peer of the mesh, or one of the above
    int64_t expected_step; // of `incoming`
    int is_incoming_bad;   // its pieces do not fit together
    int has_ignored;       // a piece that was not asked for, in this generation
    size_t own_bytes;      // of a snapshot of our stage
    size_t copy_bytes[2];  // of the previous and the next stage; 0: we keep no copies of it
    int rejected_prev, rejected_next;      // copies found unusable since the last reply
    const struct strait_snapshot *sending; // one of `own`, copied to a neighbour; NULL: none
    size_t sent;                           // bytes of it that were sent
    int is_urgent;                         // ignore the limit on the share of the link
    int is_returning_copy; // a copy is being sent back to its stage, so it must not change
    double credit;         // bytes that may be sent now; below 0: more were sent than allowed
    int64_t credit_ns;
    double rate_bps; // of the link to the neighbour, as last measured
    int64_t rate_ns;
    double cost_s;   // of the newest snapshot
    int is_due;      // one is taken when the averages after this step are done
    double late_s;   // what that cost, until a reply says so
    double copied_s; // spent on checking and hashing neighbours' copies since then
    size_t bytes;    // of the newest snapshot
};

/* What the stage sent, received and reported since its last snapshot; interval.c. */
struct worker_interval {
    int is_on;                     // the coordinator wants commitments, or this is an audit
    int64_t from, before;          // where it began, and the one before it; -1: none
    int64_t step;                  // the newest with complete gradients; -1: none
    strait_commitment sum, latest; // of the steps before `step`, and of it: it may be repeated
    strait_digest reports, latest_report;
    int n_audited; // of an audit: the replicas that the stage had
};

enum {
    /* Requests of audits that may wait: of 16 that are open each asks a worker twice at most. */
    STRAIT_WORKER_GIVES = 32
};

/* What the coordinator asked for, to have an interval audited; giving.c. */
struct worker_giving {
    strait_give wanted[STRAIT_WORKER_GIVES]; // the first is being given
    int n;
    int64_t n_sent; // crossings of it
    size_t at;      // bytes of the snapshot that were sent
};

/* Probes of a neighbour that came outside of our own command; probe.c. */
struct worker_stray {
    uint32_t sequence; // of the command that the latest belong to
    uint64_t bytes;    // of those
    uint64_t total;    // since our last command
};

/* What people are told; status.c. */
struct worker_account {
    strait_run_status run;
    int is_admitted; // `run` was received
    int64_t n_steps, tokens, n_audits;
    int n_lost;
    strait_link_stats traffic; // of links that were closed
    int64_t told_ns;
    char held[512]; // of links that closed while we were idle: not said yet; empty: nothing
    int64_t held_ns;
};

struct worker {
    const strait_worker_spec *spec;
    strait_swarm_report report;
    double device_bytes; // free on the device when the worker started; 0: the device is the host
    struct worker_control control;

    uint32_t generation; // of the assignment that `has_stage` belongs to
    int has_stage;       // the coordinator assigned us a stage in this generation
    int awaits_restore;  // the stage was not restored yet in this generation
    /* Whose link was lost or broke the protocol: -1 previous, 1 next, STRAIT_WORKER_BROKEN_SAME; 0:
     * none. */
    int broken_side;
    int failed_side; // the neighbour that the current task concerns, for its reply if it fails
    int stage;       // assigned last
    strait_stage_replicas replicas; // of that stage and its neighbours
    int64_t step;                   // steps that our stage has applied
    uint32_t live_generation;       // in which the stage was restored, or kept its state, last
    struct strait_msg *next;        // the newest command or task, not yet executed; NULL: none

    struct strait_service *service;     // NULL: no stage was built
    strait_run run;                     // what the service was built from
    char *run_text;                     // the same as received, to detect a change; NULL: none
    struct strait_mesh *mesh;           // to the neighbours, of this generation; NULL: none
    int prev, next_peer;                // first replicas of the neighbours in `mesh`; -1: none
    int own_first;                      // that of our own stage; -1: it is us
    int32_t *ids;                       // memory for a microbatch of token ids
    int64_t valid_windows;              // sequences of a validation, as assigned
    unsigned dial_classes;              // kinds of addresses dialled for others (address_class.h)
    struct strait_bandwidth limits[2];  // what `up` and `down` point to
    struct strait_bandwidth *up, *down; // bytes per second of all links; NULL: no limit

    struct worker_snapshots snapshots;
    struct worker_interval interval;
    struct worker_giving giving;
    struct worker_account account;
    struct worker_stray stray[2]; // of the previous and the next stage
    uint32_t progress;            // grows with all work done; heartbeats report it
    int is_over, has_left;
    int64_t served_ns; // when we last did something for the run, or asked to leave
};

void strait_worker_note(struct worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- messages.c: what a worker sends to its coordinator ---- */
/* Reports that the worker has reached this point, so that tests can inject a fault there. */
void strait_worker_reach(const struct worker *w, strait_worker_point point, int64_t step);
/* Takes *msg. Dropped while the link is down: a new link begins with a new request to join. */
void strait_worker_send(struct worker *w, struct strait_msg **msg);
void strait_worker_send_join(struct worker *w);
void strait_worker_send_heartbeat(struct worker *w);
/* Adds the number of rejected copies to the reply, and sends it after a heartbeat. */
strait_err strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err strait_worker_send_task_reply(struct worker *w, strait_task_reply *reply);

/* ---- stage.c: building a stage ---- */
/* Builds the stage of a task ASSIGN and opens its mesh. Writes the address that neighbours can
 * dial; empty: they cannot. */
strait_err strait_worker_assign(struct worker *w, const strait_task *task,
                                char address[STRAIT_ADDRESS_MAX]);
/* Refuses more microbatches in flight than the lent memory allows. STRAIT_ENOMEM. */
strait_err strait_worker_check_slots(const struct worker *w, int n_slots);
/* Builds the stage of a task ASSIGN, or keeps it if it is of the same run. */
strait_err strait_worker_build_stage(struct worker *w, const strait_task *task);
/* Frees the stage; snapshots stay. */
void strait_worker_drop_stage(struct worker *w);

/* ---- neighbours.c ---- */
/* Opens the mesh of this generation. Writes the address that neighbours can dial; empty: they
 * cannot. */
strait_err strait_worker_open_mesh(struct worker *w, char address[STRAIT_ADDRESS_MAX]);
/* LISTEN admits neighbours that will dial; CONNECT dials the others and waits for all. On an error
 * failed_side is the neighbour that did not connect. */
strait_err strait_worker_connect(struct worker *w, const strait_task *task);
/* Returns the side of a peer of the mesh: -1 previous, 1 next, STRAIT_WORKER_BROKEN_SAME for
 * another replica of our stage. */
int strait_worker_side_of(const struct worker *w, int peer);

/* ---- stage.c: restoring a stage ---- */
/* Restores the stage to the step of a task RESTORE, and sends neighbours their copies first. */
strait_err strait_worker_restore(struct worker *w, const strait_task *task,
                                 strait_task_reply *reply);
/* Waits until the snapshot that is expected has arrived, with all of its pieces. */
strait_err strait_worker_wait_for_snapshot(struct worker *w, int64_t step);

/* ---- snapshots.c: snapshots kept, copied and sent ---- */
/* Returns the complete snapshot of `stage` at `step`; NULL: there is none. */
struct strait_snapshot *strait_worker_find_snapshot(struct strait_snapshot *snapshots, int n,
                                                    int stage, int64_t step);
/* Returns the memory for a new snapshot of our own: the oldest that is neither the newest nor being
 * sent. */
struct strait_snapshot *strait_worker_free_snapshot(struct worker *w);
/* Lists the complete snapshots, for heartbeats. */
void strait_worker_inventory(const struct worker *w, strait_snapshot_inventory *out);
/* Empties a snapshot; its memory is used by the next. */
void strait_worker_drop_snapshot(struct strait_snapshot *snapshot);
/* Drops every snapshot of a later step. */
void strait_worker_trim_snapshots(struct worker *w, int64_t step);
/* Returns how long copying so many bytes to a neighbour in the background takes. */
double strait_worker_copy_seconds(struct worker *w, size_t bytes);
/* Continues the background copy, as far as its share of the link allows now. */
void strait_worker_send_copy(struct worker *w);
/* Sends a whole snapshot, which must not change meanwhile, and polls between pieces. */
strait_err strait_worker_send_snapshot(struct worker *w, struct strait_mesh *mesh, int peer,
                                       const struct strait_snapshot *snapshot,
                                       strait_priority priority);

/* Writes the snapshot of the current step, which is taken unless it exists. */
strait_err strait_worker_current_snapshot(struct worker *w, struct strait_snapshot **out);
/* The same, and begins to copy it to a neighbour. is_urgent: without a rate limit, and before an
 * older one. */
strait_err strait_worker_keep_snapshot(struct worker *w, int is_urgent);
/* ---- pieces.c: snapshots received ---- */
/* Computes the sizes of the snapshots that this stage and its neighbours have. */
strait_err strait_worker_expect_copies(struct worker *w);
/* From now on `giver` may send the snapshot of our stage at `step`; STRAIT_WORKER_FROM_NONE: nobody
 * may. */
void strait_worker_expect_snapshot(struct worker *w, int giver, int64_t step);
/* Stores a piece from a neighbour or, with is_from_host, from the coordinator. One that is not
 * expected is ignored. */
strait_err strait_worker_receive_piece(struct worker *w, const struct strait_msg *msg,
                                       int is_from_host);
/* Counts the bytes of incomplete snapshots, for heartbeats: the coordinator waits for a snapshot as
 * long as it goes on arriving. */
strait_snapshot_arrivals strait_worker_arrived(const struct worker *w);

/* ---- interval.c: commitments ---- */
/* The stage is at `step`, and an interval begins. */
void strait_worker_begin_interval(struct worker *w, int64_t step);
/* The stage was opened: it hashes what it exchanges with others, if commitments are wanted. */
strait_err strait_worker_hash_work(struct worker *w);
/* The row of digests of the last step, of a stage with so many replicas. */
strait_work_shape strait_worker_work_shape(const struct worker *w, int n_replicas);
void strait_worker_describe_work(const struct worker *w, strait_work_shape shape,
                                 strait_digest row[STRAIT_WORK_MAX]);
/* Gradients of a step are complete. */
strait_err strait_worker_add_step(struct worker *w, int64_t step, const strait_stage_reply *reply);
/* Ends the interval at the step that the stage has reached; `out` lacks only the snapshot. */
strait_err strait_worker_end_interval(struct worker *w, strait_commitment *out,
                                      strait_digest *reports);
/* Does that, sends the commitment and begins the next interval. `snapshot` is of this step. */
strait_err strait_worker_commit(struct worker *w, const struct strait_snapshot *snapshot);

/* ---- giving.c: what audits of other workers need ---- */
strait_err strait_worker_give(struct worker *w, const struct strait_msg *msg);
/* Sends more of it, as far as the link to the coordinator has capacity. */
void strait_worker_continue_giving(struct worker *w);
/* Returns whether an audit needs this snapshot of our stage, or may soon. */
int strait_worker_may_give(const struct worker *w, const struct strait_snapshot *snapshot);

/* ---- auditor.c: audits by a spare ---- */
/* Executes a task of an audit, and replies. */
strait_err strait_worker_audit(struct worker *w, const strait_task *task);
/* Takes a crossing of the next step to be audited. */
strait_err strait_worker_audit_crossing(struct worker *w, struct strait_msg **msg);

/* ---- probe.c: rates of the links to the neighbours ---- */
/* Executes STRAIT_COMMAND_PROBE. */
strait_err strait_worker_probe(struct worker *w, const strait_stage_command *command,
                               strait_stage_reply *reply);
/* A probe of a neighbour that is not at the same command. STRAIT_EPROTO if there are too many. */
strait_err strait_worker_stray_probe(struct worker *w, const struct strait_msg *msg);

/* ---- status.c: what people are told ---- */

/* That the coordinator cannot be reached, and that it can be again. */
void strait_worker_say_lost(struct worker *w, const struct strait_msg *msg);
/* Keeps an error of an idle link. It is said with the next task or command but the end of the run,
 * and by the second function after some seconds; `is_due`: at once. */
void strait_worker_hold_note(struct worker *w, const char *text);
void strait_worker_say_held(struct worker *w, int is_due);
void strait_worker_say_reached(struct worker *w);
/* The status of the run arrived. STRAIT_ENOMEM: no stage of it fits this machine. */
strait_err strait_worker_take_run_status(struct worker *w, const struct strait_msg *msg);
/* Calls events.status, at most once a second unless `is_due`. */
void strait_worker_tell_status(struct worker *w, int is_due);
/* Counts the bytes of the links to the neighbours before they are closed. */
void strait_worker_count_traffic(struct worker *w);
/* Notes which stage the worker serves in this generation, and as which replica. */
void strait_worker_note_stage(struct worker *w);
/* A step was applied. */
void strait_worker_count_step(struct worker *w);

/* ---- leaving.c ---- */
/* Tells the coordinator that this worker leaves, once, if its user has asked for that. */
void strait_worker_leave_if_asked(struct worker *w);
/* Returns STRAIT_EINTERRUPTED once a worker that asked to leave may do so: another worker has its
 * stage, or it has had nothing to do for too long. */
strait_err strait_worker_check_leaving(const struct worker *w);

/* ---- worker.c ---- */
/* Handles received messages and sends a heartbeat when one is due. STRAIT_EINTERRUPTED when the
 * coordinator sent a newer command or task than the one being executed. */
strait_err strait_worker_poll(struct worker *w);
/* The same without the neighbours' messages, which the runner of a computing stage receives. */
strait_err strait_worker_poll_control(struct worker *w);

/* ---- commands.c ---- */
/* Returns the callbacks by which the stage service uses its worker. */
strait_service_hooks strait_worker_hooks(struct worker *w);
