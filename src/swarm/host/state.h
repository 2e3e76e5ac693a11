/* host_state.h - what the files of a host share. */
#pragma once

#include "metastore/metastore.h"
#include "net/core/priority_queue.h"
#include "stage/channel.h"
#include "swarm/host/host.h"
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

struct connection {           // one link; its user
    struct strait_link *link; // NULL: gone, or the place is free
    int has_ended;            // gone, and what it said has not all been heard
    int worker;               // -1: has not joined
    int64_t since_ns;
    struct strait_priority_queue in, out; // wait for us, and for the link
    int is_held;                          // it has to wait until we have heard what came
    struct strait_snapshot snapshot;      // being sent to us
    char address[STRAIT_ADDRESS_MAX];     // where its neighbours can dial it
    int has_valid;                        // of this epoch: it was sent the validation's ids
    int must_close;
    int n_early;                        // messages before it joined
    int was_probed;                     // it was sent what it asked for to time the way
    double allowance;                   // messages it may send now
    int64_t heard_ns;                   // when that was so
    uint32_t offered;                   // epoch in which it was sent to the checkpoint
    uint32_t given;                     // epoch in which it was sent an image
    struct strait_snapshot_reader gift; // that is being sent, piece by piece
    struct strait_msg *asked;           // its request to join, which has to wait
};

struct host {
    const strait_host_spec *spec;
    strait_run run; // with the split that was chosen
    strait_invite invite;
    struct strait_metastore *metastore;
    struct strait_transport *t;
    struct strait_msg_pool *pool;
    struct strait_checkpoint *giving; // that images are given from; NULL: none
    struct connection connections[STRAIT_HOST_CONNECTIONS];
    int connection_of[STRAIT_SWARM_WORKERS];   // -1: none
    int n_replaced[STRAIT_SWARM_WORKERS];      // live links by newer ones of the same key, lately
    int64_t replaced_ns[STRAIT_SWARM_WORKERS]; // since when
    struct strait_coordinator coordinator;
    strait_swarm_actions actions;
    int64_t tick_ns, renew_ns, view_ns, pumped_ns;
    int64_t n_refused;
    strait_link_stats links[STRAIT_SWARM_WORKERS]; // for views
    uint64_t ids_bytes;
    int is_paused;                             // the store of record is out of reach
    unsigned char state[2][STRAIT_HOST_STATE]; // that was written last, and that was tried last
    size_t state_bytes[2];
    strait_err fatal; // with the words below
    char words[512];
    int is_ending;
    strait_fingerprint members[STRAIT_HOST_MEMBERS]; // every key that was ever let in
    unsigned char is_banned[STRAIT_HOST_MEMBERS];    // of these, refused for good
    int n_members;
    int64_t admit_ns; // nobody new is let in before: the store failed; 0: it did not
    int was_begun;    // by an earlier host
    int has_expiry;   // on record
    uint64_t valid_s; // what it was made of
    int is_open;      // the invite is out

    /* The crew's side. */
    struct strait_executor *executor;              // NULL before it is open
    struct strait_stage_channel channel;           // to the workers that own the stages
    strait_stage_command queue[STRAIT_RUN_STAGES]; // commands of the channel
    int is_queued[STRAIT_RUN_STAGES];
    strait_stage_command_kind working; // kind of the commands being executed; 0: none
    int is_done;                       // they were
    int has_rolled;                    // they were not: the stages are at coordinator.step
    int64_t at;                        // steps the stages have done
    int keep_every;                    // steps between images
    double snapshot_s, step_s, copy_s; // what an image, a step and a copy take
    double busy_s[STRAIT_RUN_STAGES];  // of the step, what each stage computed
    int64_t formed_ns, stood_ns;       // when the present epoch began, and when its stages stood
    int64_t saved;                     // step of a checkpoint that is being written; -1: none
    /* Steps whose numbers were none: the second time that is believed; -1: none. */
    int64_t suspects[STRAIT_HOST_SUSPECTS];
    int n_doubted;
    char task_text[STRAIT_TASK_TEXT];
    int32_t *ids; // room for a microbatch
    int windows[STRAIT_RUN_STAGES];
    /* Of each boundary: how often its sides did not meet, and the relay's address for this epoch.
     */
    int n_missed[STRAIT_RUN_STAGES];
    int ways[STRAIT_RUN_STAGES]; // see host_order.c
    char relayed[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX];
};

void strait_host_note(struct host *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- host.c ---- */
/* Feeds the machine and carries out what it says. */
void strait_host_feed_coordinator(struct host *h, const strait_swarm_event *event);
/* Lets time pass and messages come. An error ends the run. */
strait_err strait_host_pump(struct host *h, int timeout_ms);

/* ---- host_desk.c: links ---- */
extern const struct strait_transport_events strait_host_connections;
void strait_host_send(struct host *h, struct connection *connection, struct strait_msg **msg);
struct connection *strait_host_connection(struct host *h, int worker); // NULL: gone
void strait_host_dismiss(struct host *h, struct connection *connection, strait_err why,
                         const char *words);
void strait_host_forget(struct connection *connection); // frees what it has, and its place

/* ---- host_hear.c: what came over them ---- */
/* Looks at all that has come. Not from within an event of the transport. */
void strait_host_dispatch(struct host *h);
/* Strangers who do not say why they came have to go; who waits to be let in is asked for again. */
void strait_host_sweep(struct host *h, int64_t now_ns);

/* ---- host_order.c: what goes out with an order of the machine ---- */
void strait_host_command(struct host *h, const strait_swarm_action *action);
void strait_host_rest(struct host *h, int worker, strait_task_kind kind);
/* Tells a guest that it is not welcome, and why, and hangs up. */
void strait_host_refuse(struct host *h, struct connection *connection, const char *reason);
/* STRAIT_ECONFIG when a validation has more ids than can be sent to a worker. */
strait_err strait_host_check_valid(const struct strait_loader *loader, const strait_run_plan *plan);
/* Begins to send the tensors that a worker wants from the checkpoint. */
strait_err strait_host_give(struct host *h, struct connection *connection, const strait_want *want);
/* Goes on with that, as far as the link takes it. */
strait_err strait_host_give_more(struct host *h, struct connection *connection);
/* Closes the checkpoint that images came from, if none is being given. */
void strait_host_close_given(struct host *h);

void strait_host_show(struct host *h);
void strait_host_show_due(struct host *h, int64_t now_ns); // if the last view is old

/* ---- host_beside.c ---- */
/* Runs `run`, which blocks, in another thread and calls `serve`, which is to take some
 * milliseconds, until it is back; before there are links it just runs it. The error of either, that
 * of `serve` first. Not from within an event of the transport. */
strait_err strait_host_run_async(struct host *h, strait_err (*run)(void *arg), void *arg,
                                 strait_err (*serve)(struct host *h));

/* ---- host_store.c ---- */
/* Writes a fact. While the store is out of reach, or its disk full, the run pauses here: links live
 * on, and what guests say waits. Not from within an event of the transport, nor are the others. */
strait_err strait_host_put(struct host *h, const char *key, const void *data, size_t bytes);
/* What serves beside long work: links and the lead are kept, what guests say waits. */
strait_err strait_host_hold_on(struct host *h);
/* The same, tried once. */
strait_err strait_host_put_once(struct host *h, const char *key, const void *data, size_t bytes);
strait_err strait_host_renew(struct host *h, int64_t now_ns);

/* ---- host_record.c: facts ---- */
strait_err strait_host_open_metastore(struct host *h);
strait_err strait_host_save_state(struct host *h);
strait_err strait_host_save_run(struct host *h);
/* STRAIT_EAGAIN: it has to wait, to be approved or for the store. */
strait_err strait_host_admit(struct host *h, const strait_fingerprint *key, const char *name);
/* From now on it is refused. */
strait_err strait_host_ban(struct host *h, const strait_fingerprint *key);

/* ---- host_recut.c ---- */
/* Before a step: whether spares should take stages over. */
void strait_host_rebalance(struct host *h, int64_t step);

/* ---- host_save.c: checkpoints ---- */
/* A crew's write. */
strait_err strait_host_write(struct strait_executor *executor, const char *folder, int64_t step);
/* The one that was written counts from when its folder is whole. */
void strait_host_see_checkpoint(struct host *h);
/* The newest whole one, where the run goes on. */
strait_err strait_host_find_checkpoint(struct host *h);
/* The newest whole one of the run's folder: opening reads all of it. */
strait_err strait_host_open_checkpoint(struct host *h, struct strait_checkpoint **out);

/* Ends the run with the error that this thread noted last; the first one counts. */
void strait_host_fail(struct host *h, strait_err err);

/* ---- channel.c: commands to the stages ---- */
/* Opens h->channel. Its gather returns STRAIT_EAGAIN when the stages went back to h->at. */
strait_err strait_host_channel_open(struct host *h, const strait_run_plan *plan);
/* Waits until all stages have an owner and are at step h->at. */
strait_err strait_host_wait_ready(struct host *h);

/* ---- executor.c ---- */
extern const struct strait_executor_ops strait_swarm_executor; // its user is the host
/* Brings the stages to `step`, through whatever steps lie between, as often as it takes. */
strait_err strait_host_bring_to(struct strait_executor *executor, int64_t step);
