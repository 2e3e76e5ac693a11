/* flops.h - floating-point operations of a run: matrix products and attention, of the model and of
 * its codecs. Normalisation, rounding, encoding to bytes and recomputation are not counted. */
#pragma once

#include "config/run_plan.h"

/* Operations to train on one token: forward and backward, on all stages together. */
strait_err strait_flops_train(const strait_run_plan *plan, double *out);

/* Operations for one token to cross a boundary forward, sender and receiver together. All
 * boundaries cost the same; the first is counted. 0 with one stage. */
strait_err strait_flops_crossing(const strait_run_plan *plan, double *out);
