#include "plan/split.h"

#include <stddef.h>
#include <stdint.h>

/* The cost or memory of the embedding and the head on a stage. */
static double ends(const strait_split_spec *spec, int stage, double embedding, double head) {
    return (stage == 0 ? embedding : 0) + (stage == spec->n_stages - 1 ? head : 0);
}

/* The time of a stage is measured in layers of a stage with speed 1. */
static double load(const strait_split_spec *spec, int stage, int count) {
    const double speed = spec->speeds != NULL ? spec->speeds[stage] : 1;
    return (count + ends(spec, stage, spec->embedding_cost, spec->head_cost)) / speed;
}

/* Memory is estimated by division, so the tolerance keeps rounding from rejecting an exact fit. */
static int fits(const strait_split_spec *spec, int stage, int count) {
    if (spec->memories == NULL) return 1;
    const double others = ends(spec, stage, spec->embedding_memory, spec->head_memory);
    return count + others <= spec->memories[stage] + 1e-9;
}

/* The layers between two places where a stage may begin, and how many such places there are. */
static int stride_of(const strait_split_spec *spec) {
    return spec->stride > 1 ? spec->stride : 1;
}

static int count_places(const strait_split_spec *spec) {
    return (spec->n_layers + stride_of(spec) - 1) / stride_of(spec);
}

/* The fewest layers of a stage. The last stage begins at the last place at the latest and holds all
 * layers from there on. */
static int least_of(const strait_split_spec *spec, int stage) {
    const int stride = stride_of(spec);
    return stage < spec->n_stages - 1 ? stride : spec->n_layers - (count_places(spec) - 1) * stride;
}

static strait_err check_spec(const strait_split_spec *spec) {
    const int n_places = count_places(spec);
    if (stride_of(spec) > 1 && spec->n_stages > n_places)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "stages.count is %d, but only %d of %d layers are local (model.local_every "
            "%d) and each stage must begin with one: use 1 to %d stages, lower "
            "model.local_every or set stages.split",
            spec->n_stages, n_places, spec->n_layers, spec->stride, n_places);
    if (spec->n_stages < 1 || spec->n_stages > spec->n_layers)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.count is %d and model.layers %d: every stage needs a layer, so "
                           "use 1 to %d stages",
                           spec->n_stages, spec->n_layers, spec->n_layers);
    for (int i = 0; i < spec->n_stages; i++) {
        if (spec->speeds != NULL && !(spec->speeds[i] > 0))
            return STRAIT_FAIL(STRAIT_EINVAL, "stage %d has a speed of %g: it must be above 0", i,
                               spec->speeds[i]);
        if (!fits(spec, i, least_of(spec, i)))
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "stage %d has memory for %.2f layers, less than its %d layers and "
                               "what else it holds: use a smaller model or microbatch",
                               i, spec->memories[i], least_of(spec, i));
    }
    return STRAIT_OK;
}

/* The stage that would have the smallest load with one stride more; -1: no stage has the memory. */
static int next_stage(const strait_split_spec *spec, const int *counts) {
    const int more = stride_of(spec);
    int best = -1;
    for (int i = 0; i < spec->n_stages; i++) {
        if (!fits(spec, i, counts[i] + more)) continue;
        if (best < 0 || load(spec, i, counts[i] + more) <= load(spec, best, counts[best] + more))
            best = i;
    }
    return best;
}

/* Giving one stride at a time to the stage with the smallest resulting load is optimal here: loads
 * grow with every layer, so any split with a lower peak would hold fewer layers in total. */
strait_err strait_split_auto(const strait_split_spec *spec, int *counts) {
    STRAIT_TRY(check_spec(spec));
    int n = 0; // layers assigned so far
    for (int i = 0; i < spec->n_stages; i++) {
        counts[i] = least_of(spec, i);
        n += counts[i];
    }
    for (; n < spec->n_layers; n += stride_of(spec)) {
        const int stage = next_stage(spec, counts);
        if (stage < 0)
            return STRAIT_FAIL(
                STRAIT_ECONFIG,
                "only %d of %d layers fit into the memory of %d stages: use more stages "
                "or a smaller model",
                n, spec->n_layers, spec->n_stages);
        counts[stage] += stride_of(spec);
    }
    return STRAIT_OK;
}

strait_err strait_split_check(int n_layers, int n_stages, const int *counts, int n_counts) {
    if (n_counts != n_stages)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.split has %d counts, but stages.count is %d: give one count per "
                           "stage",
                           n_counts, n_stages);
    int64_t sum = 0;
    for (int i = 0; i < n_counts; i++) {
        if (counts[i] < 1)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "stages.split gives %d layers to stage %d: every stage needs at "
                               "least 1",
                               counts[i], i);
        sum += counts[i];
    }
    if (sum != n_layers)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.split adds up to %lld layers, but model.layers is %d: make them "
                           "equal",
                           (long long)sum, n_layers);
    return STRAIT_OK;
}
