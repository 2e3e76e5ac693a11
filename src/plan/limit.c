#include "plan/limit.h"

#include "base/alloc.h"

const char *strait_limit_name(strait_limit_kind kind) {
    static const char *const names[] = {"compute", "bubble", "serialisation", "propagation",
                                        "codec"};
    return names[kind];
}

/* A copy of the pipeline from which costs are removed. */
struct variant {
    const strait_pipe *pipe;
    const strait_simulate_params *params;
    strait_pipe_stage *stages;
    strait_pipe_link *links;
};

/* Costs are bits of a mask, so that several can be removed at once. */
static int is_without(unsigned without, strait_limit_kind kind) {
    return (without >> kind & 1U) != 0;
}

/* Copies the pipeline without the costs whose bits are set in `without`. */
static void remove_costs(struct variant *l, unsigned without) {
    const strait_pipe *pipe = l->pipe;
    for (int i = 0; i < pipe->n_stages; i++)
        l->stages[i] = is_without(without, STRAIT_LIMIT_COMPUTE) ? (strait_pipe_stage){0}
                                                                 : pipe->stages[i];
    for (int i = 0; i < pipe->n_stages - 1; i++) {
        strait_pipe_link *link = &l->links[i];
        *link = pipe->links[i];
        if (is_without(without, STRAIT_LIMIT_SERIALISATION))
            link->forward_bytes = link->backward_bytes = 0;
        if (is_without(without, STRAIT_LIMIT_PROPAGATION)) link->delay_s = 0;
        if (is_without(without, STRAIT_LIMIT_CODEC)) link->codec_s = 0;
    }
}

/* Seconds per step without some costs. */
static strait_err seconds(struct variant *l, unsigned without, double *out) {
    remove_costs(l, without);
    strait_pipe pipe = *l->pipe;
    pipe.stages = l->stages;
    pipe.links = l->links;
    strait_simulate_result result;
    STRAIT_TRY(strait_simulate(&pipe, l->params, NULL, &result));
    *out = result.seconds;
    return STRAIT_OK;
}

/* The largest compute time of a stage per step; *where becomes that stage. */
static double most_work(const strait_pipe *pipe, int *where) {
    double most = -1;
    *where = 0;
    for (int i = 0; i < pipe->n_stages; i++) {
        const strait_pipe_stage *s = &pipe->stages[i];
        const double work = (s->forward_s + s->input_s + s->weights_s) * pipe->n_microbatches +
                            s->update_s;
        if (work <= most) continue;
        most = work;
        *where = i;
    }
    return most;
}

/* What `kind` costs on one link, to compare links with each other. */
static double link_cost(const strait_pipe *pipe, int link, strait_limit_kind kind) {
    const double forward = strait_pipe_forward_bits_s(pipe, link);
    const double backward = strait_pipe_backward_bits_s(pipe, link);
    if (kind == STRAIT_LIMIT_SERIALISATION) return forward > backward ? forward : backward;
    if (kind == STRAIT_LIMIT_PROPAGATION) return pipe->links[link].delay_s;
    return pipe->links[link].codec_s;
}

/* Only the worst link is named: widening any other one would not shorten the step. */
static int slowest_link(const strait_pipe *pipe, strait_limit_kind kind) {
    int where = -1;
    for (int i = 0; i < pipe->n_stages - 1; i++)
        if (where < 0 || link_cost(pipe, i, kind) > link_cost(pipe, where, kind)) where = i;
    return where;
}

static strait_err weigh(struct variant *l, strait_limit *out) {
    const unsigned links = 1U << STRAIT_LIMIT_SERIALISATION | 1U << STRAIT_LIMIT_PROPAGATION |
                           1U << STRAIT_LIMIT_CODEC;
    double all = 0, without = 0, perfect = 0;
    STRAIT_TRY(seconds(l, 0, &all));
    for (int k = STRAIT_LIMIT_SERIALISATION; k <= STRAIT_LIMIT_CODEC; k++) {
        STRAIT_TRY(seconds(l, 1U << k, &without));
        out->saved[k] = all - without;
    }
    STRAIT_TRY(seconds(l, 1U << STRAIT_LIMIT_COMPUTE, &without));
    STRAIT_TRY(seconds(l, links, &perfect));
    /* Compute and bubble cannot be removed one by one: without compute there is nothing to wait
     * for. Their joint saving is divided by the share of work in a step with perfect links. */
    int busiest;
    const double work = most_work(l->pipe, &busiest);
    const double share = perfect > 0 ? work / perfect : 1;
    out->saved[STRAIT_LIMIT_COMPUTE] = (all - without) * share;
    out->saved[STRAIT_LIMIT_BUBBLE] = (all - without) * (1 - share);
    return STRAIT_OK;
}

/* A bubble has no place of its own, since every stage waits for the others. */
static void choose(const strait_pipe *pipe, strait_limit *limit) {
    for (int k = 0; k < STRAIT_LIMIT_KINDS; k++)
        if (limit->saved[k] > limit->saved[limit->kind]) limit->kind = (strait_limit_kind)k;
    limit->where = -1;
    if (limit->kind == STRAIT_LIMIT_COMPUTE) most_work(pipe, &limit->where);
    if (limit->kind >= STRAIT_LIMIT_SERIALISATION) limit->where = slowest_link(pipe, limit->kind);
}

strait_err strait_limit_find(const strait_pipe *pipe, const strait_simulate_params *params,
                             strait_limit *out) {
    STRAIT_TRY(strait_pipe_check(pipe));
    /* The caller's spans describe its own simulation, and the variants must not overwrite them. */
    strait_simulate_params quiet = *params;
    quiet.spans = NULL;
    struct variant l = {.pipe = pipe, .params = &quiet};
    strait_limit found = {0};
    strait_err err;
    STRAIT_TRY_GOTO(
        err, done,
        strait_alloc((size_t)pipe->n_stages, sizeof *l.stages, "simulation", (void **)&l.stages));
    STRAIT_TRY_GOTO(
        err, done,
        strait_alloc((size_t)pipe->n_stages, sizeof *l.links, "simulation", (void **)&l.links));
    STRAIT_TRY_GOTO(err, done, weigh(&l, &found));
    choose(pipe, &found);
    *out = found;
done:
    strait_alloc_free(l.stages);
    strait_alloc_free(l.links);
    return err;
}

int strait_limit_is_off_path(double seconds, double infinite_s) {
    return seconds <= 1.03 * infinite_s;
}
