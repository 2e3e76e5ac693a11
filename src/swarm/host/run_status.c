/* run_status.c - tells the workers what the run is and how far it is, for the people who lend them.
 */
#include "base/clock.h"
#include "swarm/budget.h"
#include "swarm/host/state.h"

#include <math.h>
#include <stdio.h>

enum {
    SEND_MS = 1000
};

/* The memory of the smallest stage: a worker with less can serve none. */
static strait_err least_need(const strait_run_plan *plan, int64_t valid_windows, double *out) {
    *out = INFINITY;
    for (int i = 0; i < plan->n_stages; i++) {
        strait_budget budget;
        STRAIT_TRY(strait_budget_plan(plan, i, strait_budget_least_slots(plan, i), valid_windows,
                                      &budget));
        if (strait_budget_sum(&budget) < *out) *out = strait_budget_sum(&budget);
    }
    return STRAIT_OK;
}

strait_err strait_host_describe_run(struct host *h, const strait_run_plan *plan,
                                    int64_t valid_windows) {
    strait_run_status *s = &h->run_status.message;
    int64_t parameters = 0;
    STRAIT_TRY(strait_run_plan_params(plan, &parameters));
    STRAIT_TRY(least_need(plan, valid_windows, &s->need_bytes));
    (void)snprintf(s->name, sizeof s->name, "%.*s", (int)sizeof s->name - 1, h->run.name);
    (void)snprintf(s->model, sizeof s->model, "%.2fM parameters, %d layers, width %lld",
                   (double)parameters / 1e6, plan->shape.layers, (long long)plan->shape.width);
    s->n_stages = plan->n_stages;
    s->n_steps = h->run.train.steps;
    s->batch_tokens = h->run.train.batch_tokens;
    return STRAIT_OK;
}

/* The pace is that of all steps since this coordinator began, replays and repairs included: that is
 * what the rest of the run will take. */
void strait_host_note_progress(struct host *h, int64_t step, double loss) {
    strait_run_status *s = &h->run_status.message;
    const double now = strait_clock_seconds();
    s->step = step;
    s->loss = isfinite(loss) ? loss : 0.0;
    if (h->run_status.began_s <= 0.0) { // the first step also waits for workers
        h->run_status.began_s = now;
        h->run_status.first_step = step;
        return;
    }
    const double n = (double)(step - h->run_status.first_step);
    const double step_s = n > 0.0 ? (now - h->run_status.began_s) / n : 0.0;
    if (step_s <= 0.0) return;
    s->tokens_per_s = (double)s->batch_tokens / step_s;
    s->left_s = step_s * (double)(s->n_steps - step);
}

void strait_host_send_run_status(struct host *h, int worker) {
    struct strait_msg *msg = NULL;
    struct connection *connection = strait_host_connection(h, worker);
    if (connection == NULL ||
        strait_run_status_pack(h->pool, &h->run_status.message, &msg) != STRAIT_OK)
        return;
    strait_host_send(h, connection, &msg);
}

void strait_host_send_run_status_if_due(struct host *h, int64_t now_ns) {
    if (now_ns - h->run_status.sent_ns < SEND_MS * INT64_C(1000000)) return;
    h->run_status.sent_ns = now_ns;
    h->run_status.message.n_workers = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        h->run_status.message.n_workers += strait_host_connection(h, i) != NULL;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        strait_host_send_run_status(h, i);
}
