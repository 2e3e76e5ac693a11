#include "plan/delay.h"

#include "check.h"
#include "rig.h"

static void one_piece_is_late_by_half_the_jitter(void **state) {
    (void)state;
    strait_delay_spec s = {.delay_s = 0.1, .n_pieces = 1, .piece_packets = 1};
    CHECK_NEAR(strait_delay_extra(&s), 0.0, 1e-12);
    s.jitter_s = 0.02;
    CHECK_NEAR(strait_delay_extra(&s), 0.01, 1e-4);
    s.n_pieces = 3; // sent at once: the latest of three counts
    CHECK_NEAR(strait_delay_extra(&s), 0.015, 1e-4);
    s.piece_s = 1.0; // earlier pieces have arrived by then
    CHECK_NEAR(strait_delay_extra(&s), 0.01, 1e-4);
}

static void a_lost_packet_costs_round_trips(void **state) {
    (void)state;
    strait_delay_spec s = {.delay_s = 0.1, .loss = 0.1, .n_pieces = 1, .piece_packets = 1};
    CHECK_NEAR(strait_delay_extra(&s), 0.1 / 0.9 * 0.2, 1e-3); // a repair may be lost too
    s.piece_packets = 2;
    CHECK_NEAR(strait_delay_extra(&s), 0.19 / 0.9 * 0.2, 1e-3);
    s.message_s = 0.1; // in the middle of a repair of the previous message
    CHECK(strait_delay_extra(&s) > 0.19 / 0.9 * 0.2 + 0.19 * 0.8 * 0.1);
}

/* Simulates the lateness as an emulated link does, piece by piece. */
static double played(const strait_delay_spec *s) {
    enum {
        MESSAGES = 200000
    };
    dice d = {.seed = 7};
    double due = 0.0, sum = 0.0;
    for (int k = 0; k < MESSAGES; k++)
        for (int i = 0; i < s->n_pieces; i++) {
            const double sent = k * s->message_s + i * s->piece_s;
            double at = sent + s->jitter_s * dice_real(&d);
            int n = 0;
            for (int p = 0; p < (int)s->piece_packets; p++)
                n |= dice_real(&d) < s->loss;
            while (n > 0 && dice_real(&d) < s->loss)
                n++;
            at += n * 2.0 * (s->delay_s + s->jitter_s / 2.0);
            if (at > due) due = at;
            if (i == s->n_pieces - 1) sum += due - sent;
        }
    return sum / MESSAGES;
}

static void mean_matches_many_random_draws(void **state) {
    (void)state;
    const strait_delay_spec cases[] = {{0.05, 0.02, 0.0, 4, 12, 0.002, 0.03},
                                       {0.05, 0.0, 0.01, 1, 3, 0.001, 0.02},
                                       {0.025, 0.01, 0.002, 6, 12, 0.001, 0.05},
                                       {0.1, 0.05, 0.02, 2, 5, 0.004, 0.04}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double wanted = played(&cases[i]);
        CHECK_NEAR(strait_delay_extra(&cases[i]), wanted, 0.03 * wanted);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_piece_is_late_by_half_the_jitter),
        cmocka_unit_test(a_lost_packet_costs_round_trips),
        cmocka_unit_test(mean_matches_many_random_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
