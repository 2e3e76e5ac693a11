#include "optim/lr_schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

strait_err strait_lr_schedule_check(const strait_lr_schedule *schedule) {
    if (schedule->steps < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "schedule: steps is %lld, expected 1 or more",
                           (long long)schedule->steps);
    if (schedule->warmup < 0 || schedule->decay_steps < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "schedule: warm-up %lld and decay %lld steps, expected 0 or more",
                           (long long)schedule->warmup, (long long)schedule->decay_steps);
    /* Other shapes ignore decay_steps. */
    const int64_t decay = schedule->shape == STRAIT_LR_CONSTANT ? schedule->decay_steps : 0;
    if (schedule->warmup > schedule->steps || decay > schedule->steps - schedule->warmup)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "schedule: warm-up %lld and decay %lld do not fit into %lld steps; "
                           "shorten them or train longer",
                           (long long)schedule->warmup, (long long)decay,
                           (long long)schedule->steps);
    if (!(schedule->final >= 0 && schedule->final <= 1))
        return STRAIT_FAIL(STRAIT_ECONFIG, "schedule: final is %g, expected 0 to 1",
                           (double)schedule->final);
    return STRAIT_OK;
}

/* f(t) of the header: the fraction of the decay from 1 to `final` that is done. */
static double decay_done(const strait_lr_schedule *schedule, int64_t step) {
    int64_t start = schedule->warmup;
    if (schedule->shape == STRAIT_LR_CONSTANT && schedule->steps - schedule->decay_steps > start)
        start = schedule->steps - schedule->decay_steps;
    if (step <= start) return 0;
    const double t = (double)(step - start) / (double)(schedule->steps - start);
    return schedule->shape == STRAIT_LR_COSINE ? (1 - cos(pi * t)) / 2 : t;
}

/* The first step already has a learning rate above 0: with warm-up it is 1 / warmup. */
float strait_lr_schedule_factor(const strait_lr_schedule *schedule, int64_t step) {
    /* In double precision: a float cannot hold the steps of long runs exactly. */
    if (step < schedule->warmup) return (float)((double)(step + 1) / (double)schedule->warmup);
    if (schedule->shape == STRAIT_LR_CONSTANT && schedule->decay_steps == 0) return 1;
    if (step >= schedule->steps) return schedule->final;
    return (float)(1 - (1 - (double)schedule->final) * decay_done(schedule, step));
}
