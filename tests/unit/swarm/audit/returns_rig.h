/* returns_rig.h - a host whose replicas committed to different snapshots, a coordinator that only
 * notes what it is told, and a clock that moves when the host waits. */
#pragma once

#include "check.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"
#include "unit/config/run_plan_rig.h"

enum {
    OWNER = 1, // of stage 1; the further replica of it is HELPER
    HELPER = 3,
    WORKERS = 4,
    FROM = 8,
    TO = 16
};

static struct host h; // large, and zeroed
static struct host_audits audits;
static struct strait_executor executor;
static char noted[2048]; // all log lines
static int n_pumped, gathered_after, must_stop;
static int64_t virtual_ns;
static void (*on_pumped)(void); // what workers do meanwhile; NULL: nothing

/* What the coordinator was told. */
static int n_contradictions, n_limits, n_banned, n_violations, n_withheld, n_gave, banned, withheld;
static int n_silent;  // auditors
static int64_t limit; // of the last return

void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event);
void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event) {
    (void)host;
    n_contradictions += event->kind == STRAIT_SWARM_CONTRADICTION;
    n_violations += event->kind == STRAIT_SWARM_INVALID_DATA;
    n_withheld += event->kind == STRAIT_SWARM_WITHHELD;
    n_gave += event->kind == STRAIT_SWARM_GAVE;
    n_silent += event->kind == STRAIT_SWARM_SILENT_AUDITOR;
    if (event->kind == STRAIT_SWARM_WITHHELD) withheld = event->worker;
    if (event->kind == STRAIT_SWARM_CONTRADICTION) {
        assert_int_equal(event->worker, OWNER);
        assert_int_equal(event->successor, HELPER);
    }
    if (event->kind != STRAIT_SWARM_GUILTY) return;
    n_limits += event->goal.step >= 0;
    n_banned += event->worker >= 0;
    if (event->goal.step >= 0) limit = event->goal.step;
    if (event->worker >= 0) banned = event->worker;
}

strait_err __wrap_strait_host_pump(struct host *host, int timeout_ms);
strait_err __wrap_strait_host_pump(struct host *host, int timeout_ms) {
    virtual_ns += timeout_ms * INT64_C(1000000);
    assert_in_range(++n_pumped, 1, 1000); // it does not wait for anything else
    if (on_pumped != NULL) on_pumped();
    for (int i = 0; n_pumped >= gathered_after && i < STRAIT_AUDITS_OPEN; i++)
        if (audits.state.items[i].phase == STRAIT_AUDIT_GATHERING)
            strait_audits_gathered(&host->audits->state, audits.state.items[i].id, 0);
    return STRAIT_OK;
}

int64_t __wrap_strait_clock_ns(void);
int64_t __wrap_strait_clock_ns(void) {
    return virtual_ns;
}

static void on_noted(void *user, const char *text) {
    const size_t used = strlen(noted);
    (void)user;
    (void)snprintf(noted + used, sizeof noted - used, "%s\n", text);
}

static int on_must_stop(void *user) {
    (void)user;
    return must_stop;
}

static const strait_host_spec spec = {
    .folder = "nowhere", .events = {.noted = on_noted}, .session = {.must_stop = on_must_stop}};

static strait_audit *open_audit(int id, int64_t from, int is_contested) {
    strait_audit *audit = &audits.state.items[id];
    *audit = (strait_audit){.phase = STRAIT_AUDIT_GATHERING,
                            .id = (uint32_t)id,
                            .stage = 1,
                            .commitment = {.from = from, .to = from + TO - FROM},
                            .n_votes = 1,
                            .n_replicas = 2,
                            .is_contested = is_contested};
    audit->votes[0].key = audit->replicas[0].key = h.coordinator.workers[OWNER].key;
    audit->replicas[1].key = h.coordinator.workers[HELPER].key;
    audit->replicas[1].snapshot.bytes[0] = (unsigned char)is_contested;
    audits.open[id] = (struct host_audit){.id = (uint32_t)id, .auditor = -1};
    return audit;
}

/* Two stages with two replicas each; those of the second committed to different snapshots, and
 * there is another audit of the same interval. */
static void begin(void) {
    CHECK_OK(make("stages.count=2", "stages.replicas=2", NULL));
    executor = (struct strait_executor){.run = run, .plan = plan};
    h = (struct host){.spec = &spec, .run = run, .executor = &executor, .audits = &audits};
    memset(&audits, 0, sizeof audits);
    audits.state.n_stages = plan.n_stages;
    audits.rewind_to = -1;
    h.coordinator.config.n_stages = plan.n_stages;
    h.coordinator.phase = STRAIT_PHASE_READY;
    for (int i = 0; i < WORKERS; i++) {
        strait_swarm_worker *worker = &h.coordinator.workers[i];
        (void)snprintf(worker->report.name, sizeof worker->report.name, "w%d", i);
        worker->key.bytes[0] = (unsigned char)(1 + i);
        worker->is_known = worker->is_connected = 1;
        worker->stage = i < 2 ? i : -1;
        worker->helps = worker->will_help = -1;
    }
    for (int i = 0; i < 2; i++) {
        h.coordinator.owner[i] = i;
        h.coordinator.n_helpers[i] = 1;
        h.coordinator.helper[i][0] = 2 + i;
    }
    open_audit(1, FROM, 1);
    open_audit(2, FROM, 0);
    n_pumped = n_contradictions = n_limits = n_banned = n_violations = n_withheld = n_gave =
        n_silent = 0;
    must_stop = 0;
    gathered_after = 3;
    virtual_ns = INT64_C(1000000000000);
    on_pumped = NULL;
    noted[0] = '\0';
}

static void end(void) {
    strait_host_work_close(&h);
}

/* Returns whether anybody is remembered for not giving. */
static int is_any_withheld(void) {
    for (int i = 0; i < STRAIT_AUDIT_WITHHELD; i++)
        if (audits.withheld[i].n > 0) return 1;
    return 0;
}
