/* claims.h - bounds on what workers report, and levels that tell when a report is implausible.
 *
 * A worker may report anything. Each number of its messages therefore has a row in one table
 * (claims.c) that says what an honest worker can report at most. Three things happen to others:
 *
 *   impossible    no honest worker reports it, such as a negative time: a violation
 *   clamped       an honest worker might, but it must not decide more than the bound allows
 *   implausible   it may be true, as the loss of a diverging run: verified by recomputing the step
 *
 * A field without a row fails tests/unit/swarm/claims.c. What is within the bounds and close to
 * earlier values is believed: a slightly wrong loss is not found here. */
#pragma once

#include "base/layout.h"

/* What the coordinator knows itself while it reads a message. */
typedef struct strait_claims_limits {
    int is_last;           // the sender owns the last stage
    double elapsed_s;      // since the command was sent
    double tokens;         // of a step, or of a validation
    double crossing_bytes; // most that a step receives in one direction
    double snapshot_bytes; // of the stage, with its state
    int n_squares;         // parameters of the stage
    int n_basis;           // values of the codec's basis
} strait_claims_limits;

/* The first field that is out of bounds; an impossible one counts before those that were clamped.
 */
typedef struct strait_claims_finding {
    const char *field; // NULL: there is none
    int is_impossible;
    double value; // as it was reported
} strait_claims_finding;

/* Checks the fields of `object` that `layout` lists, and clamps them in place. Adds to *out, which
 * the caller zeroes: a message may have several layouts. */
void strait_claims_check(const strait_layout *layout, void *object,
                         const strait_claims_limits *limits, strait_claims_finding *out);

/* Returns whether the table has a row for a field of this name. */
int strait_claims_has_bound(const char *field);

enum {
    STRAIT_CLAIMS_RECENT = 8 // values that others are compared with
};

/* The recent values of a positive quantity that changes little from step to step, on a logarithmic
 * scale. A range, and not a mean: after a spike the quantity falls back. Zeroed: nothing seen. */
typedef struct strait_claims_level {
    double recent[STRAIT_CLAIMS_RECENT]; // base 2
    int window;                          // of these, how many count; 0: all
    double widest;                       // the largest distance that was found to be true
    int n_seen;                          // so far; the oldest is overwritten
} strait_claims_level;

/* Returns whether `value` is within a factor of 2^octaves of the range of recent values, or as far
 * away as one that was confirmed. The first values always are. */
int strait_claims_is_plausible(const strait_claims_level *level, double octaves, double value);

/* Adds a value that is believed. One that was not plausible has been confirmed by recomputation,
 * and from now on values as far away are plausible too: an honest run is not verified again and
 * again. */
void strait_claims_accept(strait_claims_level *level, double value);

/* Returns whether a loss per token is one that a run can have at all: not far above that of a
 * uniform guess. */
int strait_claims_is_loss_possible(int64_t vocab, double loss);

/* As is_plausible and accept, for a loss per token. Small runs are noisy, so these rules find only
 * what is far off: a false alarm costs an honest run a move to a spare. */
int strait_claims_is_loss_plausible(const strait_claims_level *level, double loss);
void strait_claims_accept_loss(strait_claims_level *level, double loss);
/* The same for a validation: close to earlier ones, or to the training losses of recent steps,
 * which show a jump between two validations. */
int strait_claims_is_valid_loss_plausible(const strait_claims_level *level,
                                          const strait_claims_level *training, double loss);

/* The same for the squared gradients of a stage, one per parameter. Only their sum is compared with
 * earlier steps: a single parameter may change by any factor, or get its first gradient late. Those
 * of one step must differ, as honest ones do, because parameters differ in size and place. */
int strait_claims_are_squares_plausible(const strait_claims_level *level,
                                        const strait_floats *squares);
void strait_claims_accept_squares(strait_claims_level *level, const strait_floats *squares);
