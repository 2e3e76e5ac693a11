/* silence.c - auditors that do not reply.
 *
 * An auditor is a spare, and nothing waits for it but the audit. It still must not decide how long
 * that takes: each task has a time that follows from what the run itself takes for a step and from
 * the bytes of the task, after which another spare gets the audit. The one that was silent loses
 * what its word weighs, since it may have seen that an accomplice is audited. It rests: for a while
 * that doubles it is asked only if there is no other spare. So does one that fails or leaves, which
 * loses nothing else, and one whose heartbeats do not arrive either: its link is at fault. */
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#define SECOND_NS INT64_C(1000000000)

enum {
    SLOWER = 8,        // times as long as the run a spare may take for a step
    REST_SHIFT_MAX = 6 // about ten hours
};

static const double reply_s = 10.0;   // for a reply, besides what it takes to compute
static const double setup_s = 30.0;   // to build a stage
static const double step_s = 60.0;    // of a run whose steps were not timed yet
static const double fill_bps = 20e6;  // bytes per second to fill a stage, or to hash it
static const double slowest = 62.5e3; // bytes per second of a link
static const double buffered =
    4194304.0; // bytes that sockets hold, of which the host hears nothing
static const int64_t beat_ns = 10 * SECOND_NS;  // without a heartbeat, which come every second
static const int64_t rest_ns = 600 * SECOND_NS; // after the first silence, doubling

/* All auditors share the uplink of the host. */
static double slowest_of(const struct host *h) {
    int n = 0;
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        n += h->audits->open[i].id != 0 && h->audits->open[i].auditor >= 0;
    return slowest / (n > 1 ? n : 1);
}

/* What crosses a link last is still on its way when the queue of the host is empty. */
static double on_the_way_s(const struct host *h, double bytes) {
    return (bytes < buffered ? bytes : buffered) / slowest_of(h);
}

/* Returns the seconds that the task in progress may take besides the bytes that cross meanwhile. */
static double limit_s(const struct host *h, const struct host_audit *a) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    const double measured = h->pace.step_s > 0.0 ? h->pace.step_s : step_s;
    const int n_replicas = a->shape.n_replicas > 1 ? a->shape.n_replicas : 1; // it computes for all
    const double bytes = (double)spec->snapshot_bytes;
    const double crossings = (double)(spec->crossing_bytes[0] + spec->crossing_bytes[1]) *
                             spec->groups.n_microbatches;
    if (a->awaited == STRAIT_TASK_AUDIT) return setup_s + bytes / fill_bps + on_the_way_s(h, bytes);
    if (a->awaited == STRAIT_TASK_AUDIT_STEP)
        return reply_s + SLOWER * measured * n_replicas + on_the_way_s(h, crossings);
    return reply_s + SLOWER * h->pace.snapshot_s + bytes / fill_bps;
}

/* Bytes that trickle are no progress: what counts is the rate since it was last found at work. */
int strait_host_audit_is_silent(struct host *h, struct host_audit *a, int64_t now_ns) {
    const struct connection *connection = strait_host_connection(h, a->auditor);
    const int64_t queued = connection != NULL ? (int64_t)connection->out.n_bytes : 0;
    const int64_t crossed = a->n_queued - queued, spent = now_ns - a->heard_ns;
    if (spent > 0 && crossed > a->n_crossed &&
        (double)(crossed - a->n_crossed) >= slowest_of(h) * (double)spent / SECOND_NS) {
        a->n_crossed = crossed;
        a->heard_ns = now_ns;
        return 0;
    }
    return (double)spent > limit_s(h, a) * SECOND_NS;
}

void strait_host_audit_rest(struct host *h, const strait_fingerprint *key, int64_t now_ns) {
    struct host_withheld *record = strait_host_audit_record(h->audits, key);
    record->rests_until_ns = now_ns + (rest_ns << record->n_silent);
    record->n_silent += record->n_silent < REST_SHIFT_MAX;
}

void strait_host_audit_count_silence(struct host *h, const strait_fingerprint *key,
                                     int64_t now_ns) {
    const int slot = strait_coordinator_find(&h->coordinator, key);
    strait_host_note(h, "%s: did not complete an audit in time; the audit is reassigned",
                     strait_host_audit_name(h, key));
    strait_host_audit_rest(h, key, now_ns);
    if (slot >= 0 && now_ns - h->coordinator.workers[slot].seen_ns <= beat_ns)
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_SILENT_AUDITOR, .worker = slot});
}

void strait_host_audit_computed(struct host *h, const strait_fingerprint *key) {
    struct host_withheld *record = strait_host_audit_find_record(h->audits, key);
    if (record != NULL) record->n_silent -= record->n_silent > 0;
}

int strait_host_audit_may_ask(struct host *h, const strait_fingerprint *key, int64_t now_ns) {
    const struct host_withheld *record = strait_host_audit_find_record(h->audits, key);
    return record == NULL || now_ns >= record->rests_until_ns;
}
