/* window.h - windows that are tried out before they are used. */
#pragma once

#include "plan/simulate.h"

/* The windows of strait_schedule_windows, made wider until a simulated step takes at most `slack`
 * (such as 0.02) longer than with all the slots that caps or the step allow. Where stages differ or
 * delays fall badly between moves, that takes a few more slots than the times alone say. Fill-drain
 * and plain 1F1B have fixed windows and come back as they are. Errors as there. */
strait_err strait_window_fit(const strait_pipe *pipe, strait_schedule_kind kind, const int *caps,
                             double slack, int *windows);
