#include "plan/limit.h"

#include "base/alloc.h"

const char *strait_limit_name(strait_limit_kind kind) {
    static const char *const names[] = {"compute", "bubble", "serialisation", "propagation",
                                        "codec"};
    return names[kind];
}

/* A pipeline of which some costs are taken away. */
struct lighter {
    const strait_pipe *pipe;
    const strait_simulate_how *how;
    strait_pipe_stage *stages;
    strait_pipe_link *links;
};

static int is_without(unsigned without, strait_limit_kind kind) {
    return (without >> kind & 1U) != 0;
}

static void lighten(struct lighter *l, unsigned without) {
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

static strait_err seconds(struct lighter *l, unsigned without, double *out) {
    lighten(l, without);
    strait_pipe pipe = *l->pipe;
    pipe.stages = l->stages;
    pipe.links = l->links;
    strait_simulate_result result;
    STRAIT_TRY(strait_simulate(&pipe, l->how, NULL, &result));
    *out = result.seconds;
    return STRAIT_OK;
}

static double most_work(const strait_pipe *pipe, int *where) {
    double most = -1;
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

static double link_cost(const strait_pipe *pipe, int link, strait_limit_kind kind) {
    const double forward = strait_pipe_forward_bits_s(pipe, link);
    const double backward = strait_pipe_backward_bits_s(pipe, link);
    if (kind == STRAIT_LIMIT_SERIALISATION) return forward > backward ? forward : backward;
    if (kind == STRAIT_LIMIT_PROPAGATION) return pipe->links[link].delay_s;
    return pipe->links[link].codec_s;
}

static int slowest_link(const strait_pipe *pipe, strait_limit_kind kind) {
    int where = -1;
    for (int i = 0; i < pipe->n_stages - 1; i++)
        if (where < 0 || link_cost(pipe, i, kind) > link_cost(pipe, where, kind)) where = i;
    return where;
}

static strait_err weigh(struct lighter *l, strait_limit *out) {
    const strait_pipe *pipe = l->pipe;
    double all = 0, none = 0, perfect = 0;
    STRAIT_TRY(seconds(l, 0, &all));
    for (strait_limit_kind k = STRAIT_LIMIT_SERIALISATION; k <= STRAIT_LIMIT_CODEC; k++) {
        STRAIT_TRY(seconds(l, 1U << k, &out->saved[k]));
        out->saved[k] = all - out->saved[k];
    }
    STRAIT_TRY(seconds(l, 1U << STRAIT_LIMIT_COMPUTE, &none));
    STRAIT_TRY(seconds(l,
                       1U << STRAIT_LIMIT_SERIALISATION | 1U << STRAIT_LIMIT_PROPAGATION |
                           1U << STRAIT_LIMIT_CODEC,
                       &perfect));
    int busiest = 0;
    const double work = most_work(pipe, &busiest);
    const double share = perfect > 0 ? work / perfect : 1;
    out->saved[STRAIT_LIMIT_COMPUTE] = (all - none) * share;
    out->saved[STRAIT_LIMIT_BUBBLE] = (all - none) * (1 - share);
    for (strait_limit_kind k = STRAIT_LIMIT_COMPUTE; k < STRAIT_LIMIT_KINDS; k++)
        if (out->saved[k] > out->saved[out->kind]) out->kind = k;
    if (out->kind == STRAIT_LIMIT_COMPUTE) out->where = busiest;
    if (out->kind >= STRAIT_LIMIT_SERIALISATION) out->where = slowest_link(pipe, out->kind);
    return STRAIT_OK;
}

strait_err strait_limit_find(const strait_pipe *pipe, const strait_simulate_how *how,
                             strait_limit *out) {
    STRAIT_TRY(strait_pipe_check(pipe));
    strait_simulate_how quiet = *how;
    quiet.spans = NULL;
    struct lighter l = {.pipe = pipe, .how = &quiet};
    strait_limit found = {.where = -1};
    strait_err err;
    STRAIT_TRY_GOTO(
        err, done,
        strait_alloc((size_t)pipe->n_stages, sizeof *l.stages, "a simulation", (void **)&l.stages));
    STRAIT_TRY_GOTO(
        err, done,
        strait_alloc((size_t)pipe->n_stages, sizeof *l.links, "a simulation", (void **)&l.links));
    STRAIT_TRY_GOTO(err, done, weigh(&l, &found));
    *out = found;
done:
    strait_alloc_free(l.stages);
    strait_alloc_free(l.links);
    return err;
}
