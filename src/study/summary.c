#include "study/summary.h"

#include <math.h>

double strait_summary_value(const strait_job *job, const char *key) {
    const json_t *value = job->record != NULL ? json_object_get(job->record, key) : NULL;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* The finished run of a row and a seed, or NULL. */
static const strait_job *find_run(const struct strait_queue *queue, int row, int64_t seed) {
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row == row && job->seed == seed && job->trial < 0 && job->state == STRAIT_JOB_DONE)
            return job;
    }
    return NULL;
}

/* Gathers the values of a key over the finished runs of a row. */
static strait_estimate estimate(const struct strait_queue *queue, int row, const char *key) {
    double values[2 * STRAIT_STUDY_SEEDS];
    int n = 0;
    for (int i = 0; i < strait_queue_count(queue) && n < 2 * STRAIT_STUDY_SEEDS; i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row != row || job->trial >= 0 || job->state != STRAIT_JOB_DONE) continue;
        const double value = strait_summary_value(job, key);
        if (isfinite(value)) values[n++] = value;
    }
    return strait_estimate_mean(values, n);
}

/* Pairs runs of the same seed: they saw the same tokens in the same order. */
static void compare(const strait_study *study, const struct strait_queue *queue, int row,
                    const char *key, strait_summary *out) {
    const int control = strait_study_find(study, study->rows[row].control);
    double ours[2 * STRAIT_STUDY_SEEDS];
    double theirs[2 * STRAIT_STUDY_SEEDS];
    int n = 0;
    for (int i = 0; control >= 0 && i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row != row || job->trial >= 0 || job->state != STRAIT_JOB_DONE) continue;
        const strait_job *other = find_run(queue, control, job->seed);
        if (other == NULL || n == 2 * STRAIT_STUDY_SEEDS) continue;
        ours[n] = strait_summary_value(job, key);
        theirs[n] = strait_summary_value(other, key);
        n += isfinite(ours[n]) && isfinite(theirs[n]);
    }
    out->against = strait_estimate_paired(ours, theirs, n);
    out->control_loss = strait_estimate_mean(theirs, n).mean;
}

void strait_summary_of(const strait_study *study, const struct strait_queue *queue, int row,
                       strait_summary *out) {
    *out = (strait_summary){0};
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row != row || job->trial >= 0) continue;
        out->n_failed += job->state == STRAIT_JOB_FAILED;
        if (job->state != STRAIT_JOB_DONE) continue;
        out->n_runs++;
        if (out->first == NULL) out->first = job;
    }
    out->valid = estimate(queue, row, "valid_loss");
    out->test = estimate(queue, row, "test_loss");
    compare(study, queue, row, study->test[0] != '\0' ? "test_loss" : "valid_loss", out);
}
