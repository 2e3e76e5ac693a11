/* stage_process.h - the life of a stage of a local run, in a process or a thread of its own.
 *
 * It connects to its coordinator (startup.h), opens a service (service.h) and executes the commands
 * that arrive over the mesh until it is told to leave or something fails. */
#pragma once

#include "net/inproc/endpoint.h"
#include "stage/process/startup.h"

/* `in` and `out` are the descriptors for the startup lines. `network` is where inproc meshes meet;
 * NULL: TLS or MPI, as the startup line says. Returns STRAIT_OK after the command to leave, and
 * after an error that was reported to the coordinator; other errors could not be reported. */
strait_err strait_stage_process_run(int in, int out, struct strait_inproc_network *network);
