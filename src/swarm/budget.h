/* budget.h - the memory that serving a stage takes, computed before anything is allocated.
 *
 * A worker compares it with what its owner lends (join --memory) before it builds a stage, and the
 * coordinator with what workers report before it assigns one. Pure functions. */
#pragma once

#include "stage/runner.h"

/* Bytes, by purpose. */
typedef struct strait_budget {
    double stage;     // weights, gradients, moments, activations, codecs
    double snapshots; // its own, those of its neighbours, and one to restore from
    double ids;       // token ids of a step and of a validation
    double messages;  // that wait for a neighbour or for this stage
    double crossings; // kept for neighbours that compute steps again
} strait_budget;

/* The fewest microbatches in flight that keep a 1F1B pipeline full at this stage. */
int strait_budget_least_slots(const strait_run_plan *plan, int stage);

/* The budget of `stage` with n_slots microbatches in flight, and validations of `valid_windows`
 * sequences. */
strait_err strait_budget_plan(const strait_run_plan *plan, int stage, int n_slots,
                              int64_t valid_windows, strait_budget *out);

double strait_budget_sum(const strait_budget *budget);

/* Bytes of messages that may wait for one neighbour, and of those received that may wait for the
 * stage: two steps' worth, within bounds. */
size_t strait_budget_queue(const strait_run_plan *plan);

/* Bytes of the largest message between neighbours. */
size_t strait_budget_message(const strait_run_plan *plan);
