#include "plan/delay.h"

#include <math.h>

enum {
    POINTS = 160, // sample points of the integral, over each of its spans
    PIECES = 256, // most pieces, counted back from the last, that are considered
    REPAIRS = 4   // most repeats of a piece that are told apart; more are negligible
};

/* The distribution of the lateness of one piece, computed once for the whole integral. */
typedef struct lateness {
    double jitter_s, round_trip_s;
    double repaired[REPAIRS + 1]; // the probability that it is sent again n times
} lateness;

static lateness lateness_of(const strait_delay_spec *s) {
    lateness late = {.jitter_s = s->jitter_s,
                     .round_trip_s = 2.0 * (s->delay_s + s->jitter_s / 2.0)};
    double left = 1.0 - pow(1.0 - s->loss, s->piece_packets);
    late.repaired[0] = 1.0 - left;
    for (int n = 1; n < REPAIRS; n++) {
        late.repaired[n] = left * (1.0 - s->loss);
        left -= late.repaired[n];
    }
    late.repaired[REPAIRS] = left;
    return late;
}

/* The probability that a piece is late by at most x. */
static double within(const lateness *late, double x) {
    double chance = 0.0;
    for (int n = 0; n <= REPAIRS && x >= 0.0; n++) {
        chance += late->repaired[n] * (x < late->jitter_s ? x / late->jitter_s : 1.0);
        x -= late->round_trip_s; // what is left after n + 1 repairs
    }
    return chance;
}

/* The probability that the message is late by at most x: no piece of it, and no earlier piece that
 * could still delay it, is later than that. */
static double all_within(const strait_delay_spec *s, const lateness *late, double x,
                         double longest) {
    double chance = 1.0;
    for (int i = 0; i < PIECES && chance > 1e-9; i++) {
        const int message = i / s->n_pieces, piece = i % s->n_pieces;
        const double age = message * s->message_s + piece * s->piece_s;
        if (message > 0 && !(s->message_s > 0.0)) break; // the start of earlier messages is unknown
        if (x + age >= longest && piece == 0) break;
        chance *= within(late, x + age);
    }
    return chance;
}

/* The mean of a quantity that is never negative is the integral of the probability to exceed x. The
 * probability jumps at each repair, so each interval between two jumps is integrated on its own. */
double strait_delay_extra(const strait_delay_spec *s) {
    const int n_spans = s->loss > 0.0 ? REPAIRS + 1 : 1;
    const lateness late = lateness_of(s);
    const double trip = late.round_trip_s;
    const double longest = s->jitter_s + (n_spans - 1) * trip;
    double sum = 0.0, from = 0.0;
    for (int span = 0; span < n_spans; span++) {
        const double to = n_spans == 1 || span + 1 == n_spans ? longest : (span + 1) * trip;
        const double width = (to - from) / POINTS;
        for (int k = 0; k < POINTS; k++)
            sum += width * (1.0 - all_within(s, &late, from + (k + 0.5) * width, longest));
        from = to;
    }
    return sum;
}
