#include "plan/members.h"

#include "base/alloc.h"
#include "plan/event_queue.h"

#include <math.h>

/* Of a byte received, what its acknowledgement takes: headers of 66 bytes for two packets. */
static const double ack_share = 66.0 / (2 * 1514);

enum kind {
    ACTIVATION,
    GRADIENT,
    PART,  // a share of a sum, for the replica that owns the share
    RESULT // the share of all replicas, from its owner
};

enum event {
    ACTION_ENDS, // of a member
    WIRE_IS_FREE,
    ARRIVES, // a message
};

struct message {
    int from, to, microbatch; // members; microbatch as the receiver counts its own
    enum kind kind;
    double bytes;
    int next; // in the sender's queue; -1: none
};

struct member {
    int stage, replica;
    strait_schedule_spec schedule;
    strait_schedule_state state;
    strait_schedule_action action;
    int is_busy, is_sending, has_computed;
    int *list;                        // its microbatches, in order
    unsigned char *arrived[2];        // inputs, gradients: by position in the list
    int part_ends[STRAIT_GROUPS_MAX]; // positions after which each of its sums is complete
    int n_parts, n_parts_sent;        // sums
    int n_parts_got, n_results_got;   // messages of the other replicas
    int n_parts_due;                  // that it gets
    int first_queued, last_queued;    // messages; -1: none
    double down_free_s, ack_s;        // ack_s: acknowledgements that the wire up has to pass
    strait_members_use use;
};

struct simulation {
    const strait_members_spec *spec;
    struct member *members;
    int n_members;
    int *first;  // member of each stage
    int *places; // [stage * n_microbatches + microbatch]: position in its owner's list
    struct message *messages;
    int n_messages, capacity;
    double *pair_free_s; // [from * n_members + to]
    struct strait_event_queue events;
    double now;
    int n_reduced;
};

static double wire_s(double bytes, double bps) {
    return bps > 0 ? 8.0 * bytes / bps : 0.0;
}

static int owner_of(const struct simulation *sim, int stage, int microbatch) {
    const strait_members_spec *spec = sim->spec;
    const int group = strait_groups_of(&spec->groups, microbatch);
    return sim->first[stage] + spec->owners[stage].replica[group];
}

/* ---- messages ---- */

/* The rates and the delay of the link between two members; those of one stage are as far as the
 * neighbours of that stage. */
static void link_of(const struct simulation *sim, const struct message *msg, double *bps,
                    double *delay_s) {
    const int from = sim->members[msg->from].stage, to = sim->members[msg->to].stage;
    const int nearest = from < to ? from : to;
    const int last = sim->spec->n_stages - 2;
    *bps = *delay_s = 0.0;
    if (last < 0) return;
    const strait_pipe_link *link = &sim->spec->links[nearest < last ? nearest : last];
    *bps = from > to ? link->backward_bps : link->forward_bps;
    *delay_s = link->delay_s;
}

/* Puts the next message of a member on its wire up, if that is free. */
static void send_next(struct simulation *sim, int member) {
    struct member *m = &sim->members[member];
    if (m->is_sending || m->first_queued < 0) return;
    const int id = m->first_queued;
    const struct message *msg = &sim->messages[id];
    struct member *to = &sim->members[msg->to];
    double bps, delay_s;
    link_of(sim, msg, &bps, &delay_s);
    const double up_bps = sim->spec->up_bps[member], down_bps = sim->spec->down_bps[msg->to];
    const double up_s = wire_s(msg->bytes, up_bps) + m->ack_s;
    double *pair = &sim->pair_free_s[(size_t)member * (size_t)sim->n_members + (size_t)msg->to];
    const double starts = fmax(sim->now, *pair);
    *pair = starts + wire_s(msg->bytes, bps);
    m->first_queued = msg->next;
    m->is_sending = 1;
    m->ack_s = 0.0;
    m->use.up_s += up_s;
    m->down_free_s = fmax(m->down_free_s, sim->now) +
                     wire_s(ack_share * msg->bytes, sim->spec->down_bps[member]);
    to->ack_s += wire_s(ack_share * msg->bytes, sim->spec->up_bps[msg->to]);
    to->down_free_s = fmax(to->down_free_s, starts + delay_s) + wire_s(msg->bytes, down_bps);
    to->use.down_s += wire_s(msg->bytes, down_bps);
    const double leaves = fmax(sim->now + up_s, *pair);
    strait_event_queue_add(&sim->events, sim->now + up_s, WIRE_IS_FREE, member);
    strait_event_queue_add(&sim->events, fmax(leaves + delay_s, to->down_free_s), ARRIVES, id);
}

static void post(struct simulation *sim, int from, int to, enum kind kind, int microbatch,
                 double bytes) {
    struct member *m = &sim->members[from];
    const int id = sim->n_messages++;
    sim->messages[id] = (struct message){from, to, microbatch, kind, bytes, -1};
    if (m->first_queued >= 0)
        sim->messages[m->last_queued].next = id;
    else
        m->first_queued = id;
    m->last_queued = id;
    send_next(sim, from);
}

/* Sends what a pass computed to the member of the neighbouring stage that has the microbatch. */
static void post_crossing(struct simulation *sim, int member, enum kind kind, int microbatch) {
    const struct member *m = &sim->members[member];
    const int stage = m->stage + (kind == ACTIVATION ? 1 : -1);
    if (stage < 0 || stage >= sim->spec->n_stages) return;
    const strait_pipe_link *link = &sim->spec->links[kind == ACTIVATION ? m->stage : stage];
    post(sim, member, owner_of(sim, stage, microbatch), kind,
         sim->places[stage * sim->spec->groups.n_microbatches + microbatch],
         kind == ACTIVATION ? link->forward_bytes : link->backward_bytes);
}

/* Sends a share of something to each of the other replicas. */
static void post_shares(struct simulation *sim, int member, enum kind kind) {
    const struct member *m = &sim->members[member];
    const strait_members_stage *stage = &sim->spec->stages[m->stage];
    for (int i = 0; i < stage->n_replicas; i++)
        if (i != m->replica)
            post(sim, member, sim->first[m->stage] + i, kind, -1,
                 stage->gradient_bytes / stage->n_replicas);
}

/* ---- the reduction ---- */

/* How many replicas a stage sums its gradients with. */
static int others_of(const struct simulation *sim, int stage) {
    const strait_members_stage *s = &sim->spec->stages[stage];
    return s->gradient_bytes > 0 ? s->n_replicas - 1 : 0;
}

static void post_parts(struct simulation *sim, int member) {
    struct member *m = &sim->members[member];
    for (int i = 0; i < m->n_parts; i++)
        if (m->part_ends[i] == m->state.n_weights) post_shares(sim, member, PART);
}

/* Continues the reduction as far as messages allow. */
static void reduce(struct simulation *sim, int member, int is_new) {
    struct member *m = &sim->members[member];
    const int n_others = others_of(sim, m->stage);
    if (!m->has_computed) return;
    if (is_new && n_others > 0 && m->n_parts_got == m->n_parts_due)
        post_shares(sim, member, RESULT);
    if (m->use.reduced_s > 0.0 || m->n_parts_got < m->n_parts_due || m->n_results_got < n_others)
        return;
    m->use.reduced_s = sim->now;
    sim->n_reduced++;
}

/* ---- actions ---- */

static double action_s(const struct simulation *sim, const struct member *m) {
    const strait_members_spec *spec = sim->spec;
    const strait_pipe_stage *cost = &spec->stages[m->stage].cost;
    const double codec_s = (m->stage > 0 ? spec->links[m->stage - 1].codec_s : 0.0) +
                           (m->stage + 1 < spec->n_stages ? spec->links[m->stage].codec_s : 0.0);
    switch (m->action.kind) {
    case STRAIT_ACTION_FORWARD: return cost->forward_s + codec_s;
    case STRAIT_ACTION_BACKWARD: return cost->input_s + cost->weights_s + codec_s;
    case STRAIT_ACTION_INPUT: return cost->input_s + codec_s;
    default: return cost->weights_s;
    }
}

/* Starts the next action of a member that is idle. */
static void begin(struct simulation *sim, int member) {
    struct member *m = &sim->members[member];
    const int n = m->schedule.n_microbatches;
    if (m->is_busy || m->has_computed) return;
    m->state.n_inputs = strait_schedule_leading(m->arrived[0], m->state.n_inputs, n);
    m->state.n_gradients = strait_schedule_leading(m->arrived[1], m->state.n_gradients, n);
    m->action = strait_schedule_next(&m->schedule, &m->state);
    if (m->action.kind == STRAIT_ACTION_WAIT) return;
    if (m->action.kind == STRAIT_ACTION_FINISH) {
        m->has_computed = 1;
        m->use.computed_s = sim->now;
        reduce(sim, member, 1);
        return;
    }
    const double seconds = action_s(sim, m);
    m->is_busy = 1;
    m->use.busy_s += seconds;
    strait_event_queue_add(&sim->events, sim->now + seconds, ACTION_ENDS, member);
}

static void end_action(struct simulation *sim, int member) {
    struct member *m = &sim->members[member];
    const strait_schedule_action_kind kind = m->action.kind;
    const int microbatch = m->list[m->action.microbatch];
    const int n_before = m->state.n_weights;
    m->is_busy = 0;
    strait_schedule_done(&m->state, m->action);
    if (kind == STRAIT_ACTION_FORWARD) post_crossing(sim, member, ACTIVATION, microbatch);
    if (kind == STRAIT_ACTION_BACKWARD || kind == STRAIT_ACTION_INPUT)
        post_crossing(sim, member, GRADIENT, microbatch);
    if (m->state.n_weights > n_before && others_of(sim, m->stage) > 0) post_parts(sim, member);
    begin(sim, member);
}

static void arrive(struct simulation *sim, const struct message *msg) {
    struct member *m = &sim->members[msg->to];
    switch (msg->kind) {
    case ACTIVATION:
    case GRADIENT:
        m->arrived[msg->kind == GRADIENT][msg->microbatch] = 1;
        begin(sim, msg->to);
        return;
    case PART:
        m->n_parts_got++;
        reduce(sim, msg->to, 1);
        return;
    case RESULT:
        m->n_results_got++;
        reduce(sim, msg->to, 0);
        return;
    }
}

/* ---- life ---- */

/* The positions in the list after which the sums of a member are complete. */
static void find_parts(const struct simulation *sim, struct member *m) {
    const strait_groups *groups = &sim->spec->groups;
    unsigned char is_mine[STRAIT_GROUPS_MAX];
    strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES];
    m->n_parts = 1;
    m->part_ends[0] = m->schedule.n_microbatches;
    if (!sim->spec->sums_pairwise) return;
    for (int i = 0; i < groups->n_groups; i++)
        is_mine[i] = sim->spec->owners[m->stage].replica[i] == m->replica;
    m->n_parts = strait_pairwise_parts(groups->n_groups, is_mine, nodes);
    for (int i = 0; i < m->n_parts; i++) {
        int first, end;
        strait_pairwise_leaves(groups->n_groups, nodes[i], &first, &end);
        m->part_ends[i] = 0;
        for (int k = 0; k < m->schedule.n_microbatches; k++) {
            const int group = strait_groups_of(groups, m->list[k]);
            if (group >= first && group < end) m->part_ends[i] = k + 1;
        }
    }
}

static strait_err add_member(struct simulation *sim, int stage, int replica, int *lists,
                             unsigned char *flags) {
    const strait_members_spec *spec = sim->spec;
    const int number = sim->first[stage] + replica, n_all = spec->groups.n_microbatches;
    struct member *m = &sim->members[number];
    *m = (struct member){.stage = stage, .replica = replica, .first_queued = -1};
    m->list = lists + (size_t)number * (size_t)n_all;
    for (int k = 0; k < 2; k++)
        m->arrived[k] = flags + ((size_t)number * 2 + (size_t)k) * (size_t)n_all;
    const int n = strait_groups_list(&spec->groups, &spec->owners[stage], replica, m->list);
    for (int i = 0; i < n; i++)
        sim->places[stage * n_all + m->list[i]] = i;
    m->schedule = (strait_schedule_spec){
        .kind = spec->n_stages > 1 ? spec->kind : STRAIT_SCHEDULE_1F1B,
        .n_stages = spec->n_stages,
        .stage = stage,
        .n_microbatches = n,
        .window = spec->stages[stage].window < n ? spec->stages[stage].window : n};
    find_parts(sim, m);
    return strait_schedule_check(&m->schedule);
}

/* Counts members and the messages of a step. */
static int count(struct simulation *sim) {
    const strait_members_spec *spec = sim->spec;
    int n_messages = 2 * (spec->n_stages - 1) * spec->groups.n_microbatches;
    for (int i = 0; i < spec->n_stages; i++) {
        const int n = spec->stages[i].n_replicas;
        sim->first[i] = sim->n_members;
        sim->n_members += n;
        n_messages += n * (n - 1) * (spec->groups.n_groups + 1);
    }
    return n_messages;
}

static strait_err run(struct simulation *sim) {
    strait_event event;
    for (int i = 0; i < sim->n_members; i++)
        begin(sim, i);
    while (strait_event_queue_next(&sim->events, &event)) {
        sim->now = event.time_s;
        if (event.kind == ACTION_ENDS) end_action(sim, event.id);
        if (event.kind == ARRIVES) arrive(sim, &sim->messages[event.id]);
        if (event.kind == WIRE_IS_FREE) {
            sim->members[event.id].is_sending = 0;
            send_next(sim, event.id);
        }
    }
    if (sim->n_reduced < sim->n_members)
        return STRAIT_FAIL(STRAIT_EINVAL, "the windows are too small for the order of the groups");
    return STRAIT_OK;
}

/* The sums that a replica gets are those of all others. */
static void count_parts(struct simulation *sim) {
    for (int i = 0; i < sim->n_members; i++) {
        struct member *m = &sim->members[i];
        const int n = others_of(sim, m->stage) + 1;
        for (int k = 0; n > 1 && k < n; k++)
            if (k != m->replica) m->n_parts_due += sim->members[sim->first[m->stage] + k].n_parts;
    }
}

/* Updates begin when the norm of all gradients is known. */
static double finish(const struct simulation *sim, strait_members_use *use) {
    double reduced = 0.0, update = 0.0;
    for (int i = 0; i < sim->n_members; i++) {
        const struct member *m = &sim->members[i];
        reduced = fmax(reduced, m->use.reduced_s);
        update = fmax(update, sim->spec->stages[m->stage].cost.update_s);
        if (use != NULL) use[i] = m->use;
    }
    return reduced + 2.0 * sim->spec->control_s + update;
}

strait_err strait_members_simulate(const strait_members_spec *spec, strait_members_use *use,
                                   double *seconds) {
    struct simulation sim = {.spec = spec};
    const size_t n_stages = (size_t)spec->n_stages, n_all = (size_t)spec->groups.n_microbatches;
    int *lists = NULL;
    unsigned char *flags = NULL;
    const char *const what = "simulation";
    strait_err err;
    STRAIT_TRY(strait_alloc(n_stages, sizeof *sim.first, what, (void **)&sim.first));
    const size_t n_messages = (size_t)count(&sim), n = (size_t)sim.n_members;
    STRAIT_TRY_GOTO(err, done, strait_alloc(n, sizeof *sim.members, what, (void **)&sim.members));
    STRAIT_TRY_GOTO(err, done,
                    strait_alloc(n_stages * n_all, sizeof(int), what, (void **)&sim.places));
    STRAIT_TRY_GOTO(err, done, strait_alloc(n * n_all, sizeof(int), what, (void **)&lists));
    STRAIT_TRY_GOTO(err, done, strait_alloc(2 * n * n_all, 1, what, (void **)&flags));
    STRAIT_TRY_GOTO(err, done,
                    strait_alloc(n * n, sizeof(double), what, (void **)&sim.pair_free_s));
    STRAIT_TRY_GOTO(
        err, done,
        strait_alloc(n_messages + 1, sizeof *sim.messages, what, (void **)&sim.messages));
    STRAIT_TRY_GOTO(err, done, strait_event_queue_init(&sim.events, n_messages + 2 * n));
    for (int i = 0; i < spec->n_stages; i++)
        for (int k = 0; k < spec->stages[i].n_replicas; k++)
            STRAIT_TRY_GOTO(err, done, add_member(&sim, i, k, lists, flags));
    count_parts(&sim);
    STRAIT_TRY_GOTO(err, done, run(&sim));
    *seconds = finish(&sim, use);
done:
    strait_event_queue_fini(&sim.events);
    strait_alloc_free(sim.messages);
    strait_alloc_free(sim.pair_free_s);
    strait_alloc_free(flags);
    strait_alloc_free(lists);
    strait_alloc_free(sim.places);
    strait_alloc_free(sim.members);
    strait_alloc_free(sim.first);
    return err;
}
