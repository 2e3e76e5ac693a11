/* The emulator and the delay line, in simulated time. */
#include "net/emulate/emulate.h"

#include "check.h"
#include "net/emulate/delay_line.h"

static const int64_t MS = 1000000;

static void adds_serialisation_time_and_delay(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.rate_bps = 80e6, .delay_ns = 30 * MS};
    struct strait_emulate e;
    strait_emulate_init(&e, &spec, NULL, 5 * MS);
    /* 1448 bytes and 66 of headers at 10 bytes per microsecond. */
    CHECK(strait_emulate_send(&e, 10 * MS, 1448) == 10 * MS + 151400 + 30 * MS);
    CHECK(strait_emulate_send(&e, 10 * MS, 1448) == 10 * MS + 2 * 151400 + 30 * MS);
    CHECK(e.free_ns == 10 * MS + 2 * 151400);
    /* An idle wire starts at once; idle time does not accumulate. */
    CHECK(strait_emulate_send(&e, 50 * MS, 1) == 50 * MS + 6700 + 30 * MS);
    CHECK(strait_emulate_next_send_ns(&e, e.free_ns) == 50 * MS + 6700 - 10 * MS);
    CHECK(strait_emulate_in_flight(&spec) >= 600000);
}

static void sends_bulk_at_the_configured_rate(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.rate_bps = 80e6, .delay_ns = 30 * MS};
    struct strait_emulate e;
    strait_emulate_init(&e, &spec, NULL, 0);
    int64_t due = 0;
    for (int i = 0; i < 1000; i++)
        due = strait_emulate_send(&e, 0, 16406);
    CHECK_NEAR((double)due * 1e-9, 1000 * 16406 * 8 / 80e6 * (1 + 12 * 66.0 / 16406) + 0.03, 1e-6);
}

/* One link is given all of its bytes first, as a caller with a full queue would do it. */
static void links_of_a_home_share_its_way_out(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.up_bps = 80e6, .delay_ns = 30 * MS};
    struct strait_emulate_home home = {0};
    struct strait_emulate links[2];
    int n_sent[2] = {0}, n_half[2] = {0};
    int64_t due = 0;
    for (int k = 0; k < 2; k++)
        strait_emulate_init(&links[k], &spec, &home, 0);
    for (int64_t now = 0; n_sent[0] + n_sent[1] < 2000; now += MS / 4)
        for (int k = 0; k < 2; k++)
            while (n_sent[k] < 1000 &&
                   strait_emulate_next_send_ns(&links[k], links[k].free_ns) <= now) {
                due = strait_emulate_send(&links[k], now, 16406);
                n_sent[k]++;
                if (n_sent[0] + n_sent[1] == 1000) memcpy(n_half, n_sent, sizeof n_half);
            }
    CHECK_NEAR((double)due * 1e-9, 2000 * 16406 * 8 / 80e6 * (1 + 12 * 66.0 / 16406) + 0.03, 1e-3);
    CHECK(n_half[0] >= 490 && n_half[0] <= 510);
    /* A link with a rate of its own is not faster than that, however wide the way out. */
    const strait_emulate_spec narrow = {.up_bps = 80e6, .rate_bps = 10e6};
    struct strait_emulate_home idle = {0};
    strait_emulate_init(&links[0], &narrow, &idle, 0);
    CHECK(strait_emulate_send(&links[0], 0, 1448) == 8 * 151400);
    CHECK(idle.up.free_ns == 151400 && idle.down.free_ns == 0);
}

static void links_of_a_home_share_its_way_in(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.down_bps = 80e6, .up_bps = 8e6};
    struct strait_emulate_home home = {0};
    struct strait_emulate links[3];
    for (int k = 0; k < 2; k++)
        strait_emulate_init(&links[k], &spec, &home, 0);
    CHECK(strait_emulate_receive(&links[0], 5 * MS, 1448) == 5 * MS + 151400);
    CHECK(strait_emulate_receive(&links[1], 5 * MS, 1448) == 5 * MS + 2 * 151400);
    CHECK(strait_emulate_receive(&links[0], 9 * MS, 1448) == 9 * MS + 151400);
    CHECK(home.up.free_ns == 9 * MS + 33000); // acknowledgements: half a header per packet
    strait_emulate_init(&links[2], &(strait_emulate_spec){.rate_bps = 80e6}, NULL, 0);
    CHECK(strait_emulate_receive(&links[2], 5 * MS, 1448) == 5 * MS);
    CHECK(strait_emulate_portion(0, 65536) == 65536);
    CHECK(strait_emulate_portion(10e6, 65536) == 5000);
    CHECK(strait_emulate_portion(1e3, 65536) == 2896);
    CHECK(strait_emulate_portion(10e6, 100) == 100);
}

static void applies_delay_without_a_rate(void **state) {
    (void)state;
    CHECK(!strait_emulate_is_on(&(strait_emulate_spec){.seed = 3}));
    const strait_emulate_spec spec = {.delay_ns = 7 * MS};
    CHECK(strait_emulate_is_on(&spec));
    struct strait_emulate e;
    strait_emulate_init(&e, &spec, NULL, 0);
    CHECK(strait_emulate_send(&e, 3 * MS, 1000000) == 10 * MS);
    CHECK(strait_emulate_next_send_ns(&e, e.free_ns) == INT64_MIN);
}

static void keeps_order_under_jitter(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.delay_ns = 10 * MS, .jitter_ns = 20 * MS, .seed = 4};
    struct strait_emulate e;
    strait_emulate_init(&e, &spec, NULL, 0);
    int64_t last = 0, most = 0, least = INT64_MAX;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t sent = i * 40 * MS;
        const int64_t due = strait_emulate_send(&e, sent, 100);
        CHECK(due >= last && due - sent >= 10 * MS && due - sent < 30 * MS);
        if (due - sent > most) most = due - sent;
        if (due - sent < least) least = due - sent;
        last = due;
    }
    CHECK(most > 29 * MS && least < 11 * MS);
}

static void delays_lost_packets_by_round_trips(void **state) {
    (void)state;
    const strait_emulate_spec spec = {.delay_ns = 30 * MS, .loss = 0.01, .seed = 1};
    struct strait_emulate e;
    strait_emulate_init(&e, &spec, NULL, 0);
    int n_late = 0;
    int64_t longest = 0;
    for (int64_t i = 0; i < 20000; i++) {
        const int64_t sent = i * 1000 * MS;
        const int64_t took = strait_emulate_send(&e, sent, 1448) - sent;
        if (took > 30 * MS) n_late++;
        if (took > longest) longest = took;
        CHECK(took == 30 * MS || (took - 30 * MS) % (60 * MS) == 0);
    }
    CHECK(n_late > 140 && n_late < 260);               // 200 +- 4 sigma
    CHECK(longest >= 150 * MS && longest <= 400 * MS); // some retransmissions were lost too
}

static void drops_everything_after_the_limit(void **state) {
    (void)state;
    struct strait_emulate e;
    strait_emulate_init(&e, &(strait_emulate_spec){.drop_after_ns = 100 * MS}, NULL, 50 * MS);
    CHECK(strait_emulate_send(&e, 149 * MS, 10) == 149 * MS);
    CHECK(strait_emulate_send(&e, 150 * MS, 10) == INT64_MAX);
    strait_emulate_init(&e, &(strait_emulate_spec){.drop_after_bytes = 1000}, NULL, 0);
    CHECK(strait_emulate_send(&e, 0, 1000) == 0);
    CHECK(strait_emulate_send(&e, 0, 1) == INT64_MAX);
}

static void put(struct strait_delay_line *line, const char *text, int64_t due) {
    for (size_t n = strlen(text); n > 0;) {
        size_t capacity = 0;
        unsigned char *space = strait_delay_line_space(line, &capacity);
        CHECK(capacity > 0);
        if (capacity > n) capacity = n;
        memcpy(space, text, capacity);
        strait_delay_line_added(line, capacity, due);
        text += capacity;
        n -= capacity;
    }
}

static void expect(struct strait_delay_line *line, const char *text) {
    for (size_t n = strlen(text); n > 0;) {
        size_t ready = 0;
        const unsigned char *bytes = strait_delay_line_ready(line, &ready);
        CHECK(ready > 0 && ready <= n);
        assert_memory_equal(bytes, text, ready);
        strait_delay_line_sent(line, ready);
        text += ready;
        n -= ready;
    }
}

static void delay_line_releases_bytes_when_due(void **state) {
    (void)state;
    struct strait_delay_line line = {0};
    CHECK_OK(strait_delay_line_reserve(&line, 1));
    CHECK(line.capacity == 65536 && strait_delay_line_is_empty(&line));
    for (int i = 0; i < 20000; i++) { // wraps the ring several times
        put(&line, "early", 10 + i);
        put(&line, "later!", 20 + i);
        size_t ready = 1;
        CHECK(strait_delay_line_release(&line, 9 + i) == 10 + i);
        (void)strait_delay_line_ready(&line, &ready);
        CHECK(ready == 0);
        CHECK(strait_delay_line_release(&line, 10 + i) == 20 + i);
        expect(&line, "early");
        if (i == 7777) CHECK_OK(strait_delay_line_reserve(&line, 100000)); // keeps its content
        CHECK(strait_delay_line_release(&line, 20 + i) == INT64_MAX);
        expect(&line, "later!");
        CHECK(strait_delay_line_is_empty(&line));
    }
    CHECK(line.capacity == 131072);
    for (int64_t i = 0; i < 128; i++) // one mark each
        put(&line, "x", 100000 + i);
    CHECK(strait_delay_line_capacity(&line) == 0);
    strait_delay_line_fini(&line);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_serialisation_time_and_delay),
        cmocka_unit_test(sends_bulk_at_the_configured_rate),
        cmocka_unit_test(links_of_a_home_share_its_way_out),
        cmocka_unit_test(links_of_a_home_share_its_way_in),
        cmocka_unit_test(applies_delay_without_a_rate),
        cmocka_unit_test(keeps_order_under_jitter),
        cmocka_unit_test(delays_lost_packets_by_round_trips),
        cmocka_unit_test(drops_everything_after_the_limit),
        cmocka_unit_test(delay_line_releases_bytes_when_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
