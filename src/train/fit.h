/* fit.h - whether a run fits a machine, and which changes would make it fit. */
#pragma once

#include "config/run.h"

#include <stddef.h>

enum {
    STRAIT_FIT_TEXT = 360 // bytes of a list of changes: with the rest it fits an error's detail
};

/* Computes how many bytes a run lacks on the machine at hand: 0 or less when it fits, and how many
 * it needs. Allocates nothing of the run. */
typedef strait_err (*strait_fit_measure)(void *user, const strait_run *run, double *lacks,
                                         double *needs);

/* Lists up to three changes of keys, the least harmful first, each of which alone makes the run fit
 * by `measure`: "train.recompute=true (needs 1.2 GiB), ...". Empty: none was found.
 * adds_stages: more stages are a change, too, because each is on a machine of its own. */
void strait_fit_suggest(const strait_run *run, strait_fit_measure measure, void *user,
                        int adds_stages, char out[STRAIT_FIT_TEXT]);

/* Makes microbatches smaller, by whole divisors, until the run fits by `measure`. Where none fits,
 * the run is left as it is. */
strait_err strait_fit_microbatch(strait_run *run, strait_fit_measure measure, void *user);

/* The same for this machine (resources.c). */
strait_err strait_resources_fit_microbatch(strait_run *run);

/* "1.2 GiB" into `out`. */
void strait_fit_bytes(double bytes, char out[32]);
