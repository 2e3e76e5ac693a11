/* Snapshots that arrive slowly are waited for, and those that only seem to arrive are not. */
#include "coordinator_rig.h"

#define BYTES 100000000 // of a snapshot: 1,600 s at the slowest rate, 100 s at that of most phases

/* How many bytes have arrived after so many seconds. */
typedef uint64_t arrive_fn(int64_t s);

static uint64_t nothing(int64_t s) {
    (void)s;
    return 0;
}

static uint64_t slowly(int64_t s) {
    return s < 1600 ? (uint64_t)s * 62500 : BYTES;
}

static uint64_t in_bytes(int64_t s) {
    return (uint64_t)s;
}

/* As slowly, but the link is cut after 200 s. */
static uint64_t a_part(int64_t s) {
    return slowly(s < 200 ? s : 200);
}

/* Half of it at once, and then almost nothing. */
static uint64_t in_a_burst(int64_t s) {
    return s < 100 ? 0 : BYTES / 2 + (uint64_t)(s - 100) * 1000;
}

/* A part of 1.25 MB every 45 s. */
static uint64_t too_slowly(int64_t s) {
    return (uint64_t)s / 45 * 1250001;
}

static uint64_t more_than_there_is(int64_t s) {
    return (uint64_t)s * BYTES + 1;
}

static void beat(int worker, strait_snapshot_arrivals arrived, uint32_t progress) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                              .worker = worker,
                              .inventory = c.workers[worker].inventory,
                              .arrived = arrived,
                              .progress = progress});
}

/* All others have replied. Returns after how many seconds the phase ends in which the owner of
 * `stage` restores a snapshot. */
static int64_t wait_for(int stage, arrive_fn *arrived) {
    const uint32_t generation = c.generation;
    const int64_t began = now;
    assert_int_equal(c.phase, STRAIT_PHASE_RESTORE);
    for (int i = 0; i < c.config.n_stages; i++)
        if (i != stage) reply(c.owner[i], STRAIT_OK);
    for (uint32_t i = 1; c.phase == STRAIT_PHASE_RESTORE && now - began < 7200 * S; i++) {
        now += S;
        for (int slot = 0; slot < 4; slot++)
            if (c.workers[slot].is_connected)
                beat(slot,
                     (strait_snapshot_arrivals){
                         .own = slot == c.owner[stage] ? arrived((now - began) / S) : 0},
                     i);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        if (arrived((now - began) / S) == BYTES) reply(c.owner[stage], STRAIT_OK);
    }
    if (c.phase == STRAIT_PHASE_READY) assert_int_equal(c.generation, generation);
    return (now - began) / S;
}

/* The owner of stage 0 is lost, and a spare restores the copy that the owner of stage 1 has. */
static void begin_with_a_copy(void) {
    begin(4);
    c.config.snapshot_bytes[0] = c.config.snapshot_bytes[1] = BYTES;
    run_step(0, 1);
    strait_snapshot_inventory inventory = own_snapshot(1, 1);
    inventory.prev = own_snapshot(0, 1).own;
    heartbeat(c.owner[1], inventory, 0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    while (c.phase != STRAIT_PHASE_RESTORE)
        for (int i = 0; i < 2; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    assert_int_equal(c.source[0], STRAIT_SWARM_FROM_NEXT);
}

static void waits_for_a_copy_while_it_arrives(void **state) {
    (void)state;
    begin_with_a_copy();
    assert_int_equal(wait_for(0, slowly), 1600);
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
    assert_int_equal(c.step, 1);
}

/* The first byte counts, then every 1.25 MB; the limit without them is 110 s. */
static void gives_up_on_what_does_not_arrive(void **state) {
    (void)state;
    begin_with_a_copy();
    assert_in_range(wait_for(0, nothing), 110, 112);
    begin_with_a_copy();
    assert_in_range(wait_for(0, in_bytes), 110, 112);
    begin_with_a_copy();
    assert_in_range(wait_for(0, in_a_burst), 131, 134);
    begin_with_a_copy();
    assert_in_range(wait_for(0, more_than_there_is), 110, 112);
    assert_int_not_equal(c.phase, STRAIT_PHASE_READY);
}

/* A snapshot of 1 GB is verified and loaded in 20 s, which no part of it is given. */
static void gives_up_on_large_ones_alike(void **state) {
    (void)state;
    begin_with_a_copy();
    c.config.snapshot_bytes[0] = 10.0 * BYTES;
    assert_in_range(wait_for(0, too_slowly), 1010, 1012);
}

/* The owner of stage 0 receives nothing, and that of stage 1, which nobody sends anything, says
 * that it does. */
static int64_t wait_beside_a_liar(int has_replied) {
    begin_with_a_copy();
    const int64_t began = now;
    const int liar = c.owner[1];
    if (has_replied) reply(liar, STRAIT_OK);
    for (uint32_t i = 1; c.phase == STRAIT_PHASE_RESTORE && now - began < 7200 * S; i++) {
        now += S;
        for (int slot = 0; slot < 4; slot++)
            if (c.workers[slot].is_connected)
                beat(
                    slot,
                    (strait_snapshot_arrivals){.own = slot == liar ? slowly((now - began) / S) : 0},
                    i);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    return (now - began) / S;
}

static void believes_nobody_who_is_sent_nothing(void **state) {
    (void)state;
    assert_in_range(wait_beside_a_liar(0), 110, 112);
    assert_in_range(wait_beside_a_liar(1), 110, 112);
}

/* The driver sends the checkpoint to one after the other. */
static void waits_for_its_turn(void **state) {
    (void)state;
    begin(2);
    c.config.snapshot_bytes[0] = c.config.snapshot_bytes[1] = BYTES;
    run_step(0, 0);
    c.checkpoint = 1;
    for (int slot = 0; slot < 2; slot++)
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
    for (int slot = 0; slot < 2; slot++)
        join(slot, strait_snapshot_inventory_empty());
    now += 10 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    while (c.phase != STRAIT_PHASE_RESTORE)
        for (int i = 0; i < 2; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    const int64_t began = now;
    for (uint32_t s = 1; s <= 1000; s++) {
        now += S;
        for (int i = 0; i < 2; i++) {
            const int64_t got = s <= 500 ? (i == 0 ? s : 0) : (i == 0 ? 500 : s - 500);
            beat(c.owner[i], (strait_snapshot_arrivals){.own = (uint64_t)got * (BYTES / 500)}, s);
            if (got == 500 && c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
        }
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
    assert_int_equal((now - began) / S, 1000);
    assert_int_equal(c.step, 1);
}

/* ---- handing over ---- */

/* The owner of stage 0 asks to leave after `n_steps` of 20 s each, and the copy of its stage
 * arrives at its neighbour. Returns how long the others wait for that. */
static int64_t leave_with_large_snapshot(int n_steps, arrive_fn *arrived) {
    begin(3);
    c.config.snapshot_bytes[0] = BYTES;
    for (int i = 0; i < n_steps; i++)
        for (int is_update = 0; is_update < 2; is_update++) {
            goal(i, is_update);
            now += 10 * S;
            get_ready();
        }
    const int leaver = c.owner[0], other = c.owner[1], spare = 3 - leaver - other;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    goal(n_steps, 0);
    heartbeat(leaver, own_snapshot(0, n_steps), 0, 0);
    strait_snapshot_inventory held = own_snapshot(1, n_steps);
    heartbeat(other, held, 0, 0);
    reply(leaver, STRAIT_OK);
    reply(other, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    const int64_t began = now;
    for (uint32_t i = 1; c.workers[leaver].is_connected && now - began < 7200 * S; i++) {
        now += S;
        const uint64_t bytes = arrived((now - began) / S);
        if (bytes == BYTES) {
            held.prev = own_snapshot(0, n_steps).own;
            heartbeat(other, held, i, 0);
        }
        beat(leaver, (strait_snapshot_arrivals){0}, i);
        beat(spare, (strait_snapshot_arrivals){0}, i);
        beat(other, (strait_snapshot_arrivals){.prev = bytes < BYTES ? bytes : 0}, i);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    const int64_t waited = (now - began) / S;
    get_ready();
    return waited;
}

static void waits_for_a_large_copy_on_a_slow_link(void **state) {
    (void)state;
    assert_int_equal(leave_with_large_snapshot(100, slowly), 1600);
    assert_int_equal(c.step, 100);
}

/* Nor longer than what is computed again without it takes. */
static void waits_for_no_copy_longer_than_it_is_worth(void **state) {
    (void)state;
    assert_in_range(leave_with_large_snapshot(10, slowly), 260, 262);
    assert_int_equal(c.step, 0);
    assert_in_range(leave_with_large_snapshot(0, slowly), 60, 62);
}

static void leaves_without_a_copy_that_does_not_arrive(void **state) {
    (void)state;
    assert_in_range(leave_with_large_snapshot(100, nothing), 60, 62);
    assert_in_range(leave_with_large_snapshot(100, in_bytes), 60, 62);
    assert_in_range(leave_with_large_snapshot(100, a_part), 210, 234);
    assert_int_equal(c.step, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_a_copy_while_it_arrives),
        cmocka_unit_test(gives_up_on_what_does_not_arrive),
        cmocka_unit_test(gives_up_on_large_ones_alike),
        cmocka_unit_test(believes_nobody_who_is_sent_nothing),
        cmocka_unit_test(waits_for_its_turn),
        cmocka_unit_test(waits_for_a_large_copy_on_a_slow_link),
        cmocka_unit_test(waits_for_no_copy_longer_than_it_is_worth),
        cmocka_unit_test(leaves_without_a_copy_that_does_not_arrive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
