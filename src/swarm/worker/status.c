/* status.c - what the person who lends this machine is told: the run, this worker's part in it, and
 * what it costs. */
#include "base/clock.h"
#include "net/core/frame.h"
#include "swarm/budget.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>

enum {
    TELL_MS = 1000,
    HOLD_MS = 5000 // for the end of the run to arrive after a neighbour had it
};

static const double hour_s = 3600.0;

/* Adds the counters of the open links to the neighbours and to other replicas. */
static void add_neighbours(struct worker *w, strait_link_stats *sum) {
    if (w->mesh == NULL || w->service == NULL) return;
    const strait_stage_links *links = strait_service_links(w->service);
    for (int i = 0; i < STRAIT_SIDES * STRAIT_RUN_REPLICAS; i++) {
        const int side = i / STRAIT_RUN_REPLICAS, replica = i % STRAIT_RUN_REPLICAS;
        strait_link_stats stats;
        if (replica < links->n[side] && links->peers[side][replica] >= 0 &&
            strait_mesh_stats(w->mesh, links->peers[side][replica], &stats) == STRAIT_OK)
            strait_stats_add(sum, &stats);
    }
}

void strait_worker_count_traffic(struct worker *w) {
    add_neighbours(w, &w->account.traffic);
}

void strait_worker_note_stage(struct worker *w) {
    const int n = w->replicas.n[STRAIT_SIDE_SAME];
    char replica[64] = "";
    if (n > 1)
        (void)snprintf(replica, sizeof replica, ", replica %d of %d", w->replicas.replica, n);
    strait_worker_note(w, "generation %u: serving stage %d of %d%s", w->generation, w->stage,
                       strait_service_plan(w->service)->n_stages, replica);
}

void strait_worker_count_step(struct worker *w) {
    const strait_run_plan *plan = strait_service_plan(w->service);
    const struct strait_runner *runner = strait_service_runner(w->service);
    const int64_t n = runner != NULL ? runner->n_microbatches : plan->n_microbatches;
    w->account.n_steps++;
    w->account.tokens += n * plan->microbatch * plan->shape.context; // a replica has a part of them
}

/* Of closed links, of the open ones to the neighbours, and of that to the coordinator. */
static strait_link_stats traffic(struct worker *w) {
    strait_link_stats sum = w->account.traffic, stats;
    add_neighbours(w, &sum);
    if (w->control.mesh != NULL && strait_mesh_stats(w->control.mesh, 0, &stats) == STRAIT_OK)
        strait_stats_add(&sum, &stats);
    return sum;
}

/* Both directions of both boundaries; copies of snapshots are limited to a share of the link and
 * not counted. */
static double crossing_bytes(const struct worker *w, const strait_run_plan *plan) {
    const int n_boundaries = (w->stage > 0) + (w->stage + 1 < plan->n_stages);
    double bytes = 0.0;
    for (int k = 0; k < 2 && plan->n_stages > 1; k++)
        bytes += (double)strait_codec_wire_bytes(&plan->codec, (strait_direction)k) +
                 STRAIT_FRAME_HEADER;
    return n_boundaries * bytes * (double)plan->n_microbatches;
}

static void describe_stage(const struct worker *w, strait_worker_status *out) {
    const strait_run_plan *plan = strait_service_plan(w->service);
    const struct strait_runner *runner = strait_service_runner(w->service);
    const strait_run_status *run = &w->account.run;
    strait_budget budget;
    const int n_slots = runner != NULL ? runner->n_slots
                                       : strait_budget_least_slots(plan, w->stage);
    out->stage = w->stage;
    out->replica = w->replicas.replica;
    out->n_replicas = w->replicas.n[STRAIT_SIDE_SAME];
    out->bytes_per_step = crossing_bytes(w, plan);
    if (run->tokens_per_s > 0.0 && run->batch_tokens > 0)
        out->bytes_per_hour = out->bytes_per_step * hour_s * run->tokens_per_s /
                              (double)run->batch_tokens;
    if (strait_budget_plan(plan, w->stage, n_slots, w->valid_windows, &budget) == STRAIT_OK)
        out->need_bytes = strait_budget_sum(&budget);
}

void strait_worker_tell_status(struct worker *w, int is_due) {
    const strait_worker_events *events = &w->spec->events;
    const int64_t now = strait_clock_ns();
    if (events->status == NULL) return;
    if (!is_due && now - w->account.told_ns < TELL_MS * INT64_C(1000000)) return;
    w->account.told_ns = now;
    const strait_link_stats sum = traffic(w);
    strait_worker_status status = {.run = w->account.is_admitted ? &w->account.run : NULL,
                                   .is_connected = w->control.down_ns == 0,
                                   .stage = -1,
                                   .n_steps = w->account.n_steps,
                                   .tokens = w->account.tokens,
                                   .n_audits = w->account.n_audits,
                                   .n_lost = w->account.n_lost,
                                   .sent_bytes = (double)sum.sent_bytes,
                                   .received_bytes = (double)sum.received_bytes};
    if (w->has_stage && w->service != NULL) describe_stage(w, &status);
    events->status(events->user, &status);
}

/* A worker that fits no stage would wait as a spare until the end without ever being used. */
static strait_err check_memory(const struct worker *w) {
    const double needs = w->account.run.need_bytes, lent = w->report.memory_bytes;
    if (w->spec->is_forced || w->has_stage || lent <= 0.0 || needs <= lent) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_ENOMEM,
        "the smallest stage of this run needs %.0f MB of memory, and this machine %s "
        "%.0f MB: lend more%s, join from a machine with more, or ask for more stages "
        "(stages.count) in the run",
        needs / 1e6, w->spec->memory_bytes > 0.0 ? "lends" : "has", lent / 1e6,
        w->spec->memory_bytes > 0.0 ? " (--memory)" : " by ending other programs");
}

strait_err strait_worker_take_run_status(struct worker *w, const struct strait_msg *msg) {
    const int is_first = !w->account.is_admitted;
    STRAIT_TRY(strait_run_status_unpack(msg, &w->account.run));
    w->account.is_admitted = 1;
    STRAIT_TRY(check_memory(w));
    strait_worker_tell_status(w, is_first);
    return STRAIT_OK;
}

/* At the end of a run each worker is told on a link of its own. One that is told first closes its
 * links to neighbours that do not know yet, and for them nothing is lost either. */
void strait_worker_hold_note(struct worker *w, const char *text) {
    char *held = w->account.held;
    const size_t used = strlen(held);
    if (used == 0) w->account.held_ns = strait_clock_ns();
    (void)snprintf(held + used, sizeof w->account.held - used, "%s%s", used > 0 ? "; " : "", text);
}

void strait_worker_say_held(struct worker *w, int is_due) {
    const int64_t until_ns = w->account.held_ns + HOLD_MS * INT64_C(1000000);
    if (w->account.held[0] == '\0' || (!is_due && strait_clock_ns() < until_ns)) return;
    strait_worker_note(w, "%s", w->account.held);
    w->account.held[0] = '\0';
}

/* A worker that leaves is disconnected once its stage was handed over: nothing was lost. */
void strait_worker_say_lost(struct worker *w, const struct strait_msg *msg) {
    const double limit_s = (double)w->spec->give_up_ms * 1e-3;
    char limit[64] = "";
    if (w->has_left) return;
    if (limit_s > 0.0) (void)snprintf(limit, sizeof limit, " for up to %.0f s", limit_s);
    w->account.n_lost++;
    strait_worker_note(
        w,
        "lost the connection to the coordinator (%.*s): trying again%s; this machine "
        "continues once the coordinator is back",
        (int)msg->size, (const char *)msg->body, limit);
}

void strait_worker_say_reached(struct worker *w) {
    if (w->account.n_lost == 0)
        strait_worker_note(w, "reached the coordinator: asking to join");
    else
        strait_worker_note(w, "connected again after %.0f s: asking to join",
                           (double)(strait_clock_ns() - w->control.down_ns) * 1e-9);
}
