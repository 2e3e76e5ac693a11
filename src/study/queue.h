/* queue.h - the runs of a study: which are done, which may start, and which wait for others.
 *
 * A tuned row has trials first; its run starts when they have ended, with the choice of lowest
 * validation loss. Further seeds are added when every row has its first ones: those of the best row
 * first, after those of its control. Then come rows of one seed, then further seeds of controls
 * that no such row is compared with. A later turn starts where an earlier one waits. The queue
 * starts nothing itself (runner.h does); one thread uses it. */
#pragma once

#include "base/digest/hash.h"
#include "config/run.h"
#include "study/results.h"
#include "study/study.h"

typedef enum strait_job_state {
    STRAIT_JOB_WAITING, // for trials
    STRAIT_JOB_READY,
    STRAIT_JOB_RUNNING,
    STRAIT_JOB_DONE,
    STRAIT_JOB_FAILED,
} strait_job_state;

/* In which order jobs start. */
typedef enum strait_job_turn {
    STRAIT_TURN_FIRST,
    STRAIT_TURN_SEEDS,    // further seeds of the best rows, and of their controls
    STRAIT_TURN_ONE_SEED, // rows that have one
    STRAIT_TURN_CONTROLS, // further seeds of the other controls
    STRAIT_TURNS
} strait_job_turn;

enum {
    STRAIT_JOB_NAME = 160,
    STRAIT_JOB_ERROR = 512
};

typedef struct strait_job {
    int row;
    int64_t seed;
    int trial; // the index of its choice; -1: the run itself
    strait_job_state state;
    strait_job_turn turn;
    int was_known;               // its result was there before this sitting
    char name[STRAIT_JOB_NAME];  // for people
    char label[STRAIT_JOB_NAME]; // of its folder: no space, no slash
    char key[STRAIT_HASH_TEXT];
    json_t *settings;
    strait_run *run;
    int64_t parameters;
    double flops_per_token;
    double memory_bytes, codec_bytes; // of all stages together, as planned
    const json_t *record;             // when DONE; borrowed from the results
    const json_t *figures;            // the same, or the run of this key on the text that is shown
    char error[STRAIT_JOB_ERROR];
} strait_job;

struct strait_queue;

/* Resolves and checks every run, and looks up what is done. Borrows study and results until close.
 * STRAIT_ECONFIG: a run cannot be trained; the detail names the variant. */
strait_err strait_queue_open(const strait_study *study, struct strait_results *results,
                             struct strait_queue **out);
void strait_queue_close(struct strait_queue **queue); // accepts NULL

/* Shows of each run that is DONE what the one on this test text had, where there were several. */
void strait_queue_show(struct strait_queue *queue, const char *text);

/* The next job that may start, which is then RUNNING; NULL: none at the moment. */
strait_job *strait_queue_next(struct strait_queue *queue);

/* Ends a running job with its record, which is appended to the results, or with an error. */
strait_err strait_queue_finish(struct strait_queue *queue, strait_job *job, json_t *record);
strait_err strait_queue_fail(struct strait_queue *queue, strait_job *job, const char *error);

/* Puts a running job back, because the study was interrupted. */
void strait_queue_return(struct strait_queue *queue, strait_job *job);

/* The jobs so far. Pointers stay valid until close; further seeds may be added at the end. */
int strait_queue_count(const struct strait_queue *queue);
strait_job *strait_queue_at(const struct strait_queue *queue, int i);

/* The floating-point operations of a job, by which the time left is estimated. */
double strait_job_work(const strait_job *job);
