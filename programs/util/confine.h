/* confine.h - puts a worker's process into the sandbox (sandbox/sandbox.h). */
#pragma once

#include <strait/error.h>

struct strait_sandbox_spec;

/* What a worker on `device` needs of the system. The lists of paths are static: a later call
 * replaces them. With CUDA it may start a process, which has ended when this returns. */
void strait_confine_spec(const char *device, int may_listen, struct strait_sandbox_spec *out);

/* Confines this process to what a worker on `device` needs, for good, and writes one line that says
 * what is in force, for the log. Call it before any thread is started, and after every file of the
 * user was opened. STRAIT_ENOTSUP: this kernel cannot; the detail says what to do. */
strait_err strait_confine(const char *device, int may_listen, char *line, int capacity);
