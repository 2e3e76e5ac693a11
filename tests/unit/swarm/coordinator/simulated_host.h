/* simulated_host.h - the driver of the coordinator in a simulated swarm: the trainer's goals, which
 * workers become replicas and how they share the groups, and what the actions do. */
#pragma once

#include "simulated_worker.h"
#include "train/shares.h"

#include <stdio.h>

static int prints_log;

#define RECRUIT_NS (1 * S) // after all stages are ready, before newcomers interrupt them

static void feed(const strait_swarm_event *event);

/* ---- replicas ---- */

/* The generation is ready: shares follow the speeds of its replicas. Each group has one replica,
 * and each replica has a group. */
static void share_groups(void) {
    strait_step_times times[STRAIT_RUN_MEMBERS] = {{0}};
    int replicas[STRAIT_RUN_STAGES];
    int n = 0;
    for (int i = 0; i < n_stages(); i++) {
        replicas[i] = strait_coordinator_n_replicas(&world.coordinator, i);
        for (int k = 0; k < replicas[i]; k++) {
            const struct worker *w = member(i, k);
            times[n++].forward = w != NULL ? 0.001 * (w->batch_ms + 1) : 0.0;
        }
    }
    if (n > world.n_members_most) world.n_members_most = n;
    strait_run_plan_set_replicas(&world.plan, replicas);
    strait_shares_choose(&world.run, &world.plan, times, world.owners);
    for (int i = 0; i < n_stages(); i++) {
        int n_groups = 0;
        for (int k = 0; k < replicas[i]; k++) {
            int n_own = 0;
            for (int g = 0; g < GROUPS; g++)
                n_own += world.owners[i].replica[g] == k;
            EXPECT(n_own > 0);
            n_groups += n_own;
        }
        EXPECT(n_groups == GROUPS);
    }
}

static uint32_t groups_of(int stage, int replica) {
    uint32_t bits = 0;
    for (int g = 0; g < GROUPS; g++)
        if (world.owners[stage].replica[g] == replica) bits |= UINT32_C(1) << g;
    return bits;
}

/* Returns the stage that gains most from a spare: of those that it may help, the one that has the
 * most to compute per replica; -1: none. */
static int slowest_for(int slot, const int *n) {
    int best = -1;
    for (int i = 0; i < n_stages(); i++) {
        if (n[i] >= world.scenario.limits[i] ||
            !strait_coordinator_may_help(&world.coordinator, slot, i))
            continue;
        if (best < 0 || (1 + i % 3) * n[best] > (1 + best % 3) * n[i]) best = i;
    }
    return best;
}

/* Spares become replicas before the next new step, as host/placing.c has it. */
static void recruit(void) {
    const struct strait_coordinator *c = &world.coordinator;
    int n[STRAIT_RUN_STAGES];
    if (c->config.replicas_limit < 2 || c->phase != STRAIT_PHASE_READY ||
        world.n_steps_since == 0 || world.step < c->committed ||
        world.now - world.restored_ns < RECRUIT_NS)
        return;
    int n_idle = strait_coordinator_count_spares(c);
    for (int i = 0; i < n_stages(); i++) {
        n[i] = strait_coordinator_n_replicas(c, i);
        n_idle -= n[i] - 1;
    }
    for (int i = 0; i < STRAIT_SWARM_WORKERS && n_idle > world.scenario.n_spares; i++) {
        const int stage = strait_coordinator_stage_of(c, i) < 0 ? slowest_for(i, n) : -1;
        if (stage < 0) continue;
        feed(&(strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = i, .stage = stage});
        EXPECT(c->workers[i].will_help == stage);
        world.n_recruited++;
        n[stage]++;
        n_idle--;
    }
}

/* ---- the trainer ---- */

/* Sometimes a spare is faster than an owner. */
static void move_a_stage(void) {
    const int successor = (int)draw(STRAIT_SWARM_WORKERS);
    const int stage = (int)draw((uint32_t)n_stages());
    if (world.coordinator.workers[successor].helps >= 0) return;
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_REASSIGN,
                               .worker = world.coordinator.owner[stage],
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
    if (world.coordinator.phase != STRAIT_PHASE_READY || world.is_choosing) return;
    world.is_choosing = 1; // what it feeds does not make it continue
    if (!world.is_update && !is_alone() && !world.scenario.is_steady && draw(40) == 0)
        move_a_stage();
    if (!world.is_update && !is_alone()) recruit();
    world.is_choosing = 0;
    feed(&(strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                               .goal = {.stage = -1,
                                        .step = world.step,
                                        .is_update = world.is_update,
                                        .is_begin = !world.is_update,
                                        .is_replay = is_alone()}});
}

static int is_survivor(const struct worker *w, int stage) {
    return w->inventory.live.stage == stage && w->inventory.live.step >= 0 && w->has_link &&
           w->is_alive && w->ready_life == w->life && w->ready_stage == stage &&
           w->ready_generation == world.ready_generation;
}

/* Returns whether the stage can continue with the state of a worker that had it when all stages
 * were ready last. If only one is left, the coordinator may have taken the stage from it, for
 * failures at its boundaries that are on record, or because it gave nothing to audits; the latter
 * excuses no step, unless something failed since. */
static int has_survivor(int stage) {
    const struct worker *one = NULL;
    int n = 0;
    for (int i = 0; i < world.scenario.n_workers; i++) {
        if (!is_survivor(&world.workers[i], stage)) continue;
        one = &world.workers[i];
        n++;
    }
    const int is_taken = n == 1 && world.coordinator.owner[stage] != one->slot &&
                         one->n_penalties > one->ready_penalties &&
                         one->moved_generation != world.coordinator.generation;
    world.n_taken += is_taken;
    return n > 0 && !is_taken;
}

/* No step is repeated as long as every stage has a replica with its state. */
static void check_lossless(void) {
    int n_kept = 0;
    for (int i = 0; i < n_stages(); i++)
        n_kept += has_survivor(i);
    if (n_kept < n_stages() || world.is_excused) return;
    EXPECT(world.coordinator.step >= world.step);
    world.n_lossless++;
}

static void note_ready(void) {
    world.ready_generation = world.coordinator.generation;
    for (int i = 0; i < n_stages(); i++)
        for (int k = 0; k < strait_coordinator_n_replicas(&world.coordinator, i); k++) {
            struct worker *w = member(i, k);
            if (w == NULL) continue;
            w->ready_life = w->life;
            w->ready_stage = i;
            w->ready_penalties = w->n_penalties;
            w->ready_generation = world.coordinator.generation;
        }
}

/* All stages are ready: the trainer continues at the step that the late ones have restored. */
static void begin_again(const strait_swarm_action *a) {
    const strait_swarm_replay *replay = &world.coordinator.replay;
    const int is_replay = replay->until >= 0;
    if (world.scenario.is_exact) check_lossless();
    note_ready();
    world.step = a->step;
    world.is_update = 0;
    world.restored_ns = world.now;
    world.n_steps_since = 0;
    EXPECT(a->step <= world.best_step + is_replay && replay->until <= world.best_step + 1);
    EXPECT(replay->n_stage_steps <= replay->n_rolled_back);
    world.n_alone += is_replay ? replay->n_late * (replay->until - replay->from) : 0;
    world.n_spared += is_replay ? replay->n_rolled_back - replay->n_stage_steps : 0;
    *(is_replay ? &world.n_replays : &world.n_rollbacks) += 1;
    if (is_replay && replay->from == replay->until && replay->must_update) {
        world.step = replay->until - 1;
        world.is_update = 1;
    }
    share_groups();
}

static void end_goal(void) {
    if (world.is_update) {
        world.n_steps_since += world.step >= world.best_step; // a new one
        check_commit(++world.step);
        if (world.step % SAVE_EVERY == 0) world.saved = world.coordinator.checkpoint = world.step;
    }
    world.is_update = !world.is_update;
}

/* ---- actions ---- */

static void send_command(const strait_swarm_action *a, struct worker *w) {
    const struct strait_coordinator *c = &world.coordinator;
    EXPECT(world.durable.generation == c->generation);
    if (w->slot != a->worker) return; // it came back as somebody else
    put((pending){.kind = ARRIVE,
                  .worker = index_of(w),
                  .phase = c->phase,
                  .action = *a,
                  .goal = c->goal,
                  .generation = c->generation,
                  .sequence = c->sequence,
                  .is_late = c->replay.is_late[a->stage],
                  .groups = groups_of(a->stage, a->replica)},
        (5 + draw(60)) * MS);
}

static void unlink_worker(struct worker *w) {
    w->has_link = 0;
    w->unlinked_ns = world.now;
}

static void print_log(const strait_swarm_action *a) {
    char line[STRAIT_SWARM_LINE];
    if (!prints_log) return;
    strait_coordinator_describe(&world.coordinator, a, line);
    printf("%.3f s, %s, generation %u, step %lld: %s\n", (double)world.now * 1e-9,
           strait_coordinator_phase_name(world.coordinator.phase), world.coordinator.generation,
           (long long)world.step, line);
}

/* A move for this reason loses no step. */
static void note_move(const strait_swarm_action *a, struct worker *w) {
    if (a->successor < 0 ||
        strcmp(a->reason, "did not send the evidence that audits requested") != 0)
        return;
    world.n_withheld++;
    w->moved_generation = world.coordinator.generation;
}

/* The coordinator ends the link of a worker only if that was slow or silent, or hung. */
static void check_unwell(const struct worker *w) {
    const int64_t recently = world.now - 60 * S;
    EXPECT(!world.scenario.is_exact || w->stopped_until > recently || w->hung_until > recently ||
           w->slow_until > recently);
}

static void perform(const strait_swarm_action *a) {
    struct worker *w = a->worker >= 0 ? worker_in(a->worker) : NULL;
    const int is_current = w != NULL && w->slot == a->worker; // and not somebody that it was before
    switch (a->kind) {
    case STRAIT_SWARM_PERSIST:
        strait_coordinator_durable(&world.coordinator, &world.durable);
        break;
    case STRAIT_SWARM_RECORD:
        EXPECT(world.coordinator.workers[a->worker].n_violations == 0);
        if (is_current) w->n_penalties = world.coordinator.workers[a->worker].n_penalties;
        break;
    case STRAIT_SWARM_COMMAND: send_command(a, w); break;
    case STRAIT_SWARM_RELEASE:
        if (is_current) w->stage = -1;
        break;
    case STRAIT_SWARM_DISCONNECT:
        world.n_handed += a->reason[0] == '\0';
        if (!is_current || !w->has_link) break;
        if (a->reason[0] != '\0') check_unwell(w);
        unlink_worker(w);
        put((pending){.kind = CONNECT, .worker = index_of(w)}, (1 + draw(20)) * S);
        break;
    case STRAIT_SWARM_STAY: EXPECT(world.coordinator.workers[a->worker].is_leaving); break;
    case STRAIT_SWARM_BAN: EXPECT(a->kind != STRAIT_SWARM_BAN); break; // all are honest
    case STRAIT_SWARM_RESTORED: begin_again(a); break;
    case STRAIT_SWARM_DONE: end_goal(); break;
    case STRAIT_SWARM_LOG:
        print_log(a);
        if (is_current) note_move(a, w);
        break;
    }
}

static void feed(const strait_swarm_event *event) {
    feed_coordinator(&world.coordinator, event, world.now, perform, trainer_continues);
}
