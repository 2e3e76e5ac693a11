/* window.h - windows (microbatches in flight) that are refined by simulation. */
#pragma once

#include "plan/simulate.h"

/* The windows of strait_schedule_windows, enlarged until a simulated step takes at most `slack`
 * (such as 0.02) longer than with all the slots that `caps` and the step allow. This takes a few
 * more slots than the formula gives where stages differ or delays are no multiple of their times.
 * Fill-drain and plain 1F1B have fixed windows, which are returned unchanged. Errors as
 * strait_schedule_windows. */
strait_err strait_window_fit(const strait_pipe *pipe, strait_schedule_kind kind, const int *caps,
                             double slack, int *windows);
