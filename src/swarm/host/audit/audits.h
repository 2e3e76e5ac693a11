/* audits.h - which intervals of which stages are recomputed by spares, and who is at fault when the
 * results differ.
 *
 * One state machine without clock, memory or network, like the coordinator; host/audit/driver.c
 * executes what it decides. An interval is the steps between two snapshots. When it ends:
 *
 *   1. The owners of all stages have committed to what they sent, received and hold.
 *   2. Each stage is drawn with probability `share`, by an HMAC of all commitments under a key that
 *      only this host knows: who is audited is not known before, and cannot be influenced.
 *   3. What a spare needs to recompute the interval is gathered from the owner and its neighbours.
 *   4. A spare recomputes it and replies with its result. It is never told what is expected.
 *   5. If results differ, further spares compute it too, until two agree. Everyone else is at
 * fault.
 *
 *     gathering -> waiting <-> running -> verdict
 *
 * The two ends of each boundary agree about what crossed it: they state it in every step, and the
 * driver compares that before the step is applied (work.c). What they commit to of it does not
 * count.
 *
 * Where a stage has replicas (commitment.h), all of them together are what is audited: a spare
 * computes what they should have done, step by step. Who was the first to do something else is at
 * fault, since the others went on from what it gave them.
 *
 * No honest worker is found at fault unless two of those that computed the interval lie alike. The
 * lie that is easiest to tell alike, the digest of the snapshot that a spare was given, agrees with
 * nobody. */
#pragma once

#include "config/run.h"
#include "net/core/identity.h"
#include "swarm/commitment.h"

enum {
    STRAIT_AUDIT_KEY_BYTES = 32,
    STRAIT_AUDITS_OPEN = 16,   // at once: the host stores what they need
    STRAIT_AUDIT_VOTES = 5,    // results of one audit: the owner's, and of up to four spares
    STRAIT_AUDIT_EXCLUDED = 8, // spares that left or failed while they computed one
    STRAIT_AUDIT_GUILTY = STRAIT_AUDIT_VOTES + STRAIT_WORK_REPLICAS // by one verdict
};

typedef enum strait_audit_phase {
    STRAIT_AUDIT_CLOSED,
    STRAIT_AUDIT_GATHERING, // snapshot and crossings, from the owners
    STRAIT_AUDIT_WAITING,   // for a spare
    STRAIT_AUDIT_RUNNING
} strait_audit_phase;

typedef struct strait_audit_vote {
    strait_fingerprint key;
    strait_audit_result result;
    unsigned blamed; // by a spare: replicas that were first to do something else, as bits
} strait_audit_vote;

/* A replica of a stage in an interval. */
typedef struct strait_audit_replica {
    strait_fingerprint key;
    strait_digest snapshot; // that it committed to
} strait_audit_replica;

typedef struct strait_audit {
    strait_audit_phase phase;
    uint32_t id;
    int stage;
    strait_digest start;                         // of the snapshot at commitment.from
    strait_commitment commitment;                // of the owner
    strait_audit_vote votes[STRAIT_AUDIT_VOTES]; // the first is the owner's
    int n_votes;
    /* Of the stage, the owner first; and whether they committed to different snapshots: the owner's
     * vote does not count then. */
    strait_audit_replica replicas[STRAIT_WORK_REPLICAS];
    int n_replicas, is_contested;
    strait_fingerprint auditor; // while running
    strait_fingerprint excluded[STRAIT_AUDIT_EXCLUDED];
    int n_excluded;
    int64_t since_ns; // in this phase
} strait_audit;

/* How long each phase may take. */
typedef struct strait_audit_limits {
    int64_t gather_ns, wait_ns, run_ns;
} strait_audit_limits;

/* Plain data; only the functions below change it, except `limits`. */
typedef struct strait_audits {
    int n_stages;
    double share; // of all stage-steps that are audited; 0: none
    unsigned char key[STRAIT_AUDIT_KEY_BYTES];
    strait_audit_limits limits;
    int64_t from;        // the interval in progress; -1: it is not known where it began
    uint32_t generation; // in which it began
    int has_commitment[STRAIT_RUN_STAGES];
    strait_commitment commitments[STRAIT_RUN_STAGES];
    strait_audit items[STRAIT_AUDITS_OPEN];
    uint32_t n_opened;
    int64_t n_intervals, n_approved, n_convicted, n_dropped; // so far
} strait_audits;

typedef enum strait_verdict_kind {
    STRAIT_VERDICT_NONE,     // there is none yet
    STRAIT_VERDICT_APPROVED, // the owner's result is right
    STRAIT_VERDICT_GUILTY,   // somebody's is wrong
    STRAIT_VERDICT_DROPPED   // it cannot be told
} strait_verdict_kind;

typedef struct strait_verdict {
    strait_verdict_kind kind;
    uint32_t id;
    int stage;
    int64_t from, to;
    strait_fingerprint guilty[STRAIT_AUDIT_GUILTY];
    int n_guilty;
    /* Two replicas that contradict each other, if it was for that and came to nothing. */
    int is_contested;
    strait_fingerprint contested[2];
    int is_run_affected; // an owner or a replica is among them: what was computed from `from` on is
                         // not trusted
    unsigned at_fault;  // which replicas of the stage are among them, as bits; the first: its owner
    const char *reason; // of DROPPED; static text
} strait_verdict;

/* What the host itself knows about one stage at the end of an interval. */
typedef struct strait_interval_stage {
    strait_fingerprint owner;
    strait_digest start;   // of the snapshot at the beginning; zeros: the seed
    strait_digest reports; // of strait_audit_result, as the owner reported
    strait_digest sums;    // likewise, as replicas stated it; zeros: there is one
    /* All replicas, the owner first; none: the owner is the only one. */
    strait_audit_replica replicas[STRAIT_WORK_REPLICAS];
    int n_replicas;
} strait_interval_stage;

/* What came of an interval that ended. */
typedef struct strait_interval_end {
    int is_complete;                   // all owners committed to it
    int is_missing[STRAIT_RUN_STAGES]; // the owner did not
    int n_drawn;
    int n_skipped; // drawn, but STRAIT_AUDITS_OPEN are open already
} strait_interval_end;

/* Returns the probability that at least one of n lies, each in another interval, is drawn. */
double strait_audit_detection(double share, double n);

/* `audits` is zeroed here. The key is random and secret. */
void strait_audits_init(strait_audits *audits, int n_stages, double share,
                        const unsigned char key[STRAIT_AUDIT_KEY_BYTES]);

/* All stages are at `step`, of which there are snapshots, and an interval begins; -1: there are
 * none, and the next interval that begins is the first to be audited. */
void strait_audits_begin(strait_audits *audits, int64_t step, uint32_t generation);

/* The owner of `stage` committed. Returns why that is impossible; NULL: it is possible. */
const char *strait_audits_commit(strait_audits *audits, int stage, uint32_t generation,
                                 const strait_commitment *commitment);

/* Replaces the digests of crossings that the owner committed to by those that were stated in each
 * step, by all replicas. */
void strait_audits_amend(strait_audits *audits, int stage, const strait_commitment *crossings);

/* The interval ends at `step`: opens audits for the stages drawn, and begins the next interval.
 * `ends` has one entry per stage. */
void strait_audits_end_interval(strait_audits *audits, int64_t step,
                                const strait_interval_stage *ends, int64_t now_ns,
                                strait_interval_end *out);

/* Returns the open audit with this id; NULL: there is none. */
strait_audit *strait_audits_find(strait_audits *audits, uint32_t id);

/* Everything that a spare needs was gathered. */
void strait_audits_gathered(strait_audits *audits, uint32_t id, int64_t now_ns);

/* Returns which of the candidates computes a waiting audit, which thereby runs; -1: none of them
 * may. The choice is as secret as the draw. */
int strait_audits_assign(strait_audits *audits, uint32_t id, const strait_fingerprint *candidates,
                         int n, int64_t now_ns);

/* A spare that runs an audit replied. `blamed`: which replicas it contradicts (strait_work_blame).
 */
void strait_audits_vote(strait_audits *audits, uint32_t id, const strait_fingerprint *key,
                        const strait_audit_result *result, unsigned blamed, int64_t now_ns,
                        strait_verdict *out);

/* It left, failed, or owns a stage now: another one computes the audit. */
void strait_audits_lost(strait_audits *audits, uint32_t id, int64_t now_ns, strait_verdict *out);

/* The host itself interrupted it: anyone may compute it later, the same spare included. */
void strait_audits_release(strait_audits *audits, uint32_t id, int64_t now_ns);

/* Writes two replicas of a contested audit that committed to different snapshots, the owner first.
 */
void strait_audit_contested(const strait_audit *audit, strait_fingerprint out[2]);

/* Gives an audit up. `reason` is static text. */
void strait_audits_drop(strait_audits *audits, uint32_t id, const char *reason,
                        strait_verdict *out);

/* Time has passed: writes the first audit that has to be dropped for it. Call it until *out is
 * STRAIT_VERDICT_NONE. An auditor that takes too long is replaced. */
void strait_audits_tick(strait_audits *audits, int64_t now_ns, strait_verdict *out);
