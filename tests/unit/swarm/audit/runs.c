/* How often an interval is drawn, and simulated runs with owners that lie and spares that accuse or
 * approve everyone. */
#include "rig.h"

#include <math.h>

/* ---- the draw ---- */

static void draws_the_share_that_is_set(void **state) {
    (void)state;
    static const double shares[] = {0.01, 0.1, 0.5};
    for (int k = 0; k < 3; k++) {
        const int n = 1000;
        int n_drawn = 0;
        start(shares[k]);
        for (int64_t i = 1; i <= n; i++) {
            commit_all(8 * i, -1);
            n_drawn += end.n_drawn;
            memset(audits.items, 0, sizeof audits.items);
        }
        const double mean = shares[k] * n * N_STAGES;
        const double sigma = sqrt(mean * (1.0 - shares[k]));
        assert_true(fabs(n_drawn - mean) < 5.0 * sigma);
    }
}

static void draws_by_the_key_alone(void **state) {
    (void)state;
    int n_same = 0;
    for (int64_t i = 1; i <= 64; i++) {
        int drawn[2];
        for (int k = 0; k < 2; k++) {
            key[1] = (unsigned char)k;
            start(0.5);
            strait_audits_begin(&audits, 8 * i, 1);
            commit_all(8 * i + 8, -1);
            drawn[k] = audits.items[0].stage * 16 + end.n_drawn;
        }
        n_same += drawn[0] == drawn[1];
    }
    key[1] = 0;
    assert_in_range(n_same, 0, 48);
}

/* ---- whole runs ---- */

enum {
    SPARES = 9,
    RUNS = 200,
    INTERVALS = 60
};

typedef enum nature {
    HONEST,
    ACCUSES,  // always replies with something else
    APPROVES, // computes nothing: replies with what it was given, the snapshot at the beginning
} nature;

static uint64_t random_state;
static double draw(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

struct world {
    nature spares[SPARES];
    int is_banned[SPARES];
    int n_honest_banned;
    int is_liar_found;
};

static void convict(struct world *w, int liar) {
    w->is_liar_found |= is_guilty(100 + liar);
    for (int i = 0; i < SPARES; i++) {
        if (!is_guilty(i)) continue;
        w->is_banned[i] = 1;
        w->n_honest_banned += w->spares[i] == HONEST;
    }
    for (int i = 0; i < N_STAGES; i++)
        w->n_honest_banned += i != liar && is_guilty(100 + i);
}

/* Lets spares compute every open audit until there is a verdict. */
static void judge(struct world *w, int liar) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        strait_audit *audit = &audits.items[i];
        strait_audits_gathered(&audits, audit->id, 0);
        while (audit->phase == STRAIT_AUDIT_WAITING) {
            strait_fingerprint candidates[SPARES];
            int who[SPARES];
            int n = 0;
            for (int k = 0; k < SPARES; k++)
                if (!w->is_banned[k]) candidates[n] = worker(k), who[n++] = k;
            const int chosen = strait_audits_assign(&audits, audit->id, candidates, n, 0);
            if (chosen < 0) {
                strait_audits_drop(&audits, audit->id, "none left", &verdict);
                break;
            }
            const nature is = w->spares[who[chosen]];
            const strait_commitment *c = &audit->commitment;
            strait_audit_result result = honest_result(audit->stage, c->from, c->to);
            if (is == ACCUSES) result.snapshot = digest_of("random", who[chosen], 0);
            if (is == APPROVES) result.snapshot = digest_of("snapshot", c->from, audit->stage);
            strait_audits_vote(&audits, audit->id, &candidates[chosen], &result, 0, 0, &verdict);
            convict(w, liar);
        }
    }
}

/* A run in which the owner of one stage lies in some intervals, until it is found. */
static void run(struct world *w, double share, double rate) {
    const int liar = (int)(draw() * N_STAGES);
    start(share);
    key[2]++; // another host
    for (int64_t i = 1; i <= INTERVALS && !w->is_liar_found; i++) {
        commit_all(8 * i, draw() < rate ? liar : -1);
        judge(w, liar);
    }
}

static void populate(struct world *w, int n_accuse, int n_approve) {
    memset(w, 0, sizeof *w);
    for (int i = 0; i < SPARES; i++)
        w->spares[i] = i < n_accuse ? ACCUSES : i < n_accuse + n_approve ? APPROVES : HONEST;
}

/* The probability that the host prints is the share of runs in which the liar is found. */
static void finds_liars_with_the_probability_it_states(void **state) {
    (void)state;
    static const struct { double share, rate; } cases[] = {{0.01, 1.0}, {0.05, 0.3}, {0.2, 0.1}};
    random_state = 11;
    for (int k = 0; k < 3; k++) {
        int n_found = 0;
        for (int i = 0; i < RUNS; i++) {
            struct world w;
            populate(&w, 0, 0);
            run(&w, cases[k].share, cases[k].rate);
            n_found += w.is_liar_found;
            assert_int_equal(w.n_honest_banned, 0);
        }
        /* Over the number of lies of a whole run, which is binomial. */
        const double p = strait_audit_detection(cases[k].share * cases[k].rate, INTERVALS);
        const double expected = RUNS * p, sigma = sqrt(RUNS * p * (1.0 - p));
        if (fabs(n_found - expected) > 4.0 * sigma)
            fail_msg("share %g, rate %g: found in %d of %d runs, expected %.1f +- %.1f",
                     cases[k].share, cases[k].rate, n_found, RUNS, expected, sigma);
    }
}

/* Among nine spares are two that accuse everyone and two that approve of everything: all lies that
 * are drawn are still found, and no honest worker is banned. */
static void bans_no_honest_worker_for_false_spares(void **state) {
    (void)state;
    random_state = 5;
    int n_found = 0, n_false_banned = 0;
    for (int i = 0; i < RUNS; i++) {
        struct world w;
        populate(&w, 2, 2);
        run(&w, 1.0, 0.2);
        n_found += w.is_liar_found;
        for (int k = 0; k < 4; k++)
            n_false_banned += w.is_banned[k];
        assert_int_equal(w.n_honest_banned, 0);
    }
    assert_int_equal(n_found, RUNS);
    assert_true(n_false_banned > RUNS); // they are out as soon as they are asked
}

static void states_the_probability_of_detection(void **state) {
    (void)state;
    assert_true(fabs(strait_audit_detection(0.01, 1) - 0.01) < 1e-12);
    assert_true(fabs(strait_audit_detection(0.01, 100) - (1.0 - pow(0.99, 100))) < 1e-12);
    assert_true(strait_audit_detection(0.0, 1e6) == 0.0);
    assert_true(strait_audit_detection(1.0, 1) == 1.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(draws_the_share_that_is_set),
                                       cmocka_unit_test(draws_by_the_key_alone),
                                       cmocka_unit_test(finds_liars_with_the_probability_it_states),
                                       cmocka_unit_test(bans_no_honest_worker_for_false_spares),
                                       cmocka_unit_test(states_the_probability_of_detection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
