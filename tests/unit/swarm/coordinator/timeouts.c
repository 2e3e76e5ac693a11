/* The coordinator: boundaries that fail, and workers that do not reply. */
#include "coordinator_rig.h"
#include "swarm/coordinator/state.h"

#include <stdlib.h>

/* What a worker that sends nothing reports. */
enum claim {
    BUSY,    // that it computes
    WAITING, // that it waits, as all others do
    DONE,    // that it has finished
    EARLY,   // the same, before others say that they wait
    ACCUSING // that nothing arrived from others
};

static strait_fingerprint cheat;

static int stage_of_cheat(void) {
    const int at = strait_coordinator_find(&c, &cheat);
    return at >= 0 ? c.workers[at].stage : -1;
}

/* `n_stages` stages and `n` workers; the cheat owns `stage`. */
static void begin_with(int n_stages, int n, int stage) {
    begin_with_stages(n_stages, n);
    cheat = c.workers[c.owner[stage]].key;
}

/* What the owner of stage `k` waits for while the cheat sends nothing: stages before it need
 * gradients, those behind it activations. The cheat claims what it likes. */
static int side_of(int k, int stage, enum claim claim) {
    if (k != stage) return k < stage ? 1 : -1;
    if (claim != WAITING && claim != ACCUSING) return 0;
    return stage > 0 ? -1 : 1;
}

/* A step that the cheat keeps all others from finishing. The owner of `complains` reports the
 * timeout first; -1: a neighbour of the cheat. */
static void break_step(enum claim claim, int complains) {
    const int stage = stage_of_cheat();
    goal(0, 0);
    if (claim == EARLY) reply(c.owner[stage], STRAIT_OK);
    for (int i = 0; i < 3; i++) {
        now += S;
        for (int k = 0; k < c.config.n_stages; k++)
            heartbeat(c.owner[k], strait_snapshot_inventory_empty(),
                      c.workers[c.owner[k]].progress + (k == stage), side_of(k, stage, claim));
    }
    if (claim == DONE) reply(c.owner[stage], STRAIT_OK);
    if (complains < 0) complains = stage > 0 ? stage - 1 : stage + 1;
    if (claim == ACCUSING) complains = stage;
    if (complains == stage && claim != ACCUSING) complains = stage > 0 ? stage - 1 : stage + 1;
    reply_about(c.owner[complains], STRAIT_ETIMEDOUT, side_of(complains, stage, claim));
}

static void moves_the_stage_of_a_worker_that_never_finishes(void **state) {
    (void)state;
    begin_with(2, 3, 1);
    const int at = c.owner[1];
    const int honest = c.owner[0];
    break_step(BUSY, -1);
    recover();
    assert_int_equal(c.owner[1], at); // the first timeout may be chance
    break_step(BUSY, -1);
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    assert_null(find(STRAIT_SWARM_BAN, -1));
    recover();
    assert_int_not_equal(c.owner[1], at);
    assert_int_equal(c.owner[0], honest);
    run_step(0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = honest});
    recover(); // it is used again if there is no other worker
    assert_int_equal(c.owner[0], at);
}

static void moves_nothing_without_a_spare(void **state) {
    (void)state;
    begin_with(2, 2, 0);
    const int at = c.owner[0];
    for (int i = 0; i < 10; i++) {
        break_step(BUSY, -1);
        recover();
        assert_int_equal(c.owner[0], at);
    }
    join(2, strait_snapshot_inventory_empty());
    for (int i = 0; i < STRAIT_SWARM_FAILURES; i++) {
        break_step(BUSY, -1);
        recover();
        if (c.workers[at].stage < 0) return;
    }
    assert_int_equal(c.workers[at].stage, -1);
}

/* Whatever it claims, whichever stage it owns and whoever reports first, one spare is enough. */
static void replaces_the_cheat_after_a_bounded_number_of_steps(void **state) {
    (void)state;
    enum {
        STAGES = 5
    };
    for (int claim = BUSY; claim <= ACCUSING; claim++)
        for (int stage = 0; stage < STAGES; stage++)
            for (int first = -1; first < STAGES; first++) {
                int n_broken = 0;
                begin_with(STAGES, STAGES + 1, stage);
                while (stage_of_cheat() >= 0 && n_broken <= STAGES + STRAIT_SWARM_FAILURES) {
                    break_step((enum claim)claim, first);
                    assert_null(find(STRAIT_SWARM_BAN, -1));
                    recover();
                    n_broken++;
                }
                assert_int_equal(stage_of_cheat(), -1);
                assert_true(claim != BUSY || n_broken == STRAIT_SWARM_FAILURES);
                run_step(0, 0);
            }
}

/* Workers 0 and 1 own the stages and 2 is a spare; their boundary fails with `err`, reported by the
 * owner of stage `first`, while they work or while they connect. */
static void fail_boundary(strait_err err, int first, int is_work) {
    begin_with_stages(2, 3);
    const int owners[] = {c.owner[0], c.owner[1]};
    for (int i = 0; i < STRAIT_SWARM_FAILURES; i++) {
        goal(0, 0);
        if (!is_work) { // a generation ends, and the next one is at the phase CONNECT
            reply_about(c.owner[0], STRAIT_ENONFINITE, 0);
            c.workers[c.owner[0]].suspicion = 0;
            now += 10 * S;
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
            for (int n = 0; n < 4 && c.phase != STRAIT_PHASE_CONNECT; n++)
                for (int k = 0; k < 2; k++)
                    if (c.is_awaited[k]) reply(c.owner[k], STRAIT_OK);
            assert_int_equal(c.phase, STRAIT_PHASE_CONNECT);
        }
        for (int k = 0; k < 2; k++)
            heartbeat(c.owner[k], strait_snapshot_inventory_empty(), 9, k == 0 ? 1 : -1);
        assert_true(c.owner[0] == owners[0] && c.owner[1] == owners[1]);
        reply_about(c.owner[first], err, first == 0 ? 1 : -1);
        recover();
    }
    assert_int_equal((c.owner[0] == owners[0]) + (c.owner[1] == owners[1]), 1);
    assert_true(strait_coordinator_is_bad_pair(&c, owners[0], owners[1]));
    join(9, strait_snapshot_inventory_empty());
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    recover();
    assert_false((c.owner[0] == owners[0] && c.owner[1] == owners[1]) ||
                 (c.owner[0] == owners[1] && c.owner[1] == owners[0]));
}

/* Two honest workers that cannot work side by side, whatever the error and the phase: one of them
 * is replaced, and they never meet again while there is another placement. */
static void replaces_one_end_of_a_boundary_that_fails(void **state) {
    static const strait_err errors[] = {STRAIT_ETIMEDOUT, STRAIT_ECLOSED, STRAIT_EPROTO,
                                        STRAIT_EAUTH};
    (void)state;
    for (int is_work = 0; is_work < 2; is_work++)
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
            for (int first = 0; first < 2; first++)
                fail_boundary(errors[e], first, is_work);
}

/* Without a spare, three workers of which two cannot connect change places: the third goes between
 * them. */
static void exchanges_stages_without_a_spare(void **state) {
    (void)state;
    begin_with_stages(3, 3);
    const int a = c.owner[0];
    const int b = c.owner[1];
    int n_failed = 0;
    while (abs(c.workers[a].stage - c.workers[b].stage) == 1) {
        const int first = c.workers[a].stage < c.workers[b].stage ? a : b;
        assert_true(n_failed++ < 2 * STRAIT_SWARM_FAILURES);
        goal(0, 0);
        reply_about(first, STRAIT_ECLOSED, 1);
        recover();
    }
    assert_int_equal(c.workers[3 - a - b].stage, 1);
    run_step(0, 0);
}

/* Reconnecting clears neither penalties nor violations, and neither does a restart. */
static void remembers_a_worker_that_reconnects(void **state) {
    (void)state;
    begin(3);
    const int culprit = c.owner[1];
    const strait_fingerprint key = c.workers[culprit].key;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = culprit});
    assert_non_null(find(STRAIT_SWARM_RECORD, culprit));
    recover();
    for (int i = 0; i < 3; i++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = culprit});
        join(key.bytes[0] - 1, strait_snapshot_inventory_empty());
        recover();
    }
    const int slot = strait_coordinator_find(&c, &key);
    const int n_penalties = c.workers[slot].n_penalties;
    assert_int_equal(c.workers[slot].n_violations, 1);
    assert_true(n_penalties > 0);
    const strait_swarm_config config = c.config;
    strait_swarm_durable durable;
    strait_coordinator_durable(&c, &durable);
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    strait_coordinator_remember(&c, &key, 1, n_penalties); // as the driver does
    join(key.bytes[0] - 1, strait_snapshot_inventory_empty());
    assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].n_violations, 1);
    assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].n_penalties, n_penalties);
}

/* While the next generation waits after failures, an owner can lose its link and be back in time.
 * It does not keep the stage for ever that way. */
static void replaces_an_owner_that_keeps_reconnecting(void **state) {
    (void)state;
    begin(3);
    const strait_fingerprint key = c.workers[c.owner[1]].key;
    for (int i = 0; i < STRAIT_SWARM_FAILURES; i++) {
        assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].stage, 1);
        goal(0, 0);
        c.n_failures = 8; // the pause is seconds by now
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[1]});
        assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
        join(key.bytes[0] - 1, strait_snapshot_inventory_empty());
        recover();
    }
    assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].stage, -1);
}

/* In every phase, an owner that sends heartbeats with changing progress and never replies is out
 * after a limit that they do not extend. */
static void disconnects_an_owner_that_never_replies(void **state) {
    (void)state;
    for (int phase = STRAIT_PHASE_ASSIGN; phase <= STRAIT_PHASE_WORK; phase++) {
        if (phase == STRAIT_PHASE_READY) continue;
        begin_with_stages(2, 3);
        c.config.need_bytes[0] = c.config.need_bytes[1] = 1e6;
        run_step(0, 0);
        const int mute = c.owner[1];
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
        now += S;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        for (int n = 0; n < 20 && (int)c.phase != phase; n++) {
            for (int k = 0; k < 2; k++)
                if (c.is_awaited[k]) reply(c.owner[k], STRAIT_OK);
            if (c.phase == STRAIT_PHASE_READY) goal(0, 0);
        }
        assert_int_equal(c.phase, phase);
        const int other = c.owner[0];
        if (c.is_awaited[0]) reply(other, STRAIT_OK);
        const int64_t began = now;
        for (uint32_t i = 1; c.workers[mute].is_connected && now - began < 600 * S; i++) {
            now += S;
            heartbeat(mute, strait_snapshot_inventory_empty(), i, 0);
            heartbeat(other, strait_snapshot_inventory_empty(), i, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        assert_in_range(now - began, S, 14 * S); // the others have replied at once
        assert_int_equal(c.workers[other].is_connected, 1);
    }
}

/* Where every other worker needs long to set a stage up, the limit grows until one succeeds. */
static void gives_slow_workers_time_to_set_up(void **state) {
    (void)state;
    begin_with_stages(2, 4);
    c.config.need_bytes[0] = c.config.need_bytes[1] = 1e6;
    const int fast = c.owner[0];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[1]});
    for (int64_t end = now + 300 * S; now < end && c.phase != STRAIT_PHASE_READY; now += S) {
        for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
            if (c.workers[i].is_connected) heartbeat(i, strait_snapshot_inventory_empty(), 0, 0);
        for (int i = 0; i < 2; i++) {
            const int is_slow = c.owner[i] != fast && c.phase == STRAIT_PHASE_OPEN;
            if (c.is_awaited[i] && (!is_slow || now - c.phase_began_ns > 18 * S))
                reply(c.owner[i], STRAIT_OK);
        }
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
    assert_in_range(c.generation, 3, 6); // one slow worker timed out first
}

/* A snapshot that needs 40 s where 1 s is expected is saved after some attempts, although the steps
 * between them succeed, and also if there is nobody else. */
static void gives_slow_uplinks_time_to_save(void **state) {
    (void)state;
    begin(2);
    c.config.snapshot_bytes[0] = c.config.snapshot_bytes[1] = 1e6;
    const strait_fingerprint key = c.workers[c.owner[1]].key;
    int is_saved = 0;
    for (int n = 0; n < 12 && !is_saved; n++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = 1, .is_slow = 1}});
        assert_int_equal(c.phase, STRAIT_PHASE_WORK);
        const int owner = c.owner[1];
        for (const int64_t end = now + 40 * S; now < end && c.workers[owner].is_connected;) {
            now += S;
            heartbeat(c.owner[0], strait_snapshot_inventory_empty(), 0, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        is_saved = c.workers[owner].is_connected;
        if (is_saved) break;
        join(key.bytes[0] - 1, strait_snapshot_inventory_empty());
        recover();
        run_step(c.step, 0); // a success, which the limit must not forget the failure for
    }
    assert_true(is_saved);
    reply(c.owner[1], STRAIT_OK);
    assert_int_equal(c.n_late_saves, 0);
}

/* Pauses that a worker makes on purpose do not lengthen its lease beyond a limit. */
static void caps_leases(void **state) {
    (void)state;
    begin(3);
    const int slow = 3 - c.owner[0] - c.owner[1];
    for (uint32_t i = 1; i < 20; i++) {
        now += 9 * S;
        for (int k = 0; k < 3; k++)
            heartbeat(k, strait_snapshot_inventory_empty(), i, 0);
    }
    const int64_t began = now;
    while (c.workers[slow].is_connected && now - began < 600 * S) {
        now += S;
        for (int k = 0; k < 3; k++)
            if (k != slow) heartbeat(k, strait_snapshot_inventory_empty(), 0, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_in_range(now - began, 25 * S, 32 * S);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_the_stage_of_a_worker_that_never_finishes),
        cmocka_unit_test(moves_nothing_without_a_spare),
        cmocka_unit_test(replaces_the_cheat_after_a_bounded_number_of_steps),
        cmocka_unit_test(replaces_one_end_of_a_boundary_that_fails),
        cmocka_unit_test(exchanges_stages_without_a_spare),
        cmocka_unit_test(remembers_a_worker_that_reconnects),
        cmocka_unit_test(replaces_an_owner_that_keeps_reconnecting),
        cmocka_unit_test(disconnects_an_owner_that_never_replies),
        cmocka_unit_test(gives_slow_workers_time_to_set_up),
        cmocka_unit_test(gives_slow_uplinks_time_to_save),
        cmocka_unit_test(caps_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
