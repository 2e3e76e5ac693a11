#include "plan/delay.h"

#include <math.h>

enum {
    POINTS = 160, // of the integral, over each of its spans
    PIECES = 256, // that are looked back at
    REPAIRS = 4   // in a row that are worth counting
};

static double round_trip(const strait_delay_spec *s) {
    return 2.0 * (s->delay_s + s->jitter_s / 2.0);
}

/* The share of all draws of jitter that is at most x. */
static double jitter_within(const strait_delay_spec *s, double x) {
    if (x < 0.0) return 0.0;
    return x < s->jitter_s ? x / s->jitter_s : 1.0;
}

/* The chance that a piece is late by no more than x. */
static double within(const strait_delay_spec *s, double x) {
    const double hit = 1.0 - pow(1.0 - s->loss, s->piece_packets);
    double chance = (1.0 - hit) * jitter_within(s, x);
    double left = hit;
    for (int n = 1; n <= REPAIRS && left > 0.0; n++) {
        const double now = n < REPAIRS ? left * (1.0 - s->loss) : left;
        chance += now * jitter_within(s, x - n * round_trip(s));
        left -= now;
    }
    return chance;
}

/* The chance that nothing holds the message up by more than x. */
static double all_within(const strait_delay_spec *s, double x, double longest) {
    double chance = 1.0;
    for (int i = 0; i < PIECES && chance > 1e-9; i++) {
        const int message = i / s->n_pieces, piece = i % s->n_pieces;
        const double age = message * s->message_s + piece * s->piece_s;
        if (message > 0 && !(s->message_s > 0.0)) break; // nobody knows when the others came
        if (x + age >= longest && piece == 0) break;
        chance *= within(s, x + age);
    }
    return chance;
}

/* The mean of what is not negative is the integral of the chances to exceed. One span a repair, for
 * the chances jump there. */
double strait_delay_extra(const strait_delay_spec *s) {
    const int n_spans = s->loss > 0.0 ? REPAIRS + 1 : 1;
    const double trip = round_trip(s);
    const double longest = s->jitter_s + (n_spans - 1) * trip;
    double sum = 0.0, from = 0.0;
    for (int span = 0; span < n_spans; span++) {
        const double to = n_spans == 1 || span + 1 == n_spans ? longest : (span + 1) * trip;
        const double width = (to - from) / POINTS;
        for (int k = 0; k < POINTS; k++)
            sum += width * (1.0 - all_within(s, from + (k + 0.5) * width, longest));
        from = to;
    }
    return sum;
}
