/* coordinator.h - who serves which stage, in which epoch, and how far a run has come.
 *
 * One state machine: (state, event, now) to actions. It reads no clock, allocates nothing, knows no
 * network; whoever drives it (host.c, or a test in virtual time) carries out the actions in their
 * order, records before the orders behind them, and feeds back what happens. docs/decisions/016
 * says why it is as it is.
 *
 *     gather -> take -> meet -> dial -> open -> restore -> ready <-> work
 *
 * Each phase from take on is a barrier over the owners of all stages: an order to each, a reply of
 * each. Whoever is lost, late or in error before all have replied sends everyone back to gather. */
#pragma once

#include <strait/run.h>

#include "net/core/handshake.h"
#include "net/core/identity.h"
#include "swarm/snapshot_inventory.h"

enum {
    STRAIT_SWARM_WORKERS = 256,
    STRAIT_SWARM_ACTIONS = 512,    // the most that one event can ask for
    STRAIT_SWARM_GENERATIONS = 64, // whose rollbacks are remembered
    STRAIT_SWARM_VIOLATIONS = 2,   // of a machine, before it is refused for the run
    STRAIT_SWARM_TIMEOUTS = 2 // steps that it may have broken, before its stage goes to a spare
};

/* What a worker says of itself when it joins. */
typedef struct strait_swarm_report {
    char name[STRAIT_NAME_MAX];
    char device[64];
    double memory_bytes; // free for a stage; 0: unknown
    double flops;        // a second, measured; 0: unknown
    int is_reachable;    // others can dial it
} strait_swarm_report;

typedef struct strait_swarm_worker {
    strait_fingerprint key;
    strait_swarm_report report;
    int is_known;                 // the slot is taken
    int is_connected;             // its link is up
    int is_leaving;               // asked to go
    int is_unfit;                 // failed at what only it can be blamed for
    int n_penalties;              // stalls, and stages it lost for n_vain: it is chosen last
    int n_timeouts;               // steps in which somebody waited in vain, for it perhaps
    int n_violations;             // it sent what is no number, or said so of too many others
    int has_successor, successor; // a spare that takes its stage with the next step
    int is_suspect;               // its numbers were none: chosen last of all, its images never
    int has_accused;
    strait_fingerprint accused; // the first one it said so of
    int stage;                  // it owns; -1: a spare
    strait_snapshot_inventory inventory;
    int64_t seen_ns, gap_ns;   // the latest pulse, and the longest pause between two
    int64_t moved_ns, rest_ns; // the latest progress, and the longest pause in it
    uint32_t progress;
    int is_waiting; // for a neighbour
} strait_swarm_worker;

typedef enum strait_swarm_phase {
    STRAIT_PHASE_WAITING,
    STRAIT_PHASE_ASSIGN,
    STRAIT_PHASE_LISTEN,  // expect those who will dial
    STRAIT_PHASE_CONNECT, // and dial the others
    STRAIT_PHASE_OPEN,
    STRAIT_PHASE_RESTORE,
    STRAIT_PHASE_READY,
    STRAIT_PHASE_WORK,
    STRAIT_PHASE_SNAPSHOT, // images of this very step, for owners that leave
    STRAIT_PHASE_HANDOVER, // until their neighbours have copies
} strait_swarm_phase;

typedef enum strait_swarm_event_kind {
    STRAIT_SWARM_JOIN,      // key, report, held: its link opened and it proved its right to be here
    STRAIT_SWARM_LOST,      // worker: its link closed
    STRAIT_SWARM_LEAVE,     // worker: would like to go
    STRAIT_SWARM_HEARTBEAT, // worker, held, progress, is_waiting
    STRAIT_SWARM_REPLY,     // worker, epoch, round, err, blamed
    STRAIT_SWARM_INVALID_DATA, // worker: the driver itself has seen that what it sent is no use
    STRAIT_SWARM_NONFINITE,    // worker: says that its own numbers are none, which may be so
    STRAIT_SWARM_REASSIGN,     // worker, heir: the one should have the other's stage, from the next
                               // step on
    STRAIT_SWARM_START,        // from now on stages may be given out
    STRAIT_SWARM_GOAL,         // goal: what the trainer wants next; only when ready
    STRAIT_SWARM_TICK,         // time has passed
    STRAIT_SWARM_RESUMED,      // the driver was not listening: nobody's silence until now counts
} strait_swarm_event_kind;

/* An order that the trainer gives to one stage or to all. */
typedef struct strait_swarm_goal {
    int stage;     // -1: all
    int64_t step;  // at hand
    int is_update; // it ends the step
    int is_begin;  // it begins one: a good moment to hand stages over
    int is_slow;   // making or timing a stage: no pulses come
} strait_swarm_goal;

typedef struct strait_swarm_event {
    strait_swarm_event_kind kind;
    int worker;
    strait_fingerprint key;
    const strait_swarm_report *report;
    strait_snapshot_inventory inventory;
    uint32_t progress;
    int is_waiting;
    uint32_t generation, sequence;
    strait_err err;
    int successor;
    int is_blaming; // values that came from the owner of stage `blamed` were refused
    int blamed;
    strait_swarm_goal goal;
} strait_swarm_event;

typedef enum strait_swarm_action_kind {
    STRAIT_SWARM_PERSIST, // epoch, owners, committed and settled steps: before anything behind it
    STRAIT_SWARM_COMMAND, // of the present phase, epoch and round, to `worker`, owner of `stage`
    STRAIT_SWARM_RELEASE, // tell `worker` that it owns nothing
    STRAIT_SWARM_DISCONNECT, // close the link of `worker`; `reason` say why
    STRAIT_SWARM_BAN,        // likewise, and never let it in again: before anything behind it
    STRAIT_SWARM_DONE,       // the goal is met
    STRAIT_SWARM_RESTORED,   // all stages stand at `step`; a goal that was under way is forgotten
    STRAIT_SWARM_LOG, // for the log: `reason` about `worker`, which owned `stage`; -1: nobody, none
} strait_swarm_action_kind;

typedef struct strait_swarm_action {
    strait_swarm_action_kind kind;
    int worker, stage;
    int64_t step;
    /* With an order to restore: where from, and to which neighbours to give copies. */
    strait_swarm_source source;
    int gives_prev, gives_next;
    const char *reason; // static
} strait_swarm_action;

typedef struct strait_swarm_actions {
    strait_swarm_action items[STRAIT_SWARM_ACTIONS];
    int n;
} strait_swarm_actions;

typedef struct strait_swarm_config {
    int n_stages;
    int64_t lease_ns;         // silence of a worker's computing thread; grows with its pauses
    int64_t stall_timeout_ns; // without progress and without a neighbour to wait for; likewise
    int64_t setup_timeout_ns; // for an order that makes a stage
    int64_t owner_wait_ns;    // after a restart, for the owners of before
    double need_bytes[STRAIT_RUN_STAGES]; // of each stage; 0: unknown
} strait_swarm_config;

/* What outlives the coordinator: see strait_coordinator_resume. */
typedef struct strait_swarm_durable {
    uint32_t generation;
    int64_t committed; // steps that every stage has applied
    int64_t settled;   // of these, those after which everything else was done too
    strait_fingerprint owners[STRAIT_RUN_STAGES];
    int has_owner[STRAIT_RUN_STAGES];
    int64_t rolled[STRAIT_SWARM_GENERATIONS]; // step that epoch e began from, at e % EPOCHS
} strait_swarm_durable;

struct strait_coordinator { // plain data; read it freely, change it through step() only
    strait_swarm_config config;
    strait_swarm_worker workers[STRAIT_SWARM_WORKERS];
    int owner[STRAIT_RUN_STAGES]; // a worker; -1: none
    strait_swarm_phase phase;
    uint32_t generation, sequence;
    int has_started;
    int is_awaited[STRAIT_RUN_STAGES]; // its reply has not come
    int64_t began_ns;                  // of the phase
    int64_t not_before_ns;             // of the next epoch
    int64_t hold_ns;                   // until then absent owners may come back
    int n_failures;                    // epochs in a row that came to nothing
    int is_short;                      // it was said that machines are missing
    strait_swarm_goal goal;
    int64_t step;       // where the stages stand
    int64_t checkpoint; // step that the driver can restore any stage to; -1: none
    int64_t limit;      // of the next restore; -1: none
    int64_t committed, settled;
    int64_t rolled[STRAIT_SWARM_GENERATIONS];
    uint32_t forgotten; // the newest epoch that began from a step and is no longer in `rolled`
};

void strait_coordinator_init(struct strait_coordinator *c, const strait_swarm_config *config);

/* Goes on with the facts of an earlier coordinator. */
void strait_coordinator_resume(struct strait_coordinator *c, const strait_swarm_durable *facts,
                               int64_t now_ns);
void strait_coordinator_durable(const struct strait_coordinator *c, strait_swarm_durable *out);

/* The one transition. *out is overwritten. */
void strait_coordinator_step(struct strait_coordinator *c, const strait_swarm_event *event,
                             int64_t now_ns, strait_swarm_actions *out);

/* The worker with this key; -1: none. */
int strait_coordinator_find(const struct strait_coordinator *c, const strait_fingerprint *key);

/* The place of this key, made if there is none yet; -1: the swarm is full. */
int strait_coordinator_admit(struct strait_coordinator *c, const strait_fingerprint *key);

/* How many workers are here and own nothing. */
int strait_coordinator_count_spares(const struct strait_coordinator *c);

const char *strait_coordinator_phase_name(strait_swarm_phase phase);
