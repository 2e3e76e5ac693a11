#include "study/runner.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/program.h"
#include "study/harvest.h"
#include "study/process.h"
#include "study/stable_rank.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    POLL_MS = 50
};

/* A job and its process: first the training, then the test. */
typedef struct place {
    strait_job *job; // NULL: free
    pid_t pid;
    int is_test;
    char folder[STRAIT_PATH_MAX];
} place;

typedef struct runner {
    const strait_runner_spec *spec;
    char program[STRAIT_PATH_MAX];
    place places[STRAIT_RUNNER_PARALLEL];
    int is_stopping;
    double began, work_done;
} runner;

/* ---- children ---- */

/* Whether something reads the weights after the last step. */
static int needs_weights(const runner *r, const strait_job *job) {
    return r->spec->keeps_weights || (job->trial < 0 && r->spec->study->test[0] != '\0');
}

static strait_err start_training(runner *r, place *p) {
    char file[STRAIT_PATH_MAX];
    char log[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(file, "%s.yaml", p->folder));
    STRAIT_TRY(strait_file_path(log, "%s.log", p->folder));
    const int64_t save_every = p->job->run->train.save_every;
    if (save_every == 0 && !needs_weights(r, p->job)) p->job->run->train.save_every = -1;
    const strait_err err = strait_run_save(p->job->run, file);
    p->job->run->train.save_every = save_every;
    STRAIT_TRY(err);
    const char *const argv[] = {r->program, "train", file, "--out", p->folder, "--resume", NULL};
    p->is_test = 0;
    return strait_process_start(argv, "/dev/null", log, &p->pid);
}

/* The device of the run evaluates the test text, since a large model takes hours on a CPU. */
static strait_err start_test(runner *r, place *p) {
    char result[STRAIT_PATH_MAX];
    char log[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(result, "%s.test.json", p->folder));
    STRAIT_TRY(strait_file_path(log, "%s.log", p->folder));
    const char *const argv[] = {r->program,           "eval",     p->folder, "--data",
                                r->spec->study->test, "--as-run", "--json",  NULL};
    p->is_test = 1;
    return strait_process_start(argv, result, log, &p->pid);
}

/* The last line of a log that says what went wrong, without the name of the program. */
static void read_reason(const place *p, int code, char out[STRAIT_JOB_ERROR]) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    (void)snprintf(out, STRAIT_JOB_ERROR, code < 0 ? "killed by signal %d" : "exit code %d",
                   code < 0 ? -code : code);
    if (strait_file_path(path, "%s.log", p->folder) != STRAIT_OK) return;
    if (strait_file_read(path, 64 << 20, &text, NULL) != STRAIT_OK) return;
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, "strait: ")) != NULL; at++)
        if (at == text || at[-1] == '\n') last = at + 8;
    if (last != NULL && code > 0)
        (void)snprintf(out, STRAIT_JOB_ERROR, "%.*s", (int)strcspn(last, "\r\n"), last);
    strait_alloc_free(text);
}

/* ---- events ---- */

static strait_err report_failure(runner *r, place *p, const char *error) {
    const strait_runner_events *e = &r->spec->events;
    strait_job *job = p->job;
    p->job = NULL;
    STRAIT_TRY(strait_queue_fail(r->spec->queue, job, error));
    if (e->failed != NULL) e->failed(e->user, job);
    return STRAIT_OK;
}

static void drop_weights(const runner *r, const strait_job *job) {
    char folder[STRAIT_PATH_MAX];
    if (r->spec->keeps_weights) return;
    if (strait_file_path(folder, "%s/runs/%s", r->spec->folder, job->label) == STRAIT_OK)
        strait_harvest_drop_weights(folder);
}

static strait_err add_ranks(const char *folder, json_t *record) {
    json_t *ranks = NULL;
    STRAIT_TRY(strait_stable_rank_read(folder, &ranks));
    (void)json_object_set_new(record, "stable_rank", ranks);
    return STRAIT_OK;
}

/* Metrics that cannot be read are a fault of this run alone. */
static strait_err complete(runner *r, place *p) {
    const strait_runner_events *e = &r->spec->events;
    strait_job *job = p->job;
    double test_loss = (double)NAN;
    json_t *record = NULL;
    char path[STRAIT_PATH_MAX];
    strait_err err = strait_file_path(path, "%s.test.json", p->folder);
    if (err == STRAIT_OK && p->is_test) err = strait_harvest_test(path, &test_loss);
    if (err == STRAIT_OK) err = strait_harvest(r->spec->study, job, p->folder, test_loss, &record);
    if (err == STRAIT_OK && strait_study_has(r->spec->study, "stable-rank") && job->trial < 0)
        err = add_ranks(p->folder, record);
    if (err != STRAIT_OK) {
        json_decref(record);
        return report_failure(r, p, strait_err_detail());
    }
    p->job = NULL;
    err = strait_queue_finish(r->spec->queue, job, record);
    json_decref(record);
    STRAIT_TRY(err);
    r->work_done += strait_job_work(job);
    drop_weights(r, job);
    if (e->finished != NULL) e->finished(e->user, job);
    return STRAIT_OK;
}

static strait_err handle_end(runner *r, place *p, int code) {
    char error[STRAIT_JOB_ERROR];
    if (r->is_stopping && code != 0) {
        strait_queue_return(r->spec->queue, p->job);
        p->job = NULL;
        return STRAIT_OK;
    }
    if (code != 0) {
        read_reason(p, code, error);
        return report_failure(r, p, error);
    }
    if (p->is_test || p->job->trial >= 0 || r->spec->study->test[0] == '\0') return complete(r, p);
    const strait_err err = start_test(r, p);
    return err == STRAIT_OK ? STRAIT_OK : report_failure(r, p, strait_err_detail());
}

static strait_err start_job(runner *r, place *p, strait_job *job) {
    const strait_runner_events *e = &r->spec->events;
    p->job = job;
    strait_err err = strait_file_path(p->folder, "%s/runs/%s", r->spec->folder, job->label);
    if (err == STRAIT_OK) err = start_training(r, p);
    if (err != STRAIT_OK) return report_failure(r, p, strait_err_detail());
    if (e->started != NULL) e->started(e->user, job);
    return STRAIT_OK;
}

/* ---- the loop ---- */

static int count_running(const runner *r) {
    int n = 0;
    for (int i = 0; i < r->spec->n_parallel; i++)
        n += r->places[i].job != NULL;
    return n;
}

static strait_err fill_places(runner *r) {
    for (int i = 0; i < r->spec->n_parallel && !r->is_stopping; i++) {
        if (r->places[i].job != NULL) continue;
        strait_job *job = strait_queue_next(r->spec->queue);
        if (job == NULL) return STRAIT_OK;
        STRAIT_TRY(start_job(r, &r->places[i], job));
    }
    return STRAIT_OK;
}

static strait_err reap(runner *r) {
    for (int i = 0; i < r->spec->n_parallel; i++) {
        place *p = &r->places[i];
        int code = 0;
        if (p->job == NULL || !strait_process_ended(p->pid, &code)) continue;
        STRAIT_TRY(handle_end(r, p, code));
    }
    return STRAIT_OK;
}

/* The work of this sitting gives the speed; runs that are under way count as half done. */
static void report_progress(runner *r) {
    const strait_runner_events *e = &r->spec->events;
    strait_study_progress p = {.n_jobs = strait_queue_count(r->spec->queue),
                               .n_running = count_running(r),
                               .seconds = strait_clock_seconds() - r->began,
                               .seconds_left = (double)NAN};
    double left = 0.0;
    double running = 0.0;
    for (int i = 0; i < p.n_jobs; i++) {
        const strait_job *job = strait_queue_at(r->spec->queue, i);
        p.n_done += job->state == STRAIT_JOB_DONE;
        p.n_failed += job->state == STRAIT_JOB_FAILED;
        if (job->state == STRAIT_JOB_RUNNING) running += 0.5 * strait_job_work(job);
        if (job->state == STRAIT_JOB_WAITING || job->state == STRAIT_JOB_READY)
            left += strait_job_work(job);
    }
    if (r->work_done > 0.0)
        p.seconds_left = p.seconds * (left + running) / (r->work_done + running);
    if (e->progressed != NULL) e->progressed(e->user, &p);
}

/* Children get the signal once; they finish their step, save and end. */
static void check_stop(runner *r) {
    const strait_runner_events *e = &r->spec->events;
    if (r->is_stopping || e->must_stop == NULL || !e->must_stop(e->user)) return;
    r->is_stopping = 1;
    for (int i = 0; i < r->spec->n_parallel; i++)
        if (r->places[i].job != NULL) (void)kill(r->places[i].pid, SIGTERM);
}

static strait_err loop(runner *r) {
    for (;;) {
        const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        check_stop(r);
        STRAIT_TRY(reap(r));
        STRAIT_TRY(fill_places(r));
        report_progress(r);
        if (count_running(r) == 0)
            return r->is_stopping ? STRAIT_FAIL(STRAIT_EINTERRUPTED, "the study was interrupted")
                                  : STRAIT_OK;
        (void)nanosleep(&pause, NULL);
    }
}

strait_err strait_runner_run(const strait_runner_spec *spec) {
    char folder[STRAIT_PATH_MAX];
    void *memory = NULL;
    STRAIT_TRY(strait_file_path(folder, "%s/runs", spec->folder));
    STRAIT_TRY(strait_file_make_folders(folder));
    STRAIT_TRY(strait_alloc(1, sizeof(runner), "study", &memory));
    runner *r = memory;
    r->spec = spec;
    r->began = strait_clock_seconds();
    strait_err err = strait_program_path(r->program);
    for (int i = 0; i < strait_queue_count(spec->queue); i++) // a kill may have come in between
        if (strait_queue_at(spec->queue, i)->state == STRAIT_JOB_DONE)
            drop_weights(r, strait_queue_at(spec->queue, i));
    if (err == STRAIT_OK) err = loop(r);
    for (int i = 0; i < spec->n_parallel; i++) { // after an error of ours: nothing runs on unseen
        int code = 0;
        if (r->places[i].job == NULL) continue;
        (void)kill(r->places[i].pid, SIGKILL);
        while (!strait_process_ended(r->places[i].pid, &code)) {
            const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
            (void)nanosleep(&pause, NULL);
        }
    }
    strait_alloc_free(r);
    return err;
}
