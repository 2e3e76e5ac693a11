#include <strait/trainer.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "codec/basis.h"
#include "config/description.h"
#include "stage/limits.h"
#include "train/executor.h"
#include "train/freeze_check.h"
#include "train/outlook/choose.h"
#include "train/report/correction_monitor.h"
#include "train/report/residual_monitor.h"
#include "train/report/step_details.h"
#include "train/report/trainer_info.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SKIPS_MAX = 20, // consecutive steps with non-finite gradients before the run ends
    NOTE_BYTES = 1024
};

struct strait_trainer {
    strait_run run;
    strait_run_plan plan;
    struct strait_loader *loader;
    struct strait_executor *executor;
    struct strait_folder_lock *lock; // checked before a checkpoint is installed; may be NULL
    int64_t step;                    // steps done
    int n_skipped;                   // consecutive
    int is_ahead;                    // the stages have begun the next step
    char note[NOTE_BYTES];
    strait_executor_report last; // of the last step
    strait_residual_monitors alarms;
    strait_correction_monitor corrections;
    char alarm[NOTE_BYTES];
    strait_step_details details; // of the last step
};

/* Opens the data, which states the vocabulary, but allocates nothing of the model. */
strait_err strait_trainer_plan(const strait_run *run, strait_trainer_info *out) {
    struct strait_loader *loader = NULL;
    strait_run_plan plan;
    STRAIT_TRY(strait_loader_open(run, &loader));
    strait_err err = strait_run_plan_init(run, strait_loader_vocab(loader), &plan);
    if (err == STRAIT_OK) err = strait_loader_configure(loader, &plan);
    int windows[STRAIT_RUN_STAGES] = {1};
    if (err == STRAIT_OK && plan.n_members > 1)
        err = strait_limits_estimate_windows(&plan, (int)run->stages.window, windows);
    if (err == STRAIT_OK) err = strait_trainer_info_fill(run, &plan, windows, loader, out);
    strait_loader_close(&loader);
    return err;
}

/* The vocabulary comes from the data, so the plan can be made only after the shards are open. */
static strait_err open_into(struct strait_trainer *t, strait_executor_choice choice) {
    const strait_choose_params params = choice.ops != NULL ? (strait_choose_params){.is_swarm = 1}
                                                           : strait_choose_locally(&t->run);
    strait_choice codec;
    STRAIT_TRY(strait_choose_codec(&t->run, &params, &codec));
    STRAIT_TRY(strait_loader_open(&t->run, &t->loader));
    STRAIT_TRY(strait_run_plan_init(&t->run, strait_loader_vocab(t->loader), &t->plan));
    STRAIT_TRY(strait_loader_configure(t->loader, &t->plan));
    STRAIT_TRY(strait_freeze_check(&t->plan));
    STRAIT_TRY(strait_executor_open(choice, &t->run, &t->plan, t->loader, &t->executor));
    t->step = t->executor->step;
    return STRAIT_OK;
}

strait_err strait_trainer_open(const strait_run *run, struct strait_trainer **out) {
    return strait_trainer_open_with(run, (strait_executor_choice){0}, out);
}

strait_err strait_trainer_open_with(const strait_run *run, strait_executor_choice choice,
                                    struct strait_trainer **out) {
    struct strait_trainer *t = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *t, "trainer", (void **)&t));
    t->run = *run;
    const strait_err err = open_into(t, choice);
    if (err == STRAIT_ENOMEM)
        strait_err_prefix("not enough memory (train.recompute, a smaller stages.microbatch or "
                          "a smaller model needs less)");
    if (err != STRAIT_OK) {
        strait_trainer_close(&t);
        return err;
    }
    *out = t;
    return STRAIT_OK;
}

void strait_trainer_close(struct strait_trainer **trainer) {
    struct strait_trainer *t = *trainer;
    if (t == NULL) return;
    strait_executor_close(&t->executor);
    strait_loader_close(&t->loader);
    strait_alloc_free(t);
    *trainer = NULL;
}

/* Figures that only a running trainer knows are added to those of the plan. */
void strait_trainer_describe(const struct strait_trainer *t, strait_trainer_info *out) {
    *out = (strait_trainer_info){0};
    (void)strait_trainer_info_fill(&t->run, &t->plan, t->executor->windows, t->loader, out);
    out->valid_tokens = strait_loader_valid_tokens(t->loader);
    (void)snprintf(out->device, sizeof out->device, "%s", t->executor->device);
    for (int i = 0; i < out->n_stages; i++) {
        out->stages[i].used = (size_t)t->executor->device_bytes[i];
        out->device_bytes += out->stages[i].used;
    }
}

int64_t strait_trainer_step_count(const struct strait_trainer *trainer) {
    return trainer->step;
}

/* A step with a non-finite norm is skipped rather than ending the run, because one bad batch may
 * cause it. Many in a row mean that the run has diverged. */
static strait_err update(struct strait_trainer *t, strait_trainer_report *report) {
    const double limit = t->run.train.clip;
    report->is_skipped = !isfinite(report->grad_norm) ||
                         (!t->last.is_updated && !isfinite(report->loss));
    if (report->is_skipped) {
        if (++t->n_skipped < SKIPS_MAX)
            return t->plan.staleness == 0 || t->last.is_updated
                       ? STRAIT_OK
                       : t->executor->ops->update(t->executor, t->step, 0.0f);
        return STRAIT_FAIL(
            STRAIT_ENONFINITE,
            "step %lld: %d gradients in a row were not finite: lower train.learning_rate or "
            "raise train.warmup, and resume",
            (long long)report->step, t->n_skipped);
    }
    t->n_skipped = 0;
    if (t->last.is_updated) return STRAIT_OK;
    return t->executor->ops->update(t->executor, t->step,
                                    strait_executor_factor(limit, report->grad_norm));
}

/* The compression ratio: bytes per token of bf16 activations over the bytes at the socket. */
static double ratio(const struct strait_trainer *t, double bytes_per_token) {
    return bytes_per_token > 0.0 ? 2.0 * t->plan.shape.width / bytes_per_token : 0.0;
}

/* Also for skipped steps: a codec that loses much more is a likely cause of them. */
static const char *watch(struct strait_trainer *t) {
    const double *const residuals[2] = {t->last.residual_forward, t->last.residual_backward};
    const int n = t->plan.n_stages - 1;
    const int is_raised = strait_residual_monitors_watch(&t->alarms, residuals, n, t->alarm,
                                                         sizeof t->alarm);
    const int is_corrected = strait_correction_monitor_watch(
        &t->corrections, t->last.corrections, t->last.leak, n, t->alarm, sizeof t->alarm);
    return is_raised || is_corrected ? t->alarm : NULL;
}

/* Averages that are due after this step. */
static strait_err average(struct strait_trainer *t, strait_trainer_report *report) {
    struct strait_executor *executor = t->executor;
    executor->note[0] = '\0';
    STRAIT_TRY(executor->ops->average(executor, t->step, &t->last));
    report->averaged = t->last.average_members;
    report->average_bytes_per_token = t->last.average_bytes_per_token;
    report->divergence = t->last.divergence;
    if (executor->note[0] != '\0') report->warning = executor->note;
    return STRAIT_OK;
}

static int has_basis(const struct strait_trainer *t) {
    return t->plan.n_stages > 1 && strait_codec_has_basis(&t->plan.codec);
}

strait_err strait_trainer_step(struct strait_trainer *t, strait_trainer_report *out) {
    const double began = strait_clock_seconds();
    const double n_tokens = (double)t->run.train.batch_tokens;
    const strait_executor_report *last = &t->last;
    STRAIT_TRY(t->executor->ops->gradients(t->executor, t->step, &t->last));
    strait_trainer_report report = {
        .step = t->step + 1,
        .loss = last->loss_sum / n_tokens,
        .learning_rate = t->run.train.learning_rate *
                         (double)strait_lr_schedule_factor(&t->plan.lr_schedule, t->step),
        .grad_norm = last->norm,
        .forward_bytes_per_token = last->forward_bytes / n_tokens,
        .backward_bytes_per_token = last->backward_bytes / n_tokens,
        .bubble = last->bubble,
        .staleness = t->plan.staleness,
        .reduce_bytes = last->reduce_bytes,
        .n_boundaries = t->plan.n_stages - 1,
        .residual_forward = last->residual_forward,
        .residual_backward = last->residual_backward,
        .leak = has_basis(t) ? last->leak : NULL,
        .corrections = last->corrections,
        .basis_angle = last->basis_angle,
        .basis_mean_angle = last->basis_mean_angle,
        .basis_error = last->basis_error,
        .warning = watch(t),
        .limit = last->limit.name,
        .limit_where = last->limit.where,
        .tokens = (t->step + 1) * t->run.train.batch_tokens,
    };
    if (t->plan.n_stages > 1)
        strait_step_details_report(&t->details, last, t->plan.n_stages, &report);
    report.ratio_forward = ratio(t, report.forward_bytes_per_token);
    report.ratio_backward = ratio(t, report.backward_bytes_per_token);
    /* The meter replaces the time of the links alone, so the measured time of the update is added
     * to it. */
    const double updates = strait_clock_seconds();
    STRAIT_TRY(update(t, &report));
    t->step++;
    if (t->executor->ops->average != NULL) STRAIT_TRY(average(t, &report));
    t->is_ahead = t->executor->continues;
    t->executor->continues = 0;
    const double ended = strait_clock_seconds();
    if (last->metered_s > 0.0) report.meter_seconds = last->metered_s + ended - updates;
    report.seconds = ended - began;
    report.tokens_per_s = n_tokens / report.seconds;
    report.time = strait_clock_date();
    *out = report;
    return STRAIT_OK;
}

void strait_trainer_continue(struct strait_trainer *t) {
    t->executor->continues = t->plan.staleness > 0 && t->plan.n_stages > 1;
}

int strait_trainer_is_ahead(const struct strait_trainer *t) {
    return t->is_ahead;
}

/* While a step is under way the stages execute nothing else. */
static strait_err check_between_steps(const struct strait_trainer *t) {
    if (!t->is_ahead) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINVAL, "step %lld has begun: take it first", (long long)t->step + 1);
}

/* The mean is over tokens that have a target, which padding has not. */
strait_err strait_trainer_validate(struct strait_trainer *t, double *loss) {
    double sum = 0.0;
    STRAIT_TRY(check_between_steps(t));
    if (strait_loader_valid_tokens(t->loader) == 0)
        return STRAIT_FAIL(STRAIT_EINVAL, "the run has no validation data");
    STRAIT_TRY(t->executor->ops->validate(t->executor, t->step, &sum));
    *loss = sum / (double)strait_loader_valid_tokens(t->loader);
    return STRAIT_OK;
}

/* A local run has nothing else to do meanwhile; a swarm serves its workers while the task runs. */
strait_err strait_trainer_run_async(struct strait_trainer *t, strait_err (*run)(void *arg),
                                    void *arg) {
    return t->executor->ops->run_async != NULL ? t->executor->ops->run_async(t->executor, run, arg)
                                               : run(arg);
}

strait_err strait_trainer_check_data(const struct strait_trainer *trainer) {
    return strait_loader_check(trainer->loader);
}

int strait_trainer_can_save_after(const struct strait_trainer *trainer, strait_err err) {
    return err == STRAIT_EDATA && trainer->executor->ops->survives_data_error;
}

void strait_trainer_guard(struct strait_trainer *trainer, struct strait_folder_lock *lock) {
    trainer->lock = lock;
}

struct committing {
    const char *folder;
    const strait_checkpoint_plan *plan;
};

/* Hashes all files of the checkpoint, so it may take as long as writing them. */
static strait_err run_commit(void *arg) {
    const struct committing *c = arg;
    return strait_checkpoint_commit(c->folder, c->plan);
}

/* Commits two files per stage, weights and the state of optimizer and codecs, and those of replicas
 * that train on their own. */
static strait_err commit(struct strait_trainer *t, const char *folder) {
    strait_checkpoint_stage_file files[STRAIT_RUN_STAGES + STRAIT_RUN_MEMBERS];
    static _Thread_local strait_description description; // too large for the stack
    strait_describe(&t->plan, &description);
    const int n_files = strait_executor_list_files(t->executor, files);
    const strait_checkpoint_plan plan = {.step = t->step,
                                         .tokenizer = strait_loader_tokenizer(t->loader),
                                         .model = description.pairs,
                                         .n_model = description.n,
                                         .files = files,
                                         .n_files = n_files,
                                         .keep = (int)t->run.train.keep_checkpoints,
                                         .keeps_first = t->executor->keeps_first,
                                         .lock = t->lock};
    return strait_trainer_run_async(t, run_commit, &(struct committing){folder, &plan});
}

/* Until the commit nothing has replaced an earlier checkpoint, so any error is undone by removing
 * what was written. */
strait_err strait_trainer_save(struct strait_trainer *t, const char *folder) {
    STRAIT_TRY(check_between_steps(t));
    strait_err err = strait_checkpoint_begin(folder, t->step);
    if (err == STRAIT_OK) err = t->executor->ops->write(t->executor, folder, t->step);
    if (err == STRAIT_OK) return commit(t, folder);
    if (err != STRAIT_EDEPOSED) strait_checkpoint_abandon(folder, t->step);
    return err;
}

static strait_err load_from(struct strait_trainer *t, struct strait_checkpoint *checkpoint) {
    STRAIT_TRY(strait_describe_check(checkpoint, &t->plan, strait_loader_tokenizer(t->loader)));
    STRAIT_TRY(t->executor->ops->read(t->executor, checkpoint));
    /* The workers of a swarm may hold snapshots newer than the checkpoint. */
    t->step = t->executor->step > strait_checkpoint_step(checkpoint)
                  ? t->executor->step
                  : strait_checkpoint_step(checkpoint);
    return STRAIT_OK;
}

strait_err strait_trainer_load(struct strait_trainer *t, const char *folder, const char **note) {
    strait_checkpoint_request o = {.folder = folder};
    strait_err err = strait_trainer_run_async(t, strait_checkpoint_open_valid, &o);
    if (err == STRAIT_OK) {
        const char *skipped = strait_checkpoint_skipped(o.checkpoint);
        if (skipped != NULL) (void)snprintf(t->note, sizeof t->note, "%s", skipped);
        *note = skipped != NULL ? t->note : NULL;
        err = load_from(t, o.checkpoint);
    }
    strait_checkpoint_close(&o.checkpoint);
    return err;
}

strait_err strait_trainer_trace_begin(struct strait_trainer *trainer) {
    return trainer->executor->ops->trace(trainer->executor, NULL);
}

strait_err strait_trainer_trace_end(struct strait_trainer *trainer, const char *path) {
    return trainer->executor->ops->trace(trainer->executor, path);
}
