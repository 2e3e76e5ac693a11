#include "optim/lr_schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

strait_err strait_lr_schedule_check(const strait_lr_schedule *rate) {
    if (rate->steps < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "schedule: steps is %lld, expected 1 or more",
                           (long long)rate->steps);
    if (rate->warmup < 0 || rate->decay_steps < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "schedule: warm-up %lld and decay %lld steps, expected 0 or more",
                           (long long)rate->warmup, (long long)rate->decay_steps);
    const int64_t decay = rate->shape == STRAIT_LR_CONSTANT ? rate->decay_steps : 0;
    if (rate->warmup > rate->steps || decay > rate->steps - rate->warmup)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "schedule: warm-up %lld and decay %lld do not fit into %lld steps; "
                           "shorten them or train longer",
                           (long long)rate->warmup, (long long)decay, (long long)rate->steps);
    if (!(rate->final >= 0 && rate->final <= 1))
        return STRAIT_FAIL(STRAIT_ECONFIG, "schedule: final is %g, expected 0 to 1",
                           (double)rate->final);
    return STRAIT_OK;
}

/* How much of the way from 1 down to final is done. */
static double decayed(const strait_lr_schedule *rate, int64_t step) {
    int64_t start = rate->warmup;
    if (rate->shape == STRAIT_LR_CONSTANT && rate->steps - rate->decay_steps > start)
        start = rate->steps - rate->decay_steps;
    if (step <= start) return 0;
    const double t = (double)(step - start) / (double)(rate->steps - start);
    return rate->shape == STRAIT_LR_COSINE ? (1 - cos(pi * t)) / 2 : t;
}

float strait_lr_schedule_factor(const strait_lr_schedule *rate, int64_t step) {
    if (step < rate->warmup) return (float)((double)(step + 1) / (double)rate->warmup);
    if (rate->shape == STRAIT_LR_CONSTANT && rate->decay_steps == 0) return 1;
    if (step >= rate->steps) return rate->final;
    return (float)(1 - (1 - (double)rate->final) * decayed(rate, step));
}
