/* waits.h - who waits for whom in a step, and how long the queues of its links become.
 *
 * From the spans of the step, which are in the order of their beginnings; those of a stage do not
 * overlap, and a link sends messages in the order they were computed. */
#pragma once

#include <strait/trainer.h>

typedef struct strait_waits {
    /* Of the time that each stage waits, the share in which the previous stage, or the next one,
     * had to send something; together 1, or 0 if it never waits. */
    double prev[STRAIT_RUN_STAGES], next[STRAIT_RUN_STAGES];
    /* Per boundary, the most microbatches that wait for the link at one time: activations and
     * gradients. */
    int forward_queue[STRAIT_RUN_STAGES], backward_queue[STRAIT_RUN_STAGES];
} strait_waits;

void strait_waits_find(const strait_trainer_span *spans, int n_spans, int n_stages,
                       strait_waits *out);
