/* driver.h - audits of a running host: carries out what audits.h decides.
 *
 * The executor reports steps (intervals.c), workers' messages bring commitments and evidence
 * (gather.c), spares compute intervals again (auditors.c), and verdicts ban workers and make the
 * run return to before a lie (verdicts.c). A step takes no longer because an interval is audited:
 * nothing here waits, but for the evidence against replicas that hold different states
 * (strait_host_audit_check). Functions do nothing where h->audits is NULL. */
#pragma once

#include "swarm/host/audit/audits.h"
#include "swarm/host/audit/evidence.h"
#include "swarm/host/verify/replay_check.h"

struct host;
struct connection;

enum {
    STRAIT_AUDIT_STEPS = 4096, // whose updates are remembered: longer intervals are not audited
    STRAIT_AUDIT_ROWS = 256,   // the same of steps whose rows are kept, where stages have replicas
    STRAIT_AUDIT_WITHHELD = 256, // workers whose refusals are counted
    STRAIT_AUDIT_REFUSALS = 3,   // after which a stage moves to another worker
    STRAIT_AUDIT_SPARES = 2      // that do not become replicas: as many as contradict an owner
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

/* What all replicas stated of one step; work.c. */
struct host_work_step {
    strait_group_owners *owners; // of the groups, by stage
    strait_digest **rows;        // by stage (commitment.h)
};

/* Whoever has a part of what an audit needs. */
struct host_givers {
    strait_fingerprint keys[STRAIT_WORK_REPLICAS]; // by replica
    int n;
};

/* A worker that did not give what audits need, or that the run waited for (patience.c), or that did
 * not reply as an auditor (silence.c). */
struct host_withheld {
    strait_fingerprint key;
    int is_used;
    int n;              // refusals, less those that it made up for
    int64_t n_ticks;    // the tick that the last one was counted in that audits ended for by time
    int n_given;        // audits since the last one that it gave everything for
    int64_t waited_ns;  // that the run stood still for it, less what it has regained
    int64_t credit_ns;  // in the wait in progress: what its bytes may take, less what they took
    int64_t charged_ns; // when waited_ns was last changed
    int was_given_up;   // it was given up in the wait in progress
    int64_t left_ns;    // when it asked to leave, and has not been asked for anything since; 0: not
    int64_t excused_ns; // left_ns of the last one that was excused
    int n_left;         // times that it did after it was asked for something, which were excused
    int n_left_early;   // times that it had asked to leave before, which were excused
    int n_silent; // audits that it did not reply to or failed, less those that it has computed
                  // since
    int64_t rests_until_ns; // it gets no audit before, if there is another spare
};

/* What the host knows of an open audit besides its state. */
struct host_audit {
    uint32_t id; // 0: none
    struct strait_evidence evidence;
    struct host_givers givers[STRAIT_EVIDENCE_PARTS];
    /* Messages that each giver may still send without regard to its rate limit, and those with
     * pieces of `ends`. */
    int64_t n_due[STRAIT_EVIDENCE_PARTS][STRAIT_WORK_REPLICAS];
    int64_t n_due_ends;
    /* The same when they were asked. */
    int64_t n_asked[STRAIT_EVIDENCE_PARTS][STRAIT_WORK_REPLICAS];
    int64_t n_asked_ends;
    struct host_audit_step *steps;
    /* Where stages have replicas: what they stated of each step. NULL: none has. */
    struct host_work_step *work;
    strait_work_shape shape; // of the rows of the stage
    int n_stages;            // that `work` is of
    /* Of the attempt in progress: what the spare says should have been done, so far. */
    strait_commitment so_far;
    strait_audit_result result;
    unsigned blamed;
    char kernels[STRAIT_REPLAY_KERNELS]; // that the owner computed with; empty: not a CPU
    /* Of devices that round differently: the snapshots at the end, by vote. Zeroed: digests are
     * compared. */
    struct strait_evidence ends[STRAIT_AUDIT_VOTES];
    /* The run went back to before the interval, for its replicas that contradict each other or for
     * another audit; and which of its replicas have had a stage since, as bits, from which step. */
    int has_returned;
    unsigned took_part;
    int64_t part_from[STRAIT_WORK_REPLICAS];
    int is_overwritten; // workers compute its steps again, and may keep other bytes of them
    int auditor;        // slot of the spare; -1: none
    int awaited;        // strait_task_kind of its next reply
    uint32_t sequence;  // of all tasks of this attempt
    int64_t next_step;  // to be sent to it
    size_t n_sent;      // bytes of the snapshot
    /* Bytes that were queued for the auditor or came from it; how many of them had crossed the link
     * when it was last found at work, and when that was. */
    int64_t n_queued, n_crossed, heard_ns;
};

struct host_audits {
    strait_audits state;
    struct host_audit open[STRAIT_AUDITS_OPEN];
    struct host_audit_step steps[STRAIT_AUDIT_STEPS];
    strait_digest reports[STRAIT_RUN_STAGES]; // of the interval in progress
    struct host_statements *work;             // what workers stated; NULL: no memory for it
    int64_t told_steps;                       // of the interval whose probabilities were logged
    struct host_withheld withheld[STRAIT_AUDIT_WITHHELD];
    int64_t n_ticks;     // so far
    int64_t ticked_ns;   // when the time of audits that wait was last checked; 0: never
    uint32_t n_attempts; // of spares to compute an interval
    int has_told_gpus;   // that they stay spares
    int64_t rewind_to;   // the run returns to this step or before; -1: it does not
    strait_fingerprint guilty[STRAIT_AUDIT_GUILTY]; // owners and replicas to be banned then
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
/* Whether a snapshot must end the interval at `step`: workers keep what audits need of so many
 * steps, and who is slow to copy snapshots must not put audits off. */
int strait_host_audit_is_due(const struct host *h, int64_t step);
/* The step ended: with an update or, is_skipped, without. has_snapshot: an interval ends with it.
 */
void strait_host_audit_step(struct host *h, int64_t step, float factor, int is_skipped,
                            int has_snapshot);

/* ---- work.c: what workers state about each step ---- */
/* A worker stated what it did. STRAIT_EPROTO: the message is malformed. */
strait_err strait_host_audit_work(struct host *h, struct connection *connection,
                                  const struct strait_msg *msg);
/* A replica, or the owner, committed to a snapshot. */
void strait_host_audit_replica(struct host *h, int stage, int replica,
                               const strait_commitment_message *message);
/* Compares what all stated about the step that was computed, and keeps it. STRAIT_EAGAIN: some are
 * missing or contradict each other, so the step is computed again. */
strait_err strait_host_audit_compare(struct host *h, int64_t step);
/* A new interval begins. is_agreed: all replicas have the state that its snapshots are of. */
void strait_host_work_begin(struct host *h, int is_agreed);
/* The same, when another one has ended at `to`. Not to commit is a violation by that replica; those
 * that committed to different snapshots contradict each other, unless an audit finds out who is at
 * fault. */
void strait_host_work_next(struct host *h, int64_t to);
/* Completes what is known about all stages with what workers stated. Returns 0 if that is
 * not known of all steps up to `to`. */
int strait_host_work_end(struct host *h, int64_t to, strait_interval_stage *stages);
/* Whether stages have replicas in this generation. */
int strait_host_work_is_shared(const struct host *h);
/* Gives an audit of the interval that has just ended what was stated about it. */
strait_err strait_host_work_copy(struct host *h, struct host_audit *a);
void strait_host_work_drop(struct host_audit *a);
void strait_host_work_close(struct host *h);
/* Returns the replica that gives a crossing for an audit. */
int strait_host_work_giver(const struct host_audit *a, strait_evidence_part part, int64_t step,
                           int microbatch);
/* Takes the row of a spare for a step that it computed. */
strait_err strait_host_work_audited(struct host_audit *a, int64_t step, const strait_view *bytes);

/* ---- gather.c ---- */
/* Opens what belongs to an audit that was drawn, and asks for it. */
void strait_host_audit_gather(struct host *h, const strait_audit *audit);
/* Handles a commitment or what is given for audits. STRAIT_EPROTO: it is something else. */
strait_err strait_host_audit_message(struct host *h, struct connection *connection,
                                     const struct strait_msg *msg);
/* Returns whether the piece is part of what an audit asked for. */
int strait_host_audit_piece(struct host *h, struct connection *connection,
                            const strait_piece *piece);
/* Returns whether one of the givers of a part still has to give something of it. */
int strait_host_audit_lacks(const struct host_audit *a, strait_evidence_part part, int giver);
/* Opens the file for a snapshot at the end of the interval, of vote `i`. */
strait_err strait_host_audit_open_end(struct host *h, struct host_audit *a, int i);
struct host_audit *strait_host_audit_find(struct host *h, uint32_t id);

/* ---- due.c ---- */
/* Returns how many messages with pieces of a snapshot of so many bytes may come. */
int64_t strait_host_audit_pieces(size_t bytes);
/* Counts what all givers may send. */
void strait_host_audit_expect(struct host_audit *a);
/* Returns which of the givers of a part the worker is; -1: none of them. */
int strait_host_audit_giver(const struct host *h, const struct connection *connection,
                            const struct host_audit *a, strait_evidence_part part);
/* Returns whether the snapshot at the end of an interval expects pieces. */
int strait_host_audit_is_open(const struct strait_evidence *end);
/* Returns whether a message may be part of what this worker was asked for, and counts it: as many
 * as that takes are expected, as many again, and those of audits that were given up. */
int strait_host_audit_expects(struct host *h, struct connection *connection,
                              const struct strait_msg *msg);
/* The audit ends, or the attempt of its auditor: what has not arrived may still come. */
void strait_host_audit_excuse(struct host *h, struct host_audit *a);
void strait_host_audit_excuse_end(struct host *h, struct host_audit *a);

/* ---- patience.c ---- */
/* A worker did not give what an audit needs. After STRAIT_AUDIT_REFUSALS it loses its stage. */
void strait_host_audit_withheld(struct host *h, const strait_fingerprint *key, const char *reason);
/* Audits end because of this worker in this tick. Returns whether that is the first one: all that
 * wait for it end together when its link is cut, or when one moment is too late, and that is
 * counted once. */
int strait_host_audit_counts(struct host *h, const strait_fingerprint *key);
/* All that an audit needs is here. */
void strait_host_audit_gave(struct host *h, const struct host_audit *a);
/* A worker gave bytes that were needed. */
void strait_host_audit_heard(struct host *h, int worker, size_t bytes);
/* Gives up audits that were not given what they need in the time that all have for it. If this was
 * not called for some seconds, the host was stopped, and that time does not count. */
void strait_host_audit_end_overdue(struct host *h, int64_t now_ns);
/* Where replicas committed to different snapshots: waits for what audits need. Those that are
 * silent are given up, and the audits with them. */
strait_err strait_host_audit_await(struct host *h);

/* A worker is asked for something; it asks to leave. */
void strait_host_audit_asked(struct host *h, const strait_fingerprint *key);
void strait_host_audit_leaves(struct host *h, int worker);
/* A worker left before it gave what it was asked for at `asked_ns`. Returns whether that is
 * excused: it does so for the first time, or it had asked to leave before, and could not know what
 * would be drawn, though perhaps when: that is excused some times. A link that was cut is no
 * excuse. */
int strait_host_audit_excuses_leave(struct host *h, const strait_fingerprint *key,
                                    int64_t asked_ns);
/* What is remembered of a worker; strait_host_audit_record makes an entry if there is none. */
struct host_withheld *strait_host_audit_find_record(struct host_audits *audits,
                                                    const strait_fingerprint *key);
struct host_withheld *strait_host_audit_record(struct host_audits *audits,
                                               const strait_fingerprint *key);

/* ---- silence.c ---- */
/* Returns whether the auditor has not replied to its task, nor taken or sent bytes at the rate of a
 * slow link, for as long as the task may take. */
int strait_host_audit_is_silent(struct host *h, struct host_audit *a, int64_t now_ns);
/* It gets no audit for a while, if there is another spare. */
void strait_host_audit_rest(struct host *h, const strait_fingerprint *key, int64_t now_ns);
/* The same of one that was silent; if its heartbeats arrive, it loses what its word weighs. */
void strait_host_audit_count_silence(struct host *h, const strait_fingerprint *key, int64_t now_ns);
/* It has computed one. */
void strait_host_audit_computed(struct host *h, const strait_fingerprint *key);
/* Returns whether it does not rest. */
int strait_host_audit_may_ask(struct host *h, const strait_fingerprint *key, int64_t now_ns);

/* ---- auditors.c ---- */
/* Takes the reply to a task of an audit. Returns whether it is one. */
int strait_host_audit_reply(struct host *h, struct connection *connection,
                            const strait_task_reply *reply);
/* Returns whether a spare computes one now. */
int strait_host_is_auditing(const struct host *h, int worker);
/* Interrupts all spares that compute one: they begin again later. */
void strait_host_audit_interrupt(struct host *h);
/* Gives waiting audits to spares, continues sending, and gives up what takes too long. */
void strait_host_audit_tick(struct host *h, int64_t now_ns);

/* ---- verdicts.c ---- */
/* Returns an open audit of replicas that committed to different snapshots, if the run has not gone
 * back for it; NULL: there is none. */
const strait_audit *strait_host_audit_contested(struct host *h);
/* Returns an audit of steps after `limit` whose evidence is not all here; NULL: there is none. */
const strait_audit *strait_host_audit_gathering(const struct host *h, int64_t limit);
/* Returns the name of a worker, for messages. */
const char *strait_host_audit_name(const struct host *h, const strait_fingerprint *key);
void strait_host_audit_judge(struct host *h, const strait_verdict *verdict);
/* Gives an audit up because of what a worker did or did not do. */
void strait_host_audit_drop(struct host *h, uint32_t id, const strait_fingerprint *worker,
                            const char *reason);
/* Before a step or a checkpoint: STRAIT_EAGAIN if the run returns to an earlier step. The caller
 * ends the session, and begins it again as after a restart. Where replicas committed to different
 * snapshots it first waits until what their audit needs is here (strait_host_audit_await). */
strait_err strait_host_audit_check(struct host *h);
/* At the end of the run: waits some time for the audits that are open. The same error. */
strait_err strait_host_audit_finish(struct host *h);
