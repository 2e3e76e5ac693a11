#include "progress_log.h"

#include "files.h"
#include "signals.h"

#include <stdio.h>

/* The clock starts here, after everything is allocated: the time left concerns steps only. */
static void on_opened(void *user, const strait_trainer_info *info, int64_t step) {
    strait_progress_log *log = user;
    char text[32];
    strait_progress_bytes((double)info->memory.total, text);
    strait_progress_say(&log->progress, "%s: %.2fM parameters on %s, %s; %lld steps of %lld tokens",
                        log->folder, (double)info->parameters / 1e6, info->device, text,
                        (long long)log->n_steps, (long long)log->batch_tokens);
    if (step > 0) strait_progress_say(&log->progress, "resuming after step %lld", (long long)step);
    log->began = strait_files_seconds();
    log->first_step = step;
}

/* Traffic of the busiest boundary, if there is one: MB/s forward and backward, compression ratios,
 * idle share, bottleneck. */
static void describe_links(const strait_trainer_report *report, char *out, size_t capacity) {
    out[0] = '\0';
    if (report->forward_bytes_per_token <= 0.0) return;
    const double rate = report->tokens_per_s / 1e6;
    (void)snprintf(out, capacity, "  %.3g+%.3g MB/s (%.3gx, %.3gx)  bubble %.0f%%  limit %s",
                   rate * report->forward_bytes_per_token, rate * report->backward_bytes_per_token,
                   report->ratio_forward, report->ratio_backward, 100.0 * report->bubble,
                   report->limit);
}

/* The time left is extrapolated from the steps of this session, not of an earlier one. */
static void on_stepped(void *user, const strait_trainer_report *report) {
    strait_progress_log *log = user;
    const int64_t n_steps = log->n_steps;
    const double elapsed = strait_files_seconds() - log->began;
    const double done = (double)(report->step - log->first_step);
    char left[32];
    char valid[48] = "";
    char links[160];
    strait_progress_duration(elapsed / done * (double)(n_steps - report->step), left);
    if (log->has_valid) (void)snprintf(valid, sizeof valid, "  valid %.4f", log->valid_loss);
    describe_links(report, links, sizeof links);
    const int is_due = report->step % log->log_every == 0 || report->step == n_steps;
    strait_progress_show(&log->progress, is_due, report->step == n_steps,
                         "step %lld/%lld  loss %.4f%s  lr %.3g  norm %.3g  %.0f tok/s  left %s%s%s",
                         (long long)report->step, (long long)n_steps, report->loss, valid,
                         report->learning_rate, report->grad_norm, report->tokens_per_s, left,
                         links, report->is_skipped ? "  skipped: non-finite gradient" : "");
}

/* The last validation loss is repeated in the line of every later step. */
static void on_validated(void *user, int64_t step, double loss) {
    strait_progress_log *log = user;
    log->valid_loss = loss;
    log->has_valid = 1;
    strait_progress_say(&log->progress, "step %lld  validation loss %.4f", (long long)step, loss);
}

/* Notes come from the library, which prints nothing itself. */
static void on_noted(void *user, const char *text) {
    strait_progress_log *log = user;
    strait_progress_say(&log->progress, "note: %s", text);
}

/* Device memory of each stage, used and planned: a plan that is far off is a defect. */
static void on_ended(void *user, const strait_trainer_info *info) {
    strait_progress_log *log = user;
    for (int i = 0; i < info->n_stages; i++) {
        const strait_trainer_stage *stage = &info->stages[i];
        char planned[32], used[32];
        if (stage->used == 0) continue;
        strait_progress_bytes((double)stage->planned, planned);
        strait_progress_bytes((double)stage->used, used);
        strait_progress_say(&log->progress,
                            "stage %d: %d slots, device memory %s, planned %s (%+.1f%%)", i,
                            stage->slots, used, planned,
                            100.0 * ((double)stage->used / (double)stage->planned - 1.0));
    }
}

/* Warns once; a second interrupt then ends the process without saving (signals.h). */
static int must_stop(void *user) {
    strait_progress_log *log = user;
    if (strait_signals_count() > 0 && !log->was_warned)
        strait_progress_say(&log->progress,
                            "interrupted: saving a checkpoint (interrupt again to stop at once)");
    log->was_warned = strait_signals_count() > 0;
    return log->was_warned;
}

/* The log keeps the options it shows, because the run may be closed before the log. */
strait_err strait_progress_log_init(strait_progress_log *log, const struct strait_run *run,
                                    const char *folder) {
    *log = (strait_progress_log){.folder = folder};
    strait_progress_init(&log->progress);
    STRAIT_TRY(strait_run_get_int(run, "train.steps", &log->n_steps));
    STRAIT_TRY(strait_run_get_int(run, "train.batch_tokens", &log->batch_tokens));
    return strait_run_get_int(run, "train.log_every", &log->log_every);
}

strait_session_events strait_progress_log_events(strait_progress_log *log) {
    return (strait_session_events){.user = log,
                                   .opened = on_opened,
                                   .stepped = on_stepped,
                                   .validated = on_validated,
                                   .noted = on_noted,
                                   .must_stop = must_stop,
                                   .ended = on_ended};
}
