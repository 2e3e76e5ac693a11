/* When the stage of an owner that gives nothing to audits moves to a spare: at a moment when that
 * loses no step, or after a bounded wait. */
#include "../coordinator/coordinator_rig.h"
#include "../coordinator/snapshot_model.h"

enum {
    STAGES = 3,
    WORKERS_MAX = 16
};

static int64_t applied;               // steps that all owners have applied
static int64_t restored;              // the step of the latest restore
static int gives_copies[WORKERS_MAX]; // to the worker of the next stage; the last one to the other

static int owner_before(int stage) {
    return stage > 0 ? c.owner[stage - 1] : -1;
}

/* Copies of the snapshots of the stage, if its owner gives them. */
static void add_copy(int stage, strait_snapshot_set *copies) {
    const int slot = stage >= 0 && stage < STAGES ? c.owner[stage] : -1;
    if (slot < 0 || !gives_copies[slot]) return;
    const strait_snapshot_set *own = &c.workers[slot].inventory.own;
    if (own->stage == stage && own->n > 0) *copies = *own;
}

/* Keeps no crossings: without a snapshot of the newest step all stages go back. */
static void beat(int slot, uint32_t progress) {
    strait_snapshot_inventory inventory = c.workers[slot].inventory;
    const int stage = c.workers[slot].stage;
    if (stage >= 0 && c.phase >= STRAIT_PHASE_READY)
        inventory.live = (strait_live_state){stage, applied, c.generation, 0, applied};
    if (c.phase == STRAIT_PHASE_HANDOVER && owner_before(stage) >= 0)
        add_copy(stage - 1, &inventory.prev);
    if (c.phase == STRAIT_PHASE_HANDOVER && stage == STAGES - 2)
        add_copy(STAGES - 1, &inventory.next);
    heartbeat(slot, inventory, progress, 0);
}

/* The last stage first: a handover may end before the others have reported their copies. */
static void beat_all(void) {
    static uint32_t progress;
    progress++;
    for (int i = STAGES - 1; i >= 0; i--)
        if (c.owner[i] >= 0) beat(c.owner[i], progress);
    for (int slot = 0; slot < WORKERS_MAX; slot++)
        if (c.workers[slot].is_connected && c.workers[slot].stage < 0) beat(slot, progress);
}

/* Has a snapshot of its own: the one that it took now, or the one that it restores. */
static void keep_snapshot(int slot, int64_t step) {
    strait_snapshot_inventory inventory = c.workers[slot].inventory;
    const strait_digest digest = digest_of(c.workers[slot].stage, step, 0, 0);
    add_snapshot(&inventory.own, step, c.generation, &digest);
    heartbeat(slot, inventory, 0, 0);
}

static void reply_to_phase(int stage) {
    const int slot = c.owner[stage];
    const int restores = c.phase == STRAIT_PHASE_RESTORE &&
                         c.source[stage] != STRAIT_SWARM_FROM_LIVE;
    if (c.phase == STRAIT_PHASE_SNAPSHOT) keep_snapshot(slot, applied);
    if (restores) keep_snapshot(slot, c.step);
    reply(slot, STRAIT_OK);
}

/* Until the stages are ready; a run that went back has applied fewer steps. */
static void settle(void) {
    restored = -1;
    for (int n = 0; n < 1000 && c.phase != STRAIT_PHASE_READY; n++) {
        if (c.phase == STRAIT_PHASE_HANDOVER || c.phase == STRAIT_PHASE_WAITING) {
            now += S;
            beat_all();
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        for (int i = 0; i < STAGES && c.phase != STRAIT_PHASE_READY; i++)
            if (c.phase != STRAIT_PHASE_WAITING && c.is_awaited[i]) reply_to_phase(i);
        if (find(STRAIT_SWARM_RESTORED, -1) != NULL) restored = c.step;
    }
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
    if (restored >= 0) applied = restored;
    beat_all();
}

/* Takes a step; stages may move before it, after which it begins again. */
static void take_step(void) {
    do {
        goal(applied, 0);
        settle();
    } while (restored >= 0);
    goal(applied, 1);
    applied++;
    settle();
}

/* A run that has taken some steps and has no snapshot but the seed. */
static void begin_run(int n_steps) {
    begin_with_stages(STAGES, STAGES);
    applied = 0;
    for (int slot = 0; slot < WORKERS_MAX; slot++)
        gives_copies[slot] = 1;
    while (applied < n_steps)
        take_step();
}

static void withhold(int stage) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_WITHHELD, .worker = c.owner[stage]});
}

static void add_spares(int first, int n) {
    for (int i = first; i < first + n; i++)
        join(i, strait_snapshot_inventory_empty());
}

/* All owners take snapshots of this step and send copies; nobody moves. */
static void take_snapshots(void) {
    c.workers[c.owner[0]].has_successor = 1; // which has a stage
    c.workers[c.owner[0]].successor = c.owner[0];
    goal(applied, 0);
    settle();
    assert_int_equal(restored, applied);
}

static int n_moved(int first_spare) {
    int n = 0;
    for (int i = 0; i < STAGES; i++)
        n += c.owner[i] >= first_spare;
    return n;
}

static void moves_without_loss_before_the_next_step(void **state) {
    (void)state;
    for (int is_spare_late = 0; is_spare_late < 2; is_spare_late++) {
        begin_run(3);
        const int owner = c.owner[1];
        if (!is_spare_late) add_spares(STAGES, 1);
        withhold(1);
        if (is_spare_late) add_spares(STAGES, 1);
        take_step();
        assert_int_equal(applied, 4);
        assert_int_equal(c.owner[1], STAGES);
        assert_true(c.workers[owner].is_connected && !c.workers[owner].standing.withholds);
        assert_int_equal(c.workers[owner].n_penalties, 1);
    }
}

/* Nobody has a copy in the middle of a step. */
static void stays_when_a_generation_ends_before_the_step_does(void **state) {
    (void)state;
    begin_run(3);
    take_snapshots();
    take_step();
    const int owner = c.owner[1];
    withhold(1);
    add_spares(STAGES, 1);
    goal(applied, 0);
    reply_about(owner, STRAIT_ECLOSED, 0);
    settle();
    assert_int_equal(c.owner[1], owner);
    assert_int_equal(restored, 4);
    take_step();
    assert_int_equal(c.owner[1], STAGES);
    assert_int_equal(applied, 5);
}

/* The copy of the first is at the second, and nowhere else. */
static void two_side_by_side_move_one_after_the_other(void **state) {
    (void)state;
    begin_run(3);
    withhold(0);
    withhold(1);
    add_spares(STAGES, 2);
    for (int n = 1; n <= 2; n++) {
        goal(applied, 0);
        settle();
        assert_int_equal(restored, 3);
        assert_int_equal(n_moved(STAGES), n);
    }
    take_step();
    assert_true(c.owner[0] >= STAGES && c.owner[1] >= STAGES && applied == 4);
}

/* A faster spare takes the stage before it, with the copy that it has. */
static void stays_beside_a_stage_that_moves(void **state) {
    (void)state;
    begin_run(3);
    const int owner = c.owner[1];
    add_spares(STAGES, 2);
    withhold(1);
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = c.owner[0], .successor = STAGES});
    goal(applied, 0);
    settle();
    assert_true(restored == 3 && c.owner[0] == STAGES && c.owner[1] == owner);
    take_step();
    assert_true(applied == 4 && c.owner[1] != owner);
}

/* The only copy of its stage leaves with the neighbour. */
static void stays_when_a_neighbour_leaves(void **state) {
    (void)state;
    begin_run(3);
    const int owner = c.owner[1];
    add_spares(STAGES, 2);
    withhold(1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = c.owner[2]});
    goal(applied, 0);
    settle();
    assert_true(restored == 3 && c.owner[1] == owner && c.owner[2] >= STAGES);
    take_step();
    assert_true(applied == 4 && c.owner[1] != owner);
}

static void moves_anyway_when_no_copy_arrives(void **state) {
    (void)state;
    begin_run(2);
    take_snapshots();
    take_step();
    const int owner = c.owner[1];
    gives_copies[owner] = 0;
    withhold(1);
    add_spares(STAGES, 1);
    const int64_t began = now;
    goal(applied, 0);
    settle();
    assert_int_equal(c.owner[1], STAGES);
    assert_int_equal(restored, 2);
    assert_in_range(now - began, 60 * S, 70 * S);
}

/* The second keeps its stage until its new neighbour has what it needs. */
static void two_that_give_no_copies_do_not_move_together(void **state) {
    (void)state;
    begin_run(2);
    take_snapshots();
    take_step();
    for (int i = 0; i < 2; i++) {
        gives_copies[c.owner[i]] = 0;
        withhold(i);
    }
    add_spares(STAGES, 2);
    for (int n = 1; n <= 2; n++) {
        goal(applied, 0);
        settle();
        assert_int_equal(n_moved(STAGES), n);
        assert_int_equal(restored, 2); // and not 0, which is all that the driver has
    }
}

/* Returns how many generations the owner of a stage keeps it that only it has a snapshot of, if
 * each of them fails before a step begins. */
static int generations_kept(int has_new_neighbour) {
    begin_run(2);
    const int owner = c.owner[1];
    for (int i = 0; i < STAGES; i++)
        keep_snapshot(c.owner[i], applied);
    withhold(1);
    add_spares(STAGES, 1);
    for (int n = 0; n < 100; n++) {
        if (has_new_neighbour) c.workers[c.owner[0]].served = -1;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTION, .worker = -1});
        for (int k = 0; k < 100 && c.phase == STRAIT_PHASE_WAITING; k++) {
            now += S;
            beat_all();
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
        if (c.owner[1] != owner) return n;
        for (int i = 0; i < STAGES; i++)
            reply_to_phase(i); // they are not slow
    }
    return -1;
}

/* Longer beside a new owner, whose only copy it may have. */
static void moves_anyway_after_some_generations(void **state) {
    (void)state;
    assert_int_equal(generations_kept(0), 8);
    assert_int_equal(generations_kept(1), 16);
}

/* It does not move, and gives again: what it kept its stage for is forgotten. */
static void waits_anew_after_it_gave(void **state) {
    (void)state;
    begin_run(1);
    withhold(1);
    c.workers[c.owner[1]].standing.n_kept = 3;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GAVE, .worker = c.owner[1]});
    assert_int_equal(c.workers[c.owner[1]].standing.n_kept, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_without_loss_before_the_next_step),
        cmocka_unit_test(stays_when_a_generation_ends_before_the_step_does),
        cmocka_unit_test(two_side_by_side_move_one_after_the_other),
        cmocka_unit_test(stays_beside_a_stage_that_moves),
        cmocka_unit_test(stays_when_a_neighbour_leaves),
        cmocka_unit_test(moves_anyway_when_no_copy_arrives),
        cmocka_unit_test(two_that_give_no_copies_do_not_move_together),
        cmocka_unit_test(moves_anyway_after_some_generations),
        cmocka_unit_test(waits_anew_after_it_gave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
