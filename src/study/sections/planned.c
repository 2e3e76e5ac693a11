#include "study/sections/planned.h"

#include "base/alloc.h"
#include "train/outlook/outlook.h"

#include <math.h>
#include <string.h>

/* Both are large. */
typedef struct attempt {
    strait_run run;
    strait_outlook outlook;
} attempt;

static void set_links(strait_run *run, const strait_planned_case *at) {
    run->link.emulate.rate = at->bps;
    run->link.emulate.delay = at->delay_s;
    run->link.meter.rate = at->bps;
    run->link.meter.delay = at->delay_s;
}

static strait_err plan(attempt *a, const strait_planned_case *at, strait_planned *out) {
    strait_outlook *o = &a->outlook;
    memset(o, 0, sizeof *o);
    STRAIT_TRY(strait_run_plan_init(&a->run, a->run.model.vocab, &o->plan));
    STRAIT_TRY(strait_stage_times_estimate(&o->plan, at->flops_per_s, &o->times));
    STRAIT_TRY(strait_outlook_predict(&a->run, o));
    *out = (strait_planned){o->result.seconds, o->metered_s};
    return STRAIT_OK;
}

/* Each kind of link has the size that suits it best. */
static strait_err try_sizes(attempt *a, const strait_planned_case *at, strait_planned *out) {
    static const int64_t sizes[] = {1, 2, 4, 8, 16, 32};
    const int64_t sequences = a->run.train.batch_tokens / a->run.model.context;
    *out = (strait_planned){(double)INFINITY, (double)INFINITY};
    a->run.stages.window = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        strait_planned one;
        if (sequences % sizes[i] != 0) continue;
        a->run.stages.microbatch = sizes[i];
        STRAIT_TRY(plan(a, at, &one));
        out->seconds = fmin(out->seconds, one.seconds);
        out->meter_seconds = fmin(out->meter_seconds, one.meter_seconds);
    }
    return STRAIT_OK;
}

strait_err strait_planned_step(const strait_run *run, const strait_planned_case *at,
                               strait_planned *out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(attempt), "plan of a study", &memory));
    attempt *a = memory;
    a->run = *run;
    set_links(&a->run, at);
    if (at->stages > 0) a->run.stages.count = at->stages;
    strait_err err = strait_outlook_vocab(run, &a->run.model.vocab);
    if (err == STRAIT_OK) err = at->tries_sizes ? try_sizes(a, at, out) : plan(a, at, out);
    strait_alloc_free(a);
    return err;
}

int strait_planned_curve(const json_t *record, double seconds, int max, double *x, double *y) {
    const json_t *curve = json_object_get(record, "curve");
    int n = 0;
    for (size_t k = 0; k < json_array_size(curve) && n < max; k++, n++) {
        const json_t *point = json_array_get(curve, k), *loss = json_array_get(point, 1);
        x[n] = json_number_value(json_array_get(point, 0)) * seconds;
        y[n] = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
    }
    return n;
}
