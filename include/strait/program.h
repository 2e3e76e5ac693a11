/* program.h - which program runs the stages of a pipeline, and memory that the library hands over.
 *
 * With more than one stage and link.transport tls, every stage is a process: `strait stage`. The
 * library starts the installed program for it, never the program it is embedded in. */
#pragma once

#include <strait/api.h>
#include <strait/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the path of the strait program for this whole process; NULL goes back to the search below.
 * `path` is copied. STRAIT_EINVAL when it is too long; whether it can be started shows when a run
 * opens. Any thread, but runs that are open already keep what they started.
 *
 * Without a path set, the library looks for `strait` beside itself, in ../bin and ../../bin from
 * there, and then in the folders of PATH. */
STRAIT_API strait_err strait_set_program(const char *path);

/* Releases memory that a function of this library returned as the caller's own. Accepts NULL. Any
 * thread. */
STRAIT_API void strait_free(void *memory);

#ifdef __cplusplus
}
#endif
