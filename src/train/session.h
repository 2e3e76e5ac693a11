/* session.h - sessions (strait/session.h) with an executor of another module. */
#pragma once

#include <strait/session.h>

#include "base/folder_lock.h"
#include "train/executor.h"

/* Like strait_session_run, with an executor of the caller's choice, in a folder that the caller has
 * taken. `strait host` passes the swarm's. STRAIT_EDEPOSED: another process has taken the folder;
 * nothing was written there since. */
strait_err strait_session_run_with(const strait_session_spec *spec, strait_executor_choice executor,
                                   struct strait_folder_lock *lock);
