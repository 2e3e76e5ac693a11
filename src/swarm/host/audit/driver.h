/* driver.h - audits of a running host: carries out what audits.h decides.
 *
 * The executor reports steps (intervals.c), workers' messages bring commitments and evidence
 * (gather.c), spares compute intervals again (auditors.c), and verdicts ban workers and make the
 * run return to before a lie (verdicts.c). Nothing here waits: a step takes no longer because an
 * interval is audited. Functions do nothing where h->audits is NULL. */
#pragma once

#include "swarm/host/audit/audits.h"
#include "swarm/host/audit/evidence.h"
#include "swarm/host/verify/replay_check.h"

struct host;
struct connection;

enum {
    STRAIT_AUDIT_STEPS = 4096,  // whose updates are remembered: longer intervals are not audited
    STRAIT_AUDIT_WITHHELD = 16, // workers whose refusals are counted
    STRAIT_AUDIT_REFUSALS = 3   // in a row, after which a stage moves to another worker
};

/* How far the results of two honest workers may be apart (strait_evidence_distance) where devices
 * round differently. */
#define STRAIT_AUDIT_TOLERANCE 0.05

/* The update that ended a step. */
struct host_audit_step {
    int64_t step;
    float factor;
    int is_skipped;
};

/* What the host knows of an open audit besides its state. */
struct host_audit {
    uint32_t id; // 0: none
    struct strait_evidence evidence;
    strait_fingerprint givers[STRAIT_EVIDENCE_PARTS];
    struct host_audit_step *steps;
    char kernels[STRAIT_REPLAY_KERNELS]; // that the owner computed with; empty: not a CPU
    /* Of devices that round differently: the snapshots at the end, by vote. Zeroed: digests are
     * compared. */
    struct strait_evidence ends[STRAIT_AUDIT_VOTES];
    int auditor;       // slot of the spare; -1: none
    int awaited;       // strait_task_kind of its next reply
    uint32_t sequence; // of all tasks of this attempt
    int64_t next_step; // to be sent to it
    size_t n_sent;     // bytes of the snapshot
};

struct host_audits {
    strait_audits machine;
    struct host_audit open[STRAIT_AUDITS_OPEN];
    struct host_audit_step steps[STRAIT_AUDIT_STEPS];
    strait_digest reports[STRAIT_RUN_STAGES]; // of the interval in progress
    int64_t told_steps;                       // of the interval whose probabilities were logged
    struct {
        strait_fingerprint key;
        int n;
    } withheld[STRAIT_AUDIT_WITHHELD];
    int n_withheld;
    uint32_t n_attempts; // of spares to compute an interval
    int64_t rewind_to;   // the run returns to this step or before; -1: it does not
    strait_fingerprint guilty[STRAIT_AUDIT_VOTES + 1]; // owners to be banned then
    int n_guilty;
};

/* ---- intervals.c ---- */
/* Reads or creates the key, if the spec asks for audits, and logs what they find. */
strait_err strait_host_open_audits(struct host *h);
void strait_host_close_audits(struct host *h);
/* All stages are at `step` in a new generation. */
void strait_host_audit_restored(struct host *h, int64_t step);
/* The gradients of a step were accepted; the replies are still there. */
strait_err strait_host_audit_gradients(struct host *h, int64_t step);
/* The step ended: with an update or, is_skipped, without. has_snapshot: an interval ends with it.
 */
void strait_host_audit_step(struct host *h, int64_t step, float factor, int is_skipped,
                            int has_snapshot);

/* ---- gather.c ---- */
/* Opens what belongs to an audit that was drawn, and asks for it. */
void strait_host_audit_gather(struct host *h, const strait_audit *audit);
/* Handles a commitment or what is given for audits. STRAIT_EPROTO: it is something else. */
strait_err strait_host_audit_message(struct host *h, struct connection *connection,
                                     const struct strait_msg *msg);
/* Returns whether the piece is part of what an audit asked for. */
int strait_host_audit_piece(struct host *h, struct connection *connection,
                            const strait_piece *piece);
/* Returns whether this worker is giving something: as many messages as that takes are expected. */
int strait_host_audit_expects(const struct host *h, const struct connection *connection);
/* Opens the file for a snapshot at the end of the interval, of vote `i`. */
strait_err strait_host_audit_open_end(struct host *h, struct host_audit *a, int i);
struct host_audit *strait_host_audit_find(struct host *h, uint32_t id);

/* ---- auditors.c ---- */
/* Takes the reply to a task of an audit. Returns whether it is one. */
int strait_host_audit_reply(struct host *h, struct connection *connection,
                            const strait_task_reply *reply);
/* Interrupts all spares that compute one: they begin again later. */
void strait_host_audit_interrupt(struct host *h);
/* Gives waiting audits to spares, continues sending, and gives up what takes too long. */
void strait_host_audit_tick(struct host *h, int64_t now_ns);

/* ---- verdicts.c ---- */
void strait_host_audit_judge(struct host *h, const strait_verdict *verdict);
/* Gives an audit up because of what a worker did or did not do. */
void strait_host_audit_drop(struct host *h, uint32_t id, const strait_fingerprint *worker,
                            const char *reason);
/* Before a step: STRAIT_EAGAIN if the run returns to an earlier one. The caller ends the session,
 * and begins it again as after a restart. */
strait_err strait_host_audit_check(struct host *h);
/* At the end of the run: waits some time for the audits that are open. The same error. */
strait_err strait_host_audit_finish(struct host *h);
