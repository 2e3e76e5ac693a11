/* A whole swarm in virtual time: the real coordinator with a model of workers and links. Faults are
 * drawn from a seed. The invariants are checked after every event; a failure prints the seed, and
 * `test_swarm_simulate SEED` repeats it. */
#include "base/alloc.h"
#include "simulated_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the coordinator's side ---- */

static void feed(const strait_swarm_event *event);

/* Sometimes a spare is faster than an owner. */
static void move_a_stage(void) {
    const int successor = (int)draw(STRAIT_SWARM_WORKERS);
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_REASSIGN,
                               .worker = world.coordinator.owner[draw(STAGES)],
                               .successor = successor});
    world.n_moves++;
}

/* A step that some stages compute alone ends with an update of all, so that those who lack only
 * that get it. */
static int is_alone(void) {
    const int64_t until = world.coordinator.replay.until;
    return world.step < until && !(world.is_update && world.step + 1 == until);
}

static void trainer_continues(void) {
    if (world.coordinator.phase != STRAIT_PHASE_READY) return;
    if (!world.is_update && !is_alone() && draw(40) == 0) move_a_stage();
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                               .goal = {.stage = -1,
                                        .step = world.step,
                                        .is_update = world.is_update,
                                        .is_begin = !world.is_update,
                                        .is_replay = is_alone()}});
}

/* All stages are ready: the trainer continues at the step that the late ones have restored. */
static void begin_again(const strait_swarm_action *a) {
    const strait_swarm_replay *replay = &world.coordinator.replay;
    const int is_replay = replay->until >= 0;
    world.step = a->step;
    world.is_update = 0;
    EXPECT(a->step <= world.best_step + is_replay && replay->until <= world.best_step + 1);
    EXPECT(replay->n_stage_steps <= replay->n_rolled_back);
    world.n_alone += is_replay ? replay->n_late * (replay->until - replay->from) : 0;
    world.n_saved += is_replay ? replay->n_rolled_back - replay->n_stage_steps : 0;
    *(is_replay ? &world.n_replays : &world.n_rollbacks) += 1;
    if (is_replay && replay->from == replay->until && replay->must_update) {
        world.step = replay->until - 1;
        world.is_update = 1;
    }
}

static void perform(const strait_swarm_action *a) {
    const int worker = a->worker >= 0 ? world.worker_of[a->worker] : -1;
    switch (a->kind) {
    case STRAIT_SWARM_PERSIST:
        strait_coordinator_durable(&world.coordinator, &world.durable);
        break;
    case STRAIT_SWARM_COMMAND:
        EXPECT(world.durable.generation == world.coordinator.generation);
        put((pending){.kind = ARRIVE,
                      .worker = worker,
                      .phase = world.coordinator.phase,
                      .action = *a,
                      .goal = world.coordinator.goal,
                      .generation = world.coordinator.generation,
                      .sequence = world.coordinator.sequence,
                      .is_late = world.coordinator.replay.is_late[a->stage]},
            (5 + draw(60)) * MS);
        break;
    case STRAIT_SWARM_DISCONNECT:
        world.workers[worker].has_link = 0;
        put((pending){.kind = CONNECT, .worker = worker}, (1 + draw(20)) * S);
        world.n_handed += a->reason[0] == '\0';
        break;
    case STRAIT_SWARM_RESTORED: begin_again(a); break;
    case STRAIT_SWARM_DONE:
        if (world.is_update) check_commit(++world.step);
        if (world.is_update && world.step % SAVE_EVERY == 0)
            world.saved = world.coordinator.checkpoint = world.step;
        world.is_update = !world.is_update;
        break;
    default: break;
    }
}

static void feed(const strait_swarm_event *event) {
    feed_coordinator(&world.coordinator, event, world.now, perform, trainer_continues);
}

/* ---- the workers' side ---- */

static void arrive(const pending *h) {
    struct worker *w = &world.workers[h->worker];
    if (!w->has_link || h->generation < w->generation) return; // a command of an earlier generation
    if (h->generation > w->generation && h->phase != STRAIT_PHASE_ASSIGN) return;
    pending answer = *h;
    answer.kind = ANSWER;
    answer.err = execute(w, h);
    put(answer, (20 + draw(100)) * world.pace * MS + (answer.err == STRAIT_ECLOSED ? 300 * MS : 0));
}

static void heartbeat(const pending *h, int is_first) {
    const struct worker *w = &world.workers[h->worker];
    if (w->has_link)
        feed(&(strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                                   .worker = w->slot,
                                   .inventory = w->inventory,
                                   .progress = (uint32_t)world.n_events});
    if (is_first)
        put((pending){.kind = HEARTBEAT, .worker = h->worker}, 1000 * MS + draw(500) * MS);
}

static void answer(const pending *h) {
    const struct worker *w = &world.workers[h->worker];
    if (!w->has_link) return;
    heartbeat(h, 0); // reports the inventory before the reply
    if (!w->has_link) return;
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                               .worker = w->slot,
                               .generation = h->generation,
                               .sequence = h->sequence,
                               .err = h->err});
}

static void connect_worker(int i) {
    static const strait_swarm_report report = {.flops = 1e9, .is_reachable = 1};
    struct worker *w = &world.workers[i];
    if (!w->is_alive || w->has_link) return;
    strait_swarm_event e = {
        .kind = STRAIT_SWARM_JOIN, .report = &report, .inventory = w->inventory};
    e.key.bytes[0] = (unsigned char)i;
    e.key.bytes[1] = 1;
    w->has_link = 1;
    w->life++;
    /* The slot must be known before commands arrive for it. */
    for (int n = 0; n < STRAIT_SWARM_WORKERS; n++)
        if (world.worker_of[n] == i) world.worker_of[n] = -1;
    static strait_swarm_actions actions;
    strait_coordinator_step(&world.coordinator, &e, world.now, &actions);
    w->slot = strait_coordinator_find(&world.coordinator, &e.key);
    EXPECT(w->slot >= 0);
    world.worker_of[w->slot] = i;
    for (int k = 0; k < actions.n; k++)
        perform(&actions.items[k]);
    trainer_continues();
}

static void disconnect(int i) {
    struct worker *w = &world.workers[i];
    if (!w->has_link) return;
    w->has_link = 0;
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = w->slot});
}

/* ---- faults ---- */

static void kill_worker(int i) {
    struct worker *w = &world.workers[i];
    if (!w->is_alive) return;
    world.n_deaths++;
    w->is_alive = 0;
    w->inventory = strait_snapshot_inventory_empty();
    w->generation = 0;
    w->stage = -1;
    disconnect(i);
    put((pending){.kind = WAKE, .worker = i}, (int64_t)(1 + draw(60)) * S);
}

static void restart_coordinator(void) {
    const strait_swarm_config config = world.coordinator.config;
    world.n_restarts++;
    strait_coordinator_init(&world.coordinator, &config);
    strait_coordinator_resume(&world.coordinator, &world.durable, world.now);
    world.coordinator.checkpoint = world.saved;
    EXPECT(world.coordinator.committed == world.committed);
    for (int i = 0; i < world.n_workers; i++) {
        if (!world.workers[i].has_link) continue;
        world.workers[i].has_link = 0;
        put((pending){.kind = CONNECT, .worker = i}, 100 * MS + draw(3000) * MS);
    }
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_START});
}

static void inject_fault(void) {
    /* Half of the faults hit an owner. */
    int i = (int)draw((uint32_t)world.n_workers);
    const int stage = (int)draw(STAGES);
    if (draw(2) == 0 && world.coordinator.owner[stage] >= 0)
        i = world.worker_of[world.coordinator.owner[stage]];
    if (i < 0) return;
    struct worker *w = &world.workers[i];
    const uint32_t kind = draw(100);
    if (kind < 35) {
        kill_worker(i);
    } else if (kind < 60) {
        world.n_cuts++;
        disconnect(i);
        put((pending){.kind = CONNECT, .worker = i}, (int64_t)draw(60000) * MS);
    } else if (kind < 80) {
        world.n_stalls++;
        w->stopped_until = world.now + (int64_t)(1 + draw(40)) * S;
    } else if (kind < 98) {
        world.n_leaves++;
        if (w->has_link) feed(&(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = w->slot});
    } else {
        restart_coordinator();
    }
}

static void handle(pending *h) {
    struct worker *w = h->worker >= 0 ? &world.workers[h->worker] : NULL;
    if ((h->kind == ARRIVE || h->kind == ANSWER) && h->life != w->life) return;
    if (w != NULL && w->stopped_until > world.now &&
        h->kind != WAKE) { // delivered after it resumes
        put(*h, w->stopped_until - world.now + (int64_t)draw(10));
        return;
    }
    switch (h->kind) {
    case ARRIVE: arrive(h); break;
    case ANSWER: answer(h); break;
    case HEARTBEAT: heartbeat(h, 1); break;
    case CONNECT: connect_worker(h->worker); break;
    case WAKE:
        w->is_alive = 1;
        connect_worker(h->worker);
        break;
    case FAULT:
        if (!world.is_calm) {
            inject_fault();
            world.n_faults++;
        }
        put((pending){.kind = FAULT, .worker = -1}, (int64_t)draw(world.fault_ms) * MS);
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
    }
}

static void begin(uint64_t seed, int n_workers, uint32_t pace, uint32_t fault_ms) {
    memset(&world, 0, sizeof world);
    world.seed = seed;
    world.n_workers = n_workers;
    world.pace = pace;
    world.fault_ms = fault_ms;
    const strait_swarm_config config = {.n_stages = STAGES,
                                        .lease_ns = 8 * S,
                                        .stall_timeout_ns = 20 * S,
                                        .lease_max_ns = 30 * S,
                                        .setup_timeout_ns = 30 * S,
                                        .owner_wait_ns = 5 * S};
    strait_coordinator_init(&world.coordinator, &config);
    for (int n = 0; n < STRAIT_SWARM_WORKERS; n++)
        world.worker_of[n] = -1;
    for (int i = 0; i < world.n_workers; i++) {
        struct worker *w = &world.workers[i];
        *w = (struct worker){.is_alive = 1, .stage = -1, .is_small = draw(20) == 0};
        w->inventory = strait_snapshot_inventory_empty();
        put((pending){.kind = CONNECT, .worker = i}, draw(20000) * MS);
        put((pending){.kind = HEARTBEAT, .worker = i}, draw(1000) * MS);
    }
    put((pending){.kind = CLOCK, .worker = -1}, 0);
    put((pending){.kind = FAULT, .worker = -1}, 10 * S);
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_START});
}

static uint64_t seed = 5;

static void makes_progress_through_ten_thousand_faults(void **state) {
    (void)state;
    begin(seed, WORKERS, 1, 800);
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
        "%lld stage-steps computed alone, %lld saved\n",
        (unsigned long long)seed, (double)world.now / 3.6e12, (unsigned long long)world.n_events,
        world.n_deaths, world.n_cuts, world.n_stalls, world.n_leaves, world.n_handed,
        world.n_restarts, world.coordinator.generation, world.n_commits, world.n_replays,
        world.n_rollbacks, (long long)world.n_alone, (long long)world.n_saved);
    EXPECT(world.n_replays > 100 && world.n_saved > world.n_alone);
    EXPECT(world.n_restarts > 50 && world.n_deaths > 1000 && world.n_commits > 1000);
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
    begin(seed, 2 * STAGES, 4, 30000);
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
           (unsigned long long)seed, (double)world.now / 3.6e12, world.n_faults,
           (unsigned long long)world.n_events, world.coordinator.generation, world.n_commits,
           n_early);
    EXPECT(world.now >= HOURS * 3600 * S && strait_alloc_count() == n_allocated);
}

int main(int argc, char **argv) {
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(makes_progress_through_ten_thousand_faults),
                                       cmocka_unit_test(makes_progress_for_a_day_without_growing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
