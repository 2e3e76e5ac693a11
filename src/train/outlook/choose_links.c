#include "train/outlook/choose_links.h"

#include "config/run_auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    RATE_TEXT = 32
};

void strait_choose_scale_rates(strait_run_plan *plan, double factor) {
    plan->emulate.rate_bps *= factor;
    for (int i = 0; i < plan->n_members; i++) {
        plan->up_bps[i] *= factor;
        plan->down_bps[i] *= factor;
    }
}

/* What the homes of all replicas of a stage send or receive together; 0: some is unlimited. */
static double homes_bps(const strait_run_plan *plan, const double *rates, int stage) {
    const int first = strait_run_plan_member(plan, stage, 0);
    double sum = 0.0;
    for (int i = first; i < first + plan->replicas[stage]; i++) {
        if (!(rates[i] > 0)) return 0.0;
        sum += rates[i];
    }
    return sum;
}

static double slower(double a, double b) {
    return a > 0 && (!(b > 0) || a < b) ? a : b;
}

double strait_choose_rate(const strait_run_plan *plan, const strait_measured *measured,
                          int boundary) {
    if (measured != NULL) return strait_measured_rate(measured, boundary);
    double bps = plan->emulate.rate_bps * strait_limits_links(plan, boundary);
    for (int i = boundary; i <= boundary + 1; i++)
        bps = slower(bps,
                     slower(homes_bps(plan, plan->up_bps, i), homes_bps(plan, plan->down_bps, i)));
    return bps;
}

void strait_choose_show_rates(const strait_run_plan *plan, const strait_measured *measured,
                              char *out, size_t capacity) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i + 1 < plan->n_stages && used < capacity; i++) {
        char rate[RATE_TEXT];
        strait_run_show_rate(strait_choose_rate(plan, measured, i), rate, sizeof rate);
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", i > 0 ? "," : "", rate);
    }
}

/* A wire and the seconds of a step that it is busy. */
struct wire {
    double busy_s, bps;
    int first, second; // stages that it joins, or the stage of a home and -1
    const char *what;  // of a home
};

static void consider(struct wire *most, struct wire wire, double bytes) {
    if (!(wire.bps > 0)) return;
    wire.busy_s = 8.0 * bytes / wire.bps;
    if (wire.busy_s > most->busy_s) *most = wire;
}

static void consider_link(const strait_outlook *o, int i, struct wire *most) {
    const strait_pipe_link *link = &o->links[i];
    const double n = o->pipe.n_microbatches;
    struct wire wire = {.bps = link->forward_bps, .first = i, .second = i + 1};
    consider(most, wire, n * link->forward_bytes);
    wire.bps = link->backward_bps;
    consider(most, wire, n * link->backward_bytes);
}

/* All that a stage sends and receives. */
static void consider_home(const strait_outlook *o, int i, struct wire *most) {
    const double n = o->pipe.n_microbatches;
    double sent = 0.0, received = 0.0;
    if (i > 0) {
        sent += n * o->links[i - 1].backward_bytes;
        received += n * o->links[i - 1].forward_bytes;
    }
    if (i + 1 < o->plan.n_stages) {
        sent += n * o->links[i].forward_bytes;
        received += n * o->links[i].backward_bytes;
    }
    consider(most,
             (struct wire){.bps = homes_bps(&o->plan, o->plan.up_bps, i),
                           .first = i,
                           .second = -1,
                           .what = "uplink"},
             sent);
    consider(most,
             (struct wire){.bps = homes_bps(&o->plan, o->plan.down_bps, i),
                           .first = i,
                           .second = -1,
                           .what = "downlink"},
             received);
}

void strait_choose_slowest(const strait_outlook *o, double share, char out[STRAIT_CHOICE_LIMIT]) {
    struct wire most = {0};
    char rate[RATE_TEXT];
    out[0] = '\0';
    for (int i = 0; i < o->plan.n_stages; i++) {
        if (i + 1 < o->plan.n_stages) consider_link(o, i, &most);
        consider_home(o, i, &most);
    }
    if (!(most.bps > 0)) return;
    strait_run_show_rate(most.bps / share, rate, sizeof rate);
    if (most.second < 0)
        (void)snprintf(out, STRAIT_CHOICE_LIMIT, "the %s of stage %d (%s)", most.what, most.first,
                       rate);
    else
        (void)snprintf(out, STRAIT_CHOICE_LIMIT, "link %d-%d (%s)", most.first, most.second, rate);
}
