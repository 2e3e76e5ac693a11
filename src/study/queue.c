#include "study/queue.h"

#include <strait/trainer.h>

#include "base/alloc.h"
#include "config/run_plan.h"
#include "study/run_key.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct strait_queue {
    const strait_study *study;
    struct strait_results *results;
    strait_job **jobs;
    int n_jobs;
    int has_more; // further seeds were added
};

/* ---- one job ---- */

static strait_err add_choice(const char *choice, strait_strings *sets) {
    char copy[STRAIT_OPTION_TEXT_MAX];
    char *rest = NULL;
    (void)snprintf(copy, sizeof copy, "%s", choice);
    for (char *set = strtok_r(copy, " ", &rest); set != NULL; set = strtok_r(NULL, " ", &rest))
        STRAIT_TRY(strait_strings_add(sets, set));
    return STRAIT_OK;
}

/* Sizes come from a plan, which also finds what cannot be trained before anything starts. */
static strait_err plan_job(strait_job *job) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_trainer_info), "study", &memory));
    strait_trainer_info *info = memory;
    const strait_err err = strait_trainer_plan(job->run, info);
    if (err == STRAIT_OK) {
        job->parameters = info->parameters;
        job->flops_per_token = info->flops_per_token;
        job->memory_bytes = (double)info->memory.total;
        job->codec_bytes = (double)info->memory.codecs;
    }
    strait_alloc_free(info);
    return err;
}

/* All overrides of a job, in the order in which later ones win. */
static strait_err list_sets(const strait_study_row *row, const strait_job *job, const char *choice,
                            strait_strings *out) {
    STRAIT_TRY(strait_strings_append(out, &row->sets));
    if (choice != NULL) STRAIT_TRY(add_choice(choice, out));
    if (job->trial >= 0)
        STRAIT_TRY(strait_strings_format(out, "train.steps=%lld", (long long)row->tune.steps));
    return strait_strings_format(out, "train.seed=%lld", (long long)job->seed);
}

/* The run of a job has the options of `speed`, its key has not. */
static strait_err load_run(const strait_study *study, strait_job *job, const char *choice) {
    const strait_study_row *row = &study->rows[job->row];
    strait_strings list = {0};
    strait_err err = list_sets(row, job, choice, &list);
    const int n_keyed = list.n;
    if (err == STRAIT_OK) err = strait_strings_append(&list, &study->speed);
    const char *const *sets = (const char *const *)list.items;
    if (err == STRAIT_OK && job->run == NULL) {
        void *memory = NULL;
        err = strait_alloc(1, sizeof(strait_run), "run", &memory);
        job->run = memory;
    }
    if (err == STRAIT_OK) err = strait_run_init_text(row->name, "", 0, sets, list.n, job->run);
    json_decref(job->settings);
    job->settings = NULL;
    if (err == STRAIT_OK) err = strait_run_key_settings(sets, n_keyed, &job->settings);
    strait_strings_close(&list);
    return err;
}

/* Letters, digits, dots and dashes of the name, and the start of the key: runs whose options were
 * changed do not share a folder. */
static void set_label(strait_job *job) {
    size_t used = 0;
    for (const char *at = job->name; *at != '\0' && used < 100; at++)
        if (isalnum((unsigned char)*at) || *at == '.' || *at == '=')
            job->label[used++] = *at;
        else if (used > 0 && job->label[used - 1] != '-')
            job->label[used++] = '-';
    (void)snprintf(job->label + used, sizeof job->label - used, "-%.8s", job->key);
}

/* Whether a result need not be trained again for the present test text. */
static int is_tested(const strait_study *study, const strait_job *job) {
    if (!study->rows[job->row].is_retested || job->trial >= 0) return 1;
    return isfinite(strait_results_test_loss(job->record, study->test_text));
}

/* Makes a job ready: its run, its key and, if it was done before, its result. */
static strait_err resolve(struct strait_queue *q, strait_job *job, const char *choice) {
    const strait_study_row *row = &q->study->rows[job->row];
    STRAIT_TRY(load_run(q->study, job, choice));
    const strait_err err = plan_job(job);
    if (err != STRAIT_OK) strait_err_prefix("%s", row->name);
    STRAIT_TRY(err);
    STRAIT_TRY(strait_run_key(job->settings, job->key));
    set_label(job);
    job->record = strait_results_find(q->results, job->key);
    if (job->record != NULL && !is_tested(q->study, job)) job->record = NULL;
    job->figures = job->record;
    job->was_known = job->record != NULL;
    job->state = job->record != NULL ? STRAIT_JOB_DONE : STRAIT_JOB_READY;
    return STRAIT_OK;
}

static int divides_otherwise(const strait_study *study) {
    for (int i = 0; i < study->speed.n; i++)
        if (strncmp(study->speed.items[i], "stages.microbatch=", 18) == 0) return 1;
    return 0;
}

/* With other microbatches a codec that carries state makes another run. What is done may stay. */
static strait_err check_speed(const struct strait_queue *q, const strait_job *job) {
    strait_run_plan plan;
    if (job->state != STRAIT_JOB_READY || !divides_otherwise(q->study)) return STRAIT_OK;
    STRAIT_TRY(strait_run_plan_init(job->run, 65536, &plan)); // no trait depends on the vocabulary
    if (plan.n_stages < 2 || (strait_codec_traits(&plan.codec) & STRAIT_CODEC_CARRIES) == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "%s: codec %s carries state from one microbatch to the next, so that other "
                       "microbatches give other losses: run this variant without --speed "
                       "stages.microbatch first, or choose others with --only",
                       q->study->rows[job->row].name, plan.codec.name);
}

static strait_err add_job(struct strait_queue *q, int row, int64_t seed, int trial) {
    const strait_study_row *r = &q->study->rows[row];
    void *memory = q->jobs;
    void *job_memory = NULL;
    STRAIT_TRY(strait_alloc_grow(&memory, (size_t)q->n_jobs, (size_t)q->n_jobs + 1, sizeof *q->jobs,
                                 "study"));
    q->jobs = memory;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_job), "study", &job_memory));
    strait_job *job = job_memory;
    q->jobs[q->n_jobs++] = job;
    *job = (strait_job){.row = row,
                        .seed = seed,
                        .trial = trial,
                        .turn = r->has_one_seed ? STRAIT_TURN_ONE_SEED : STRAIT_TURN_FIRST};
    if (trial >= 0)
        (void)snprintf(job->name, sizeof job->name, "%s, trial %s", r->name,
                       r->tune.choices.items[trial]);
    else
        (void)snprintf(job->name, sizeof job->name, "%s, seed %lld", r->name, (long long)seed);
    const int is_tuned = r->tune.choices.n > 0;
    STRAIT_TRY(resolve(q, job, is_tuned ? r->tune.choices.items[trial >= 0 ? trial : 0] : NULL));
    if (is_tuned && trial < 0) { // only checked: the choice is not known yet
        job->state = STRAIT_JOB_WAITING;
        job->record = job->figures = NULL;
        job->was_known = 0;
    }
    return check_speed(q, job);
}

double strait_job_work(const strait_job *job) {
    return job->flops_per_token * (double)job->run->train.batch_tokens *
           (double)job->run->train.steps;
}

/* ---- what follows from finished jobs ---- */

static double loss_of(const strait_job *job) {
    const json_t *loss = job->record != NULL ? json_object_get(job->record, "valid_loss") : NULL;
    return json_is_number(loss) ? json_number_value(loss) : (double)INFINITY;
}

static int has_ended(const strait_job *job) {
    return job->state == STRAIT_JOB_DONE || job->state == STRAIT_JOB_FAILED;
}

/* The index of the best choice of a row; -1: all its trials failed; -2: not all have ended. */
static int best_choice(const struct strait_queue *q, int row) {
    int best = -1;
    double lowest = (double)INFINITY;
    for (int i = 0; i < q->n_jobs; i++) {
        const strait_job *job = q->jobs[i];
        if (job->row != row || job->trial < 0) continue;
        if (!has_ended(job)) return -2;
        if (!(loss_of(job) < lowest)) continue;
        lowest = loss_of(job);
        best = job->trial;
    }
    return best;
}

/* Waiting runs of rows whose trials have ended become ready, with the best choice. */
static strait_err release(struct strait_queue *q) {
    for (int i = 0; i < q->n_jobs; i++) {
        strait_job *job = q->jobs[i];
        if (job->state != STRAIT_JOB_WAITING) continue;
        const int best = best_choice(q, job->row);
        if (best == -2) continue;
        if (best == -1) {
            job->state = STRAIT_JOB_FAILED;
            (void)snprintf(job->error, sizeof job->error, "all its trials failed");
            continue;
        }
        STRAIT_TRY(resolve(q, job, q->study->rows[job->row].tune.choices.items[best]));
        STRAIT_TRY(check_speed(q, job));
    }
    return STRAIT_OK;
}

/* The mean loss of a row over its finished runs, infinite without any. */
static double row_loss(const struct strait_queue *q, int row) {
    double sum = 0.0;
    int n = 0;
    for (int i = 0; i < q->n_jobs; i++) {
        const strait_job *job = q->jobs[i];
        if (job->row != row || job->trial >= 0 || job->state != STRAIT_JOB_DONE) continue;
        sum += loss_of(job);
        n++;
    }
    return n > 0 ? sum / n : (double)INFINITY;
}

/* How many rows of those that compete for further seeds have a lower loss. */
static int rank_of(const struct strait_queue *q, int row) {
    const double own = row_loss(q, row);
    int rank = 0;
    for (int i = 0; i < q->study->n_rows; i++) {
        const strait_study_row *other = &q->study->rows[i];
        if (i == row || other->is_control || other->has_one_seed) continue;
        const double loss = row_loss(q, i);
        rank += loss < own || (loss == own && i < row);
    }
    return rank;
}

static int has_more_seeds(const struct strait_queue *q, int row) {
    for (int i = 0; i < q->n_jobs; i++)
        if (q->jobs[i]->row == row && q->jobs[i]->seed == q->study->more.items[0] &&
            q->jobs[i]->trial < 0)
            return 1;
    return 0;
}

/* All further seeds of a row at once: an interval needs them all. */
static strait_err add_seeds(struct strait_queue *q, int row, strait_job_turn turn) {
    if (row < 0 || !isfinite(row_loss(q, row)) || has_more_seeds(q, row)) return STRAIT_OK;
    for (int k = 0; k < q->study->more.n; k++) {
        STRAIT_TRY(add_job(q, row, q->study->more.items[k], -1));
        q->jobs[q->n_jobs - 1]->turn = turn;
    }
    return STRAIT_OK;
}

/* Chosen once, when every row has ended that competes: a later result does not change who gets
 * further seeds. The best row comes first, after its control, so that an interrupted study has
 * intervals of the differences that matter most. */
static strait_err add_more(struct strait_queue *q) {
    const strait_study *s = q->study;
    for (int i = 0; i < q->n_jobs; i++)
        if (!has_ended(q->jobs[i]) && !s->rows[q->jobs[i]->row].has_one_seed) return STRAIT_OK;
    if (q->has_more || s->more.n == 0) return STRAIT_OK;
    q->has_more = 1;
    for (int rank = 0; rank < s->n_best; rank++) {
        for (int row = 0; row < s->n_rows; row++) {
            const strait_study_row *r = &s->rows[row];
            if (r->is_control || r->has_one_seed || rank_of(q, row) != rank) continue;
            if (isfinite(row_loss(q, row)))
                STRAIT_TRY(add_seeds(q, strait_study_find(s, r->control), STRAIT_TURN_SEEDS));
            STRAIT_TRY(add_seeds(q, row, STRAIT_TURN_SEEDS));
        }
    }
    for (int row = 0; row < s->n_rows; row++)
        if (s->rows[row].is_control && !s->rows[row].has_one_seed)
            STRAIT_TRY(add_seeds(q, row, STRAIT_TURN_CONTROLS));
    return release(q);
}

static strait_err settle(struct strait_queue *q) {
    STRAIT_TRY(release(q));
    return add_more(q);
}

/* ---- the queue ---- */

/* Trials use the first seed. Rows follow each other in the order of the file. */
static strait_err fill(struct strait_queue *q) {
    const strait_study *s = q->study;
    for (int row = 0; row < s->n_rows; row++) {
        for (int t = 0; t < s->rows[row].tune.choices.n; t++)
            STRAIT_TRY(add_job(q, row, s->seeds.items[0], t));
        STRAIT_TRY(add_job(q, row, s->seeds.items[0], -1));
    }
    for (int k = 1; k < s->seeds.n; k++)
        for (int row = 0; row < s->n_rows; row++)
            if (!s->rows[row].has_one_seed) STRAIT_TRY(add_job(q, row, s->seeds.items[k], -1));
    return settle(q);
}

strait_err strait_queue_open(const strait_study *study, struct strait_results *results,
                             struct strait_queue **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_queue), "study", &memory));
    struct strait_queue *q = memory;
    q->study = study;
    q->results = results;
    const strait_err err = fill(q);
    if (err == STRAIT_OK)
        *out = q;
    else
        strait_queue_close(&q);
    return err;
}

void strait_queue_close(struct strait_queue **queue) {
    struct strait_queue *q = *queue;
    if (q == NULL) return;
    for (int i = 0; i < q->n_jobs; i++) {
        json_decref(q->jobs[i]->settings);
        strait_alloc_free(q->jobs[i]->run);
        strait_alloc_free(q->jobs[i]);
    }
    strait_alloc_free(q->jobs);
    strait_alloc_free(q);
    *queue = NULL;
}

static strait_job *next_of(struct strait_queue *queue, strait_job_turn turn) {
    for (int i = 0; i < queue->n_jobs; i++) {
        strait_job *job = queue->jobs[i];
        if (job->state != STRAIT_JOB_READY || job->turn != turn) continue;
        int is_running = 0; // two rows may be the same run: the second takes the first's result
        for (int k = 0; k < queue->n_jobs; k++)
            is_running |= queue->jobs[k]->state == STRAIT_JOB_RUNNING &&
                          strcmp(queue->jobs[k]->key, job->key) == 0;
        if (is_running) continue;
        job->state = STRAIT_JOB_RUNNING;
        return job;
    }
    return NULL;
}

strait_job *strait_queue_next(struct strait_queue *queue) {
    strait_job *job = NULL;
    for (int turn = 0; turn < STRAIT_TURNS && job == NULL; turn++)
        job = next_of(queue, turn);
    return job;
}

void strait_queue_show(struct strait_queue *queue, const char *text) {
    for (int i = 0; i < queue->n_jobs; i++) {
        strait_job *job = queue->jobs[i];
        if (job->record != NULL) job->figures = strait_results_on(job->record, text);
    }
}

strait_err strait_queue_finish(struct strait_queue *queue, strait_job *job, json_t *record) {
    STRAIT_TRY(strait_results_add(queue->results, record));
    for (int i = 0; i < queue->n_jobs; i++) {
        strait_job *same = queue->jobs[i];
        if (strcmp(same->key, job->key) != 0 || same->state == STRAIT_JOB_WAITING) continue;
        same->record = same->figures = strait_results_find(queue->results, job->key);
        same->state = STRAIT_JOB_DONE;
    }
    return settle(queue);
}

strait_err strait_queue_fail(struct strait_queue *queue, strait_job *job, const char *error) {
    job->state = STRAIT_JOB_FAILED;
    (void)snprintf(job->error, sizeof job->error, "%s", error);
    json_t *record = json_pack("{s:s,s:s,s:I,s:s}", "key", job->key, "name", job->name, "seed",
                               (json_int_t)job->seed, "error", job->error);
    strait_err err = record != NULL ? strait_results_add(queue->results, record)
                                    : STRAIT_OK; // an error that is not UTF-8 is only reported
    json_decref(record);
    if (err == STRAIT_OK) err = settle(queue);
    return err;
}

void strait_queue_return(struct strait_queue *queue, strait_job *job) {
    (void)queue;
    job->state = STRAIT_JOB_READY;
}

int strait_queue_count(const struct strait_queue *queue) {
    return queue->n_jobs;
}

strait_job *strait_queue_at(const struct strait_queue *queue, int i) {
    return queue->jobs[i];
}
