/* sandbox.c - enters the sandbox in an order that cannot be undone half-way, and says in one line
 * what the kernel supports of it. */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Offers a filter that cannot be read: a filter that is installed cannot be removed again. */
static int can_filter(void) {
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) != 0 && errno == EFAULT;
}

void strait_sandbox_probe(strait_sandbox_support *out) {
    *out = (strait_sandbox_support){.has_seccomp = can_filter()};
    out->landlock_abi = strait_sandbox_landlock_abi(&out->no_landlock);
}

static void describe(const strait_sandbox_spec *spec, const strait_sandbox_support *support,
                     char line[STRAIT_SANDBOX_LINE]) {
    char files[STRAIT_SANDBOX_LINE / 2];
    if (support->landlock_abi > 0)
        (void)snprintf(files, sizeof files, "landlock (version %d: %s)", support->landlock_abi,
                       spec->uses_cuda ? "reads system files and NVIDIA's devices only"
                                       : "reads system files only, writes none");
    else
        (void)snprintf(files, sizeof files, "NO landlock (%s: files of this user can be read%s)",
                       support->no_landlock, spec->uses_cuda ? " and changed" : "");
    (void)snprintf(line, STRAIT_SANDBOX_LINE,
                   "no new privileges, seccomp filter (starts no program%s), %s",
                   spec->may_listen || spec->uses_cuda ? "" : ", accepts no connection", files);
}

strait_err strait_sandbox_fail(const char *what, int number) {
    const char *why = strerrordesc_np(number);
    return STRAIT_FAIL(STRAIT_ENOTSUP, "cannot confine this process: %s: %s", what,
                       why != NULL ? why : "unknown error");
}

/* Landlock first: the filter forbids its system calls. */
strait_err strait_sandbox_enter(const strait_sandbox_spec *spec, char line[STRAIT_SANDBOX_LINE]) {
    strait_sandbox_support support;
    strait_sandbox_probe(&support);
    if (!support.has_seccomp)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "cannot confine this process: the kernel or the container allows no "
                           "seccomp filters; use another machine, or --no-sandbox if you trust "
                           "everyone in the run");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return strait_sandbox_fail("no_new_privs", errno);
    if (support.landlock_abi > 0) STRAIT_TRY(strait_sandbox_landlock(spec, support.landlock_abi));
    STRAIT_TRY(strait_sandbox_filter(spec));
    describe(spec, &support, line);
    return STRAIT_OK;
}
