/* run_plan_rig.h - a plan from a few options, for tests. */
#pragma once

#include "check.h"
#include "config/run_plan.h"

static strait_run run;
static strait_run_plan plan;

/* A model of eight layers, changed by up to three overrides; the first NULL ends them. */
static strait_err make(const char *a, const char *b, const char *c) {
    static const char text[] =
        "model: {width: 32, layers: 8, heads: 2, ffn: 48, context: 16, vocab: 64}\n"
        "train: {batch_tokens: 512}\n";
    const char *sets[] = {a, b, c};
    int n = 0;
    while (n < 3 && sets[n] != NULL)
        n++;
    CHECK_OK(strait_run_init_text("r.yaml", text, sizeof text - 1, sets, n, &run));
    return strait_run_plan_init(&run, 100, &plan);
}
