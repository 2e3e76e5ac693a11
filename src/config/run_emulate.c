/* run_emulate.c - the emulated links of a plan, and the homes that they connect. */
#include "config/run_plan.h"

#include <stdio.h>
#include <string.h>

/* A rate of a list; the table of options has rows for lists of texts, not of rates. */
struct rate {
    double bps;
};

static const strait_option rate_row = {.key = "rate",
                                       .kind = STRAIT_OPTION_RATE,
                                       STRAIT_OPTION_FIELD(struct rate, bps),
                                       .min = 0,
                                       .max = 1e13};

/* Copies the next item of a list to `out` and moves *at past it. */
static void next_item(const char **at, char *out, size_t capacity) {
    const char *from = *at + strspn(*at, " [");
    const size_t length = strcspn(from, " ,]");
    (void)snprintf(out, capacity, "%.*s", (int)(length < capacity ? length : capacity - 1), from);
    *at = from + length;
    *at += strspn(*at, " ]");
    if (**at == ',') ++*at;
}

/* Reads rates such as "80mbit,10mbit": one for all, one per stage, or one per replica. */
static strait_err read_rates(const strait_run_plan *plan, const char *key, const char *text,
                             double out[STRAIT_RUN_MEMBERS]) {
    double rates[STRAIT_RUN_MEMBERS];
    int n = 0;
    for (const char *at = text; *at != '\0'; n++) {
        char item[32];
        struct rate rate = {0};
        if (n == STRAIT_RUN_MEMBERS)
            return STRAIT_FAIL(STRAIT_ECONFIG, "link.emulate.%s: more than %d rates", key,
                               STRAIT_RUN_MEMBERS);
        next_item(&at, item, sizeof item);
        const strait_err err = strait_option_parse(&rate_row, item, NULL, &rate);
        if (err != STRAIT_OK) {
            strait_err_prefix("link.emulate.%s", key);
            return err;
        }
        rates[n] = rate.bps;
    }
    if (n != 1 && n != plan->n_stages && n != plan->n_members)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "link.emulate.%s has %d rates for %d stages and %d replicas: give one "
                           "for all, one per stage or one per replica",
                           key, n, plan->n_stages, plan->n_members);
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        out[i] = rates[n == 1 ? 0 : n == plan->n_stages ? stage : i];
    }
    return STRAIT_OK;
}

strait_err strait_run_plan_fit_emulate(const strait_run *run, strait_run_plan *plan) {
    plan->emulate = (strait_emulate_spec){
        .rate_bps = run->link.emulate.rate,
        .delay_ns = (int64_t)(run->link.emulate.delay * 1e9),
        .jitter_ns = (int64_t)(run->link.emulate.jitter * 1e9),
        .loss = run->link.emulate.loss,
        .drop_after_ns = (int64_t)(run->link.emulate.drop_after * 1e9),
        .seed = (uint64_t)run->train.seed};
    STRAIT_TRY(read_rates(plan, "up", run->link.emulate.up, plan->up_bps));
    return read_rates(plan, "down", run->link.emulate.down, plan->down_bps);
}

strait_emulate_spec strait_run_plan_emulate(const strait_run_plan *plan, int stage, int replica) {
    const int last = plan->replicas[stage] - 1; // a swarm may have more than the run file
    const int member = strait_run_plan_member(plan, stage, replica < last ? replica : last);
    strait_emulate_spec spec = plan->emulate;
    spec.up_bps = plan->up_bps[member];
    spec.down_bps = plan->down_bps[member];
    return spec;
}
