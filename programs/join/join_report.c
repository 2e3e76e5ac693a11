#include "join_report.h"

#include "files.h"

#include <stdio.h>
#include <unistd.h>

static const double line_s = 30.0; // between lines where there is no terminal
static const double hour_s = 3600.0, settle_s = 60.0;

void strait_join_report_init(strait_join_report *report) {
    *report = (strait_join_report){.said_stage = -2, .began = strait_files_seconds()};
    report->now.stage = -1;
    strait_progress_init(&report->progress);
}

void strait_join_report_note(strait_join_report *report, const char *text) {
    strait_progress_say(&report->progress, "%s", text);
}

/* The second field of statm counts resident pages. */
double strait_join_report_memory(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    char line[128];
    long pages = 0;
    if (file == NULL) return 0.0;
    if (fgets(line, sizeof line, file) != NULL) (void)sscanf(line, "%*d %ld", &pages); // NOLINT
    (void)fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

void strait_join_report_role(const strait_join_report *report, char out[64]) {
    const strait_worker_status *s = &report->now;
    if (!s->is_connected)
        (void)snprintf(out, 64, "%s", report->has_run ? "reconnecting" : "connecting");
    else if (s->stage >= 0 && s->n_replicas > 1)
        (void)snprintf(out, 64, "stage %d of %d, replica %d of %d", s->stage, report->run.n_stages,
                       s->replica, s->n_replicas);
    else if (s->stage >= 0)
        (void)snprintf(out, 64, "stage %d of %d", s->stage, report->run.n_stages);
    else
        (void)snprintf(out, 64, "spare");
}

/* Once the worker has run for a minute, what it moved tells more than the estimate. */
static double bytes_per_hour(const strait_join_report *report) {
    const double seconds = strait_files_seconds() - report->began;
    const double moved = report->now.sent_bytes + report->now.received_bytes;
    return seconds > settle_s ? moved * hour_s / seconds : report->now.bytes_per_hour;
}

/* Before the run has a pace, bytes per step are all that is known. */
static void describe_traffic(const strait_worker_status *s, char out[64]) {
    const double mega = 1e-6 * (s->bytes_per_hour > 0.0 ? s->bytes_per_hour : s->bytes_per_step);
    (void)snprintf(out, 64, "%s%.*f MB%s", s->bytes_per_hour > 0.0 ? "about " : "",
                   mega < 10.0 ? 2 : 0, mega, s->bytes_per_hour > 0.0 ? "/h" : " per step");
}

/* Said when the worker is admitted, when it gets another stage, and once the pace is known. */
static void announce(strait_join_report *report) {
    const strait_worker_status *s = &report->now;
    const int has_traffic = s->stage >= 0 && s->bytes_per_hour > 0.0;
    char memory[32], traffic[64], role[64];
    if (!report->has_run ||
        (s->stage == report->said_stage && (report->said_traffic || !has_traffic)))
        return;
    report->said_stage = s->stage;
    report->said_traffic = has_traffic;
    strait_progress_bytes(s->stage >= 0 ? s->need_bytes : report->run.need_bytes, memory);
    describe_traffic(s, traffic);
    strait_join_report_role(report, role);
    if (s->stage < 0)
        strait_progress_say(
            &report->progress,
            "this run: %s, %s; a stage needs %s or more; no stage yet, waiting as a "
            "spare",
            report->run.name, report->run.model, memory);
    else
        strait_progress_say(&report->progress, "this run: %s, %s, needs %s and %s, %s",
                            report->run.name, report->run.model, memory, traffic, role);
}

void strait_join_report_status(strait_join_report *report, const strait_worker_status *status) {
    const double now = strait_files_seconds();
    char role[64], left[32] = "?", loss[32] = "?", tokens[32], memory[32];
    report->now = *status;
    if (status->run != NULL) report->run = *status->run;
    report->has_run |= status->run != NULL;
    report->now.run = &report->run;
    announce(report);
    if (!report->has_run) return;
    const strait_run_status *run = &report->run;
    const int is_due = now - report->line >= line_s;
    if (is_due) report->line = now;
    strait_join_report_role(report, role);
    if (run->left_s > 0.0) strait_progress_duration(run->left_s, left);
    if (run->step > 0) (void)snprintf(loss, sizeof loss, "%.4f", run->loss);
    strait_progress_count((double)status->tokens, tokens);
    strait_progress_bytes(strait_join_report_memory(), memory);
    strait_progress_show(&report->progress, is_due, 0,
                         "step %lld/%lld  loss %s  left %s  %s  %s tokens contributed  sent %.1f MB"
                         "  received %.1f MB  %.0f MB/h  memory %s",
                         (long long)run->step, (long long)run->n_steps, loss, left, role, tokens,
                         status->sent_bytes / 1e6, status->received_bytes / 1e6,
                         bytes_per_hour(report) / 1e6, memory);
}

void strait_join_report_end(strait_join_report *report) {
    const strait_worker_status *s = &report->now;
    char tokens[32], time[32];
    if (!report->has_run) return; // it was never admitted
    strait_progress_count((double)s->tokens, tokens);
    strait_progress_duration(strait_files_seconds() - report->began, time);
    strait_progress_say(
        &report->progress,
        "summary: contributed %s tokens in %lld step%s to run %s in %s; audited %lld "
        "interval%s; sent %.1f MB, received %.1f MB; lost the connection %d time%s",
        tokens, (long long)s->n_steps, strait_progress_plural(s->n_steps), report->run.name, time,
        (long long)s->n_audits, strait_progress_plural(s->n_audits), s->sent_bytes / 1e6,
        s->received_bytes / 1e6, s->n_lost, strait_progress_plural(s->n_lost));
}
