/* run_emulate.c - the emulated links of a plan, and the homes that they connect. */
#include "config/run_auto.h"
#include "config/run_plan.h"

#include <stdio.h>
#include <string.h>

/* A rate of a list; the table of options has rows for lists of texts, not of rates. */
struct rate {
    double bps;
};

static const char up_key[] = "link.emulate.up", down_key[] = "link.emulate.down";

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

void strait_run_show_rate(double bps, char *out, size_t capacity) {
    char text[STRAIT_OPTION_TEXT_MAX];
    const struct rate rate = {bps};
    strait_options_show(&rate_row, &rate, text);
    (void)snprintf(out, capacity, "%s", text);
}

strait_err strait_run_read_rates(const char *key, const char *text, double out[STRAIT_RUN_MEMBERS],
                                 int *n) {
    *n = 0;
    for (const char *at = text; *at != '\0'; ++*n) {
        char item[32];
        struct rate rate = {0};
        if (*n == STRAIT_RUN_MEMBERS)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s: more than %d rates", key, STRAIT_RUN_MEMBERS);
        next_item(&at, item, sizeof item);
        const strait_err err = strait_option_parse(&rate_row, item, NULL, &rate);
        if (err != STRAIT_OK) {
            strait_err_prefix("%s", key);
            return err;
        }
        out[*n] = rate.bps;
    }
    return STRAIT_OK;
}

/* Reads rates such as "80mbit,10mbit": one for all, one per stage, or one per replica. */
static strait_err read_rates(const strait_run_plan *plan, const char *key, const char *text,
                             double out[STRAIT_RUN_MEMBERS]) {
    double rates[STRAIT_RUN_MEMBERS];
    int n = 0;
    STRAIT_TRY(strait_run_read_rates(key, text, rates, &n));
    if (n != 1 && n != plan->n_stages && n != plan->n_members)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s has %d rates for %d stages and %d replicas: give one "
                           "for all, one per stage or one per replica",
                           key, n, plan->n_stages, plan->n_members);
    for (int i = 0; i < plan->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan, i, &stage, &replica);
        out[i] = rates[n == 1 ? 0 : n == plan->n_stages ? stage : i];
    }
    return STRAIT_OK;
}

/* A list that cannot be read is reported when the run is planned. */
static int has_rate(const char *key, const char *text) {
    double rates[STRAIT_RUN_MEMBERS];
    int n = 0;
    if (strait_run_read_rates(key, text, rates, &n) != STRAIT_OK) return 0;
    for (int i = 0; i < n; i++)
        if (rates[i] > 0) return 1;
    return 0;
}

int strait_run_has_limits(const strait_run *run) {
    return run->link.emulate.rate > 0 || has_rate(up_key, run->link.emulate.up) ||
           has_rate(down_key, run->link.emulate.down);
}

strait_err strait_run_plan_fit_emulate(const strait_run *run, strait_run_plan *plan) {
    plan->emulate = (strait_emulate_spec){
        .rate_bps = run->link.emulate.rate,
        .delay_ns = (int64_t)(run->link.emulate.delay * 1e9),
        .jitter_ns = (int64_t)(run->link.emulate.jitter * 1e9),
        .loss = run->link.emulate.loss,
        .drop_after_ns = (int64_t)(run->link.emulate.drop_after * 1e9),
        .seed = (uint64_t)run->train.seed};
    STRAIT_TRY(read_rates(plan, up_key, run->link.emulate.up, plan->up_bps));
    return read_rates(plan, down_key, run->link.emulate.down, plan->down_bps);
}

strait_emulate_spec strait_run_plan_emulate(const strait_run_plan *plan, int stage, int replica) {
    const int last = plan->replicas[stage] - 1; // a swarm may have more than the run file
    const int member = strait_run_plan_member(plan, stage, replica < last ? replica : last);
    strait_emulate_spec spec = plan->emulate;
    spec.up_bps = plan->up_bps[member];
    spec.down_bps = plan->down_bps[member];
    return spec;
}
