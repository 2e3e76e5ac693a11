/* A limit on the bytes per second of all links of a process. */
#include "net/core/bandwidth.h"

#include "tcp_rig.h"

#define SECOND INT64_C(1000000000)

static void bytes_are_paid_for_in_time(void **state) {
    struct strait_bandwidth limit;
    int64_t now = 10 * SECOND;
    (void)state;
    strait_bandwidth_init(&limit, 8e6);
    CHECK(strait_bandwidth_due_ns(&limit, now) <= now);
    /* 1,448 bytes take 1,514 on the wire; 20 ms of unused time count. */
    for (int i = 0; i < 1000; i++)
        strait_bandwidth_spend(&limit, NULL, 1448, now);
    CHECK_NEAR((double)(strait_bandwidth_due_ns(&limit, now) - now) * 1e-9, 1.514 - 0.02, 1e-6);
    now += 2 * SECOND;
    CHECK(strait_bandwidth_due_ns(&limit, now) <= now);
    strait_bandwidth_spend(&limit, NULL, 14480, now);
    CHECK(strait_bandwidth_due_ns(&limit, now) <= now); // within the unused 20 ms
    strait_bandwidth_fini(&limit);
}

static void without_a_limit_nothing_waits(void **state) {
    (void)state;
    CHECK(strait_bandwidth_due_ns(NULL, 7) == 7);
    strait_bandwidth_spend(NULL, NULL, 1 << 20, 7);
    CHECK(strait_bandwidth_portion(NULL, 123456) == 123456);
}

static void portions_take_a_fiftieth_of_a_second(void **state) {
    struct strait_bandwidth limit;
    (void)state;
    strait_bandwidth_init(&limit, 80e6);
    CHECK(strait_bandwidth_portion(&limit, 1 << 20) == 200000);
    CHECK(strait_bandwidth_portion(&limit, 5000) == 5000);
    strait_bandwidth_fini(&limit);
    strait_bandwidth_init(&limit, 1e5);
    CHECK(strait_bandwidth_portion(&limit, 1 << 20) == 4096);
    strait_bandwidth_fini(&limit);
}

/* Lets links send a packet each time that they may, asked in the same order every millisecond;
 * writes how many each has sent. */
static void send_for(struct strait_bandwidth *limit, const char *links, int64_t *now, int ms,
                     int *sent) {
    for (int t = 0; t < ms; t++, *now += 1000000)
        for (int i = 0; links[i] != '\0'; i++) {
            if (strait_bandwidth_turn_ns(limit, &links[i], *now) > *now) continue;
            strait_bandwidth_spend(limit, &links[i], 1448, *now);
            sent[i]++;
        }
}

static void links_that_wait_take_turns(void **state) {
    struct strait_bandwidth limit;
    int64_t now = 1000000000;
    int sent[3] = {0};
    (void)state;
    strait_bandwidth_init(&limit, 8e5); // a packet takes 15 ms
    send_for(&limit, "abc", &now, 3000, sent);
    CHECK(sent[0] + sent[1] + sent[2] > 180);
    CHECK(sent[0] - sent[1] < 4 && sent[0] - sent[2] < 4 && sent[2] - sent[0] < 4);
    /* Links that have gone hold nobody up. */
    int alone = 0;
    send_for(&limit, "d", &now, 3000, &alone);
    CHECK(alone > 180);
    strait_bandwidth_fini(&limit);
}

/* A megabyte at 16 Mbit/s takes half a second; a busy machine may take longer. */
static void check_limited(void) {
    rig_connect(&r);
    const double seconds = rig_bulk(&r, 32, 32768);
    if (seconds < 0.5) fail_msg("1 MiB took %.3f s", seconds);
}

static void sending_is_limited(void **state) {
    struct strait_bandwidth limit;
    (void)state;
    strait_bandwidth_init(&limit, 16e6);
    r.config.up = &limit;
    check_limited();
    rig_close(&r);
    strait_bandwidth_fini(&limit);
    rig_open(&r, "tls");
}

static void receiving_is_limited(void **state) {
    struct strait_bandwidth limit;
    (void)state;
    strait_bandwidth_init(&limit, 16e6);
    r.config.down = &limit;
    check_limited();
    rig_close(&r);
    strait_bandwidth_fini(&limit);
    rig_open(&r, "tls");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_paid_for_in_time),
        cmocka_unit_test(without_a_limit_nothing_waits),
        cmocka_unit_test(portions_take_a_fiftieth_of_a_second),
        cmocka_unit_test(links_that_wait_take_turns),
        WITH_RIG(sending_is_limited),
        WITH_RIG(receiving_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
