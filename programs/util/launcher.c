#include "launcher.h"

#include <strait/cluster.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read before any thread starts. */
static long number(const char *name) {
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe)
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

static int is_set(const char *name) {
    return getenv(name) != NULL; // NOLINT(concurrency-mt-unsafe)
}

/* How many processes the launcher has started; 1: there is none, or this is the only one. A script
 * of sbatch has Slurm's variables too, but no step: there a run is an ordinary one. */
static long count_processes(const char **launcher) {
    *launcher = "mpirun";
    if (is_set("OMPI_COMM_WORLD_SIZE")) return number("OMPI_COMM_WORLD_SIZE");
    if (is_set("PMI_SIZE")) return number("PMI_SIZE");
    *launcher = "srun";
    if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID")) return number("SLURM_STEP_NUM_TASKS");
    return 1;
}

static int is_srun(const char *launcher) {
    return strcmp(launcher, "srun") == 0;
}

/* Signals to the whole job (Ctrl-C, scancel) are for rank 0, which then tells the others what to
 * do. If it dies, they notice by themselves. */
static void ignore_signals(void) {
    static const int ignored[] = {SIGINT, SIGHUP, SIGTERM};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)signal(ignored[i], SIG_IGN);
}

strait_err strait_launcher_join(int *rank) {
    const char *launcher = "";
    const long n = count_processes(&launcher);
    *rank = 0;
    if (n <= 1) return STRAIT_OK;
    /* MPI would end the process with a page of its own advice. */
    if (is_srun(launcher) && !is_set("PMIX_RANK") && !is_set("PMI_RANK"))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "srun started %ld processes without PMIx: start them with \"srun "
                           "--mpi=pmix\" (srun --mpi=list prints what this Slurm has)",
                           n);
    (void)signal(SIGPIPE, SIG_IGN);
    const strait_err err = strait_cluster_join(rank);
    if (err != STRAIT_OK) {
        char reason[512];
        (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
        return STRAIT_FAIL(err, "%s started %ld processes: %s", launcher, n, reason);
    }
    if (strait_cluster_size() != n)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "%s started %ld processes, but MPI knows %d: start them with "
                           "\"srun --mpi=pmix\", or with the mpirun of the same MPI",
                           launcher, n, strait_cluster_size());
    if (*rank > 0) ignore_signals();
    return STRAIT_OK;
}

const char *strait_launcher_prefix(void) {
    static char text[64];
    const char *launcher = "";
    const long n = count_processes(&launcher);
    if (n > 1) (void)snprintf(text, sizeof text, "%s -n %ld ", launcher, n);
    return text;
}

void strait_launcher_leave(int code) {
    strait_cluster_leave(code);
}
