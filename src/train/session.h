/* session.h - sessions (strait/session.h) with an executor of another module. */
#pragma once

#include <strait/session.h>

#include "train/executor.h"

/* Like strait_session_run, with an executor of the caller's choice. `strait host` passes the
 * swarm's. */
strait_err strait_session_run_with(const strait_session_spec *spec,
                                   strait_executor_choice executor);
