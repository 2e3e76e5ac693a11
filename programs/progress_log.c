#include "progress_log.h"

#include "files.h"
#include "signals.h"

#include <stdio.h>

static void on_opened(void *user, const strait_trainer_info *facts, int64_t step) {
    strait_progress_log *t = user;
    char text[32];
    strait_progress_bytes((double)facts->memory.total, text);
    strait_progress_say(&t->progress, "%s: %.2fM parameters on %s, %s; %lld steps of %lld tokens",
                        t->folder, (double)facts->parameters / 1e6, facts->device, text,
                        (long long)t->run->train.steps, (long long)t->run->train.batch_tokens);
    if (step > 0) strait_progress_say(&t->progress, "going on after step %lld", (long long)step);
    t->began = strait_files_seconds();
    t->first_step = step;
}

/* What crosses the boundaries, where there are any: MB/s each way, ratios, waiting, the limit. */
static void describe_links(const strait_trainer_report *report, char *out, size_t capacity) {
    out[0] = '\0';
    if (report->forward_bytes_per_token <= 0.0) return;
    const double rate = report->tokens_per_s / 1e6;
    (void)snprintf(out, capacity, "  %.3g+%.3g MB/s (%.3gx, %.3gx)  bubble %.0f%%  limit %s",
                   rate * report->forward_bytes_per_token, rate * report->backward_bytes_per_token,
                   report->ratio_forward, report->ratio_backward, 100.0 * report->bubble,
                   report->limit);
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    strait_progress_log *t = user;
    const int64_t n_steps = t->run->train.steps;
    const double elapsed = strait_files_seconds() - t->began;
    const double done = (double)(report->step - t->first_step);
    char left[32];
    char valid[48] = "";
    char links[160];
    strait_progress_duration(elapsed / done * (double)(n_steps - report->step), left);
    if (t->has_valid) (void)snprintf(valid, sizeof valid, "  valid %.4f", t->valid_loss);
    describe_links(report, links, sizeof links);
    const int is_due = report->step % t->run->train.log_every == 0 || report->step == n_steps;
    strait_progress_show(
        &t->progress, is_due, report->step == n_steps,
        "step %lld/%lld  loss %.4f%s  rate %.3g  norm %.3g  %.0f tok/s  left %s%s%s",
        (long long)report->step, (long long)n_steps, report->loss, valid, report->learning_rate,
        report->grad_norm, report->tokens_per_s, left, links,
        report->is_skipped ? "  skipped: not finite" : "");
}

static void on_validated(void *user, int64_t step, double loss) {
    strait_progress_log *t = user;
    t->valid_loss = loss;
    t->has_valid = 1;
    strait_progress_say(&t->progress, "step %lld  validation loss %.4f", (long long)step, loss);
}

static void on_noted(void *user, const char *text) {
    strait_progress_log *t = user;
    strait_progress_say(&t->progress, "note: %s", text);
}

/* What the plan promised of each stage's device, and what the stage took. */
static void on_ended(void *user, const strait_trainer_info *facts) {
    strait_progress_log *t = user;
    for (int i = 0; i < facts->n_stages; i++) {
        const strait_trainer_stage *stage = &facts->stages[i];
        char planned[32], used[32];
        if (stage->used == 0) continue;
        strait_progress_bytes((double)stage->planned, planned);
        strait_progress_bytes((double)stage->used, used);
        strait_progress_say(&t->progress,
                            "stage %d: %d slots, device memory %s, planned %s (%+.1f%%)", i,
                            stage->slots, used, planned,
                            100.0 * ((double)stage->used / (double)stage->planned - 1.0));
    }
}

static int must_stop(void *user) {
    strait_progress_log *t = user;
    if (strait_signals_count() > 0 && !t->was_warned)
        strait_progress_say(&t->progress, "interrupted: saving (interrupt again to stop at once)");
    t->was_warned = strait_signals_count() > 0;
    return t->was_warned;
}

void strait_progress_log_init(strait_progress_log *log, const strait_run *run, const char *folder) {
    *log = (strait_progress_log){.run = run, .folder = folder};
    strait_progress_init(&log->progress);
}

strait_session_events strait_progress_log_events(strait_progress_log *log) {
    return (strait_session_events){log,  on_opened, on_stepped, on_validated,
                                   NULL, on_noted,  must_stop,  on_ended};
}
