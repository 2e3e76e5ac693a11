#include "plan/simulate.h"

#include "base/alloc.h"

#include <math.h>

/* Microbatches are numbered through all steps: `step * n_microbatches + microbatch`. Each queue of
 * a stage is in that order, so two counts describe it. */
struct stage {
    strait_schedule_spec spec;
    strait_schedule_state state;
    strait_schedule_action action; // in progress where ends_s is finite
    double ends_s;                 // end of the action or update at this speed; INFINITY: idle
    double speed;                  // lower where others compute on its device
    double allowed_s;              // when the update may begin; INFINITY: unknown
    int step;
    int is_updating, is_waiting;  // is_waiting: for the update to be allowed
    int n_updates;                // late updates: applied
    int n_inputs, n_gradients;    // arrived, over all steps
    int n_computed[2], n_sent[2]; // activations, gradients, over all steps
    strait_simulate_stage seen;
};

enum {
    ACTIVATION,
    GRADIENT
};

struct simulation {
    const strait_pipe *pipe;
    const strait_simulate_params *params;
    struct stage *stages;
    double *arrivals[2]; // when the k-th input, gradient reaches stage s: [s * total + k]
    double *wires;       // when each is free again: two per stage
    int total;           // microbatches of all steps
    int n_finished;      // stages whose norms the coordinator has, with `clips`
    int n_allowed;       // late updates: steps whose norms the coordinator has
    double known_s;      // when the stages know the last of them
    int n_skipped;       // steps at the beginning that do not count
    double now, first_end, last_end;
    int n_spans;
};

/* Spans beyond the capacity are counted too, so that a caller can allocate enough and run again. */
static void note(struct simulation *sim, strait_simulate_span span) {
    if (sim->params->spans != NULL && sim->n_spans < sim->params->capacity)
        sim->params->spans[sim->n_spans] = span;
    sim->n_spans++;
}

static void occupy(struct simulation *sim, int stage, double seconds, strait_simulate_what what) {
    struct stage *p = &sim->stages[stage];
    p->ends_s = sim->now + seconds;
    p->speed = 1.0;
    p->seen.busy_s += seconds;
    const int microbatch = what == STRAIT_SIM_UPDATE ? -1 : p->action.microbatch;
    note(sim, (strait_simulate_span){what, stage, p->step, microbatch, sim->now, p->ends_s});
}

/* The last norm travels to the coordinator, and the sum of all travels back. */
static void allow_updates(struct simulation *sim) {
    for (int i = 0; i < sim->pipe->n_stages; i++)
        sim->stages[i].allowed_s = sim->now + 2.0 * sim->pipe->control_s;
    sim->n_finished = 0;
}

static void note_end(struct simulation *sim, const struct stage *p) {
    if (p->step <= sim->n_skipped && sim->now > sim->first_end) sim->first_end = sim->now;
    if (sim->now > sim->last_end) sim->last_end = sim->now;
}

/* Stages at the end may update as soon as their own gradients are complete. */
static int is_prompt(const struct simulation *sim, const struct stage *p) {
    return p - sim->stages >= sim->pipe->n_stages - sim->pipe->n_prompt;
}

/* With late updates the next step goes on; its first forward passes may be done. */
static void finish_late(struct simulation *sim, struct stage *p) {
    note_end(sim, p);
    p->step++;
    p->state = (strait_schedule_state){.n_forward = p->state.n_forward - p->spec.n_microbatches};
    p->spec.first = (p->spec.first + p->spec.n_microbatches) % p->spec.window;
    for (int i = 0; i < sim->pipe->n_stages; i++)
        if (sim->stages[i].step <= sim->n_allowed) return;
    sim->n_allowed++;
    sim->known_s = sim->now + 2.0 * sim->pipe->control_s;
}

static void finish_step(struct simulation *sim, struct stage *p) {
    if (sim->pipe->staleness > 0) {
        finish_late(sim, p);
        return;
    }
    p->is_waiting = 1;
    p->allowed_s = sim->pipe->clips ? INFINITY : sim->now;
    if (sim->pipe->clips && ++sim->n_finished == sim->pipe->n_stages) allow_updates(sim);
}

static void begin_next_step(struct simulation *sim, struct stage *p) {
    p->is_updating = 0;
    if (sim->pipe->staleness > 0) {
        p->n_updates++;
        return;
    }
    note_end(sim, p);
    p->step++;
    p->state = (strait_schedule_state){0};
}

/* Ends every action and update that ends now. Returns how many. */
static int complete(struct simulation *sim) {
    int n = 0;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        struct stage *p = &sim->stages[i];
        if (p->ends_s > sim->now) continue;
        n++;
        p->ends_s = INFINITY;
        if (p->is_updating) {
            begin_next_step(sim, p);
            continue;
        }
        strait_schedule_done(&p->state, p->action);
        p->n_computed[ACTIVATION] += p->action.kind == STRAIT_ACTION_FORWARD;
        p->n_computed[GRADIENT] += p->action.kind == STRAIT_ACTION_BACKWARD ||
                                   p->action.kind == STRAIT_ACTION_INPUT;
    }
    return n;
}

static void put_on_wire(struct simulation *sim, int stage, int what) {
    const strait_pipe *pipe = sim->pipe;
    struct stage *p = &sim->stages[stage];
    const int to = what == ACTIVATION ? stage + 1 : stage - 1;
    const int link = what == ACTIVATION ? stage : to;
    const double bits_s = what == ACTIVATION ? strait_pipe_forward_bits_s(pipe, link)
                                             : strait_pipe_backward_bits_s(pipe, link);
    const double arrives = sim->now + bits_s + pipe->links[link].delay_s;
    const int k = p->n_sent[what]++;
    sim->arrivals[what][to * sim->total + k] = arrives;
    sim->wires[strait_pipe_wire_of(pipe, stage, what == GRADIENT)] = pipe->wire == STRAIT_WIRE_METER
                                                                         ? arrives
                                                                         : sim->now + bits_s;
    *(what == ACTIVATION ? &p->seen.activations_s : &p->seen.gradients_s) += bits_s;
    note(sim, (strait_simulate_span){
                  what == ACTIVATION ? STRAIT_SIM_ACTIVATION : STRAIT_SIM_GRADIENT, stage,
                  k / pipe->n_microbatches, k % pipe->n_microbatches, sim->now, arrives});
}

/* Puts the next message on every free wire, gradients first. Returns how many were put. */
static int send_waiting(struct simulation *sim) {
    int n = 0;
    for (int what = GRADIENT; what >= ACTIVATION; what--)
        for (int i = 0; i < sim->pipe->n_stages; i++) {
            const struct stage *p = &sim->stages[i];
            const int has_peer = what == ACTIVATION ? i < sim->pipe->n_stages - 1 : i > 0;
            if (!has_peer || p->n_sent[what] == p->n_computed[what]) continue;
            if (sim->wires[strait_pipe_wire_of(sim->pipe, i, what == GRADIENT)] > sim->now)
                continue;
            put_on_wire(sim, i, what);
            n++;
        }
    return n;
}

static double next_arrival(const struct simulation *sim, int stage, int what) {
    const struct stage *p = &sim->stages[stage];
    const int k = what == ACTIVATION ? p->n_inputs : p->n_gradients;
    return k < sim->total ? sim->arrivals[what][stage * sim->total + k] : INFINITY;
}

/* Messages on one link arrive in the order they were sent, so the next arrival is enough. */
static int deliver(struct simulation *sim) {
    int n = 0;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        struct stage *p = &sim->stages[i];
        for (; next_arrival(sim, i, ACTIVATION) <= sim->now; n++)
            p->n_inputs++;
        for (; next_arrival(sim, i, GRADIENT) <= sim->now; n++)
            p->n_gradients++;
    }
    return n;
}

/* A fast neighbour may already send messages of the next step, which must not count towards this
 * one. */
static int of_step(const struct simulation *sim, int n_arrived, int step, int n_ahead) {
    const int n = n_arrived - step * sim->pipe->n_microbatches;
    const int most = sim->pipe->n_microbatches + n_ahead;
    if (n < 0) return 0;
    return n < most ? n : most;
}

/* Messages that are queued for the wire or being put on it. */
static int count_out(const struct simulation *sim, int stage, int what) {
    const struct stage *p = &sim->stages[stage];
    if (what == ACTIVATION ? stage == sim->pipe->n_stages - 1 : stage == 0) return 0;
    return p->n_computed[what] - p->n_sent[what] +
           (sim->wires[strait_pipe_wire_of(sim->pipe, stage, what == GRADIENT)] > sim->now);
}

/* Messages that have arrived and that no action has used. An action in progress has used its own.
 */
static int count_in(const struct simulation *sim, int stage, int what) {
    const struct stage *p = &sim->stages[stage];
    const int before = p->step * sim->pipe->n_microbatches;
    const int moves = isfinite(p->ends_s) && !p->is_updating;
    if (what == ACTIVATION ? stage == 0 : stage == sim->pipe->n_stages - 1) return 0;
    if (what == ACTIVATION)
        return p->n_inputs - before - p->state.n_forward -
               (moves && p->action.kind == STRAIT_ACTION_FORWARD);
    return p->n_gradients - before - p->state.n_backward -
           (moves &&
            (p->action.kind == STRAIT_ACTION_BACKWARD || p->action.kind == STRAIT_ACTION_INPUT));
}

static void count_messages(struct simulation *sim) {
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        strait_simulate_stage *seen = &sim->stages[i].seen;
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

/* Late updates wait until the coordinator has the norms of all stages, but for those at the end. */
static int can_update(const struct simulation *sim, const struct stage *p) {
    const int n = sim->n_allowed - (sim->known_s > sim->now);
    if (sim->pipe->staleness == 0) return p->is_waiting && p->allowed_s <= sim->now;
    return p->n_updates < (is_prompt(sim, p) ? p->step : n);
}

static void look_ahead(const struct simulation *sim, int stage, struct stage *p) {
    const int is_last = stage == sim->pipe->n_stages - 1 || is_prompt(sim, p);
    const int can = p->step + 1 < sim->params->n_steps && !is_last && p->n_updates >= p->step;
    p->spec.n_ahead = sim->pipe->staleness > 0 && can ? sim->pipe->n_microbatches : 0;
}

/* Starts the next action or update of an idle stage. Returns 0 when there is none to start. */
static int begin(struct simulation *sim, int stage) {
    struct stage *p = &sim->stages[stage];
    if (isfinite(p->ends_s) || p->step == sim->params->n_steps) return 0;
    if (can_update(sim, p)) {
        p->is_waiting = 0;
        p->is_updating = 1;
        occupy(sim, stage, sim->pipe->stages[stage].update_s, STRAIT_SIM_UPDATE);
        return 1;
    }
    if (p->is_waiting || (sim->pipe->staleness > 0 && p->n_updates < p->step - 1))
        return 0; // its weights are missing
    look_ahead(sim, stage, p);
    p->state.n_inputs = of_step(sim, p->n_inputs, p->step, p->spec.n_ahead);
    p->state.n_gradients = of_step(sim, p->n_gradients, p->step, 0);
    p->action = strait_schedule_next(&p->spec, &p->state);
    if (p->action.kind == STRAIT_ACTION_WAIT) return 0;
    if (p->action.kind == STRAIT_ACTION_FINISH) {
        finish_step(sim, p);
        return 1;
    }
    const int in_flight = p->state.n_forward - p->state.n_weights +
                          (p->action.kind == STRAIT_ACTION_FORWARD);
    if (in_flight > p->seen.most_in_flight) p->seen.most_in_flight = in_flight;
    occupy(sim, stage, strait_schedule_action_s(sim->pipe, stage, p->action.kind),
           (strait_simulate_what)p->action.kind);
    return 1;
}

static int count_busy(const struct simulation *sim, int device) {
    const int *devices = sim->pipe->devices;
    int n = 0;
    for (int i = 0; i < sim->pipe->n_stages; i++)
        n += isfinite(sim->stages[i].ends_s) && (devices == NULL || devices[i] == device);
    return n;
}

/* A stage that begins or ends changes the speed of all that compute on its device. */
static void share_devices(struct simulation *sim) {
    for (int i = 0; i < sim->pipe->n_stages && sim->pipe->at_once > 0; i++) {
        struct stage *p = &sim->stages[i];
        if (!isfinite(p->ends_s)) continue;
        const int device = sim->pipe->devices != NULL ? sim->pipe->devices[i] : 0;
        const double speed = strait_pipe_speed(sim->pipe, count_busy(sim, device));
        p->ends_s = sim->now + (p->ends_s - sim->now) * p->speed / speed;
        p->speed = speed;
    }
}

/* Processes every event of this instant. Ends and arrivals come before starts, so that a stage
 * chooses its next action knowing all of them. */
static void settle(struct simulation *sim) {
    for (int n_begun = 1; n_begun > 0;) {
        while (complete(sim) + send_waiting(sim) + deliver(sim) > 0) {
        }
        n_begun = 0;
        for (int i = 0; i < sim->pipe->n_stages; i++)
            n_begun += begin(sim, i);
    }
}

/* INFINITY stands for "never" in all times. */
static double next_event(const struct simulation *sim) {
    double next = INFINITY;
    for (int i = 0; i < sim->pipe->n_stages; i++) {
        const struct stage *p = &sim->stages[i];
        next = fmin(next, p->ends_s);
        if (p->is_waiting) next = fmin(next, p->allowed_s);
        if (p->n_updates < sim->n_allowed && sim->known_s > sim->now)
            next = fmin(next, sim->known_s);
        next = fmin(next, next_arrival(sim, i, ACTIVATION));
        next = fmin(next, next_arrival(sim, i, GRADIENT));
        for (int w = 0; w < 2; w++)
            if (sim->wires[2 * i + w] > sim->now) next = fmin(next, sim->wires[2 * i + w]);
    }
    return next;
}

enum {
    MOST_CROSSINGS = 100000000 // a larger simulation is a mistake of the caller's
};

static strait_err check(const strait_pipe *pipe, const strait_simulate_params *params) {
    STRAIT_TRY(strait_pipe_check(pipe));
    if (params->n_steps < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot simulate %d steps: at least 1 is needed",
                           params->n_steps);
    if ((double)pipe->n_stages * pipe->n_microbatches * params->n_steps > MOST_CROSSINGS)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "%d stages, %d microbatches and %d steps are too much to simulate: "
                           "take fewer steps",
                           pipe->n_stages, pipe->n_microbatches, params->n_steps);
    return STRAIT_OK;
}

static strait_err prepare(struct simulation *sim) {
    const strait_pipe *pipe = sim->pipe;
    const size_t n_stages = (size_t)pipe->n_stages;
    STRAIT_TRY(strait_alloc(n_stages, sizeof *sim->stages, "simulation", (void **)&sim->stages));
    STRAIT_TRY(strait_alloc(2 * n_stages, sizeof(double), "simulation", (void **)&sim->wires));
    for (int what = 0; what < 2; what++) {
        const size_t n = n_stages * (size_t)sim->total;
        STRAIT_TRY(strait_alloc(n, sizeof(double), "simulation", (void **)&sim->arrivals[what]));
        for (size_t i = 0; i < n; i++)
            sim->arrivals[what][i] = INFINITY;
    }
    for (int i = 0; i < pipe->n_stages; i++) {
        struct stage *p = &sim->stages[i];
        p->spec = (strait_schedule_spec){.kind = sim->params->kind,
                                         .n_stages = pipe->n_stages,
                                         .stage = i,
                                         .n_microbatches = pipe->n_microbatches,
                                         .window = sim->params->windows[i]};
        p->ends_s = INFINITY;
        STRAIT_TRY(strait_schedule_check(&p->spec));
    }
    return STRAIT_OK;
}

static void report(struct simulation *sim, strait_simulate_stage *stages,
                   strait_simulate_result *out) {
    const int n_stages = sim->pipe->n_stages, n_steps = sim->params->n_steps;
    *out = (strait_simulate_result){.n_spans = sim->n_spans};
    out->seconds = n_steps > 1 ? (sim->last_end - sim->first_end) / (n_steps - 1 - sim->n_skipped)
                               : sim->last_end;
    if (out->seconds > 0)
        out->tokens_per_s = sim->pipe->microbatch_tokens * sim->pipe->n_microbatches / out->seconds;
    for (int i = 0; i < n_stages; i++) {
        strait_simulate_stage *seen = &sim->stages[i].seen;
        seen->bubble = sim->last_end > 0 ? 1 - seen->busy_s / sim->last_end : 0;
        out->bubble += seen->bubble / n_stages;
        if (stages != NULL) stages[i] = *seen;
    }
}

strait_err strait_simulate(const strait_pipe *pipe, const strait_simulate_params *params,
                           strait_simulate_stage *stages, strait_simulate_result *out) {
    STRAIT_TRY(check(pipe, params));
    struct simulation sim = {
        .pipe = pipe, .params = params, .total = pipe->n_microbatches * params->n_steps};
    sim.n_skipped = pipe->staleness > 0 && params->n_steps > 2 ? (params->n_steps - 1) / 2 : 0;
    strait_err err;
    STRAIT_TRY_GOTO(err, done, prepare(&sim));
    while (isfinite(sim.now)) {
        settle(&sim);
        share_devices(&sim);
        count_messages(&sim);
        sim.now = next_event(&sim);
    }
    report(&sim, stages, out);
done:
    strait_alloc_free(sim.stages);
    strait_alloc_free(sim.wires);
    strait_alloc_free(sim.arrivals[ACTIVATION]);
    strait_alloc_free(sim.arrivals[GRADIENT]);
    return err;
}
