/* flops.h - the work of a run, in floating-point operations: matrix products and attention, of the
 * model and of its codecs. Norms, rounding, packing and what is computed again are not counted. */
#pragma once

#include "config/run_plan.h"

/* To train on one token, forward and backward, on all stages together. */
strait_err strait_flops_train(const strait_run_plan *plan, double *out);

/* To carry one token over a boundary, forward, at both ends together; the first boundary stands for
 * all. 0 with one stage. */
strait_err strait_flops_crossing(const strait_run_plan *plan, double *out);
