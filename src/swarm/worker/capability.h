/* capability.h - measures speed and free memory of this machine, in a fraction of a second. */
#pragma once

#include "swarm/coordinator/coordinator.h"

/* Fills device, memory and speed of a report. Opens and closes the device. */
strait_err strait_capability_measure(const char *device, int ordinal, int n_threads,
                                     strait_swarm_report *out);
