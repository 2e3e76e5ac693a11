/* A whole swarm in virtual time: the real coordinator with a model of workers and links. Faults are
 * drawn from a seed. The invariants are checked after every event; a failure prints the seed, and
 * `test_swarm_simulate SEED` repeats it. `test_swarm_simulate SEED FAULTS [LAST [log]]` simulates
 * the swarms with replicas alone, with so many faults, for all seeds up to the last; `log` prints
 * the faults and what the coordinator logs. */
#include "base/alloc.h"
#include "simulated_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FAULTS = 10000,
    CALM_EVERY = 500, // faults between two calm periods, in which there must be progress
    WINDOW_S = 600    // with replicas: in which there must be a new step, whatever happens
};

/* ---- the workers' side ---- */

static void begin_point(struct worker *w, const pending *h) {
    const int is_restore = h->phase == STRAIT_PHASE_RESTORE;
    if (h->phase == STRAIT_PHASE_WORK) reach(w, h->goal.is_update ? UPDATES : BEGINS);
    if (h->phase == STRAIT_PHASE_CONNECT) reach(w, CONNECTS);
    if (h->phase == STRAIT_PHASE_SNAPSHOT) reach(w, SNAPSHOTS);
    if (is_restore && h->action.source == STRAIT_SWARM_FROM_REPLICA) reach(w, RECEIVES);
    if (is_restore && h->action.gives_replicas != 0) reach(w, GIVES);
}

static int64_t duration_of(const struct worker *w, const pending *h) {
    int64_t ms = (int64_t)(20 + draw(100)) * world.scenario.pace;
    const int is_sent = h->action.source == STRAIT_SWARM_FROM_REPLICA ||
                        h->action.source == STRAIT_SWARM_FROM_PREV ||
                        h->action.source == STRAIT_SWARM_FROM_NEXT;
    for (uint32_t bits = h->groups; bits != 0 && h->phase == STRAIT_PHASE_WORK; bits &= bits - 1)
        ms += w->batch_ms;
    if (world.scenario.is_exact && h->phase == STRAIT_PHASE_RESTORE && is_sent) ms += draw(2000);
    return (w->slow_until > world.now ? 20 : 1) * ms * MS;
}

static void arrive(const pending *h) {
    struct worker *w = &world.workers[h->worker];
    if (!w->has_link || h->generation < w->generation) return; // a command of an earlier generation
    if (h->generation > w->generation && h->phase != STRAIT_PHASE_ASSIGN) return;
    if (w->stage < 0 && h->phase != STRAIT_PHASE_ASSIGN) return; // it was released
    begin_point(w, h);
    if (!w->is_alive || !w->has_link || h->generation != world.coordinator.generation) return;
    if (w->stage < 0 && h->phase != STRAIT_PHASE_ASSIGN) return; // it was released at that point
    pending answer = *h;
    answer.kind = ANSWER;
    answer.since = world.now;
    answer.err = begin_command(w, h);
    if (h->phase == STRAIT_PHASE_WORK && h->goal.is_update) reach(w, APPLIED);
    put(answer, duration_of(w, h));
}

static void heartbeat(const pending *h, int is_first) {
    struct worker *w = &world.workers[h->worker];
    const int is_serving = w->stage >= 0;
    if (w->hung_until <= world.now && w->waits_for == 0) w->progress++;
    if (w->has_link)
        feed(&(strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                                   .worker = w->slot,
                                   .inventory = w->inventory,
                                   .arrived = {.own = w->arrived},
                                   .progress = w->progress,
                                   .waits_for = w->waits_for});
    if (is_first)
        put((pending){.kind = HEARTBEAT, .worker = h->worker},
            (is_serving ? 1000 : 3000) * MS + draw(500) * MS);
}

/* It waits, fails or has done what it was told. */
static void answer(pending *h) {
    struct worker *w = &world.workers[h->worker];
    const int is_gradients = h->phase == STRAIT_PHASE_WORK && !h->goal.is_update;
    int side = 0;
    if (is_gradients) reach(w, COMPUTES);
    if (!w->has_link || h->generation != w->generation || w->stage < 0 ||
        h->generation != world.coordinator.generation || h->sequence != world.coordinator.sequence)
        return;
    if (h->err == STRAIT_OK) h->err = finish_command(w, h, &side);
    if (h->err == STRAIT_EAGAIN) {
        h->err = STRAIT_OK;
        put(*h, (50 + draw(50)) * MS);
        return;
    }
    if (is_gradients) reach(w, SUMS);
    heartbeat(h, 0); // reports the inventory before the reply
    if (!w->has_link) return;
    const strait_swarm_event e = reply_to(h, w->slot, side);
    feed(&e);
}

/* ---- running ---- */

/* Whether a worker that is stopped, or whose computing thread hangs, sees the event only later. */
static int is_delayed(const struct worker *w, const pending *h, int64_t *until) {
    if (h->kind == WAKE || h->kind == LOSE) return 0;
    *until = w->stopped_until;
    if ((h->kind == ARRIVE || h->kind == ANSWER) && w->hung_until > *until) *until = w->hung_until;
    return *until > world.now;
}

static void handle(pending *h) {
    struct worker *w = h->worker >= 0 ? &world.workers[h->worker] : NULL;
    int64_t until = 0;
    if ((h->kind == ARRIVE || h->kind == ANSWER) && h->life != w->life) return;
    if (w != NULL && is_delayed(w, h, &until)) { // delivered after it resumes
        put(*h, until - world.now + (int64_t)draw(10));
        return;
    }
    switch (h->kind) {
    case ARRIVE: arrive(h); break;
    case ANSWER: answer(h); break;
    case HEARTBEAT: heartbeat(h, 1); break;
    case CONNECT: connect_worker(w); break;
    case LOSE: lose_link(h); break;
    case WAKE: wake_worker(w); break;
    case FAULT:
        if (!world.is_calm) inject_fault();
        put((pending){.kind = FAULT, .worker = -1}, (int64_t)draw(world.scenario.fault_ms) * MS);
        break;
    case CLOCK:
        feed(&(strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        put((pending){.kind = CLOCK, .worker = -1}, 250 * MS);
        break;
    }
}

static void run_until(int64_t when, int n_faults) {
    while (world.now < when && world.n_faults < n_faults) {
        pending h = agenda_take(&world.agenda);
        EXPECT(h.at >= world.now);
        world.now = h.at;
        world.n_events++;
        handle(&h);
        check_world();
        if (world.agenda.n > world.n_ahead) world.n_ahead = world.agenda.n;
        EXPECT(!world.scenario.is_exact || world.now - world.advanced_ns < WINDOW_S * S);
    }
}

static void begin_workers(void) {
    for (int i = 0; i < world.scenario.n_workers; i++) {
        struct worker *w = &world.workers[i];
        *w = (struct worker){.is_alive = 1, .stage = -1, .slot = -1, .is_small = draw(20) == 0};
        w->inventory = strait_snapshot_inventory_empty();
        if (world.scenario.is_exact) w->batch_ms = (int)draw(10);
        put((pending){.kind = CONNECT, .worker = i}, draw(20000) * MS);
        put((pending){.kind = HEARTBEAT, .worker = i}, draw(1000) * MS);
    }
}

static void begin(uint64_t seed, const scenario *given, const strait_swarm_config *config) {
    memset(&world, 0, sizeof world);
    n_feeding = 0;
    world.seed = seed;
    world.scenario = *given;
    world.plan.n_stages = given->n_stages;
    world.plan.sums_pairwise = 1;
    world.plan.groups = strait_groups_make(2 * GROUPS, GROUPS, STRAIT_SWARM_REPLICAS);
    strait_coordinator_init(&world.coordinator, config);
    begin_workers();
    put((pending){.kind = CLOCK, .worker = -1}, 0);
    put((pending){.kind = FAULT, .worker = -1}, 10 * S);
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_START});
}

/* ---- one worker per stage ---- */

enum {
    STAGES = 12
};

static const uint32_t plain_faults[FAULT_KINDS] = {
    [KILL] = 35, [CUT] = 25, [STOP] = 20, [LEAVE] = 18, [RESTART] = 2};

static const strait_swarm_config plain_config = {.n_stages = STAGES,
                                                 .lease_ns = 8 * S,
                                                 .stall_timeout_ns = 20 * S,
                                                 .lease_max_ns = 30 * S,
                                                 .setup_timeout_ns = 30 * S,
                                                 .owner_wait_ns = 5 * S};

static uint64_t first_seed = 5, last_seed = 5;
static int n_faults_shared = 300; // in the swarm with replicas

static void makes_progress_through_ten_thousand_faults(void **state) {
    (void)state;
    const scenario plain = {
        .n_workers = 200, .n_stages = STAGES, .pace = 1, .fault_ms = 800, .weights = plain_faults};
    begin(first_seed, &plain, &plain_config);
    for (int n = CALM_EVERY; n <= FAULTS; n += CALM_EVERY) {
        run_until(INT64_MAX, n);
        const int64_t prev = world.committed;
        world.is_calm = 1;
        run_until(world.now + 240 * S, INT32_MAX); // reconnecting takes up to 60 s, a handover 60 s
        world.is_calm = 0;
        EXPECT(world.committed > prev + 20); // without faults there is progress
    }
    printf(
        "seed %llu: %.1f hours, %llu events, %d deaths, %d cuts, %d stalls, %d leaves (%d handed "
        "over), %d restarts; generation %u, %d steps; %d replays, %d rollbacks: "
        "%lld stage-steps computed alone, %lld spared\n",
        (unsigned long long)world.seed, (double)world.now / 3.6e12,
        (unsigned long long)world.n_events, world.n_struck[KILL], world.n_struck[CUT],
        world.n_struck[STOP], world.n_struck[LEAVE], world.n_handed, world.n_struck[RESTART],
        world.coordinator.generation, world.n_commits, world.n_replays, world.n_rollbacks,
        (long long)world.n_alone, (long long)world.n_spared);
    EXPECT(world.n_replays > 100 && world.n_spared > world.n_alone);
    EXPECT(world.n_struck[RESTART] > 50 && world.n_struck[KILL] > 1000 && world.n_commits > 1000);
}

/* A fault every fifteen seconds and a step per second on average: there is progress in every hour,
 * and the number of pending events does not grow. */
static void makes_progress_for_a_day_without_growing(void **state) {
    (void)state;
    enum {
        HOURS = 24
    };
    int n_early = 0;
    const int64_t n_allocated = strait_alloc_count();
    const scenario day = {.n_workers = 2 * STAGES,
                          .n_stages = STAGES,
                          .pace = 4,
                          .fault_ms = 30000,
                          .weights = plain_faults};
    begin(first_seed, &day, &plain_config);
    for (int hour = 1; hour <= HOURS; hour++) {
        const int64_t prev = world.committed;
        world.n_ahead = 0;
        run_until(hour * 3600 * S, INT32_MAX);
        EXPECT(world.committed > prev + 50);
        if (hour <= HOURS / 4 && world.n_ahead > n_early) n_early = world.n_ahead;
        EXPECT(hour <= HOURS / 4 || world.n_ahead <= n_early + n_early / 2);
    }
    printf("seed %llu: %.1f hours, %d faults, %llu events, generation %u, %d steps, at most %d "
           "pending\n",
           (unsigned long long)first_seed, (double)world.now / 3.6e12, world.n_faults,
           (unsigned long long)world.n_events, world.coordinator.generation, world.n_commits,
           n_early);
    EXPECT(world.now >= HOURS * 3600 * S && strait_alloc_count() == n_allocated);
}

/* What a stage restores takes ten times as long as the coordinator expects, but it arrives. */
static void restores_stages_over_slow_links(void **state) {
    (void)state;
    enum {
        HOURS = 12
    };
    strait_swarm_config config = plain_config;
    const scenario slow = {.n_workers = 16,
                           .n_stages = 4,
                           .pace = 4,
                           .fault_ms = 2000000,
                           .weights = plain_faults,
                           .send_ns = 250 * S};
    config.n_stages = slow.n_stages;
    for (int i = 0; i < slow.n_stages; i++)
        config.snapshot_bytes[i] = 25e6;
    begin(first_seed, &slow, &config);
    for (int hour = 2; hour <= HOURS; hour += 2) {
        const int64_t prev = world.committed;
        run_until(hour * 3600 * S, INT32_MAX);
        EXPECT(world.committed > prev + 1000);
    }
    printf("seed %llu: %d hours of slow links, %d faults, generation %u, %d steps\n",
           (unsigned long long)world.seed, HOURS, world.n_faults, world.coordinator.generation,
           world.n_commits);
}

/* ---- replicas ---- */

static const uint32_t shared_faults[FAULT_KINDS] = {
    [KILL] = 300,    [VANISH] = 80,   [CUT] = 120,    [STOP] = 80,   [HANG] = 60,
    [SLOW] = 60,     [CUT_PAIR] = 80, [ISOLATE] = 50, [LEAVE] = 100, [WIPE] = 30,
    [PARTITION] = 5, [DOUBT] = 15,    [RESTART] = 20};

static const uint32_t audit_faults[FAULT_KINDS] = {
    [KILL] = 100, [CUT] = 60, [LEAVE] = 100, [WITHHOLD] = 300};

static void print_shared(void) {
    static const char *const kinds[] = {"kill",      "vanish",   "cut",      "stop",   "hang",
                                        "slow",      "cut pair", "isolate",  "leave",  "wipe",
                                        "partition", "doubt",    "withhold", "restart"};
    static const char *const points[] = {"any time", "begins",   "computes",  "sums",     "updates",
                                         "applied",  "connects", "snapshots", "receives", "gives"};
    printf(
        "seed %llu: %d stages of %d workers, at most %d replicas in all, %.1f hours, %llu "
        "events, generation %u, %d steps, longest pause %.1f s; %d recruited, %d handed over; "
        "%d replays, %d rollbacks, %d without a lost step, %d stages taken, %d moved for audits\n",
        (unsigned long long)world.seed, n_stages(), world.scenario.n_workers, world.n_members_most,
        (double)world.now / 3.6e12, (unsigned long long)world.n_events,
        world.coordinator.generation, world.n_commits, (double)world.longest_ns * 1e-9,
        world.n_recruited, world.n_handed, world.n_replays, world.n_rollbacks, world.n_lossless,
        world.n_taken, world.n_withheld);
    printf("    %d faults:", world.n_faults);
    for (int i = 0; i < FAULT_KINDS; i++)
        printf(" %s %d", kinds[i], world.n_struck[i]);
    printf("; at a point:");
    for (int i = 1; i < POINTS; i++)
        printf(" %s %d", points[i], world.n_reached[i]);
    printf("\n");
}

static strait_swarm_config config_with_replicas(int n_stages) {
    return (strait_swarm_config){.n_stages = n_stages,
                                 .replicas_limit = STRAIT_SWARM_REPLICAS,
                                 .lease_ns = 10 * S,
                                 .stall_timeout_ns = 60 * S,
                                 .lease_max_ns = 30 * S,
                                 .setup_timeout_ns = 30 * S,
                                 .owner_wait_ns = 5 * S};
}

/* A thousand workers, of which the coordinator makes as many replicas as the stages may have; the
 * number of stages and the limits come from the seed. */
static void run_shared(uint64_t seed) {
    const strait_rng rng = {seed, 18};
    scenario shared = {.n_workers = WORKERS,
                       .n_stages = 8 + (int)(strait_rng_u64(rng, 0) % 17),
                       .pace = 1,
                       .fault_ms = 30000,
                       .weights = shared_faults,
                       .n_spares = (int)(strait_rng_u64(rng, 1) % 40),
                       .is_exact = 1};
    for (int i = 0; i < shared.n_stages; i++)
        shared.limits[i] = 1 + (int)(strait_rng_u64(rng, 2 + (uint64_t)i) % STRAIT_SWARM_REPLICAS);
    const strait_swarm_config config = config_with_replicas(shared.n_stages);
    const int64_t n_allocated = strait_alloc_count();
    begin(seed, &shared, &config);
    run_until(INT64_MAX, n_faults_shared);
    print_shared();
    int most = 0;
    for (int i = 0; i < shared.n_stages; i++)
        most += shared.limits[i];
    EXPECT(world.n_members_most > most * 9 / 10 && world.n_members_most <= most);
    EXPECT(world.n_lossless > n_faults_shared / 4 && strait_alloc_count() == n_allocated);
    for (int i = 1; i < POINTS && n_faults_shared >= 300; i++)
        EXPECT(world.n_reached[i] > 0);
}

/* Owners that give nothing to audits lose their stages. With every second seed some stages have a
 * further replica. Nobody is slow: a stage that computes alone would give up for it, and all go
 * back. */
static void run_audited(uint64_t seed) {
    const strait_rng rng = {seed, 19};
    const int has_replicas = seed % 2 != 0;
    scenario audited = {.n_workers = 60,
                        .n_stages = 3 + (int)(strait_rng_u64(rng, 0) % 10),
                        .pace = 1,
                        .fault_ms = 30000,
                        .weights = audit_faults,
                        .n_spares = 10,
                        .is_steady = 1,
                        .is_exact = 1};
    for (int i = 0; i < audited.n_stages; i++)
        audited.limits[i] = 1 + (has_replicas && strait_rng_u64(rng, 1 + (uint64_t)i) % 3 == 0);
    const strait_swarm_config config = config_with_replicas(audited.n_stages);
    begin(seed, &audited, &config);
    run_until(INT64_MAX, n_faults_shared);
    print_shared();
    EXPECT(world.n_withheld > n_faults_shared / 10);
}

static void repeats_no_step_while_a_replica_is_left(void **state) {
    (void)state;
    for (uint64_t seed = first_seed; seed <= last_seed; seed++)
        run_shared(seed);
}

static void moves_stages_for_audits_without_repeating_a_step(void **state) {
    (void)state;
    for (uint64_t seed = first_seed; seed <= last_seed; seed++)
        run_audited(seed);
}

int main(int argc, char **argv) {
    if (argc > 1) first_seed = last_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) n_faults_shared = atoi(argv[2]);
    if (argc > 3) last_seed = strtoull(argv[3], NULL, 10);
    prints_log = argc > 4;
    const struct CMUnitTest plain[] = {cmocka_unit_test(makes_progress_through_ten_thousand_faults),
                                       cmocka_unit_test(makes_progress_for_a_day_without_growing),
                                       cmocka_unit_test(restores_stages_over_slow_links)};
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(repeats_no_step_while_a_replica_is_left),
        cmocka_unit_test(moves_stages_for_audits_without_repeating_a_step)};
    const int n_failed = argc > 2 ? 0 : cmocka_run_group_tests(plain, NULL, NULL);
    return n_failed + cmocka_run_group_tests(shared, NULL, NULL);
}
