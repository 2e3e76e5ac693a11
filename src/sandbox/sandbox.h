/* sandbox.h - confines the calling process to what a worker needs.
 *
 * A worker parses bytes of strangers. Should one of them find a memory error, the sandbox limits
 * what their code can do: it starts no program and no process, traces none, reads only system
 * libraries and a few system files, and writes nothing. Three mechanisms of the kernel do it, each
 * without privileges and for good:
 *
 *   no_new_privs   set-user-id programs give no privileges
 *   seccomp        system calls that are not on a list fail (filter.c)
 *   landlock       files and folders that are not on a list cannot be opened (landlock.c)
 *
 * docs/decisions/swarm/027 gives the reasons. Linux only. */
#pragma once

#include "base/error.h"

enum {
    STRAIT_SANDBOX_LINE = 512 // bytes of a description, with its final zero
};

/* What this kernel offers. */
typedef struct strait_sandbox_support {
    int has_seccomp;         // filters can be installed
    int landlock_abi;        // version of the interface; 0: the kernel has none
    const char *no_landlock; // why, if so; static text
} strait_sandbox_support;

typedef struct strait_sandbox_spec {
    int uses_cuda;             // files and devices of NVIDIA's driver may be used
    int may_listen;            // TCP connections may be accepted
    const char *const *reads;  // more files and folders that may be read; ends with NULL
    const char *const *writes; // folders in which files may be created and changed; ends with NULL
} strait_sandbox_spec;

/* Asks the kernel; changes nothing. */
void strait_sandbox_probe(strait_sandbox_support *out);

/* Confines this process for the rest of its life. Call it while there is one thread: landlock
 * confines only the calling thread and those that it starts. Paths that do not exist are skipped.
 * `line` receives what is in force, for a log. STRAIT_ENOTSUP when the kernel has no seccomp
 * filters; a kernel without landlock is no error, but `line` says it. After an error the process
 * may be confined in part. */
strait_err strait_sandbox_enter(const strait_sandbox_spec *spec, char line[STRAIT_SANDBOX_LINE]);

/* ---- for the files of this module ---- */
/* sandbox.c: the error of a system call, by its errno. */
strait_err strait_sandbox_fail(const char *what, int number);
/* filter.c: installs the filter for all threads. */
strait_err strait_sandbox_filter(const strait_sandbox_spec *spec);
/* landlock.c: the version of the interface; 0 and why there is none. */
int strait_sandbox_landlock_abi(const char **why);
/* landlock.c: confines this thread and those that it starts. */
strait_err strait_sandbox_landlock(const strait_sandbox_spec *spec, int abi);

/* A file or folder that a worker needs, and how. */
typedef enum strait_sandbox_access {
    STRAIT_SANDBOX_READ,
    STRAIT_SANDBOX_WRITE,  // and create, rename and remove files in it
    STRAIT_SANDBOX_DEVICE, // read, write and ioctl, but create and remove nothing
} strait_sandbox_access;

/* paths.c: calls `add` for every file and folder of the system that a worker needs. They need not
 * exist. Ends at the first error. */
strait_err strait_sandbox_paths(int uses_cuda, void *user,
                                strait_err (*add)(void *user, const char *path,
                                                  strait_sandbox_access access));
