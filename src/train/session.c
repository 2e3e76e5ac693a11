#include "train/session.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/folder_lock.h"
#include "config/microbatch.h"
#include "metrics/metrics.h"
#include "metrics/tensorboard.h"
#include "store/checkpoint.h"
#include "train/changes.h"
#include "train/fit.h"
#include "train/report/report_line.h"
#include "train/session/session_folder.h"
#include "train/start_from.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
    FULL_MS = 500 // between attempts to write to a full disk
};

struct session {
    const strait_session_spec *spec;
    strait_executor_choice executor;
    const strait_run *run; // the caller's, or `chosen`
    strait_run *chosen;    // a copy whose codec was chosen; NULL: there was nothing to choose
    const char *folder;
    struct strait_trainer *trainer;
    struct strait_metrics *metrics;
    struct strait_tensorboard *board; // NULL: not asked for
    struct strait_folder_lock *lock;  // the caller's, or `own`
    struct strait_folder_lock own;
    int is_new;         // this session created the folder
    int had_no_run;     // the folder had no run before this session
    int is_ours;        // the folder passed the checks: its files belong to this run
    int64_t saved_step; // of the newest checkpoint; -1: none
    int is_diverged;    // the last step had a non-finite loss or gradient
    /* The latest sync of the metrics, perhaps in another thread, and why it failed. */
    struct {
        strait_err err;
        char reason[512];
    } sync;
};

static void note(const struct session *s, const char *text) {
    if (s->spec->events.noted != NULL) s->spec->events.noted(s->spec->events.user, text);
}

/* Reports an error that the run survives. */
static void note_fault(const struct session *s, strait_err err) {
    if (err != STRAIT_OK) note(s, strait_err_detail());
}

static int must_stop(const struct session *s) {
    return s->spec->events.must_stop != NULL && s->spec->events.must_stop(s->spec->events.user);
}

/* Returns STRAIT_OK in any case, so that an error of serving the links meanwhile is told apart. */
static strait_err sync_metrics(void *arg) {
    struct session *s = arg;
    s->sync.err = strait_metrics_sync(s->metrics);
    (void)snprintf(s->sync.reason, sizeof s->sync.reason, "%s", strait_err_detail());
    return STRAIT_OK;
}

/* Retries until the disk has space again or the session must stop. */
static strait_err wait_for_space(void *arg) {
    struct session *s = arg;
    const struct timespec nap = {.tv_nsec = FULL_MS * 1000000L};
    while (s->sync.err == STRAIT_EIO && !must_stop(s)) {
        (void)nanosleep(&nap, NULL);
        (void)sync_metrics(s);
    }
    return STRAIT_OK;
}

/* Syncs the lines of the steps so far, while links to the workers are served, and waits for a full
 * disk. A host does this before the next step begins: it then records the steps as settled, and a
 * run that continues from there after a power cut must find one line for each. */
static strait_err settle(struct session *s) {
    char note_text[600];
    STRAIT_TRY(strait_folder_lock_check(s->lock));
    STRAIT_TRY(strait_trainer_run_async(s->trainer, sync_metrics, s));
    if (s->sync.err == STRAIT_OK) return STRAIT_OK;
    (void)snprintf(note_text, sizeof note_text, "waiting for disk space: %s", s->sync.reason);
    note(s, note_text);
    STRAIT_TRY(strait_trainer_run_async(s->trainer, wait_for_space, s));
    if (s->sync.err == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(s->sync.err, "stopped before the metrics were on disk: %s", s->sync.reason);
}

/* Handles the result of writing a metrics line. Where steps cannot be replayed later, the line
 * stays in memory and settle writes it again. */
static void handle_write(const struct session *s, strait_err err) {
    if (err != STRAIT_EIO || !s->spec->waits_for_disk) note_fault(s, err);
}

/* Takes and checks the folder before the trainer takes memory and time. */
static strait_err claim_folder(struct session *s) {
    s->is_new = !strait_file_exists(s->folder);
    STRAIT_TRY(strait_file_make_folders(s->folder));
    if (s->lock == NULL) {
        STRAIT_TRY(strait_folder_lock_take(&s->own, s->folder, 0));
        s->lock = &s->own;
    }
    s->had_no_run = !strait_session_holds_run(s->folder);
    STRAIT_TRY(strait_session_check_folder(s->folder, s->spec->resumes));
    s->is_ours = 1;
    return STRAIT_OK;
}

/* The step of the newest checkpoint, damaged or not; 0: there is none. */
static int64_t first_step(const struct session *s) {
    int64_t *steps = NULL;
    int n = 0;
    if (!s->spec->resumes || strait_checkpoint_list(s->folder, &steps, &n) != STRAIT_OK) return 0;
    const int64_t step = n > 0 ? steps[n - 1] : 0;
    strait_alloc_free(steps);
    return step;
}

static strait_err load_checkpoint(struct session *s) {
    int64_t *steps = NULL;
    int n = 0;
    const char *skipped = NULL;
    STRAIT_TRY(strait_checkpoint_list(s->folder, &steps, &n));
    strait_alloc_free(steps);
    if (n == 0) {
        note(s, "no checkpoint yet: starting from the first step");
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_trainer_load(s->trainer, s->folder, &skipped));
    if (skipped != NULL) note(s, skipped);
    s->saved_step = strait_trainer_step_count(s->trainer);
    return STRAIT_OK;
}

static void note_init(void *user, const char *text) {
    note(user, text);
}

static strait_err start_from_source(struct session *s) {
    STRAIT_TRY(strait_start_from(s->trainer, s->run->train.init_from, s->folder, note_init, s));
    s->saved_step = 0;
    return STRAIT_OK;
}

/* Before run.yaml is replaced: says and records what this session does otherwise. */
static void note_changes(const struct session *s) {
    char text[STRAIT_CHANGES_TEXT];
    note_fault(
        s, strait_changes_record(s->run, s->folder, strait_trainer_step_count(s->trainer), text));
    if (text[0] != '\0') note(s, text);
}

/* Writes what the rule for tables gave into the record: another version may have another rule. */
static void note_table_rows(struct session *s) {
    strait_trainer_info info;
    if (s->chosen == NULL || s->chosen->model.table_rows != 0) return;
    strait_trainer_describe(s->trainer, &info);
    s->chosen->model.table_rows = info.table_rows;
}

/* After the trainer, so that a run that cannot start leaves no files. */
static strait_err open_files(struct session *s) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_folder_lock_check(s->lock));
    STRAIT_TRY(strait_checkpoint_prepare(s->folder));
    note_table_rows(s);
    if (s->spec->resumes && !s->had_no_run) note_changes(s);
    STRAIT_TRY(strait_file_path(path, "%s/" STRAIT_FOLDER_RUN, s->folder));
    STRAIT_TRY(strait_run_save(s->run, path));
    STRAIT_TRY(strait_session_copy_tokenizer(s->run, s->folder));
    STRAIT_TRY(strait_file_path(path, "%s/" STRAIT_FOLDER_METRICS, s->folder));
    STRAIT_TRY(strait_metrics_open(path, strait_trainer_step_count(s->trainer), &s->metrics));
    return strait_tensorboard_open(s->run->metrics.tensorboard, &s->board);
}

static strait_err choose_codec(struct session *s) {
    const int is_swarm = s->executor.ops != NULL;
    STRAIT_TRY(strait_session_choose(s->spec, is_swarm, &s->chosen));
    if (s->chosen != NULL) s->run = s->chosen;
    return STRAIT_OK;
}

/* Chosen here, so that it is in the record and the same for all stages. The workers of a swarm get
 * theirs from the host's plan, which knows no device memory. */
static strait_err choose_microbatch(struct session *s) {
    const int is_swarm = s->executor.ops != NULL;
    if (s->chosen == NULL || s->chosen->stages.microbatch != 0 ||
        !strait_run_records_microbatch(s->chosen))
        return STRAIT_OK;
    s->chosen->stages.microbatch = strait_run_choose_microbatch(s->chosen);
    return is_swarm || s->spec->is_forced ? STRAIT_OK : strait_resources_fit_microbatch(s->chosen);
}

/* Before memory is taken. The workers of a swarm check theirs, and a host that begins again must
 * serve them even with a full disk, for which it waits. */
static strait_err check_resources(const struct session *s) {
    const int is_swarm = s->executor.ops != NULL;
    if (s->spec->is_forced) return STRAIT_OK;
    if (!is_swarm) STRAIT_TRY(strait_trainer_check_memory(s->run));
    if (s->spec->waits_for_disk && s->spec->resumes) return STRAIT_OK;
    return strait_session_check_disk(s->run, s->folder, first_step(s));
}

static strait_err open_session(struct session *s) {
    STRAIT_TRY(claim_folder(s));
    STRAIT_TRY(choose_codec(s));
    STRAIT_TRY(choose_microbatch(s));
    STRAIT_TRY(check_resources(s));
    STRAIT_TRY(strait_trainer_open_with(s->run, s->executor, &s->trainer));
    strait_trainer_guard(s->trainer, s->lock);
    if (s->spec->resumes) STRAIT_TRY(load_checkpoint(s));
    STRAIT_TRY(open_files(s));
    if (s->run->train.init_from[0] != '\0' && s->saved_step < 0) STRAIT_TRY(start_from_source(s));
    strait_trainer_info info;
    strait_trainer_describe(s->trainer, &info);
    if (s->spec->events.opened != NULL)
        s->spec->events.opened(s->spec->events.user, &info, strait_trainer_step_count(s->trainer));
    return STRAIT_OK;
}

static void remove_in(const char *folder, const char *name) {
    char path[STRAIT_PATH_MAX];
    if (strait_file_path(path, "%s/%s", folder, name) == STRAIT_OK)
        (void)remove(path); // removes a folder only if it is empty
}

/* Removes what a run that could not start created. */
static void leave_folder(struct session *s) {
    if (s->lock == NULL || !s->had_no_run) return;
    if (strait_folder_lock_check(s->lock) != STRAIT_OK) return; // it is another process's by now
    strait_metrics_close(&s->metrics);
    if (s->is_ours) {
        remove_in(s->folder, STRAIT_FOLDER_RUN);
        remove_in(s->folder, STRAIT_FOLDER_TOKENIZER);
    }
    remove_in(s->folder, STRAIT_FOLDER_CHECKPOINTS);
    remove_in(s->folder, STRAIT_FOLDER_METRICS);
    strait_folder_lock_discard(&s->own);
    if (s->is_new) (void)rmdir(s->folder); // fails if someone put a file into it meanwhile
}

/* The lock is released last, when no file is written any more. */
static void close_session(struct session *s) {
    strait_metrics_close(&s->metrics);
    strait_tensorboard_close(&s->board);
    strait_trainer_close(&s->trainer);
    strait_alloc_free(s->chosen);
    strait_folder_lock_release(&s->own);
}

/* Syncs the metrics first: a run resumed from this checkpoint keeps the lines up to its step. */
static strait_err save(struct session *s) {
    STRAIT_TRY(strait_folder_lock_check(s->lock));
    if (s->spec->waits_for_disk)
        STRAIT_TRY(settle(s));
    else
        note_fault(s, strait_metrics_sync(s->metrics));
    STRAIT_TRY(strait_trainer_save(s->trainer, s->folder));
    s->saved_step = strait_trainer_step_count(s->trainer);
    if (s->spec->events.saved != NULL) s->spec->events.saved(s->spec->events.user, s->saved_step);
    return STRAIT_OK;
}

/* A checkpoint that could not be written is no reason to end a run that still owns its folder.
 * STRAIT_EAGAIN: the executor returns to an earlier step, and the session begins again there. */
static strait_err save_if_possible(struct session *s) {
    const strait_err err = save(s);
    if (err == STRAIT_EDEPOSED || err == STRAIT_EAGAIN) return err;
    note_fault(s, err);
    return STRAIT_OK;
}

static strait_err validate(struct session *s) {
    const int64_t step = strait_trainer_step_count(s->trainer);
    double loss = 0.0;
    STRAIT_TRY(strait_trainer_validate(s->trainer, &loss));
    STRAIT_TRY(strait_folder_lock_check(s->lock));
    handle_write(s, strait_metrics_put_valid(s->metrics, step, loss));
    note_fault(s, strait_tensorboard_put_valid(s->board, step, loss));
    if (s->spec->events.validated != NULL)
        s->spec->events.validated(s->spec->events.user, step, loss);
    return STRAIT_OK;
}

/* Data that was truncated ends the run; what was trained since the last checkpoint is saved. */
static strait_err save_and_end(struct session *s, strait_err err) {
    char reason[512];
    (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
    if (s->saved_step != strait_trainer_step_count(s->trainer) && !s->is_diverged)
        note_fault(s, save(s));
    return STRAIT_FAIL(err, "%s", reason);
}

static strait_err check_data(struct session *s) {
    const strait_err err = strait_trainer_check_data(s->trainer);
    return err == STRAIT_OK ? STRAIT_OK : save_and_end(s, err);
}

/* Appends a step to metrics.jsonl and to TensorBoard's file. */
static void write_line(struct session *s, const strait_trainer_report *report) {
    strait_report_line line;
    strait_report_line_init(&line, report, s->run->train.batch_tokens);
    handle_write(s, strait_metrics_put_step(s->metrics, &line.step));
    note_fault(
        s, strait_tensorboard_put_step(s->board, &line.step, strait_metrics_tokens(s->metrics)));
}

static strait_err take_step(struct session *s) {
    strait_trainer_report report;
    if (s->spec->waits_for_disk) STRAIT_TRY(settle(s));
    const strait_err err = strait_trainer_step(s->trainer, &report);
    if (strait_trainer_can_save_after(s->trainer, err)) return save_and_end(s, err);
    STRAIT_TRY(err);
    STRAIT_TRY(strait_folder_lock_check(s->lock));
    s->is_diverged = !isfinite(report.loss) || !isfinite(report.grad_norm);
    write_line(s, &report);
    report.tokens = strait_metrics_tokens(s->metrics);
    if (s->spec->events.stepped != NULL) s->spec->events.stepped(s->spec->events.user, &report);
    if (report.warning != NULL) note(s, report.warning);
    return STRAIT_OK;
}

/* An interval of 0 turns the action off. */
static int is_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

static strait_err run_steps(struct session *s) {
    const int64_t n_steps = s->run->train.steps;
    for (;;) {
        const int64_t step = strait_trainer_step_count(s->trainer);
        if (step >= n_steps) break;
        const int is_last = step + 1 == n_steps;
        const int validates = s->run->data.valid[0] != '\0' &&
                              (is_last || is_due(step + 1, s->run->train.valid_every));
        const int saves = !is_last && is_due(step + 1, s->run->train.save_every);
        STRAIT_TRY(check_data(s));
        if (!is_last && !validates && !saves && !must_stop(s)) strait_trainer_continue(s->trainer);
        STRAIT_TRY(take_step(s));
        if (strait_trainer_is_ahead(s->trainer)) continue; // a request to stop waits for that step
        if (validates) STRAIT_TRY(validate(s));
        if (must_stop(s) && !is_last) {
            STRAIT_TRY(save(s));
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped after step %lld of %lld, saved in %s",
                               (long long)(step + 1), (long long)n_steps, s->folder);
        }
        /* A checkpoint of a diverged run would push out the good ones that are kept. */
        if (saves && !s->is_diverged) STRAIT_TRY(save_if_possible(s));
    }
    if (s->saved_step == strait_trainer_step_count(s->trainer)) return STRAIT_OK;
    if (s->run->train.save_every >= 0) return save(s);
    note_fault(s, strait_metrics_sync(s->metrics)); // the metrics are all that remains
    return STRAIT_OK;
}

static void report_end(struct session *s) {
    strait_trainer_info info;
    if (s->spec->events.ended == NULL) return;
    strait_trainer_describe(s->trainer, &info);
    s->spec->events.ended(s->spec->events.user, &info);
}

strait_err strait_session_run_with(const strait_session_spec *spec, strait_executor_choice executor,
                                   struct strait_folder_lock *lock) {
    struct session s = {.spec = spec,
                        .executor = executor,
                        .lock = lock,
                        .run = spec->run,
                        .folder = spec->folder,
                        .saved_step = -1};
    strait_err err = open_session(&s);
    if (err != STRAIT_OK) leave_folder(&s);
    if (err == STRAIT_OK) err = run_steps(&s);
    if (err == STRAIT_OK) report_end(&s);
    close_session(&s);
    return err;
}

strait_err strait_session_run(const strait_session_spec *spec) {
    return strait_session_run_with(spec, (strait_executor_choice){0}, NULL);
}
