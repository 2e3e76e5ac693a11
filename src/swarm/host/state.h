/* state.h - what the files of a host share: the connections of workers, the facts that outlive the
 * host, the commands being executed, and how often to take snapshots. One thread, the caller's of
 * strait_host, uses all of it. */
#pragma once

#include "metastore/metastore.h"
#include "net/core/priority_queue.h"
#include "stage/channel.h"
#include "swarm/host/host.h"
#include "swarm/protocol.h"
#include "swarm/snapshot.h"
#include "swarm/snapshot_reader.h"
#include "train/executor.h"

enum {
    STRAIT_HOST_CONNECTIONS = 320,           // links at once, joined or not
    STRAIT_HOST_MEMBERS = 4096,              // keys, over the life of a run
    STRAIT_HOST_SUSPECTS = 64,               // steps; more than a trainer skips in a row
    STRAIT_HOST_OUT_MAX = 256 * 1024 * 1024, // bytes that may wait for one link
    STRAIT_HOST_STATE = 4 + 8 + 8 + STRAIT_SWARM_GENERATIONS * 8 +
                        STRAIT_RUN_STAGES * (1 + STRAIT_FINGERPRINT_BYTES)
};

/* One link, from the moment it opens. Its place is free again when the link is gone and everything
 * it sent was handled. */
struct connection {
    struct strait_link *link; // NULL: gone, or the place is free
    int has_ended;            // gone, and messages from it still wait
    int worker;               // of the coordinator; -1: has not joined
    int64_t since_ns;
    struct strait_priority_queue in, out; // messages that wait for us, and for the link
    int is_held;                          // the link is paused until we have handled `in`
    struct strait_snapshot snapshot;      // being sent to us
    char address[STRAIT_ADDRESS_MAX];     // where its neighbours can dial it
    int has_valid;                        // the validation's ids were sent in this generation
    int must_close;
    int n_early;                            // messages before it joined
    int was_probed;                         // it was sent what it asked for to measure the link
    double allowance;                       // messages it may send at `heard_ns`
    int64_t heard_ns;                       // of the last message
    uint32_t offered;                       // generation in which it was told to restore from us
    uint32_t served;                        // generation in which a snapshot was sent to it
    struct strait_snapshot_reader outgoing; // the snapshot being sent, piece by piece
    struct strait_msg *asked;               // its request to join, which has to wait
};

/* Links and who is behind them. */
struct host_links {
    struct connection items[STRAIT_HOST_CONNECTIONS];
    int of_worker[STRAIT_SWARM_WORKERS];       // index of its connection; -1: none
    int n_replaced[STRAIT_SWARM_WORKERS];      // live links lately replaced by newer ones of a key
    int64_t replaced_ns[STRAIT_SWARM_WORKERS]; // since when that is counted
    strait_link_stats stats[STRAIT_SWARM_WORKERS]; // for the status
    int64_t n_refused;                             // peers turned away
    int64_t refusal_ns;                            // when a refusal was last noted
};

/* What the metastore holds, and access to it. */
struct host_facts {
    struct strait_metastore *metastore;
    unsigned char state[2][STRAIT_HOST_STATE]; // as last written, and as last attempted
    size_t state_bytes[2];
    strait_fingerprint members[STRAIT_HOST_MEMBERS]; // every key that was ever admitted
    unsigned char is_banned[STRAIT_HOST_MEMBERS];    // of these, refused for good
    int n_members;
    int64_t
        admit_ns;   // no new key is admitted before this time, after a metastore error; 0: no error
    int was_begun;  // by an earlier host
    int has_expiry; // of the invite is stored
    uint64_t valid_s; // the lifetime of the invite that expiry was computed from
    int64_t renew_ns; // when the lease was last renewed
    int is_paused;    // the metastore is out of reach
};

/* The commands being executed; channel.c. */
struct host_work {
    struct strait_stage_channel channel; // to the workers that own the stages
    strait_stage_command queue[STRAIT_RUN_STAGES];
    int is_queued[STRAIT_RUN_STAGES];
    strait_stage_command_kind kind; // of the commands being executed; 0: none
    int is_done;                    // all were executed
    int has_rolled_back;            // they were not: the stages are at `step` instead
    int64_t step;                   // steps the stages have done
};

/* What steps, snapshots and copies cost, and what follows from it. */
struct host_pace {
    int keep_every;                    // steps between snapshots
    double step_s, snapshot_s, copy_s; // what each takes
    double busy_s[STRAIT_RUN_STAGES];  // of the last step, what each stage computed
    int64_t formed_ns, restored_ns;    // when the generation began, and when its stages were ready
};

/* How the two sides of each boundary reach each other; commands.c. */
struct host_ways {
    int n_missed[STRAIT_RUN_STAGES]; // attempts at which they did not connect
    int chosen[STRAIT_RUN_STAGES];
    char relay_address[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX]; // for this generation
};

struct host {
    const strait_host_spec *spec;
    strait_run run; // with the split that was chosen
    strait_invite invite;
    int is_open; // the invite was announced
    struct strait_transport *t;
    struct strait_msg_pool *pool;
    struct strait_coordinator coordinator;
    strait_swarm_actions actions;
    struct host_links links;
    struct host_facts facts;
    struct host_work work;
    struct host_pace pace;
    struct host_ways ways;
    struct {
        struct strait_checkpoint *source; // that workers restore from; NULL: not open
        int64_t saving;                   // step of the one being written; -1: none
    } checkpoint;
    /* Steps with non-finite values: believed the second time. -1: free. */
    struct {
        int64_t steps[STRAIT_HOST_SUSPECTS];
        int n; // ever noted; the oldest is overwritten
    } suspects;
    struct {
        int64_t tick_ns, status_ns, pumped_ns; // when each was last done
    } clock;
    struct {
        strait_err err; // that ends the run; STRAIT_OK: none
        char reason[512];
    } failure;
    int is_ending;

    struct strait_executor *executor; // NULL before it is open
    int windows[STRAIT_RUN_STAGES];   // slots of each stage
    char task_text[STRAIT_TASK_TEXT]; // the run file as workers get it
    int32_t *ids;                     // memory for a microbatch of token ids
    uint64_t ids_bytes;               // of ids sent
};

void strait_host_note(struct host *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- host.c ---- */
/* Ends the run with the error that this thread noted last; the first one counts. */
void strait_host_fail(struct host *h, strait_err err);
/* Passes an event to the coordinator and performs its actions. */
void strait_host_feed_coordinator(struct host *h, const strait_swarm_event *event);
/* Lets time pass and messages arrive, for at most timeout_ms. An error ends the run. */
strait_err strait_host_pump(struct host *h, int timeout_ms);
/* Reports the status to the events; _due: if the last report is old. */
void strait_host_show(struct host *h);
void strait_host_show_due(struct host *h, int64_t now_ns);

/* ---- connections.c: links ---- */
extern const struct strait_transport_events strait_host_connections;
/* Takes *msg. A connection that is gone or NULL drops it. */
void strait_host_send(struct host *h, struct connection *connection, struct strait_msg **msg);
struct connection *strait_host_connection(struct host *h, int worker); // NULL: gone
/* Closes a link with a reason that the peer reads. */
void strait_host_dismiss(struct host *h, struct connection *connection, strait_err why,
                         const char *reason);
void strait_host_forget(struct connection *connection); // frees what it has, and its place

/* ---- dispatch.c: messages of workers ---- */
/* Handles everything received. Not from within an event of the transport. */
void strait_host_dispatch(struct host *h);
/* Closes links whose peer does not ask to join, and asks again for those that must wait. */
void strait_host_sweep(struct host *h, int64_t now_ns);

/* ---- commands.c: tasks and commands to workers ---- */
/* Sends what the coordinator's present phase has for a stage. */
void strait_host_command(struct host *h, const strait_swarm_action *action);
/* Sends a task without fields. */
void strait_host_rest(struct host *h, int worker, strait_task_kind kind);
/* Tells a peer that it is not admitted, and why, and closes the link. */
void strait_host_refuse(struct host *h, struct connection *connection, const char *reason);
/* STRAIT_ECONFIG when a validation has more ids than can be sent to a worker. */
strait_err strait_host_check_valid(const struct strait_loader *loader, const strait_run_plan *plan);
/* Begins to send the tensors that a worker wants from the checkpoint. */
strait_err strait_host_send_wanted(struct host *h, struct connection *connection,
                                   const strait_want *want);
/* Continues with that, as far as the link has capacity. */
strait_err strait_host_send_more(struct host *h, struct connection *connection);
/* Closes the checkpoint that workers restored from once none is being sent any of it. */
void strait_host_close_source(struct host *h);

/* ---- run_async.c ---- */
/* Runs `run`, which blocks, in another thread and calls `serve`, which takes some milliseconds,
 * until it returns; before there are links it is simply called. Returns the error of either, that
 * of `serve` first. Not from within an event of the transport. */
strait_err strait_host_run_async(struct host *h, strait_err (*run)(void *arg), void *arg,
                                 strait_err (*serve)(struct host *h));

/* ---- metastore_access.c: not from within an event of the transport ---- */
/* Writes an entry. While the metastore is out of reach, or its disk full, the run pauses here:
 * links are kept, and messages of workers wait. */
strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes);
/* The same, attempted once. */
strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes);
/* What to serve during long work: keeps links and the lease while messages of workers wait. */
strait_err strait_host_hold_on(struct host *h);
/* Renews the lease when that is due. */
strait_err strait_host_renew(struct host *h, int64_t now_ns);

/* ---- persistence.c: entries of the metastore ---- */
/* Opens the metastore, waits until this host leads, and reads what an earlier host wrote. */
strait_err strait_host_open_metastore(struct host *h);
strait_err strait_host_save_state(struct host *h);
strait_err strait_host_save_run(struct host *h);
/* Whether a key may join. STRAIT_EAGAIN: it has to wait, for approval or for the metastore;
 * STRAIT_EAUTH: it may not. */
strait_err strait_host_admit(struct host *h, const strait_fingerprint *key, const char *name);
/* From now on the key is refused, also by later hosts. */
strait_err strait_host_ban(struct host *h, const strait_fingerprint *key);

/* ---- rebalance.c ---- */
/* Before a step: moves stages to faster spares where that pays. */
void strait_host_rebalance(struct host *h, int64_t step);

/* ---- checkpoint.c ---- */
/* The executor's write: collects the snapshots of all stages. */
strait_err strait_host_write(struct strait_executor *executor, const char *folder, int64_t step);
/* A checkpoint that was written counts as soon as its manifest exists. */
void strait_host_see_checkpoint(struct host *h);
/* Finds the newest whole checkpoint of the run's folder, where the run continues. */
strait_err strait_host_find_checkpoint(struct host *h);
/* Opens it; that reads and hashes all of it. */
strait_err strait_host_open_checkpoint(struct host *h, struct strait_checkpoint **out);

/* ---- channel.c: commands to the stages ---- */
/* Opens h->work.channel. Its gather returns STRAIT_EAGAIN when the stages went back to
 * h->work.step. */
strait_err strait_host_channel_open(struct host *h, const strait_run_plan *plan);
/* Waits until all stages have an owner and are at step h->work.step. */
strait_err strait_host_wait_ready(struct host *h);

/* ---- executor.c ---- */
extern const struct strait_executor_ops strait_swarm_executor; // its user is the host
/* Brings the stages to `step`, replaying the steps between as often as it takes. */
strait_err strait_host_bring_to(struct strait_executor *executor, int64_t step);
