/* How long a replica of a swarm waits for what others send in an exchange of weights. */
#include "outer_rig.h"
#include "stage/outer/outer_state.h"

/* A sender lets a chunk cross per deadline, or bytes at the rate of a slow link. */
static void bytes_that_trickle_do_not_extend_the_wait(void **state) {
    (void)state;
    const int64_t second = INT64_C(1000000000), deadline = 60 * second;
    for (int k = 0; k < 3; k++) {
        const int is_trickle = k == 1;
        const uint64_t bytes = is_trickle ? 4400 : STRAIT_OUTER_SLOWEST; // in a second
        int64_t until = deadline, now = 0;
        is_wary = k < 2;
        open_both(32, 1, 0);
        begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
        while (now < 600 * second && now <= until) {
            now += second;
            until = strait_outer_extend(sides[0].outer, until, bytes, now, deadline);
            CHECK(until <= now + deadline);
        }
        CHECK(is_trickle ? now > 60 * second && now < 70 * second : now == 600 * second);
        /* After a pause, in which it waited for others itself, it makes up for it. */
        CHECK(strait_outer_extend(sides[0].outer, now + second, bytes, now, deadline) > now);
        CHECK(strait_outer_extend(sides[0].outer, now + second, 0, now, deadline) == now + second);
        close_both();
    }
    is_wary = 1;
}

/* Many senders share the time that the slowest of them may take. */
static void bytes_of_many_senders_extend_the_wait_by_the_sum(void **state) {
    (void)state;
    const int64_t deadline = INT64_C(60000000000);
    open_both(32, 1, 0);
    begin(0, (strait_outer_exchange){.step = 1, .members = BOTH});
    for (int n_others = 1; n_others <= 7; n_others += 6) {
        sides[0].outer->exchange.alive = (UINT64_C(2) << n_others) - 1;
        const int64_t until = strait_outer_extend(sides[0].outer, 1000000000, STRAIT_OUTER_SLOWEST,
                                                  0, deadline);
        CHECK_NEAR((double)until / 1e9, 1.0 + n_others, 1e-6);
    }
    close_both();
}

/* A replica that lacks parts is named before one without results. Numbers begin at 1; 0 is none. */
static void names_the_first_of_those_it_waits_for(void **state) {
    (void)state;
    const uint64_t last = UINT64_C(1) << (STRAIT_RUN_REPLICAS - 1);
    assert_int_equal(strait_outer_first(0, 0), 0);
    assert_int_equal(strait_outer_first(6, 1), 2);
    assert_int_equal(strait_outer_first(0, 1), 1);
    assert_int_equal(strait_outer_first(last, 1), STRAIT_RUN_REPLICAS);
}

/* The coordinator gives up on a worker later than any of them gives up on others: whoever takes
 * part, however many fragments there are. */
static void no_exchange_may_take_longer_than_is_planned(void **state) {
    (void)state;
    enum {
        MOST = 8
    };
    for (int bits = 4; bits <= 32; bits += 28)
        for (int fragments = 1; fragments <= 3; fragments += 2) {
            open_both(bits, fragments, 0);
            for (int n = 2; n <= MOST; n++) {
                const uint64_t alive = (UINT64_C(1) << n) - 1;
                strait_outer_spec spec = sides[0].outer->spec;
                struct strait_outer *o = NULL;
                int64_t longest = 0;
                spec.n_replicas = n;
                CHECK_OK(strait_outer_open(&spec, sides[0].backend, &o));
                strait_outer_connect(o, pair.meshes[0],
                                     (int[MOST]){-1, -1, -1, -1, -1, -1, -1, -1});
                CHECK_OK(strait_outer_restart(o, &sides[0].stream));
                for (uint64_t members = 1; members <= alive; members = 2 * members + 1)
                    for (int f = 0; f < fragments; f++) {
                        strait_outer_exchange e = {
                            .step = 1, .fragment = f, .members = members, .alive = alive};
                        for (int r = 0; r < n; r++)
                            e.shares[r] = 1.0f;
                        CHECK_OK(strait_outer_begin(o, &sides[0].stream, &e));
                        const int64_t limit = strait_outer_limit_ns(o, 1000);
                        if (limit > longest) longest = limit;
                    }
                const int64_t planned = strait_outer_wait_ns(strait_outer_most_bytes(&spec), 1000);
                CHECK(longest <= 2 * planned);
                CHECK(2.0 * (double)planned < 2.2 * (double)longest); // and hardly later
                strait_outer_close(&o);
            }
            close_both();
        }
}

int main(void) {
    is_wary = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_trickle_do_not_extend_the_wait),
        cmocka_unit_test(bytes_of_many_senders_extend_the_wait_by_the_sum),
        cmocka_unit_test(names_the_first_of_those_it_waits_for),
        cmocka_unit_test(no_exchange_may_take_longer_than_is_planned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
