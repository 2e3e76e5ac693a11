/* local_channel.h - a stage channel to processes or threads of this machine.
 *
 * The channel starts one process per stage, joined by TLS, or one thread per stage, joined by
 * queues (link.transport), connects each to its neighbours, and brings them commands over a mesh.
 * When a stage fails it says which one and how its process ended: the cause before the symptom. */
#pragma once

#include "stage/channel.h"

/* Starts all replicas of all stages of a run. Borrows the plan until close. *out is closed with
 * strait_stage_channel_close, also after an error. */
strait_err strait_local_channel_open(const strait_run *run, const strait_run_plan *plan,
                                     struct strait_stage_channel *out);
