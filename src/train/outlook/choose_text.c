/* choose_text.c - what people are told about a choice, and about links that it misjudged. */
#include "base/alloc.h"
#include "config/run_auto.h"
#include "train/outlook/choose_links.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_TEXT = 64
};

static const double half = 0.5 + 1e-6, twice = 2.0 - 1e-6; // of the rate that was judged

/* "strait at ratio 64", "none (fp32)". */
static void name_rung(const strait_codec_rung *rung, char out[NAME_TEXT]) {
    if (rung->ratio > 0)
        (void)snprintf(out, NAME_TEXT, "%s at ratio %g", rung->name, rung->ratio);
    else if (rung->variant[0] != '\0')
        (void)snprintf(out, NAME_TEXT, "%s (%s)", rung->name, rung->variant);
    else
        (void)snprintf(out, NAME_TEXT, "%s", rung->name);
}

/* How the same choice is made by hand. */
static void show_rung(const strait_codec_rung *rung, char out[NAME_TEXT]) {
    char ratio[24] = "";
    if (rung->ratio > 0) (void)snprintf(ratio, sizeof ratio, ", ratio: %g", rung->ratio);
    (void)snprintf(out, NAME_TEXT, "link.codec: {name: %s%s%s%s}", rung->name,
                   rung->variant[0] != '\0' ? ", variant: " : "", rung->variant, ratio);
}

static void describe_price(const strait_choice *c, char *out, size_t capacity) {
    if (c->is_exact)
        (void)snprintf(out, capacity, "it is exact: the bits are those of one stage");
    else if (isnan(c->price.percent))
        (void)snprintf(out, capacity, "its price in loss was not measured for such a shape");
    else
        (void)snprintf(out, capacity, "its price in loss is about %+.1f%%, against %s (%s)",
                       c->price.percent, c->price.control, c->price.source);
}

/* What the wire costs, and who is to blame. */
static void describe_wire(const strait_choice *c, char *out, size_t capacity) {
    if (c->is_too_slow)
        (void)snprintf(out, capacity,
                       "%s is too slow even for it: a step takes %.2f times as long "
                       "as at infinite rate",
                       c->decided_by, c->seconds / c->infinite_s);
    else if (c->decided_by[0] != '\0')
        (void)snprintf(out, capacity, "%s is too slow for a wider code", c->decided_by);
    else
        (void)snprintf(out, capacity, "all links are fast enough for it");
}

void strait_choice_describe(const strait_choice *c, char out[STRAIT_CHOICE_TEXT]) {
    char name[NAME_TEXT], hand[NAME_TEXT], price[256], wire[256], sharing[64] = "";
    out[0] = '\0';
    if (c->rung.name == NULL) return;
    name_rung(&c->rung, name);
    show_rung(&c->rung, hand);
    if (!c->has_limits) {
        (void)snprintf(out, STRAIT_CHOICE_TEXT,
                       "codec auto: %s, which is exact: no link has a measured or emulated limit",
                       name);
        return;
    }
    describe_price(c, price, sizeof price);
    describe_wire(c, wire, sizeof wire);
    if (c->n_sharing > 1)
        (void)snprintf(sharing, sizeof sharing, ", shared by %d stages", c->n_sharing);
    (void)snprintf(out, STRAIT_CHOICE_TEXT,
                   "codec auto: %s, %.4g bytes per token and direction; %s\n"
                   "codec auto: %.0f tokens/s expected, %.3f of the same at infinite rate (%s%s)\n"
                   "codec auto: %s%s\n"
                   "codec auto: the run keeps this choice; by hand: %s",
                   name, c->bytes_per_token, wire, c->tokens_per_s, c->infinite_s / c->seconds,
                   c->device, sharing, price,
                   c->excludes_exports ? "; the model cannot be exported to GGUF or to plain "
                                         "transformers classes"
                                       : "",
                   hand);
}

/* The choice that the run would make now. */
static strait_err choose_anew(const strait_run *run, const strait_choose_params *params,
                              strait_choice *out) {
    static const char *const sets[] = {"link.codec.name=auto"};
    strait_run *copy = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *copy, "run", (void **)&copy));
    *copy = *run;
    strait_err err = strait_run_change(copy, sets, 1);
    if (err == STRAIT_OK) err = strait_choose_codec(copy, params, out);
    strait_alloc_free(copy);
    return err;
}

static strait_err warn(const strait_run *run, const strait_choose_params *params, int boundary,
                       const double bps[2], char out[STRAIT_CHOICE_TEXT]) {
    char now[32], then[32], name[NAME_TEXT], hand[NAME_TEXT];
    strait_choice choice;
    STRAIT_TRY(choose_anew(run, params, &choice));
    strait_run_show_rate(bps[0], now, sizeof now);
    strait_run_show_rate(bps[1], then, sizeof then);
    name_rung(&choice.rung, name);
    show_rung(&choice.rung, hand);
    (void)snprintf(out, STRAIT_CHOICE_TEXT,
                   "link %d-%d has %s instead of the %s that the codec was chosen for: this run "
                   "keeps its codec; the next one should take %s (%s)",
                   boundary, boundary + 1, bps[0] > 0 ? now : "no limit", then, name, hand);
    return STRAIT_OK;
}

/* Links without a rate, then or now, have nothing to compare, except that a limit is gone. */
static int is_misjudged(double now, double then) {
    return then > 0 && (!(now > 0) || now <= half * then || now >= twice * then);
}

/* Real links have no rate until they are measured. */
static int has_rates(const strait_run *run, const strait_choose_params *params) {
    return params->measured != NULL || !params->is_swarm || strait_run_has_limits(run);
}

strait_err strait_choose_check(const strait_run *run, const strait_choose_params *params,
                               uint64_t *told, char out[STRAIT_CHOICE_TEXT]) {
    double then[STRAIT_RUN_MEMBERS];
    strait_run_plan plan;
    int64_t vocab = 0;
    int n = 0;
    out[0] = '\0';
    if (run->link.codec.chosen_for[0] == '\0' || !has_rates(run, params)) return STRAIT_OK;
    STRAIT_TRY(
        strait_run_read_rates("link.codec.chosen_for", run->link.codec.chosen_for, then, &n));
    STRAIT_TRY(strait_outlook_vocab(run, &vocab));
    STRAIT_TRY(strait_run_plan_init(run, vocab, &plan));
    for (int i = 0; i < n && i + 1 < plan.n_stages; i++) {
        const double bps[] = {strait_choose_rate(&plan, params->measured, i), then[i]};
        if ((*told >> i & 1) != 0 || !is_misjudged(bps[0], bps[1])) continue;
        *told |= UINT64_C(1) << i;
        return warn(run, params, i, bps, out);
    }
    return STRAIT_OK;
}
