/* coordinator_rig.h - one coordinator per test program, with a clock that the test sets. */
#pragma once

#include "check.h"
#include "swarm/coordinator/coordinator.h"

#define S INT64_C(1000000000)

static struct strait_coordinator c;
static strait_swarm_actions actions;
static int64_t now;

static const strait_swarm_report report = {.name = "worker", .flops = 1e9, .is_reachable = 1};

static inline strait_fingerprint key_of(int i) {
    strait_fingerprint key = {{0}};
    key.bytes[0] = (unsigned char)(i + 1);
    return key;
}

static inline void feed(strait_swarm_event event) {
    strait_coordinator_step(&c, &event, now, &actions);
}

/* Returns the first action of a kind for a worker (-1: any); NULL: there is none. */
static inline const strait_swarm_action *find(strait_swarm_action_kind kind, int worker) {
    for (int i = 0; i < actions.n; i++)
        if (actions.items[i].kind == kind && (worker < 0 || actions.items[i].worker == worker))
            return &actions.items[i];
    return NULL;
}

static inline void join(int i, strait_snapshot_inventory inventory) {
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_JOIN, .key = key_of(i), .report = &report, .inventory = inventory});
}

static inline void heartbeat(int worker, strait_snapshot_inventory inventory, uint32_t progress,
                             int waits_for) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                              .worker = worker,
                              .inventory = inventory,
                              .progress = progress,
                              .waits_for = waits_for});
}

static inline void reply_about(int worker, strait_err err, int failed_side) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = worker,
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .err = err,
                              .failed_side = failed_side});
}

static inline void reply(int worker, strait_err err) {
    reply_about(worker, err, 0);
}

/* What the owner of a stage reports after it took a snapshot in this generation. */
static inline strait_snapshot_inventory own_snapshot(int stage, int64_t step) {
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){
        .stage = stage, .n = 1, .steps = {step}, .generations = {c.generation}};
    return inventory;
}

/* All owners reply successfully until the stages are ready. */
static inline void get_ready(void) {
    for (int n = 0; n < 16 && c.phase != STRAIT_PHASE_READY; n++)
        for (int i = 0; i < c.config.n_stages; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
}

static inline void goal(int64_t step, int is_update) {
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_GOAL,
        .goal = {.stage = -1, .step = step, .is_update = is_update, .is_begin = !is_update}});
}

/* Runs a step: gradients and update, with snapshots if `keeps`. */
static inline void run_step(int64_t step, int keeps) {
    goal(step, 0);
    get_ready();
    goal(step, 1);
    for (int i = 0; i < c.config.n_stages; i++) {
        strait_snapshot_inventory inventory = c.workers[c.owner[i]].inventory;
        if (keeps)
            inventory.own = (strait_snapshot_set){
                .stage = i, .n = 1, .steps = {step + 1}, .generations = {c.generation}};
        heartbeat(c.owner[i], inventory, 0, 0);
    }
    get_ready();
}

static inline void begin_with_stages(int n_stages, int n) {
    const strait_swarm_config config = {.n_stages = n_stages,
                                        .lease_ns = 10 * S,
                                        .stall_timeout_ns = 30 * S,
                                        .lease_max_ns = 30 * S,
                                        .setup_timeout_ns = 100 * S,
                                        .owner_wait_ns = 5 * S};
    strait_coordinator_init(&c, &config);
    now = 1000 * S;
    for (int i = 0; i < n; i++)
        join(i, strait_snapshot_inventory_empty());
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    if (n >= n_stages) get_ready();
}

/* Two stages, `n` workers. */
static inline void begin(int n) {
    begin_with_stages(2, n);
}

/* Advances the clock, sends a heartbeat of every connected worker and gets the stages ready. */
static inline void recover(void) {
    now += 10 * S;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (c.workers[i].is_connected) heartbeat(i, strait_snapshot_inventory_empty(), 1, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    get_ready();
}
