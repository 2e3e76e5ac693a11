/* intervals.c - what the host records of each step for audits, and what happens when an interval
 * ends. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "stage/boundary/crossing_log.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Neighbours keep so many crossings, and have the time of a third more to give them. */
    CROSSINGS_MAX = STRAIT_CROSSING_STEPS_MAX * 3 / 4
};

static const int64_t gather_ns = 120 * INT64_C(1000000000);
static const int64_t wait_ns = 600 * INT64_C(1000000000);
static const int64_t run_ns = 900 * INT64_C(1000000000);

/* ---- the key ---- */

/* Only its owner may read it: whoever knows it, knows in advance who is audited. */
static strait_err create_key(const char *path) {
    unsigned char key[STRAIT_AUDIT_KEY_BYTES];
    STRAIT_TRY(strait_identity_random(key, sizeof key));
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create the key of audits", path);
    const int is_written = write(fd, key, sizeof key) == (ssize_t)sizeof key && fsync(fd) == 0;
    (void)close(fd);
    return is_written ? STRAIT_OK
                      : STRAIT_FAIL(STRAIT_EIO, "%s: cannot write the key of audits", path);
}

static strait_err read_key(const struct host *h, unsigned char out[STRAIT_AUDIT_KEY_BYTES]) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    struct stat about;
    STRAIT_TRY(strait_file_path(path, "%s/audit.key", h->spec->folder));
    if (!strait_file_exists(path)) STRAIT_TRY(create_key(path));
    if (stat(path, &about) != 0 || (about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s: others may read it: remove it, and a new one is created", path);
    STRAIT_TRY(strait_file_read(path, STRAIT_AUDIT_KEY_BYTES, &text, &bytes));
    if (bytes == STRAIT_AUDIT_KEY_BYTES) memcpy(out, text, bytes);
    strait_alloc_free(text);
    return bytes == STRAIT_AUDIT_KEY_BYTES
               ? STRAIT_OK
               : STRAIT_FAIL(STRAIT_EDATA, "%s: damaged: remove it, and a new one is created",
                             path);
}

strait_err strait_host_open_audits(struct host *h) {
    const double share = h->spec->audit_share;
    unsigned char key[STRAIT_AUDIT_KEY_BYTES];
    if (share <= 0.0) return STRAIT_OK;
    STRAIT_TRY(read_key(h, key));
    STRAIT_TRY(strait_alloc(1, sizeof *h->audits, "audits", (void **)&h->audits));
    strait_audits_init(&h->audits->state, h->coordinator.config.n_stages, share, key);
    h->audits->state.limits = (strait_audit_limits){gather_ns, wait_ns, run_ns};
    h->audits->rewind_to = -1;
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        h->audits->open[i].auditor = -1;
    h->coordinator.config.has_audits = 1;
    strait_host_note(h,
                     "audits: spares compute %.3g%% of all stage-steps again; at least %d workers "
                     "stay spares for that",
                     100.0 * share, STRAIT_AUDIT_SPARES);
    return STRAIT_OK;
}

void strait_host_close_audits(struct host *h) {
    if (h->audits == NULL) return;
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        for (int k = 0; k < STRAIT_AUDIT_VOTES; k++)
            strait_evidence_fini(&h->audits->open[i].ends[k]);
        strait_host_work_drop(&h->audits->open[i]);
        strait_evidence_fini(&h->audits->open[i].evidence);
        strait_alloc_free(h->audits->open[i].steps);
    }
    strait_host_work_close(h);
    strait_alloc_free(h->audits);
    h->audits = NULL;
}

/* ---- steps ---- */

static void begin(struct host *h, int64_t step) {
    strait_audits_begin(&h->audits->state, step, h->coordinator.generation);
    memset(h->audits->reports, 0, sizeof h->audits->reports);
}

/* Returns whether all replicas of all stages have the state that a snapshot of their stage is of,
 * such as those that are taken before replicas come: they kept it, or restored it. */
static int is_kept(const struct strait_coordinator *c, int64_t step) {
    if (c->replay.until != step || c->replay.n_late > 0 || c->replay.must_update) return 0;
    for (int i = 0; i < c->config.n_stages; i++) {
        const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[i], step);
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++) {
            const strait_swarm_worker *w = &c->workers[strait_coordinator_replica(c, i, k)];
            const int is_live = (k == 0 ? c->source[i] : w->source) == STRAIT_SWARM_FROM_LIVE;
            if (record == NULL || (is_live && !strait_snapshot_set_has_digest(
                                                  &w->inventory.own, i, step, &record->digest)))
                return 0;
        }
    }
    return 1;
}

/* Where the run went back to before an interval: which of its replicas have a stage again. If one
 * of them is found to be at fault, what they computed since is not trusted either. */
static void note_parts(struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase == STRAIT_AUDIT_CLOSED || a == NULL || !a->has_returned) continue;
        for (int k = 0; k < audit->n_replicas || k == 0; k++) {
            const int slot = strait_coordinator_find(c, k == 0 ? &audit->votes[0].key
                                                               : &audit->replicas[k].key);
            if (slot < 0 || strait_coordinator_stage_of(c, slot) < 0) continue;
            if ((a->took_part >> k & 1) == 0 || step < a->part_from[k]) a->part_from[k] = step;
            a->took_part |= 1u << k;
        }
    }
}

/* Workers that state other bytes than they give are blamed, and those that had to compute the steps
 * again since, after a lie or beside other kernels, are not. The tick drops these audits: the
 * coordinator is not fed while its actions are executed. */
static void note_overwritten(struct host *h, int64_t step) {
    const int64_t until = h->coordinator.replay.until; // states that were kept, and not restored
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        const strait_audit *audit = &h->audits->state.items[i];
        struct host_audit *a = strait_host_audit_find(h, audit->id);
        if (audit->phase == STRAIT_AUDIT_GATHERING && a != NULL &&
            audit->commitment.to > (until > step ? until : step))
            a->is_overwritten = 1;
    }
}

/* After stages kept another state, or one was computed again, no snapshot begins the interval. */
void strait_host_audit_restored(struct host *h, int64_t step) {
    int is_restored = 1;
    if (h->audits == NULL) return;
    for (int i = 0; i < h->coordinator.config.n_stages; i++)
        is_restored &= h->coordinator.source[i] <= STRAIT_SWARM_FROM_HOST;
    const int is_known = is_restored || is_kept(&h->coordinator, step);
    begin(h, is_known ? step : -1);
    strait_host_work_begin(h, is_known);
    note_parts(h, step);
    note_overwritten(h, step);
}

strait_err strait_host_audit_gradients(struct host *h, int64_t step) {
    if (h->audits == NULL) return STRAIT_OK;
    for (int i = 0; i < h->coordinator.config.n_stages; i++) {
        const int first = strait_run_plan_member(&h->executor->plan, i, 0);
        const strait_stage_reply *reply = &h->work.channel.replies.items[first];
        strait_digest one = {{0}};
        STRAIT_TRY(strait_commitment_add_report(&one, step, reply->gradients.loss_sum,
                                                reply->gradients.squares.data,
                                                reply->gradients.squares.n));
        STRAIT_TRY(strait_digest_extend(&h->audits->reports[i], one.bytes, sizeof one.bytes));
    }
    return STRAIT_OK;
}

/* Logged once for each length of intervals, give or take a factor of four. */
static void tell_probabilities(struct host *h, int64_t n_steps) {
    const double share = h->audits->state.share;
    const int64_t told = h->audits->told_steps;
    if (told > 0 && n_steps < 4 * told && 4 * n_steps > told) return;
    h->audits->told_steps = n_steps;
    strait_host_note(
        h,
        "audits: an interval is %lld steps: a worker that computes something else in 1 "
        "of them is found with probability %.3g, in 10 with %.3g, in 100 with %.3g, "
        "in 500 with %.3g",
        (long long)n_steps, strait_audit_detection(share, 1), strait_audit_detection(share, 10),
        strait_audit_detection(share, 100), strait_audit_detection(share, 500));
}

/* Most steps of an interval of which the host keeps what audits need. */
static int64_t kept_steps(const struct host *h) {
    return strait_host_work_is_shared(h) ? STRAIT_AUDIT_ROWS : STRAIT_AUDIT_STEPS - 1;
}

int strait_host_audit_is_due(const struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    if (h->audits == NULL) return 0;
    const int64_t from = h->audits->state.from >= 0
                             ? h->audits->state.from
                             : c->start_steps[c->generation % STRAIT_SWARM_GENERATIONS];
    const int64_t kept = kept_steps(h);
    const int64_t most = c->config.n_stages > 1 && CROSSINGS_MAX < kept ? CROSSINGS_MAX : kept;
    /* The last steps of a run are audited, too. */
    return step == h->run.train.steps || step - from >= most;
}

/* Basis updates change the weights outside of what an auditor computes. */
static int is_auditable(const struct host *h, int64_t from, int64_t to) {
    for (int64_t step = from + 1; step <= to; step++)
        if (strait_run_plan_updates_basis(&h->executor->plan, step)) return 0;
    return to - from <= kept_steps(h);
}

/* Collects what the host knows of each stage. Returns 0 if it does not know where one began, or an
 * owner was banned as the step ended. */
static int describe_stages(const struct host *h, int64_t from, strait_interval_stage *out) {
    const struct strait_coordinator *c = &h->coordinator;
    int is_known = 1;
    for (int i = 0; i < c->config.n_stages; i++) {
        const strait_snapshot_record *start = strait_snapshot_records_find(&c->records[i], from);
        if (c->owner[i] < 0) return 0;
        out[i] = (strait_interval_stage){.owner = c->workers[c->owner[i]].key,
                                         .reports = h->audits->reports[i]};
        const int is_seed = from == 0 && !c->has_first;
        if (!is_seed && start != NULL) out[i].start = start->digest;
        is_known &= is_seed || start != NULL;
    }
    return is_known;
}

/* An owner that does not commit, or commits to another snapshot than it reported, avoids audits. By
 * key: an audit that was dropped at once may have moved the stage. */
static void check_commitments(struct host *h, const strait_interval_end *end,
                              const strait_interval_stage *stages, int64_t to) {
    const struct strait_coordinator *c = &h->coordinator;
    for (int i = 0; i < c->config.n_stages; i++) {
        const strait_snapshot_record *record = strait_snapshot_records_find(&c->records[i], to);
        const strait_digest *snapshot = &h->audits->state.commitments[i].snapshot;
        const int differs = !end->is_missing[i] && end->is_complete && record != NULL &&
                            !strait_digest_equal(&record->digest, snapshot);
        if (!end->is_missing[i] && !differs) continue;
        const int slot = strait_coordinator_find(c, &stages[i].owner);
        if (slot < 0) return;
        strait_host_note(h, "%s, stage %d: %s", c->workers[slot].report.name, i,
                         differs ? "committed to another snapshot than it took"
                                 : "did not commit to what it computed");
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = slot});
        return; // the generation has ended
    }
}

/* An owner reports a snapshot that it took before it replies. Without that the next interval would
 * have no beginning, and of no stage could it be audited. Where the run did not go on from
 * snapshots of this generation, they may be of an earlier one and need no report. */
static void check_reports(struct host *h, int64_t from, int64_t to) {
    const struct strait_coordinator *c = &h->coordinator;
    if (from < 0 || h->audits->state.generation != c->generation) return;
    for (int i = 0; i < c->config.n_stages && c->phase >= STRAIT_PHASE_READY; i++) {
        const int slot = c->owner[i];
        if (slot < 0) return;
        if (strait_snapshot_records_find(&c->records[i], to) != NULL) continue;
        strait_host_note(h, "%s, stage %d: did not report the snapshot that it took",
                         c->workers[slot].report.name, i);
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = slot});
        return; // the generation has ended
    }
}

static void end_interval(struct host *h, int64_t to) {
    strait_audits *state = &h->audits->state;
    const int64_t from = state->from;
    const uint32_t n_before = state->n_opened;
    strait_interval_stage stages[STRAIT_RUN_STAGES];
    strait_interval_end end;
    if (from >= 0 && (!is_auditable(h, from, to) || !describe_stages(h, from, stages) ||
                      !strait_host_work_end(h, to, stages))) {
        if (to - from > kept_steps(h))
            strait_host_note(
                h, "audits: steps %lld to %lld are not audited: an interval has at most %lld",
                (long long)from, (long long)to, (long long)kept_steps(h));
        begin(h, to);
        strait_host_work_next(h, to);
        return;
    }
    strait_audits_end_interval(state, to, stages, strait_clock_ns(), &end);
    memset(h->audits->reports, 0, sizeof h->audits->reports);
    if (end.is_complete) tell_probabilities(h, to - from);
    if (end.n_skipped > 0)
        strait_host_note(h, "audits: %d of steps %lld to %lld dropped: %d others are open",
                         end.n_skipped, (long long)from, (long long)to, STRAIT_AUDITS_OPEN);
    for (uint32_t id = n_before + 1; id <= state->n_opened; id++)
        strait_host_audit_gather(h, strait_audits_find(state, id));
    check_commitments(h, &end, stages, to);
    strait_host_work_next(h, to);
}

void strait_host_audit_step(struct host *h, int64_t step, float factor, int is_skipped,
                            int has_snapshot) {
    if (h->audits == NULL) return;
    h->audits->steps[step % STRAIT_AUDIT_STEPS] = (struct host_audit_step){step, factor,
                                                                           is_skipped};
    if (!has_snapshot) return;
    const int64_t from = h->audits->state.from;
    end_interval(h, step + 1);
    check_reports(h, from, step + 1);
}
