/* coordinator.h - decides which worker serves which stage, in which generation, and how many steps
 * of the run are committed.
 *
 * The coordinator is one state machine: (state, event, time) to a list of actions. It reads no
 * clock, allocates nothing and knows no network. Its driver (host/host.c, or a test in virtual
 * time) executes the actions in order and feeds back what happens. PERSIST comes before every
 * command that relies on it, so a restarted coordinator never contradicts an earlier one.
 * docs/decisions/swarm/016 gives the reasons.
 *
 *     waiting -> assign -> listen -> connect -> open -> restore -> ready <-> work
 *
 * Each phase from `assign` on is a barrier over the owners of all stages: one command to each, one
 * reply from each. If an owner is lost, late or reports an error before all have replied, every
 * stage returns to `waiting` and a new generation begins. A generation is one assignment of stages
 * to workers; commands and replies carry its number, so late ones are recognised and ignored.
 *
 * A stage has one owner, its first replica: snapshots, checkpoints and recovery are its business.
 * Spares may become further replicas (replicas.c), which take a share of the microbatches. They are
 * spares that help: a stage without an owner takes one of its own replicas first, which has all of
 * the stage's state, and any doubt about values sends them away, so that what follows concerns one
 * worker per stage.
 *
 * One thread uses a coordinator. */
#pragma once

#include "config/run.h"
#include "net/core/handshake.h"
#include "net/core/identity.h"
#include "swarm/coordinator/copies.h"
#include "swarm/coordinator/standing.h"
#include "swarm/snapshot/inventory.h"
#include "swarm/snapshot/records.h"

enum {
    STRAIT_SWARM_WORKERS = 1024,
    /* Upper bound on the actions of one event: a tick may log, record and disconnect every worker,
     * and then assign and command every stage. */
    STRAIT_SWARM_ACTIONS = 5 * STRAIT_SWARM_WORKERS + 8 * STRAIT_RUN_STAGES,
    STRAIT_SWARM_REPLICAS = 8,     // of one stage, at most
    STRAIT_SWARM_SAME_STAGE = 2,   // of waits_for: another replica of its stage; + 1 + k: replica k
    STRAIT_SWARM_GENERATIONS = 64, // generations whose start step is remembered
    STRAIT_SWARM_VIOLATIONS = 2,   // by one worker, before it is banned from the run
    STRAIT_SWARM_DISPUTES = 8,     // workers that contradict one, remembered
    STRAIT_SWARM_RETURNS = 3,      // by contradictions with others, before a worker is put aside
    STRAIT_SWARM_UNUSABLE = 32,    // snapshots that were rejected and are remembered
    STRAIT_SWARM_FAILURES = 2,     // at a boundary, before one of its ends is replaced
    STRAIT_SWARM_CALM_STEPS = 32,  // committed without a failure, after which suspicion is dropped
    STRAIT_SWARM_REPLAYS = 3,      // without a new step, before all stages are rolled back
    STRAIT_SWARM_PAIRS = 256,      // of workers that could not connect, which are remembered
    STRAIT_SWARM_SKIP_MAX = 1 << 20, // generations that reports of workers may skip in all
    STRAIT_SWARM_LINE = 256          // bytes of a log line, with its final zero
};

/* What a worker reports about itself when it joins. */
typedef struct strait_swarm_report {
    char name[STRAIT_NAME_MAX];
    char device[64];
    double memory_bytes;     // free for a stage; 0: unknown
    double flops;            // per second, measured; 0: unknown
    double up_bps, down_bps; // bits per second that its owner lends; 0: no limit
    int is_reachable;        // other workers can connect to it
} strait_swarm_report;

typedef struct strait_swarm_worker {
    strait_fingerprint key;
    strait_swarm_report report;
    int is_known;     // the slot is in use
    int is_connected; // its link to the coordinator is up
    int is_leaving;   // it asked to leave
    int is_kept;      // it stays for one more generation: a neighbour needs the copy that it has
    const char *why_it_stays; // as it was told last, static text; NULL: nothing
    int is_unfit;             // it failed to serve a stage; not chosen again until it reconnects
    int n_penalties;  // times that it lost its stage for a failure: spares with fewer go first
    int n_violations; // invalid data that the coordinator itself found, or false reports
    /* Points for failures (boundaries.c), and the committed steps when the last ones were added. */
    int suspicion;
    int64_t suspected_step;
    int has_successor, successor; // a spare that takes its stage before the next step
    int is_suspect; // it reported non-finite values: chosen last, its own snapshots not used
    /* Reports of such values that no spare could verify, and the committed steps at the last. */
    int n_unverified;
    int64_t unverified_step;
    int n_disputes; // workers that it blamed for invalid data, or that blamed it: chosen last
    strait_fingerprint disputes[STRAIT_SWARM_DISPUTES];
    /* With whom it made the run go back, unless those were banned: nothing else clears it. */
    int n_returns;
    strait_fingerprint returns[STRAIT_SWARM_RETURNS];
    strait_swarm_standing standing;
    int has_beside;            // a neighbour reported values that a spare did not find
    strait_fingerprint beside; // the last such neighbour
    int stage;                 // it owns; -1: a spare
    /* The stage that a spare is a further replica of, or will be in the next step; -1: none. */
    int helps, will_help;
    /* The stage it had when all stages were ready last; -1: none, or it owned and lost it. */
    int served;
    int moved_from;  // a spare: the stage that moved from it, not ready yet elsewhere; -1: none
    int pipeline;    // of a further replica that trains on its own: which pipeline it belongs to
    int keeps_state; // with pipelines: its state is that of the pipeline it is still part of
    int replica;     // its number in this generation; 0: it takes no part, or owns its stage
    int is_awaited;  // of a further replica: its reply is outstanding
    strait_swarm_source source; // of a further replica in this generation
    /* Times it was sent away for a failure near it (calm steps undo them), and until when. */
    int n_sent_away;
    int64_t away_until_ns;
    int64_t lost_ns;     // when it was lost last; 0: never
    int is_loss_counted; // as a time that it was sent away
    strait_snapshot_inventory inventory;
    strait_swarm_receiving receiving;
    int64_t tokens;                    // that it has computed a stage for, since it has this slot
    int64_t seen_ns, max_gap_ns;       // the latest heartbeat, and the longest gap between two
    int64_t progress_ns, max_pause_ns; // the latest progress, and the longest pause in it
    uint32_t progress;                 // counter of its computing thread
    int64_t asked_ns; // since when it was assigned a stage and has replied to nothing; 0: it has
    int waits_for; // data of the previous stage (-1), the next (1) or its own; 0: it does not wait
} strait_swarm_worker;

typedef enum strait_swarm_phase {
    STRAIT_PHASE_WAITING, // for workers
    STRAIT_PHASE_ASSIGN,  // workers receive their stages
    STRAIT_PHASE_LISTEN,  // owners prepare to accept their neighbours
    STRAIT_PHASE_CONNECT, // owners connect to their neighbours
    STRAIT_PHASE_OPEN,    // owners allocate their stages
    STRAIT_PHASE_RESTORE,
    STRAIT_PHASE_READY,
    STRAIT_PHASE_WORK,
    STRAIT_PHASE_SNAPSHOT, // all owners take a snapshot of this step before a handover
    STRAIT_PHASE_HANDOVER, // until neighbours hold copies of the stages that move
} strait_swarm_phase;

/* Each kind is followed by the fields of strait_swarm_event that it uses. */
typedef enum strait_swarm_event_kind {
    STRAIT_SWARM_JOIN,      // key, report, inventory, generation: an admitted worker's link opened
    STRAIT_SWARM_LOST,      // worker: its link closed
    STRAIT_SWARM_LEAVE,     // worker: asked to leave
    STRAIT_SWARM_HEARTBEAT, // worker, inventory, arrived, progress, waits_for
    STRAIT_SWARM_REPLY,     // worker, generation, sequence, err, failed_side, has_other_route,
                            // is_blaming, blamed, is_source_bad, waits_for
    STRAIT_SWARM_INVALID_DATA,   // worker: the driver itself found that it sent invalid data
    STRAIT_SWARM_NONFINITE,      // worker: reported non-finite or implausible values, unverified
    STRAIT_SWARM_CONTRADICTED,   // worker, stage: that report about the stage was found to be false
    STRAIT_SWARM_CONFIRMED,      // worker: that report was found to be true
    STRAIT_SWARM_REPLAY_DIFFERS, // a replayed step gave other values than the first time
    STRAIT_SWARM_GUILTY,   // worker or -1, goal.step or -1: at fault; steps from there do not count
    STRAIT_SWARM_WITHHELD, // worker: does not give what audits need
    STRAIT_SWARM_SILENT_AUDITOR, // worker: a spare that does not reply to an audit it computes
    STRAIT_SWARM_GAVE,           // worker: has given enough since to make up for that
    STRAIT_SWARM_DISPUTE,  // worker, stage: its owner and that of the stage contradict each other
    STRAIT_SWARM_REASSIGN, // worker, successor: the stage should move before the next step
    STRAIT_SWARM_HELP, // worker, stage, pipeline: a spare becomes a replica before the next step
    STRAIT_SWARM_LEFT_OUT,      // worker: its pipeline got no average and is left out from now on
    STRAIT_SWARM_BAD_VALUES,    // worker: its pipeline is left out for the values that it reports
    STRAIT_SWARM_CONTRADICTION, // worker, successor: the two state different things
    STRAIT_SWARM_IN_DOUBT,      // values are implausible, and any replica may have caused it
    STRAIT_SWARM_START,         // owners: stages may be assigned from now on
    STRAIT_SWARM_FIRST,         // the driver has a checkpoint of step 0: all stages restore it
    STRAIT_SWARM_ANEW,    // before the first step: after the next START the run is another one
    STRAIT_SWARM_GOAL,    // goal: what the trainer wants next; only when ready
    STRAIT_SWARM_TICK,    // time has passed
    STRAIT_SWARM_RESUMED, // the driver was blocked: silence until now does not count
} strait_swarm_event_kind;

/* A command that the trainer gives to one stage or to all. */
typedef struct strait_swarm_goal {
    int stage;     // -1: all
    int is_first;  // only for the first replica of each stage
    int64_t step;  // the current step
    int is_update; // the last command of a step: it commits the step
    int is_begin;  // the first command of a step: stages may be handed over before it
    int is_slow;   // it allocates or measures a stage: no heartbeats arrive meanwhile
    int is_validation, is_average; // average of the weights of replicas: 1, 2 or 3, which part
    int is_replay; // some stages compute again what the others have done: no stage moves before it
} strait_swarm_goal;

typedef struct strait_swarm_event {
    strait_swarm_event_kind kind;
    int worker; // slot
    int stage, pipeline;
    strait_fingerprint key;
    const strait_swarm_report *report; // borrowed during the call
    const int *owners; // preferred worker of each stage, borrowed; NULL: the coordinator chooses
    strait_snapshot_inventory inventory;
    strait_snapshot_arrivals arrived;
    uint32_t progress;
    int waits_for;
    uint32_t generation, sequence; // of the command that this replies to; JOIN: the worker's newest
    strait_err err;
    int failed_side;     // with an error: of the boundary that failed, -1 or 1; 0: none
    int has_other_route; // the two ends of that boundary can still be connected in another way
    int successor;
    int is_blaming, blamed; // the worker rejected values from the owner of stage `blamed`
    int is_source_bad;      // to a command to restore: the snapshot is not what its owner took
    strait_swarm_goal goal;
} strait_swarm_event;

typedef enum strait_swarm_action_kind {
    STRAIT_SWARM_PERSIST,    // write the durable state, before any later action is executed
    STRAIT_SWARM_COMMAND,    // send `worker` the command of the current phase for `stage`
    STRAIT_SWARM_RELEASE,    // tell `worker` that it owns no stage
    STRAIT_SWARM_STAY,       // tell `worker`, which asked to leave, why it cannot yet: `reason`
    STRAIT_SWARM_DISCONNECT, // close the link of `worker`; `reason` may be empty
    STRAIT_SWARM_BAN,        // likewise, and record that it is never admitted again
    STRAIT_SWARM_RECORD,     // write the violations and penalties of `worker`, by its key
    STRAIT_SWARM_DONE,       // the goal is reached
    STRAIT_SWARM_RESTORED,   // all stages are ready at `step`; the goal in progress is dropped
    STRAIT_SWARM_LOG,        // an event for the operator: see strait_coordinator_describe
} strait_swarm_action_kind;

typedef struct strait_swarm_action {
    strait_swarm_action_kind kind;
    int worker, stage; // -1: none
    int replica;       // of the stage, with COMMAND
    int64_t step;
    /* With a command to restore: the source, and the neighbours to send copies to. */
    strait_swarm_source source;
    int gives_prev, gives_next;
    int gives_replicas;   // bit i: replica i of the stage gets its snapshot
    int64_t live_step;    // of FROM_LIVE: the step to continue at
    strait_digest digest; // that the snapshot must have; zeros from seed and checkpoint
    const char *reason;   // static text, for RELEASE, DISCONNECT, BAN and LOG
    int successor;        // with LOG: the worker that takes the stage; -1: none
} strait_swarm_action;

typedef struct strait_swarm_actions {
    strait_swarm_action items[STRAIT_SWARM_ACTIONS];
    int n;
} strait_swarm_actions;

/* Leases and stall timeouts grow with the longest gap seen, so a slow worker is not disconnected
 * for its own normal pauses; up to lease_max_ns, since a worker decides how long it pauses. */
typedef struct strait_swarm_config {
    int n_stages;
    int replicas_limit;       // of one stage; 0 or 1: none besides its owner
    int has_audits;           // what replicas state is compared by the driver
    int has_pipelines;        // replicas train on their own, in whole pipelines (pipelines.c)
    int64_t lease_ns;         // longest silence of a connected worker
    int64_t stall_timeout_ns; // longest time without progress, unless it waits for a neighbour
    int64_t lease_max_ns;     // for both, unless they are set to more
    int64_t setup_timeout_ns; // to allocate or restore a stage whose memory is unknown
    int64_t owner_wait_ns;    // after a restart, for the previous owners to reconnect
    int has_relay;            // at which any two workers can meet
    double need_bytes[STRAIT_RUN_STAGES];     // memory of each stage; 0: unknown
    double snapshot_bytes[STRAIT_RUN_STAGES]; // of its snapshot; 0: unknown
    int64_t average_ns[STRAIT_RUN_STAGES];    // that they wait for others in averages; 0: unknown
    int64_t deadline_ns;                      // that they wait for others that send nothing
    int64_t queue_ns; // that a slow link takes for what a worker may have queued for another one
} strait_swarm_config;

/* How a generation continues: stages that have lost their state restore a snapshot of step `from`
 * and compute the steps up to `until` alone, the others keep the state that they have. */
typedef struct strait_swarm_replay {
    int64_t from, until;            // until: -1: all stages were rolled back to one step
    int is_late[STRAIT_RUN_STAGES]; // the stage restores a snapshot
    int n_late;
    int must_update;       // the update that ends step until - 1 was not applied by all
    int64_t n_stage_steps; // that are computed again
    int64_t n_rolled_back; // the same if all stages were rolled back
} strait_swarm_replay;

/* Two workers that could not work side by side, until a time after which they are tried again. */
typedef struct strait_swarm_pair {
    strait_fingerprint keys[2];
    int64_t until_ns;
} strait_swarm_pair;

/* The durable state: what a restarted coordinator resumes from. */
typedef struct strait_swarm_durable {
    uint32_t generation;
    int64_t committed; // steps that every stage has applied
    int64_t settled;   // committed steps after which validation and checkpoint were done too
    strait_fingerprint owners[STRAIT_RUN_STAGES];
    int has_owner[STRAIT_RUN_STAGES];
    int64_t start_steps[STRAIT_SWARM_GENERATIONS]; // step that generation g restored, at g % 64
    strait_snapshot_records records[STRAIT_RUN_STAGES];
} strait_swarm_durable;

/* Plain data. Anyone may read it; only the functions below change it, except `checkpoint`,
 * `has_first`, the `tokens` of a worker and the `flops` of its report, which the driver sets, and
 * `history_first`. */
struct strait_coordinator {
    strait_swarm_config config;
    strait_swarm_worker workers[STRAIT_SWARM_WORKERS];
    int owner[STRAIT_RUN_STAGES]; // a worker's slot; -1: none
    strait_swarm_phase phase;
    uint32_t generation, sequence; // sequence: of the latest barrier
    /* Workers ignore tasks of generations below the newest they have seen, which a coordinator with
     * an older durable state, from a backup, does not know. The next generation is above what they
     * report. A false report is ignored above the limit, so that it cannot use the numbers up. */
    uint32_t newest_reported, reported_limit;
    int has_started;
    int is_awaited[STRAIT_RUN_STAGES]; // the owner's reply is outstanding
    /* Further replicas of each stage in this generation: replica k + 1 is in slot helper[k]. */
    int helper[STRAIT_RUN_STAGES][STRAIT_SWARM_REPLICAS];
    int n_helpers[STRAIT_RUN_STAGES];
    int lead;             // with pipelines: the number of the one that the owners are
    int had_replicas;     // some stage had further replicas in this generation or the one before
    int failed_near;      // a stage at which something failed beside further replicas; -1: none
    int64_t shared_until; // up to this step several workers kept what crossed some boundary
    int64_t now_ns;       // of the latest event
    int64_t phase_began_ns;
    int64_t replied_ns; // how long the latest reply of this phase took; -1: nobody has replied
    /* Longest recent duration of gradients, updates, others, parts of averages, validations;
     * fastest_ns: the shortest so far of gradients, and of validations. 0: none yet. */
    int64_t goal_ns[7], fastest_ns[2];
    int64_t retry_ns;        // the next generation does not begin before
    int64_t owners_until_ns; // until then stages are kept for absent previous owners; 0: not
    int n_failures;          // generations in a row that reached no goal with the same owners
    int n_late_saves;        // snapshots in a row that were too late for a checkpoint
    /* The failure that ended the generation: points it added to each owner, the boundary that
     * failed (-1: none), and whether another route is left for it. */
    int charged[STRAIT_RUN_STAGES];
    int charged_boundary;
    int has_other_route;
    int n_changes, n_handovers; // penalties, and handovers, since the last new step was committed
    int turn;                   // which end of a boundary is replaced if both are equally suspected
    strait_swarm_pair pairs[STRAIT_SWARM_PAIRS];
    int n_pairs;             // so far; the oldest is overwritten
    int has_logged_shortage; // avoids a log line per tick
    strait_swarm_goal goal;
    int64_t step;          // steps that the current stages have applied
    int64_t checkpoint;    // step of the checkpoint any stage can be restored from; -1: none
    int has_first;         // step 0 is a checkpoint of the driver's too; 0: it is the seed's
    int64_t restore_limit; // newest step the next restore may choose; -1: no limit
    strait_swarm_replay replay;
    int64_t updating;      // newest step whose update was begun; -1: none
    int64_t history_first; // from this step on the driver knows how steps ended; it may raise it
    int is_replay_blocked; // values are in doubt: roll back all stages until a new step is
                           // committed
    int n_replays;         // since the last new step was committed
    int64_t committed, settled;
    int64_t start_steps[STRAIT_SWARM_GENERATIONS];
    uint32_t forgotten; // newest generation that restored a step no longer in start_steps
    strait_snapshot_records records[STRAIT_RUN_STAGES];
    int has_new_records;                           // since the durable state was last written
    strait_swarm_source source[STRAIT_RUN_STAGES]; // of each stage in this generation
    strait_swarm_unusable unusable[STRAIT_SWARM_UNUSABLE];
    int n_unusable;  // so far; the oldest is overwritten
    int n_differing; // replays since the last new step that gave other values
};

/* Initialises *c in the caller's memory; nothing needs to be freed. */
void strait_coordinator_init(struct strait_coordinator *c, const strait_swarm_config *config);
/* Continues from the durable state of an earlier coordinator. Call it once, after init. */
void strait_coordinator_resume(struct strait_coordinator *c, const strait_swarm_durable *durable,
                               int64_t now_ns);

/* Writes the durable state, which the driver must store on every PERSIST. */
void strait_coordinator_durable(const struct strait_coordinator *c, strait_swarm_durable *out);

/* The one transition. *out is overwritten; the driver executes its actions in order. */
void strait_coordinator_step(struct strait_coordinator *c, const strait_swarm_event *event,
                             int64_t now_ns, strait_swarm_actions *out);

/* Restores what RECORD actions of an earlier coordinator wrote about a key. Call it after init, or
 * after resume. */
void strait_coordinator_remember(struct strait_coordinator *c, const strait_fingerprint *key,
                                 int n_violations, int n_penalties);
/* Returns how long the ends of a boundary may take to connect in this generation. */
int64_t strait_coordinator_connect_ns(const struct strait_coordinator *c);

/* Returns the slot of the worker with this key; -1: there is none. */
int strait_coordinator_find(const struct strait_coordinator *c, const strait_fingerprint *key);
/* Returns the slot of this key and takes a free one if it has none; -1: the swarm is full. */
int strait_coordinator_admit(struct strait_coordinator *c, const strait_fingerprint *key);

/* The driver sends a stage the snapshot of the current step from its checkpoint, and it has this
 * digest: a worker that reports another one has not restored what it was given. */
void strait_coordinator_sent(struct strait_coordinator *c, int stage, int64_t step,
                             const strait_digest *digest);

/* Returns whether the owner of stage `giver`, if that exists and has an owner, holds a copy of
 * `stage` at `step` that is what the owner of `stage` took. */
int strait_coordinator_can_give(const struct strait_coordinator *c, int giver, int stage,
                                int64_t step);

/* Returns the number of connected workers that own no stage and may be given one. */
int strait_coordinator_count_spares(const struct strait_coordinator *c);
/* Returns whether any stage has further replicas in this generation. */
int strait_coordinator_has_replicas(const struct strait_coordinator *c);
/* Returns how many replicas a stage has in this generation, its owner included. */
int strait_coordinator_n_replicas(const struct strait_coordinator *c, int stage);
/* Returns the slot of a replica of a stage; 0 is the owner. */
int strait_coordinator_replica(const struct strait_coordinator *c, int stage, int replica);
/* Returns the stage that a worker takes part in, as its owner or as a further replica; -1: none. */
int strait_coordinator_stage_of(const struct strait_coordinator *c, int slot);
/* Returns whether a reply of the worker is outstanding in this phase. */
int strait_coordinator_awaits(const struct strait_coordinator *c, int slot);
/* Returns whether the spare may become a further replica of the stage now. */
int strait_coordinator_may_help(const struct strait_coordinator *c, int slot, int stage);

/* Returns the number of the pipeline that a replica of this generation is in, and a number that no
 * pipeline has. */
int strait_coordinator_pipeline(const struct strait_coordinator *c, int replica);
int strait_coordinator_free_pipeline(const struct strait_coordinator *c);

/* Returns a word for an operator; static text of at most 15 characters. */
const char *strait_coordinator_phase_name(strait_swarm_phase phase);

/* Writes the log line of a LOG action: which worker, which stage, what happened, what follows. */
void strait_coordinator_describe(const struct strait_coordinator *c,
                                 const strait_swarm_action *action, char line[STRAIT_SWARM_LINE]);
