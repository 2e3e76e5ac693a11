/* run.h - the table behind a run file, for whoever lists its options. */
#pragma once

#include <strait/run.h>

#include "base/options.h"

const strait_options *strait_run_options(void);
