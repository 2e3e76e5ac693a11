#include "plan/simulate.h"

#include "base/alloc.h"

#include <math.h>

/* Microbatches are counted through all steps: number `step * n_microbatches + microbatch`. Each
 * queue of a stage is in that order, so two counts describe it. */
struct player {
    strait_schedule_spec spec;
    strait_schedule_state state;
    strait_schedule_action move; // under way, when ends_s is finite
    double ends_s;               // of the move or update; INFINITY when idle
    double allowed_s;            // when the update may begin; INFINITY when not known
    double finished_s;           // the step's last move
    int step;
    int is_updating, is_waiting; // for the update to be allowed
    int n_inputs, n_gradients;   // arrived
    int n_made[2], n_sent[2];    // activations, gradients
    strait_simulate_stage seen;
};

enum {
    ACTIVATION,
    GRADIENT
};

struct simulation {
    const strait_pipe *pipe;
    const strait_simulate_params *how;
    struct player *players;
    double *arrivals[2]; // when the k-th input, gradient reaches stage s: [s * total + k]
    double *wires;       // when each is free again: two a stage
    int total;           // microbatches of all steps
    int n_finished;      // stages that wait for the clip
    double now, first_end, last_end;
    int n_spans;
};

static void note(struct simulation *sim, strait_simulate_span span) {
    if (sim->how->spans != NULL && sim->n_spans < sim->how->capacity)
        sim->how->spans[sim->n_spans] = span;
    sim->n_spans++;
}

static double move_s(const strait_pipe *pipe, int stage, strait_schedule_action_kind kind) {
    const strait_pipe_stage *s = &pipe->stages[stage];
    switch (kind) {
    case STRAIT_ACTION_FORWARD: return s->forward_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_BACKWARD:
        return s->input_s + s->weights_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_INPUT: return s->input_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_WEIGHTS: return s->weights_s;
    default: return 0;
    }
}

static void occupy(struct simulation *sim, int stage, double seconds, strait_simulate_what what) {
    struct player *p = &sim->players[stage];
    p->ends_s = sim->now + seconds;
    p->seen.busy_s += seconds;
    const int microbatch = what == STRAIT_SIM_UPDATE ? -1 : p->move.microbatch;
    note(sim, (strait_simulate_span){what, stage, p->step, microbatch, sim->now, p->ends_s});
}

/* The last norm is on its way, and then the sum of all. */
static void allow_updates(struct simulation *sim) {
    for (int i = 0; i < sim->pipe->n_stages; i++)
        sim->players[i].allowed_s = sim->now + 2.0 * sim->pipe->control_s;
    sim->n_finished = 0;
}

static void finish_step(struct simulation *sim, struct player *p) {
    p->is_waiting = 1;
    p->finished_s = sim->now;
    p->allowed_s = sim->pipe->clips ? INFINITY : sim->now;
    if (sim->pipe->clips && ++sim->n_finished == sim->pipe->n_stages) allow_updates(sim);
}

static void begin_next_step(struct simulation *sim, struct player *p) {
    if (p->step == 0 && sim->now > sim->first_end) sim->first_end = sim->now;
    if (sim->now > sim->last_end) sim->last_end = sim->now;
    p->is_updating = 0;
    p->step++;
    p->state = (strait_schedule_state){0};
}

/* Ends what ends now. */
static int complete(struct simulation *sim) {
    int n = 0;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        struct player *p = &sim->players[i];
        if (p->ends_s > sim->now) continue;
        n++;
        p->ends_s = INFINITY;
        if (p->is_updating) {
            begin_next_step(sim, p);
            continue;
        }
        strait_schedule_done(&p->state, p->move);
        p->n_made[ACTIVATION] += p->move.kind == STRAIT_ACTION_FORWARD;
        p->n_made[GRADIENT] += p->move.kind == STRAIT_ACTION_BACKWARD ||
                               p->move.kind == STRAIT_ACTION_INPUT;
    }
    return n;
}

static int wire_of(const strait_pipe *pipe, int stage, int what) {
    switch (pipe->wire) {
    case STRAIT_WIRE_UPLINK: return stage;
    case STRAIT_WIRE_METER: return what == ACTIVATION ? stage + 1 : stage - 1;
    default: return 2 * stage + what;
    }
}

static void put_on_wire(struct simulation *sim, int stage, int what) {
    const strait_pipe *pipe = sim->pipe;
    struct player *p = &sim->players[stage];
    const int to = what == ACTIVATION ? stage + 1 : stage - 1;
    const int link = what == ACTIVATION ? stage : to;
    const double bits_s = what == ACTIVATION ? strait_pipe_forward_bits_s(pipe, link)
                                             : strait_pipe_backward_bits_s(pipe, link);
    const double arrives = sim->now + bits_s + pipe->links[link].delay_s;
    const int k = p->n_sent[what]++;
    sim->arrivals[what][to * sim->total + k] = arrives;
    sim->wires[wire_of(pipe, stage, what)] = pipe->wire == STRAIT_WIRE_METER ? arrives
                                                                             : sim->now + bits_s;
    *(what == ACTIVATION ? &p->seen.activations_s : &p->seen.gradients_s) += bits_s;
    note(sim, (strait_simulate_span){
                  what == ACTIVATION ? STRAIT_SIM_ACTIVATION : STRAIT_SIM_GRADIENT, stage,
                  k / pipe->n_microbatches, k % pipe->n_microbatches, sim->now, arrives});
}

/* Gives free wires their next message, gradients first. */
static int send_waiting(struct simulation *sim) {
    int n = 0;
    for (int what = GRADIENT; what >= ACTIVATION; what--)
        for (int i = 0; i < sim->pipe->n_stages; i++) {
            const struct player *p = &sim->players[i];
            const int has_peer = what == ACTIVATION ? i < sim->pipe->n_stages - 1 : i > 0;
            if (!has_peer || p->n_sent[what] == p->n_made[what]) continue;
            if (sim->wires[wire_of(sim->pipe, i, what)] > sim->now) continue;
            put_on_wire(sim, i, what);
            n++;
        }
    return n;
}

static double next_arrival(const struct simulation *sim, int stage, int what) {
    const struct player *p = &sim->players[stage];
    const int k = what == ACTIVATION ? p->n_inputs : p->n_gradients;
    return k < sim->total ? sim->arrivals[what][stage * sim->total + k] : INFINITY;
}

static int deliver(struct simulation *sim) {
    int n = 0;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        struct player *p = &sim->players[i];
        for (; next_arrival(sim, i, ACTIVATION) <= sim->now; n++)
            p->n_inputs++;
        for (; next_arrival(sim, i, GRADIENT) <= sim->now; n++)
            p->n_gradients++;
    }
    return n;
}

static int of_step(const struct simulation *sim, int n_arrived, int step) {
    const int n = n_arrived - step * sim->pipe->n_microbatches;
    if (n < 0) return 0;
    return n < sim->pipe->n_microbatches ? n : sim->pipe->n_microbatches;
}

/* Messages that wait for the wire or are on their way to it. */
static int count_out(const struct simulation *sim, int stage, int what) {
    const struct player *p = &sim->players[stage];
    if (what == ACTIVATION ? stage == sim->pipe->n_stages - 1 : stage == 0) return 0;
    return p->n_made[what] - p->n_sent[what] +
           (sim->wires[wire_of(sim->pipe, stage, what)] > sim->now);
}

/* Messages that wait for their move. One that is under way has taken up what it needs. */
static int count_in(const struct simulation *sim, int stage, int what) {
    const struct player *p = &sim->players[stage];
    const int before = p->step * sim->pipe->n_microbatches;
    const int moves = isfinite(p->ends_s) && !p->is_updating;
    if (what == ACTIVATION ? stage == 0 : stage == sim->pipe->n_stages - 1) return 0;
    if (what == ACTIVATION)
        return p->n_inputs - before - p->state.n_forward -
               (moves && p->move.kind == STRAIT_ACTION_FORWARD);
    return p->n_gradients - before - p->state.n_backward -
           (moves &&
            (p->move.kind == STRAIT_ACTION_BACKWARD || p->move.kind == STRAIT_ACTION_INPUT));
}

static void count_messages(struct simulation *sim) {
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        strait_simulate_stage *seen = &sim->players[i].seen;
        int all = 0;
        for (int what = ACTIVATION; what <= GRADIENT; what++) {
            const int out = count_out(sim, i, what), in = count_in(sim, i, what);
            if (out > seen->most_out[what]) seen->most_out[what] = out;
            if (in > seen->most_in[what]) seen->most_in[what] = in;
            all += out + in;
        }
        if (all > seen->most_messages) seen->most_messages = all;
    }
}

/* Starts one stage on something; 0 when there is nothing it may do. */
static int begin(struct simulation *sim, int stage) {
    struct player *p = &sim->players[stage];
    if (isfinite(p->ends_s) || p->step == sim->how->n_steps) return 0;
    if (p->is_waiting) {
        if (p->allowed_s > sim->now) return 0;
        p->is_waiting = 0;
        p->is_updating = 1;
        occupy(sim, stage, sim->pipe->stages[stage].update_s, STRAIT_SIM_UPDATE);
        return 1;
    }
    p->state.n_inputs = of_step(sim, p->n_inputs, p->step);
    p->state.n_gradients = of_step(sim, p->n_gradients, p->step);
    p->move = strait_schedule_next(&p->spec, &p->state);
    if (p->move.kind == STRAIT_ACTION_WAIT) return 0;
    if (p->move.kind == STRAIT_ACTION_FINISH) {
        finish_step(sim, p);
        return 1;
    }
    const int in_flight = p->state.n_forward - p->state.n_weights +
                          (p->move.kind == STRAIT_ACTION_FORWARD);
    if (in_flight > p->seen.most_in_flight) p->seen.most_in_flight = in_flight;
    occupy(sim, stage, move_s(sim->pipe, stage, p->move.kind), (strait_simulate_what)p->move.kind);
    return 1;
}

/* All that can happen at this instant. Whatever ends or arrives comes before anything begins, so
 * that a stage chooses with everything in view. */
static void settle(struct simulation *sim) {
    for (int n_begun = 1; n_begun > 0;) {
        while (complete(sim) + send_waiting(sim) + deliver(sim) > 0) {
        }
        n_begun = 0;
        for (int i = 0; i < sim->pipe->n_stages; i++)
            n_begun += begin(sim, i);
    }
}

static double sooner(double a, double b) {
    return a < b ? a : b;
}

static double next_event(const struct simulation *sim) {
    double next = INFINITY;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        const struct player *p = &sim->players[i];
        next = sooner(next, p->ends_s);
        if (p->is_waiting) next = sooner(next, p->allowed_s);
        next = sooner(next, next_arrival(sim, i, ACTIVATION));
        next = sooner(next, next_arrival(sim, i, GRADIENT));
        for (int w = 0; w < 2; w++)
            if (sim->wires[2 * i + w] > sim->now) next = sooner(next, sim->wires[2 * i + w]);
    }
    return next;
}

enum {
    MOST_CROSSINGS = 100000000 // more are a mistake, not a plan
};

static strait_err check(const strait_pipe *pipe, const strait_simulate_params *how) {
    STRAIT_TRY(strait_pipe_check(pipe));
    if (how->n_steps < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "%d steps to simulate: at least 1", how->n_steps);
    if ((double)pipe->n_stages * pipe->n_microbatches * how->n_steps > MOST_CROSSINGS)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "%d stages, %d microbatches and %d steps are too much to simulate: "
                           "take fewer steps",
                           pipe->n_stages, pipe->n_microbatches, how->n_steps);
    return STRAIT_OK;
}

static strait_err prepare(struct simulation *sim) {
    const strait_pipe *pipe = sim->pipe;
    const size_t n_stages = (size_t)pipe->n_stages;
    STRAIT_TRY(
        strait_alloc(n_stages, sizeof *sim->players, "a simulation", (void **)&sim->players));
    STRAIT_TRY(strait_alloc(2 * n_stages, sizeof(double), "a simulation", (void **)&sim->wires));
    for (int what = 0; what < 2; what++) {
        const size_t n = n_stages * (size_t)sim->total;
        STRAIT_TRY(strait_alloc(n, sizeof(double), "a simulation", (void **)&sim->arrivals[what]));
        for (size_t i = 0; i < n; i++)
            sim->arrivals[what][i] = INFINITY;
    }
    for (int i = 0; i < pipe->n_stages; i++) {
        struct player *p = &sim->players[i];
        p->spec = (strait_schedule_spec){sim->how->kind, pipe->n_stages, i, pipe->n_microbatches,
                                         sim->how->windows[i]};
        p->ends_s = INFINITY;
        STRAIT_TRY(strait_schedule_check(&p->spec));
    }
    return STRAIT_OK;
}

static void report(struct simulation *sim, strait_simulate_stage *stages,
                   strait_simulate_result *out) {
    const int n_stages = sim->pipe->n_stages, n_steps = sim->how->n_steps;
    *out = (strait_simulate_result){.n_spans = sim->n_spans};
    out->seconds = n_steps > 1 ? (sim->last_end - sim->first_end) / (n_steps - 1) : sim->last_end;
    if (out->seconds > 0)
        out->tokens_per_s = sim->pipe->microbatch_tokens * sim->pipe->n_microbatches / out->seconds;
    for (int i = 0; i < n_stages; i++) {
        strait_simulate_stage *seen = &sim->players[i].seen;
        seen->bubble = sim->last_end > 0 ? 1 - seen->busy_s / sim->last_end : 0;
        out->bubble += seen->bubble / n_stages;
        if (stages != NULL) stages[i] = *seen;
    }
}

strait_err strait_simulate(const strait_pipe *pipe, const strait_simulate_params *how,
                           strait_simulate_stage *stages, strait_simulate_result *out) {
    STRAIT_TRY(check(pipe, how));
    struct simulation sim = {
        .pipe = pipe, .how = how, .total = pipe->n_microbatches * how->n_steps};
    strait_err err;
    STRAIT_TRY_GOTO(err, done, prepare(&sim));
    while (isfinite(sim.now)) {
        settle(&sim);
        count_messages(&sim);
        sim.now = next_event(&sim);
    }
    report(&sim, stages, out);
done:
    strait_alloc_free(sim.players);
    strait_alloc_free(sim.wires);
    strait_alloc_free(sim.arrivals[ACTIVATION]);
    strait_alloc_free(sim.arrivals[GRADIENT]);
    return err;
}
