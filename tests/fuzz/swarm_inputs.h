/* swarm_inputs.h - the inputs of the fuzz target swarm: a type, flags, then the body. */
#pragma once

#include "stage/boundary/boundary_check.h"

enum {
    INPUT_SNAPSHOT = 1, // types below STRAIT_MSG_FIRST, which no message has
    INPUT_INVITE = 2,
    INPUT_TYPES = 32,
    INPUT_HEADER = 2
};

_Static_assert((int)STRAIT_MSG_BOUNDARY_CHECK < (int)INPUT_TYPES, "every type is an input");
