#include "progress_log.h"

#include "files.h"
#include "signals.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

strait_progress_choice strait_progress_chosen;

enum {
    NARROW = 60 // columns below which words are left out, so that step, loss and time left fit
};

/* ---- JSON lines ---- */

/* Prints an object that it then releases; NULL, for lack of memory, prints nothing. */
static void print_json(json_t *object) {
    if (object == NULL) return;
    (void)json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(13)); // a date to 1 ms
    json_decref(object);
    (void)fputc('\n', stdout);
    (void)fflush(stdout);
}

/* With nine digits, as in metrics.jsonl. JSON has no infinity or NaN: those become null. */
static json_t *real(double value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.9g", value);
    return isfinite(value) ? json_real(strtod(text, NULL)) : json_null();
}

void strait_progress_log_text(const strait_progress_log *log, const char *event, const char *key,
                              const char *text) {
    if (log->is_json) print_json(json_pack("{ss ss}", "event", event, key, text));
}

/* The keys of a step are those of metrics.jsonl. */
static void print_step(const strait_progress_log *log, const strait_trainer_report *r) {
    print_json(json_pack(
        "{ss sI sI so so so sI sf so so so so so so ss so so}", "event", "step", "step",
        (json_int_t)r->step, "steps", (json_int_t)log->n_steps, "loss", real(r->loss),
        "learning_rate", real(r->learning_rate), "grad_norm", real(r->grad_norm), "tokens",
        (json_int_t)r->tokens, "time", r->time, "tokens_per_s", real(r->tokens_per_s),
        "forward_bytes_per_token", real(r->forward_bytes_per_token), "backward_bytes_per_token",
        real(r->backward_bytes_per_token), "ratio_forward", real(r->ratio_forward),
        "ratio_backward", real(r->ratio_backward), "bubble", real(r->bubble), "limit", r->limit,
        "seconds", real(r->seconds), "seconds_left", real(strait_progress_log_left(log, r->step))));
}

/* ---- events of a session ---- */

/* The clock starts here, after everything is allocated: the time left concerns steps only. */
static void on_opened(void *user, const strait_trainer_info *info, int64_t step) {
    strait_progress_log *log = user;
    char text[32], tokens[32];
    strait_progress_bytes((double)info->memory.total, text);
    strait_progress_count((double)(log->n_steps * log->batch_tokens), tokens);
    strait_progress_say(&log->progress,
                        "%s: %.2fM parameters on %s, %s; %lld steps of %lld tokens, %s in all",
                        log->folder, (double)info->parameters / 1e6, info->device, text,
                        (long long)log->n_steps, (long long)log->batch_tokens, tokens);
    if (info->sources[0] != '\0')
        strait_progress_say(&log->progress, "training data: %s", info->sources);
    if (info->staleness > 0)
        strait_progress_say(&log->progress,
                            "updates of stages 0 to %d are one step late (train.staleness)",
                            info->n_late - 1);
    if (step > 0) strait_progress_say(&log->progress, "resuming after step %lld", (long long)step);
    if (step >= log->n_steps)
        strait_progress_say(&log->progress,
                            "nothing is left to train: train.steps is %lld; a larger value "
                            "(--set train.steps=N) continues the run",
                            (long long)log->n_steps);
    log->began = strait_files_seconds();
    log->first_step = step;
    if (log->is_json)
        print_json(json_pack(
            "{ss ss sI sI sI sI ss sI si}", "event", "opened", "folder", log->folder, "step",
            (json_int_t)step, "steps", (json_int_t)log->n_steps, "batch_tokens",
            (json_int_t)log->batch_tokens, "parameters", (json_int_t)info->parameters, "device",
            info->device, "memory", (json_int_t)info->memory.total, "stages", info->n_stages));
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
double strait_progress_log_left(const strait_progress_log *log, int64_t step) {
    const double done = (double)(step - log->first_step);
    if (log->began == 0.0 || done <= 0.0) return 0.0;
    return (strait_files_seconds() - log->began) / done * (double)(log->n_steps - step);
}

/* Step, loss and time left come first: they are what a narrow terminal keeps. */
static void show_step(strait_progress_log *log, const strait_trainer_report *report) {
    const int64_t n_steps = log->n_steps;
    const int columns = log->progress.is_terminal ? strait_progress_columns() : 0;
    const int is_narrow = columns > 0 && columns < NARROW;
    const int is_last = report->step == n_steps;
    const int is_due = report->step % log->log_every == 0 || is_last;
    char left[32], tokens[32], valid[48] = "", links[160];
    strait_progress_duration(strait_progress_log_left(log, report->step), left);
    strait_progress_count((double)report->tokens, tokens);
    if (log->has_valid) (void)snprintf(valid, sizeof valid, "  valid %.4f", log->valid_loss);
    describe_links(report, links, sizeof links);
    strait_progress_show(
        &log->progress, is_due, is_last,
        "%s%lld/%lld  %s%.4f  %s%s%s%s  %s tokens  %.0f tok/s  lr %.3g  norm %.3g%s",
        is_narrow ? "" : "step ", (long long)report->step, (long long)n_steps,
        is_narrow ? "" : "loss ", report->loss, is_narrow ? "" : "left ", left,
        report->is_skipped ? "  skipped: non-finite gradient" : "", valid, tokens,
        report->tokens_per_s, report->learning_rate, report->grad_norm, links);
}

static void on_stepped(void *user, const strait_trainer_report *report) {
    strait_progress_log *log = user;
    show_step(log, report);
    if (log->is_json) print_step(log, report);
}

/* The last validation loss is repeated in the line of every later step. */
static void on_validated(void *user, int64_t step, double loss) {
    strait_progress_log *log = user;
    log->valid_loss = loss;
    log->has_valid = 1;
    strait_progress_say(&log->progress, "step %lld  validation loss %.4f", (long long)step, loss);
    if (log->is_json)
        print_json(json_pack("{ss sI so}", "event", "valid", "step", (json_int_t)step, "valid_loss",
                             real(loss)));
}

/* Only JSON says so: a line per checkpoint would hide the others. */
static void on_saved(void *user, int64_t step) {
    const strait_progress_log *log = user;
    if (log->is_json) print_json(json_pack("{ss sI}", "event", "saved", "step", (json_int_t)step));
}

/* Notes come from the library, which prints nothing itself. */
static void on_noted(void *user, const char *text) {
    strait_progress_log *log = user;
    strait_progress_warn(&log->progress, "%s", text);
    strait_progress_log_text(log, "note", "text", text);
}

void strait_progress_log_event(strait_progress_log *log, const char *text) {
    strait_progress_say(&log->progress, "%s", text);
    strait_progress_log_text(log, "note", "text", text);
}

void strait_progress_log_done(strait_progress_log *log) {
    strait_progress_say(&log->progress, "done: %s", log->folder);
    strait_progress_say(&log->progress,
                        "next: strait generate %s --prompt TEXT, or strait inspect %s", log->folder,
                        log->folder);
    strait_progress_log_text(log, "done", "folder", log->folder);
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
                            log->began > 0.0
                                ? "interrupted: saving a checkpoint (interrupt again to stop at "
                                  "once)"
                                : "interrupted before the first step: stopping");
    log->was_warned = strait_signals_count() > 0;
    return log->was_warned;
}

/* The log keeps the options it shows, because the run may be closed before the log. */
strait_err strait_progress_log_init(strait_progress_log *log, const struct strait_run *run,
                                    const char *folder) {
    const strait_progress_choice *chosen = &strait_progress_chosen;
    *log = (strait_progress_log){.folder = folder, .is_json = chosen->is_json};
    strait_progress_init(&log->progress);
    log->progress.is_quiet = chosen->is_json ? 2 : chosen->is_quiet;
    STRAIT_TRY(strait_run_get_int(run, "train.steps", &log->n_steps));
    STRAIT_TRY(strait_run_get_int(run, "train.batch_tokens", &log->batch_tokens));
    STRAIT_TRY(strait_run_get_int(run, "train.log_every", &log->log_every));
    if (chosen->log_path == NULL) return STRAIT_OK;
    log->progress.log = fopen(chosen->log_path, "ae");
    if (log->progress.log != NULL) return STRAIT_OK;
    char why[128] = "";
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_EIO, "--log %s: cannot open: %s", chosen->log_path, why);
}

void strait_progress_log_close(strait_progress_log *log) {
    if (log->progress.is_open) fputc('\n', stderr); // what follows begins a line
    log->progress.is_open = 0;
    FILE *file = log->progress.log;
    log->progress.log = NULL;
    if (file == NULL) return;
    const int has_failed = ferror(file); // fclose reports only what it writes itself
    if (fclose(file) != 0 || has_failed)
        strait_progress_warn(&log->progress,
                             "--log %s lacks lines: they could not be written; is the disk full?",
                             strait_progress_chosen.log_path);
}

strait_session_events strait_progress_log_events(strait_progress_log *log) {
    return (strait_session_events){.user = log,
                                   .opened = on_opened,
                                   .stepped = on_stepped,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .noted = on_noted,
                                   .must_stop = must_stop,
                                   .ended = on_ended};
}
