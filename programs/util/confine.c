/* confine.c - collects what a worker on this device needs, then enters the sandbox. */
#include "confine.h"

#include "backend/backend.h"
#include "backend/cuda/info.h"
#include "sandbox/sandbox.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PATHS_MAX = 64, // more folders of libraries than anyone has; further ones are not readable
    PATH_BYTES = 512
};

/* Two lists of paths, each ended by NULL. */
struct paths {
    char text[PATHS_MAX][PATH_BYTES];
    int n;
    const char *reads[PATHS_MAX + 1], *writes[PATHS_MAX + 1];
    int n_reads, n_writes;
};

static void add_path(void *user, const char *path, int may_write) {
    struct paths *p = user;
    if (p->n == PATHS_MAX || strlen(path) >= PATH_BYTES) return;
    (void)snprintf(p->text[p->n], PATH_BYTES, "%s", path);
    if (may_write)
        p->writes[p->n_writes++] = p->text[p->n++];
    else
        p->reads[p->n_reads++] = p->text[p->n++];
}

/* The first program that uses NVIDIA's driver after a restart loads its modules and creates its
 * device files, through a program with the privileges for it, which the sandbox forbids. A child
 * does it before. What it finds does not matter here: the worker opens the device itself. */
static void prepare_cuda(void) {
    if (access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidia-uvm", F_OK) == 0) return;
    const pid_t child = fork();
    if (child == 0) {
        struct strait_backend *backend = NULL;
        (void)strait_backend_open((strait_backend_spec){.name = "cuda"}, &backend);
        _exit(0);
    }
    if (child > 0) (void)waitpid(child, NULL, 0);
}

void strait_confine_spec(const char *device, int may_listen, strait_sandbox_spec *out) {
    static struct paths paths; // large
    paths = (struct paths){0};
    const int uses_cuda = strcmp(device, "cuda") == 0;
    if (uses_cuda) {
        prepare_cuda();
        strait_cuda_paths(&paths, add_path);
    }
    *out = (strait_sandbox_spec){.uses_cuda = uses_cuda,
                                 .may_listen = may_listen,
                                 .reads = paths.reads,
                                 .writes = paths.writes};
}

strait_err strait_confine(const char *device, int may_listen, char *line, int capacity) {
    char in_force[STRAIT_SANDBOX_LINE];
    strait_sandbox_spec spec;
    strait_confine_spec(device, may_listen, &spec);
    tzset(); // reads the time zone, whose file may be anywhere
    STRAIT_TRY(strait_sandbox_enter(&spec, in_force));
    (void)snprintf(line, (size_t)capacity, "%s", in_force);
    return STRAIT_OK;
}
