/* patience.c - workers that do not give what audits need: how often each of them has not, and for
 * how long the run stood still for it.
 *
 * Not giving is no proof of a lie: memory is limited and links are slow. But a worker that never
 * sends evidence is never audited, so its stage moves after some refusals. Those whom the run waits
 * for must send, at the rate of a slow link; each of them may be silent for ten seconds, and for a
 * hundredth of the time in all. One that asks to leave may have a reason of its own. */
#include "base/clock.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#define SECOND_NS INT64_C(1000000000)

enum {
    PUMP_MS = 100,
    CHARGED_MS = 5 * PUMP_MS, // of one turn: more than that is the host's own delay
    STOPPED_MS = 2000,        // between two checks: the host itself was blocked or stopped
    TIMEOUT_REFUSALS = 2,     // refusals that a timeout counts for
    FORGIVING = 32,           // audits given in full that undo one refusal, or all early leaves
    EARLY_LEAVES = 4,         // before an interval ends, which are excused
    REGAINED = 100            // of so much time one part may be spent on waiting for a worker
};

static const int64_t patience_ns = 10 * SECOND_NS;
static const double slowest = 62.5e3; // bytes per second of a giver that is not silent

/* ---- what is remembered of a worker ---- */

struct host_withheld *strait_host_audit_find_record(struct host_audits *audits,
                                                    const strait_fingerprint *key) {
    for (int i = 0; i < STRAIT_AUDIT_WITHHELD; i++)
        if (audits->withheld[i].is_used && strait_fingerprint_equal(&audits->withheld[i].key, key))
            return &audits->withheld[i];
    return NULL;
}

static int weight(const struct host_withheld *record) {
    return record->n + record->n_left + record->n_left_early + record->n_silent;
}

/* Replaces the record with the fewest faults: new keys must not displace records of faults. */
struct host_withheld *strait_host_audit_record(struct host_audits *audits,
                                               const strait_fingerprint *key) {
    struct host_withheld *record = strait_host_audit_find_record(audits, key);
    struct host_withheld *least = &audits->withheld[0];
    if (record != NULL) return record;
    for (int i = 0; i < STRAIT_AUDIT_WITHHELD && least->is_used; i++) {
        struct host_withheld *other = &audits->withheld[i];
        const int n = weight(other), n_least = weight(least);
        if (!other->is_used || n < n_least || (n == n_least && other->waited_ns < least->waited_ns))
            least = other;
    }
    *least = (struct host_withheld){.key = *key, .is_used = 1};
    return least;
}

/* ---- refusals ---- */

static void count_refusals(struct host *h, const strait_fingerprint *key, int n,
                           const char *reason) {
    struct host_withheld *record = strait_host_audit_record(h->audits, key);
    const int slot = strait_coordinator_find(&h->coordinator, key);
    strait_host_note(h, "%s: %s", strait_host_audit_name(h, key), reason);
    record->n += n;
    record->n_given = 0;
    if (record->n < STRAIT_AUDIT_REFUSALS || slot < 0) return;
    record->n = 0;
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = slot});
}

void strait_host_audit_withheld(struct host *h, const strait_fingerprint *key, const char *reason) {
    count_refusals(h, key, 1, reason);
}

int strait_host_audit_counts(struct host *h, const strait_fingerprint *key) {
    struct host_withheld *record = strait_host_audit_record(h->audits, key);
    const int is_first = record->n_ticks != h->audits->n_ticks;
    record->n_ticks = h->audits->n_ticks;
    return is_first;
}

/* A worker that could make up for each refusal by giving once would give what is right, and refuse
 * what is not. The same number makes up for having lost the right to a stage, which it may have
 * kept because there is no spare. */
static void count_given(struct host *h, const strait_fingerprint *key) {
    const int slot = strait_coordinator_find(&h->coordinator, key);
    const int withholds = slot >= 0 && h->coordinator.workers[slot].standing.withholds;
    struct host_withheld *record = withholds ? strait_host_audit_record(h->audits, key)
                                             : strait_host_audit_find_record(h->audits, key);
    if (record == NULL || record->n + record->n_left + record->n_left_early + withholds == 0)
        return;
    if (++record->n_given % FORGIVING != 0) return;
    record->n -= record->n > 0;
    record->n_left -= record->n_left > 0;
    record->n_left_early = 0;
    if (withholds)
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_GAVE, .worker = slot});
}

void strait_host_audit_gave(struct host *h, const struct host_audit *a) {
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        for (int i = 0; i < a->givers[part].n; i++)
            if (a->n_asked[part][i] > 0) count_given(h, &a->givers[part].keys[i]);
}

/* ---- leaving ---- */

void strait_host_audit_asked(struct host *h, const strait_fingerprint *key) {
    struct host_withheld *record = strait_host_audit_find_record(h->audits, key);
    const int slot = strait_coordinator_find(&h->coordinator, key);
    if (record != NULL && slot >= 0 && !h->coordinator.workers[slot].is_leaving)
        record->left_ns = 0; // it has come back since
}

void strait_host_audit_leaves(struct host *h, int worker) {
    if (h->audits == NULL || strait_coordinator_stage_of(&h->coordinator, worker) < 0) return;
    strait_host_audit_record(h->audits, &h->coordinator.workers[worker].key)
        ->left_ns = strait_clock_ns();
}

int strait_host_audit_excuses_leave(struct host *h, const strait_fingerprint *key,
                                    int64_t asked_ns) {
    struct host_withheld *record = strait_host_audit_find_record(h->audits, key);
    if (record == NULL || record->left_ns == 0) return 0;
    if (record->left_ns == record->excused_ns) return 1;
    const int is_early = record->left_ns <= asked_ns;
    int *n = is_early ? &record->n_left_early : &record->n_left;
    if (*n >= (is_early ? EARLY_LEAVES : 1)) return 0;
    ++*n;
    record->excused_ns = record->left_ns; // for all audits that wait for it
    return 1;
}

/* Returns whether one of the givers of a part still owes something, its end included. */
static int owes(const struct host_audit *a, int part, int giver) {
    return strait_host_audit_lacks(a, (strait_evidence_part)part, giver) ||
           (part == STRAIT_EVIDENCE_SNAPSHOT && strait_host_audit_is_open(&a->ends[0]));
}

/* What workers sent while the host was stopped is still in the sockets. */
static void excuse_stop(struct host_audits *audits, int64_t now_ns) {
    const int64_t stopped = audits->ticked_ns != 0 ? now_ns - audits->ticked_ns : 0;
    audits->ticked_ns = now_ns;
    for (int i = 0; i < STRAIT_AUDITS_OPEN && stopped > STOPPED_MS * INT64_C(1000000); i++) {
        strait_audit *audit = &audits->state.items[i];
        if (audit->phase == STRAIT_AUDIT_GATHERING && audit->since_ns + stopped <= now_ns)
            audit->since_ns += stopped;
        audits->open[i].heard_ns += stopped;
    }
}

void strait_host_audit_end_overdue(struct host *h, int64_t now_ns) {
    static const char reason[] = "did not send the evidence of an audit in time";
    excuse_stop(h->audits, now_ns);
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        const struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase != STRAIT_AUDIT_GATHERING || a == NULL ||
            now_ns - audit->since_ns <= h->audits->state.limits.gather_ns)
            continue;
        for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
            for (int k = 0; k < a->givers[part].n; k++)
                if (owes(a, part, k) && strait_host_audit_counts(h, &a->givers[part].keys[k]))
                    count_refusals(h, &a->givers[part].keys[k], 1, reason);
        strait_host_audit_drop(h, audit->id, NULL, "a worker did not send its evidence in time");
    }
}

/* ---- a run that waits ---- */

void strait_host_audit_heard(struct host *h, int worker, size_t bytes) {
    struct host_withheld *record = strait_host_audit_find_record(
        h->audits, &h->coordinator.workers[worker].key);
    if (record != NULL) record->credit_ns += (int64_t)((double)bytes / slowest * SECOND_NS);
}

/* The run has waited for `ns` more. */
static void charge(struct host_withheld *record, int64_t ns, int64_t now_ns) {
    if (record->charged_ns == now_ns) return; // for another audit
    const int64_t regained = (now_ns - record->charged_ns) / REGAINED;
    const int64_t excused = ns < record->credit_ns ? ns : record->credit_ns;
    record->waited_ns = record->waited_ns > regained ? record->waited_ns - regained : 0;
    record->waited_ns += ns - excused;
    record->credit_ns -= excused;
    record->charged_ns = now_ns;
}

static void charge_givers(struct host *h, int64_t ns, int64_t now_ns) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        const struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase != STRAIT_AUDIT_GATHERING || a == NULL) continue;
        for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
            for (int k = 0; k < a->givers[part].n; k++)
                if (owes(a, part, k))
                    charge(strait_host_audit_record(h->audits, &a->givers[part].keys[k]), ns,
                           now_ns);
    }
}

/* Returns a worker that the run waited for long enough, and the audit; NULL: there is none. */
static struct host_withheld *find_silent(struct host *h, uint32_t *id) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        const struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase != STRAIT_AUDIT_GATHERING || a == NULL) continue;
        for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
            for (int k = 0; k < a->givers[part].n; k++) {
                struct host_withheld *record = strait_host_audit_find_record(
                    h->audits, &a->givers[part].keys[k]);
                if (record == NULL || record->waited_ns <= patience_ns || !owes(a, part, k))
                    continue;
                *id = audit->id;
                return record;
            }
    }
    return NULL;
}

static void give_up_silent(struct host *h) {
    struct host_withheld *record;
    uint32_t id = 0;
    while ((record = find_silent(h, &id)) != NULL) {
        const strait_fingerprint key = record->key;
        if (!record->was_given_up)
            count_refusals(h, &key, TIMEOUT_REFUSALS,
                           "the run waited too long for its audit evidence");
        record->was_given_up = 1;
        strait_host_audit_drop(h, id, NULL, "a worker stopped sending evidence");
    }
}

strait_err strait_host_audit_await(struct host *h) {
    int64_t last = strait_clock_ns();
    for (int i = 0; i < STRAIT_AUDIT_WITHHELD; i++)
        h->audits->withheld[i].was_given_up = 0, h->audits->withheld[i].credit_ns = 0;
    while (strait_host_audit_contested(h) != NULL && strait_host_audit_gathering(h, -1) != NULL &&
           !h->spec->session.must_stop(h->spec->session.user)) {
        STRAIT_TRY(strait_host_pump(h, PUMP_MS));
        const int64_t now = strait_clock_ns(), most = CHARGED_MS * INT64_C(1000000);
        charge_givers(h, now - last < most ? now - last : most, now);
        give_up_silent(h);
        last = now;
    }
    return STRAIT_OK;
}
