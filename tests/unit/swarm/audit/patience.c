/* Workers that do not give what audits need: the run hardly waits for them, and they lose their
 * stages. */
#include "returns_rig.h"

enum {
    NEVER = 1000000,
    AT_ONCE = 3,  // turns of a tenth of a second
    SHORT = 150,  // as long as a worker may be silent, and a little more
    BYTES = 1000, // of what is asked for
    SECOND = 10   // turns
};

static int sent_per_turn;

/* The audit needs a snapshot of stage 1 from its owner. */
static struct host_audit *ask_owner(int id, int is_contested) {
    open_audit(id, FROM, is_contested)->since_ns = virtual_ns;
    struct host_audit *a = &audits.open[id];
    a->evidence.spec = (strait_evidence_spec){.stage = 1, .snapshot_bytes = BYTES};
    a->givers[STRAIT_EVIDENCE_SNAPSHOT].keys[0] = h.coordinator.workers[OWNER].key;
    a->givers[STRAIT_EVIDENCE_SNAPSHOT].n = 1;
    a->n_asked[STRAIT_EVIDENCE_SNAPSHOT][0] = 2;
    return a;
}

static void begin_asked(void) {
    begin();
    audits.state.limits = (strait_audit_limits){120 * INT64_C(1000000000), INT64_MAX, INT64_MAX};
    audits.state.items[2].phase = STRAIT_AUDIT_CLOSED;
    audits.open[2].id = 0;
    ask_owner(1, 1);
    gathered_after = NEVER;
}

/* Other replicas differ again. Returns how many turns the run waited. */
static int differ_again(int id) {
    ask_owner(id, 1);
    n_pumped = 0;
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    return n_pumped;
}

static void does_not_stand_still_for_a_silent_worker(void **state) {
    (void)state;
    begin_asked();
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_in_range(n_pumped, 5 * SECOND, SHORT);
    assert_non_null(strstr(noted, "w1: the run waited too long for its audit evidence"));
    assert_true(n_contradictions == 1 && n_limits == 1 && limit == FROM && n_withheld == 0);
    /* What it does again costs itself. */
    assert_in_range(differ_again(3), 1, AT_ONCE);
    assert_true(n_withheld == 1 && withheld == OWNER);
    assert_in_range(differ_again(4), 1, AT_ONCE);
    end();
}

static void send_some(void) {
    strait_host_audit_heard(&h, OWNER, (size_t)sent_per_turn);
}

static void waits_for_one_with_a_slow_link(void **state) {
    (void)state;
    begin_asked();
    on_pumped = send_some;
    sent_per_turn = 10000; // 800 kbit/s
    gathered_after = 60 * SECOND;
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_int_equal(n_pumped, gathered_after);
    assert_true(!is_any_withheld() && strait_host_audit_find(&h, 1) != NULL);
    end();
}

/* A message now and then is not enough. */
static void gives_up_one_that_hardly_sends(void **state) {
    (void)state;
    begin_asked();
    on_pumped = send_some;
    sent_per_turn = 500;
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_in_range(n_pumped, 5 * SECOND, SHORT);
    assert_true(is_any_withheld() && strait_host_audit_find(&h, 1) == NULL);
    end();
}

/* It gives everything, each time at the last moment. */
static void does_not_wait_each_time_for_one_that_is_late(void **state) {
    (void)state;
    begin_asked();
    gathered_after = 9 * SECOND;
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_pumped == gathered_after && !is_any_withheld());
    assert_in_range(differ_again(3), 1, 2 * SECOND);
    assert_true(is_any_withheld());
    virtual_ns += INT64_C(1000000000) * 1000; // it has regained a hundredth of that
    assert_int_equal(differ_again(4), gathered_after);
    end();
}

/* The host was busy itself: a disk, or another process. */
static void does_not_blame_workers_for_its_own_delay(void **state) {
    (void)state;
    begin_asked();
    gathered_after = 2;
    virtual_ns += 60 * INT64_C(1000000000);
    assert_int_equal(strait_host_audit_check(&h), STRAIT_EAGAIN);
    assert_true(n_pumped == 2 && !is_any_withheld());
    end();
}

static void refuse(int id) {
    const strait_fingerprint key = h.coordinator.workers[OWNER].key;
    ask_owner(id, 0);
    strait_host_audit_drop(&h, (uint32_t)id, &key, "gives nothing");
}

static void give(int n) {
    struct host_audit *a = ask_owner(5, 0);
    for (int i = 0; i < n; i++)
        strait_host_audit_gave(&h, a);
    audits.state.items[5].phase = STRAIT_AUDIT_CLOSED;
    a->id = 0;
}

/* Three refusals cost a stage, unless the worker has given much since. A refusal for each time that
 * it gives would let it lie whenever it likes. */
static void forgets_refusals_of_one_that_gives(void **state) {
    (void)state;
    for (int n_given = 1; n_given <= 32; n_given += 31) {
        begin_asked();
        refuse(3);
        refuse(4);
        give(n_given);
        refuse(6);
        assert_int_equal(n_withheld, n_given < 32);
        refuse(7);
        assert_int_equal(n_withheld, 1);
        end();
    }
}

static void tick_for(int seconds) {
    for (int i = 0; i < seconds; i++) {
        virtual_ns += INT64_C(1000000000);
        strait_host_audit_tick(&h, virtual_ns);
    }
}

/* The same of one that says nothing: nobody waits for it, but it avoids audits. */
static void counts_silence_as_a_refusal(void **state) {
    (void)state;
    begin_asked();
    audits.open[1].id = 0;
    audits.state.items[1].phase = STRAIT_AUDIT_CLOSED;
    for (int i = 0; i < STRAIT_AUDIT_REFUSALS; i++) {
        assert_int_equal(n_withheld, 0);
        ask_owner(3, 0);
        strait_host_audit_tick(&h, virtual_ns);
        assert_non_null(strait_host_audit_find(&h, 3));
        tick_for(121);
        assert_null(strait_host_audit_find(&h, 3));
    }
    assert_true(n_withheld == 1 && withheld == OWNER);
    end();
}

/* The host was stopped: what workers sent meanwhile is still on its way through the sockets. */
static void does_not_count_silence_while_the_host_is_stopped(void **state) {
    (void)state;
    begin_asked();
    audits.open[1].id = 0;
    audits.state.items[1].phase = STRAIT_AUDIT_CLOSED;
    ask_owner(3, 0);
    tick_for(100);
    virtual_ns += 3600 * INT64_C(1000000000);
    strait_host_audit_tick(&h, virtual_ns);
    tick_for(15);
    assert_true(strait_host_audit_find(&h, 3) != NULL && !is_any_withheld());
    tick_for(10);
    assert_true(strait_host_audit_find(&h, 3) == NULL && is_any_withheld());
    end();
}

/* And of one that leaves when it is asked, and comes back. One that was given another stage has
 * nothing to give. */
static void counts_leaving_as_a_refusal(void **state) {
    (void)state;
    for (int has_left = 0; has_left < 2; has_left++) {
        begin_asked();
        for (int i = 0; i < STRAIT_AUDIT_REFUSALS; i++) {
            ask_owner(3, 0);
            if (has_left)
                h.coordinator.workers[OWNER].is_connected = 0;
            else
                h.coordinator.workers[OWNER].stage = 0;
            strait_host_audit_tick(&h, virtual_ns);
            assert_null(strait_host_audit_find(&h, 3));
            h.coordinator.workers[OWNER].is_connected = 1;
            h.coordinator.workers[OWNER].stage = 1;
        }
        assert_true(n_withheld == has_left);
        end();
    }
}

/* One cut link, or one moment that is too late, ends all audits that wait for a worker, and is
 * counted once. */
static void counts_one_cut_or_delay_once(void **state) {
    (void)state;
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        begin_asked();
        for (int id = 3; id < 6; id++)
            ask_owner(id, 0);
        strait_host_audit_tick(&h, virtual_ns);
        if (is_cut) h.coordinator.workers[OWNER].is_connected = 0;
        tick_for(is_cut ? 1 : 121);
        for (int id = 3; id < 6; id++)
            assert_null(strait_host_audit_find(&h, (uint32_t)id));
        const struct host_withheld *record = strait_host_audit_find_record(
            &audits, &h.coordinator.workers[OWNER].key);
        assert_true(record != NULL && record->n == 1 && n_withheld == 0);
        h.coordinator.workers[OWNER].is_connected = 1;
        end();
    }
}

/* A worker asks to leave, and has left at the next step. Returns whether a refusal is counted. */
static int leave(int id, int asks_first) {
    if (asks_first) strait_host_audit_leaves(&h, OWNER);
    virtual_ns += 1000;
    strait_host_audit_asked(&h, &h.coordinator.workers[OWNER].key);
    ask_owner(id, 0);
    virtual_ns += 1000;
    if (!asks_first) strait_host_audit_leaves(&h, OWNER);
    const int before = is_any_withheld();
    h.coordinator.workers[OWNER].is_connected = 0;
    strait_host_audit_tick(&h, virtual_ns);
    assert_null(strait_host_audit_find(&h, (uint32_t)id));
    h.coordinator.workers[OWNER].is_connected = 1;
    h.coordinator.workers[OWNER].is_leaving = 0;
    return is_any_withheld() && !before;
}

/* Who asked to leave before something was drawn could not know it, but perhaps when it would be:
 * that is excused some times. */
static void excuses_those_that_were_leaving(void **state) {
    (void)state;
    begin_asked();
    for (int i = 0; i < 4; i++) {
        h.coordinator.workers[OWNER].is_leaving = 1;
        assert_false(leave(3, 1));
    }
    give(32);
    for (int i = 0; i < 4; i++) {
        h.coordinator.workers[OWNER].is_leaving = 1;
        assert_false(leave(3, 1));
    }
    h.coordinator.workers[OWNER].is_leaving = 1;
    assert_true(leave(3, 1));
    end();
    begin_asked(); // it has come back since
    strait_host_audit_leaves(&h, OWNER);
    strait_host_audit_asked(&h, &h.coordinator.workers[OWNER].key);
    ask_owner(3, 0);
    h.coordinator.workers[OWNER].is_connected = 0;
    strait_host_audit_tick(&h, virtual_ns);
    assert_true(is_any_withheld());
    end();
}

/* Who asks to leave when it is asked for something has an excuse once, and again after it has given
 * much. */
static void excuses_a_polite_leave_once(void **state) {
    (void)state;
    begin_asked();
    ask_owner(4, 0); // two audits wait for it
    assert_false(leave(3, 0));
    assert_null(strait_host_audit_find(&h, 4));
    give(32);
    assert_false(leave(3, 0));
    assert_true(leave(3, 0));
    end();
}

/* It kept its stage for want of a spare. */
static void undoes_that_it_withheld_by_giving(void **state) {
    (void)state;
    begin_asked();
    h.coordinator.workers[OWNER].standing.withholds = 1;
    give(31);
    assert_int_equal(n_gave, 0);
    give(1);
    assert_int_equal(n_gave, 1);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_not_stand_still_for_a_silent_worker),
        cmocka_unit_test(waits_for_one_with_a_slow_link),
        cmocka_unit_test(gives_up_one_that_hardly_sends),
        cmocka_unit_test(does_not_wait_each_time_for_one_that_is_late),
        cmocka_unit_test(does_not_blame_workers_for_its_own_delay),
        cmocka_unit_test(forgets_refusals_of_one_that_gives),
        cmocka_unit_test(counts_silence_as_a_refusal),
        cmocka_unit_test(does_not_count_silence_while_the_host_is_stopped),
        cmocka_unit_test(counts_leaving_as_a_refusal),
        cmocka_unit_test(counts_one_cut_or_delay_once),
        cmocka_unit_test(excuses_those_that_were_leaving),
        cmocka_unit_test(excuses_a_polite_leave_once),
        cmocka_unit_test(undoes_that_it_withheld_by_giving)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
