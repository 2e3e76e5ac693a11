/* survey.h - what this machine can do, measured in a moment. */
#pragma once

#include "swarm/coordinator.h"

/* Fills device, memory and speed of a report. */
strait_err strait_capability_measure(const char *device, int ordinal, int n_threads,
                                     strait_swarm_report *out);
