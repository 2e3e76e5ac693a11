/* state.h - what the files of a host share: the connections of workers, the entries of the
 * metastore, the commands being executed, and how often to take snapshots. One thread, the caller's
 * of strait_host, uses all of it. */
#pragma once

#include "metastore/metastore.h"
#include "net/core/priority_queue.h"
#include "stage/channel.h"
#include "swarm/host/access/admission.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/codec/probes.h"
#include "swarm/host/history.h"
#include "swarm/host/host.h"
#include "swarm/host/outer/averages.h"
#include "swarm/host/pace.h"
#include "swarm/host/verify/claims.h"
#include "swarm/host/verify/replay_check.h"
#include "swarm/protocol.h"
#include "swarm/snapshot/reader.h"
#include "swarm/snapshot/snapshot.h"
#include "train/executor.h"

enum {
    STRAIT_HOST_CONNECTIONS = 1152,          // links at once: all workers, and those that join
    STRAIT_HOST_ROUTES = 256,                // pairs of workers whose routes are remembered
    STRAIT_HOST_SUSPICIONS = 64,             // more than the steps a trainer skips in a row
    STRAIT_HOST_RECORDS = 4096,              // keys whose violations and penalties are stored
    STRAIT_HOST_OUT_MAX = 256 * 1024 * 1024, // bytes that may wait for one link
    STRAIT_HOST_RUN_ID = 24,                 // with a hyphen and the final zero
    STRAIT_HOST_STATE = 4 + 8 + 8 + STRAIT_SWARM_GENERATIONS * 8 +
                        STRAIT_RUN_STAGES *
                            (1 + STRAIT_FINGERPRINT_BYTES + STRAIT_SNAPSHOT_RECORDS_BYTES)
};

/* One link, from the moment it opens. Its slot is free again when the link has closed and all
 * messages that arrived on it were handled. */
struct connection {
    struct strait_link *link; // NULL: closed, or the slot is free
    int has_ended;            // closed, and messages from it are still queued
    int worker;               // slot in the coordinator; -1: has not joined
    int64_t opened_ns;
    struct strait_priority_queue in, out; // messages received and not handled, and to be sent
    int is_paused;                        // nothing is read until `in` has been handled
    struct strait_snapshot snapshot;      // being received, for a checkpoint
    char address[STRAIT_ADDRESS_MAX];     // where its neighbours can dial it; empty: they cannot
    int n_missed;                         // dials there that failed since one succeeded
    int has_validation_ids;               // the ids of the validation were sent in this generation
    int must_close;
    int n_early;                 // messages received before it joined
    int n_owed;                  // commands and tasks sent, less replies received
    int was_probed;              // its request to measure the link was answered
    double allowance;            // of its rate limit: messages it may send, as of received_ns
    int64_t received_ns;         // when its last message arrived
    int64_t n_late;              // messages that audits asked it for and no longer need
    uint32_t offered_generation; // in which its task was to restore from the checkpoint
    uint32_t served_generation;  // in which it was sent a snapshot of the checkpoint
    struct strait_snapshot_reader outgoing; // the snapshot being sent, piece by piece
    struct strait_msg *pending_join;        // its request to join, while undecided; NULL: none
};

/* All links, and which worker each belongs to. */
struct host_links {
    struct connection items[STRAIT_HOST_CONNECTIONS];
    int n_items;                            // slots that were ever used: those behind them are free
    int of_worker[STRAIT_SWARM_WORKERS];    // index of its connection; -1: none
    int n_reconnects[STRAIT_SWARM_WORKERS]; // reconnections while the older link was still up
    int64_t reconnects_since_ns[STRAIT_SWARM_WORKERS]; // since when they are counted
    strait_link_stats stats[STRAIT_SWARM_WORKERS];     // for the status
    int64_t n_refused;                                 // connections refused
    int64_t n_trimmed;                                 // of these, when memory was last returned
    int64_t refusal_ns;                                // when a refusal was last logged
};

/* The metastore, and what this host knows of its entries; persistence.c. */
struct host_persistence {
    struct strait_metastore *metastore;
    unsigned char state[2][STRAIT_HOST_STATE]; // as last written, and as in the latest attempt
    size_t state_bytes[2];
    int is_id_new;    // this host created the run's id (folder.c)
    int was_begun;    // an earlier host has begun this run
    int has_expiry;   // the invite's time of expiry is stored
    uint64_t valid_s; // the lifetime that the time of expiry was computed from
    int64_t renew_ns; // when the lease was last renewed
    int is_paused;    // the metastore is unreachable
    strait_fingerprint records[STRAIT_HOST_RECORDS]; // keys with an entry of records.c
    unsigned n_records; // so far; the oldest is removed when there are too many
};

/* The commands being executed; channel.c. */
struct host_work {
    struct strait_stage_channel channel;            // to the workers that own the stages
    strait_stage_command queue[STRAIT_RUN_MEMBERS]; // by member: strait_run_plan_member
    int is_queued[STRAIT_RUN_MEMBERS];
    strait_stage_command_kind kind; // of the commands being executed; 0: none
    int is_done;                    // all stages have replied
    int has_rolled_back;            // instead, the stages were restored to `step`
    int must_finish;                // strait_host_finish_step is due
    int64_t step;                   // steps that the stages have applied
};

/* Which routes between the owners of two neighbouring stages have failed; routes.c. */
struct host_route_memory {
    strait_fingerprint prev, next;
    unsigned failed; // bit i: route i
};

/* How the two ends of each boundary reach each other; routes.c. */
struct host_routes {
    struct host_route_memory memory[STRAIT_HOST_ROUTES];
    unsigned n_memories;                                       // so far; the oldest is overwritten
    int chosen[STRAIT_RUN_STAGES];                             // enum route
    char relay_address[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX]; // for this generation
};

/* Non-finite or implausible values that a worker reported: the step was recomputed. */
struct host_suspicion {
    int64_t step; // -1: unused
    int stage, is_validation;
    strait_fingerprint key; // of the worker
    int is_settled;         // another worker has computed the step
};

/* What the reports of workers are compared with; verify.c. */
struct host_claims {
    int n_params[STRAIT_RUN_STAGES];
    strait_claims_level loss, valid_loss, squares[STRAIT_RUN_STAGES];
    struct host_suspicion suspicions[STRAIT_HOST_SUSPICIONS];
    int n_suspicions;                      // so far; the oldest is overwritten
    uint32_t warned[STRAIT_SWARM_WORKERS]; // the generation in which a clamped report was logged
};

struct host {
    const strait_host_spec *spec;
    strait_run run; // with the split of layers that was chosen
    strait_invite invite;
    int is_open;                    // the invite was announced
    struct strait_folder_lock lock; // of the run's folder, in the metastore's term
    struct strait_transport *t;
    struct strait_msg_pool *pool;
    struct strait_local_server *operator_socket; // operator.c; NULL: none
    struct strait_coordinator coordinator;
    strait_swarm_actions actions;
    struct host_links links;
    struct host_persistence persistence;
    struct host_admission admission;
    struct host_work work;
    struct host_pace pace;
    struct host_probes probes;
    struct host_routes routes;
    struct host_claims claims;
    struct host_averages averages;
    struct {
        struct strait_checkpoint *source; // what workers restore from; NULL: not open
        int64_t saving;                   // step of the one being written; -1: none
    } checkpoint;
    struct strait_replay_check replay;
    struct host_history history;
    struct {
        strait_run_status message; // as workers get it
        double began_s;            // when the first step of this coordinator ended; 0: not yet
        int64_t first_step;        // that step
        int64_t sent_ns;
    } run_status;
    struct host_audits *audits; // NULL: nothing is audited
    struct {
        int64_t tick_ns, status_ns, pumped_ns, trim_ns; // when each was last run
    } clock;
    struct {
        strait_err err; // it ends the run; STRAIT_OK: there is none
        char reason[512];
    } failure;
    int is_ending;

    struct strait_executor *executor; // NULL before it is open
    struct strait_pipeline *pipeline; // its stages, over the channel
    int windows[STRAIT_RUN_STAGES];   // slots of each stage
    int has_chosen;                   // the layers were split by this host
    int chosen[STRAIT_RUN_STAGES];    // the worker that each stage was made for
    char task_text[STRAIT_TASK_TEXT]; // the run file as workers get it
    int32_t *ids;                     // memory for a microbatch of token ids
    uint64_t ids_bytes;               // of ids sent
};

void strait_host_note(struct host *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- host.c ---- */
/* Ends the run with `err` and its detail; of several errors the first is reported. */
void strait_host_fail(struct host *h, strait_err err);
/* Passes an event to the coordinator and executes its actions. */
void strait_host_feed_coordinator(struct host *h, const strait_swarm_event *event);
/* Runs the event loop once: waits for the network for at most timeout_ms, handles messages, ticks
 * the coordinator. An error ends the run. */
strait_err strait_host_pump(struct host *h, int timeout_ms);
/* The status now; it borrows from the host. */
strait_host_status strait_host_status_now(struct host *h);
/* Calls events.changed with the status; _if_due: only if the last call was a second ago. */
void strait_host_report_status(struct host *h);
void strait_host_report_status_if_due(struct host *h, int64_t now_ns);

/* ---- connections.c: links ---- */
extern const struct strait_transport_events strait_host_connections;
/* Takes *msg. It is dropped if the connection has closed or is NULL. */
void strait_host_send(struct host *h, struct connection *connection, struct strait_msg **msg);
struct connection *strait_host_connection(struct host *h, int worker); // NULL: not connected
/* Closes a link and sends the peer the reason. */
void strait_host_disconnect(struct host *h, struct connection *connection, strait_err why,
                            const char *reason);
/* Frees memory that a burst of messages or strangers left; does something every few seconds. */
void strait_host_trim_memory(struct host *h, int64_t now_ns);
void strait_host_connection_fini(struct connection *connection); // frees what it owns, and its slot

/* ---- dispatch.c: messages of workers ---- */
/* Handles all received messages. Not from within an event of the transport. */
void strait_host_dispatch(struct host *h);
/* Closes links whose peer does not ask to join in time, and decides again on pending requests. */
void strait_host_check_newcomers(struct host *h, int64_t now_ns);

/* ---- commands.c: tasks and commands to workers ---- */
/* Sends the command of the coordinator's current phase to the owner of a stage. */
void strait_host_command(struct host *h, const strait_swarm_action *action);
/* Sends a task without fields. */
void strait_host_send_task(struct host *h, int worker, strait_task_kind kind);
/* Tells a worker that asked to leave why it stays. */
void strait_host_say_why(struct host *h, int worker, const char *reason);
/* Tells a peer that it is not admitted, and why, and closes the link. */
void strait_host_refuse(struct host *h, struct connection *connection, const char *reason);
/* Sends a worker the token ids that a stage needs in a step, if it needs any. */
strait_err strait_host_send_step_ids(struct host *h, int worker, int stage, int64_t step);
/* STRAIT_ECONFIG when a validation has more ids than can be sent to a worker. */
strait_err strait_host_check_validation(const struct strait_loader *loader,
                                        const strait_run_plan *plan);
/* Begins to send the tensors of the checkpoint that a worker requested. */
strait_err strait_host_begin_snapshot(struct host *h, struct connection *connection,
                                      const strait_snapshot_request *request);
/* Continues sending them, as far as the link has capacity. */
strait_err strait_host_continue_snapshot(struct host *h, struct connection *connection);
/* Closes the checkpoint that workers restore from once no more of it has to be sent. */
void strait_host_close_source(struct host *h);

/* ---- run_status.c ---- */
/* Fills in what workers are told of the run; `valid_windows` are the sequences of a validation. */
strait_err strait_host_describe_run(struct host *h, const strait_run_plan *plan,
                                    int64_t valid_windows);
/* A step has ended. */
void strait_host_note_progress(struct host *h, int64_t step, double loss);
/* Sends one worker the status of the run; _if_due: all of them, once a second. */
void strait_host_send_run_status(struct host *h, int worker);
void strait_host_send_run_status_if_due(struct host *h, int64_t now_ns);

/* ---- routes.c ---- */
/* Describes one end of boundary `i` to the other: with is_next the next stage to the previous one,
 * else the reverse. In phase LISTEN it chooses the route between them. */
void strait_host_describe_peer(struct host *h, int i, int is_next, strait_task_peer *peer);
/* All boundaries are connected: the addresses that were dialled are right. */
void strait_host_routes_work(struct host *h);
/* The route chosen for boundary `i` did not serve. Returns whether its ends have another. */
int strait_host_route_failed(struct host *h, int i);

/* ---- records.c: what is remembered about keys ---- */
/* Writes the violations and penalties of a worker. */
strait_err strait_host_save_record(struct host *h, int worker);
/* Reads such an entry, if it is one. Call it after the coordinator's state was resumed. */
strait_err strait_host_read_record(struct host *h, const strait_metastore_entry *entry);

/* ---- run_async.c ---- */
/* Runs `run`, which blocks, in another thread, and calls `serve`, which takes some milliseconds,
 * until it returns. Before there are links to serve, runs it in the calling thread. Returns the
 * error of either, that of `serve` first. Not from within an event of the transport. */
strait_err strait_host_run_async(struct host *h, strait_err (*run)(void *arg), void *arg,
                                 strait_err (*serve)(struct host *h));

/* ---- metastore_access.c: not from within an event of the transport ---- */
/* Writes an entry. While the metastore is unreachable or its disk is full, the run pauses here:
 * links are kept alive, and messages of workers are queued. */
strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes);
/* The same, attempted once. */
strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes);
/* Removes an entry, which need not exist; otherwise like strait_host_put. */
strait_err strait_host_remove(struct host *h, const char *key);
/* A `serve` for strait_host_run_async: keeps links and the lease alive and queues messages. */
strait_err strait_host_keep_alive(struct host *h);
/* Renews the lease when that is due. */
strait_err strait_host_renew(struct host *h, int64_t now_ns);

/* ---- persistence.c: entries of the metastore ---- */
/* Opens the metastore, waits until this host leads, and reads what an earlier host wrote. */
strait_err strait_host_open_metastore(struct host *h);
strait_err strait_host_save_state(struct host *h);
strait_err strait_host_save_run(struct host *h);

/* ---- folder.c ---- */
/* Takes the run's folder in the metastore's term, also from a coordinator that hangs. */
strait_err strait_host_take_folder(struct host *h);
/* Checks that another coordinator has not taken it, before something is written there. Otherwise
 * the run ends. */
strait_err strait_host_check_folder(struct host *h);
/* Checks it after a call to the metastore, whose term is a new one if the lease had expired. */
strait_err strait_host_keep_folder(struct host *h);
/* Gives it up, and removes what this host created there if the run never began. */
void strait_host_leave_folder(struct host *h);
/* Reads or creates what follows the run's name in a metastore that several runs share; "" where
 * nothing does. */
strait_err strait_host_open_run_id(struct host *h, char out[STRAIT_HOST_RUN_ID]);
/* Removes it, for a run that never began, unless it may be another coordinator's. */
void strait_host_discard_run_id(struct host *h);

/* ---- memory.c ---- */
/* Estimates the memory of a layer, and the compute time of the head in units of one layer. */
strait_err strait_host_plan_layers(const strait_run_plan *plan, double *layer_bytes,
                                   double *head_cost);
/* Computes the memory of each stage with its snapshots and window, for the choice of workers. */
strait_err strait_host_plan_memory(struct host *h, const struct strait_executor *executor);
/* Shrinks the windows of stages whose owners lend too little memory for them. */
strait_err strait_host_fit_windows(struct host *h, struct strait_executor *executor);
/* Checks before workers are invited that memory and disk of the coordinator's machine are enough.
 * STRAIT_ENOMEM, STRAIT_EIO. */
strait_err strait_host_check_resources(const struct host *h);

/* ---- reach.c ---- */
/* Whether we see both workers at one public address: they are in one network behind it. */
int strait_host_is_near(const struct connection *a, const struct connection *b);
/* Whether the first worker will dial the address of the second. Either may be NULL. */
int strait_host_can_dial(const struct connection *from, const struct connection *to);

/* ---- split.c ---- */
/* Waits for enough workers and splits the model among them. */
strait_err strait_host_choose_split(struct host *h, const strait_run_plan *plan);

/* ---- rebalance.c ---- */
/* Before a step: moves stages to faster spares if that saves time. */
void strait_host_rebalance(struct host *h, int64_t step);

/* ---- replay.c ---- */
/* Lets the stages that have lost their state compute a step again, from the crossings that the
 * others have kept, and compares the result. STRAIT_EAGAIN: the stages were restored meanwhile. */
strait_err strait_host_replay_alone(struct host *h, int64_t step);
/* Ends the step before the one at which stages continue with their state: sends its update and its
 * basis once more to those that lack them. STRAIT_EAGAIN as above. */
strait_err strait_host_finish_step(struct host *h, int64_t step);
/* Logs how the stages continue and how many stage-steps are computed again. */
void strait_host_note_restored(struct host *h);
/* Remembers what a new step gave. */
void strait_host_keep_result(struct host *h, int64_t step, const strait_executor_report *report);
/* Compares a replayed step with that. STRAIT_EAGAIN: it gave something else, and the stages were
 * restored again. After some attempts what it gave counts, with a note. */
strait_err strait_host_check_replay(struct host *h, int64_t step,
                                    const strait_executor_report *report);

/* ---- checkpoint/checkpoint.c ---- */
/* executor->ops->write: collects the snapshots of all stages and writes them. */
strait_err strait_host_write(struct strait_executor *executor, const char *folder, int64_t step);
/* Lets stages be restored from the checkpoint written last, if it is complete: if its manifest
 * exists. */
void strait_host_adopt_checkpoint(struct host *h);
/* Finds the newest whole checkpoint of the run's folder, where the run continues. */
strait_err strait_host_find_checkpoint(struct host *h);
/* Opens the newest whole one of a run's folder, or one by its own; reads and hashes all of it. */
strait_err strait_host_open_checkpoint(struct host *h, const char *folder,
                                       struct strait_checkpoint **out);

/* ---- channel.c: commands to the stages ---- */
/* Opens h->work.channel. Its gather returns STRAIT_EAGAIN when the stages were restored to
 * h->work.step instead. */
strait_err strait_host_channel_open(struct host *h, const strait_run_plan *plan);
/* Waits until all stages have an owner and are at step h->work.step. */
strait_err strait_host_wait_ready(struct host *h);

/* ---- verify.c: reports that cannot be believed ---- */
/* Prepares h->claims for the plan of h->executor. */
strait_err strait_host_open_claims(struct host *h);
/* Checks a message of the owner of a stage against its bounds and clamps it in place; `body` may be
 * NULL. Returns 0 if it is impossible: that was logged and counts as a violation. */
int strait_host_check_claims(struct host *h, int worker, const strait_layout *header,
                             const strait_layout *body, void *message);
/* A reply arrived, if a late one: its worker does not hang. Several more than commands were sent
 * are a violation. */
void strait_host_count_reply(struct host *h, struct connection *connection);

/* The passes of all stages were timed, and the replies are still there. A worker that claims to be
 * much faster than it was gets the speed that it had. */
void strait_host_correct_speeds(struct host *h);
/* The gradients of a step were computed. Verifies a worker's report of non-finite or implausible
 * values by recomputing the step, on a spare if there is one; replayed steps are compared with
 * nothing, as losses were higher then. STRAIT_EAGAIN: the step has to be recomputed. */
strait_err strait_host_verify_step(struct host *h, int64_t step, int nonfinite_stage,
                                   int is_replay);
/* The same for the loss of a validation after `step` steps. */
strait_err strait_host_verify_validation(struct host *h, int64_t step, double loss_sum);

/* ---- session.c ---- */
/* Runs the session; again, from an earlier step, when audits return the run to it. */
strait_err strait_host_run_session(struct host *h);

/* ---- executor.c ---- */
extern const struct strait_executor_ops strait_swarm_executor; // its user is the host
/* Waits until the stages are ready and replays steps until they have applied `step` steps; starts
 * over when they are restored meanwhile. */
strait_err strait_host_replay_to(struct strait_executor *executor, int64_t step);
