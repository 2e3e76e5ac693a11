#include "study/summary.h"

#include <math.h>
#include <string.h>

double strait_summary_value(const strait_job *job, const char *key) {
    const json_t *value = job->figures != NULL ? json_object_get(job->figures, key) : NULL;
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(const strait_job *job) {
    return strait_results_text(job->record);
}

static int is_result(const strait_job *job) {
    return job->trial < 0 && job->state == STRAIT_JOB_DONE;
}

static int is_tested(const strait_job *job) {
    return isfinite(strait_results_test_loss(job->record, text_of(job)));
}

static int count_on(const struct strait_queue *queue, const char *text) {
    int n = 0;
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        n += is_result(job) && isfinite(strait_results_test_loss(job->record, text));
    }
    return n;
}

/* The test text that most runs were evaluated on, so that one column has losses of one text. */
static const char *common_text(const struct strait_queue *queue) {
    const char *best = "";
    int most = 0;
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (!is_result(job) || (most > 0 && strcmp(text_of(job), best) == 0)) continue;
        const int n = count_on(queue, text_of(job));
        if (n > most) best = text_of(job);
        if (n > most) most = n;
    }
    return best;
}

void strait_summary_choose(const strait_study *study, struct strait_queue *queue) {
    if (study->test[0] != '\0') strait_queue_show(queue, common_text(queue));
}

/* The finished run of a row and a seed, or NULL. */
static const strait_job *find_run(const struct strait_queue *queue, int row, int64_t seed) {
    for (int i = 0; i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row == row && job->seed == seed && is_result(job)) return job;
    }
    return NULL;
}

/* Gathers the validation losses of a row's finished runs or, with a text, the losses on it. */
static strait_estimate estimate(const struct strait_queue *queue, int row, const char *text) {
    double values[2 * STRAIT_STUDY_SEEDS];
    int n = 0;
    for (int i = 0; i < strait_queue_count(queue) && n < 2 * STRAIT_STUDY_SEEDS; i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row != row || !is_result(job)) continue;
        const double value = text != NULL ? strait_results_test_loss(job->record, text)
                                          : strait_summary_value(job, "valid_loss");
        if (isfinite(value)) values[n++] = value;
    }
    return strait_estimate_mean(values, n);
}

/* Two losses of runs of one seed: on a test text that both were evaluated on, the common one if
 * possible, or on the validation text where the study has none. Nonzero: both are finite. */
static int find_pair(const strait_job *job, const strait_job *other, const char *common,
                     double *ours, double *theirs) {
    const char *const texts[] = {common, text_of(job), text_of(other)};
    if (common == NULL) {
        *ours = strait_summary_value(job, "valid_loss");
        *theirs = strait_summary_value(other, "valid_loss");
        return isfinite(*ours) && isfinite(*theirs);
    }
    for (int i = 0; i < 3; i++) {
        *ours = strait_results_test_loss(job->record, texts[i]);
        *theirs = strait_results_test_loss(other->record, texts[i]);
        if (isfinite(*ours) && isfinite(*theirs)) return 1;
    }
    return 0;
}

/* Pairs runs of the same seed: they saw the same tokens in the same order. */
static void compare(const strait_study *study, const struct strait_queue *queue, int row,
                    const char *common, strait_summary *out) {
    const int control = strait_study_find(study, study->rows[row].control);
    double ours[2 * STRAIT_STUDY_SEEDS];
    double theirs[2 * STRAIT_STUDY_SEEDS];
    int n = 0;
    for (int i = 0; control >= 0 && i < strait_queue_count(queue); i++) {
        const strait_job *job = strait_queue_at(queue, i);
        if (job->row != row || !is_result(job)) continue;
        const strait_job *other = find_run(queue, control, job->seed);
        if (other == NULL || n == 2 * STRAIT_STUDY_SEEDS) continue;
        const int is_pair = find_pair(job, other, common, &ours[n], &theirs[n]);
        n += is_pair;
        out->n_unpaired += !is_pair && is_tested(job) && is_tested(other);
    }
    out->against = strait_estimate_paired(ours, theirs, n);
    out->control_loss = strait_estimate_mean(theirs, n).mean;
}

/* The mean over the runs on the common text; without any, over those on the text of the first. */
static strait_estimate estimate_test(const struct strait_queue *queue, int row, const char *common,
                                     strait_summary *out) {
    const strait_estimate mean = estimate(queue, row, common);
    if (mean.n > 0 || out->first == NULL) return mean;
    const strait_estimate own = estimate(queue, row, text_of(out->first));
    out->is_on_other_text = own.n > 0;
    return own;
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
    const char *common = study->test[0] != '\0' ? common_text(queue) : NULL;
    out->valid = estimate(queue, row, NULL);
    if (common != NULL) out->test = estimate_test(queue, row, common, out);
    compare(study, queue, row, common, out);
}
