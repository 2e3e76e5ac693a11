#include "train/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/program.h"
#include "net/mpi/world.h"
#include "train/cluster/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum {
    ARGS_MAX = 32
};

static void close_fd(int *fd) {
    if (*fd > 0) (void)close(*fd);
    *fd = 0;
}

/* A stage in a thread runs the same code over the same pipes as one in a process. */
static void *thread_main(void *arg) {
    struct strait_launched *l = arg;
    char name[24]; // Linux keeps 15 characters
    (void)snprintf(name, sizeof name, "strait-stage-%d", l->stage % 100);
    (void)prctl(PR_SET_NAME, name); // as top -H and ps -L show it
    (void)strait_stage_process_run(l->ends[0], l->ends[1],
                                   l->network); // errors reach the coordinator as replies
    close_fd(&l->ends[0]);
    close_fd(&l->ends[1]);
    l->has_ended = 1;
    return NULL;
}

/* Opens two pipes. All ends close on exec, so that one stage does not keep another's pipe open. */
static strait_err make_pipes(struct strait_launched *l) {
    int down[2];
    int up[2];
    if (pipe(down) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "cannot open a pipe to stage %d", l->stage);
    if (pipe(up) != 0) {
        (void)close(down[0]);
        (void)close(down[1]);
        return STRAIT_FAIL(STRAIT_ENOMEM, "cannot open a pipe to stage %d", l->stage);
    }
    l->to = down[1];
    l->from = up[0];
    l->ends[0] = down[0];
    l->ends[1] = up[1];
    const int all[] = {down[0], down[1], up[0], up[1]};
    for (int i = 0; i < 4; i++)
        (void)fcntl(all[i], F_SETFD, FD_CLOEXEC);
    return STRAIT_OK;
}

/* Splits `line` at spaces in place, then appends the strait program and its command. */
static strait_err build_arguments(char *line, char *program, char **argv) {
    static char command[] = "stage";
    int n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (n == ARGS_MAX) return STRAIT_FAIL(STRAIT_ECONFIG, "stages.launch: too many arguments");
        argv[n++] = word;
    }
    argv[n++] = program;
    argv[n++] = command;
    argv[n] = NULL;
    return STRAIT_OK;
}

/* The pipes become standard input and output, because those also pass through a prefix such as "ssh
 * HOST". Standard error stays the terminal's, so that messages of a stage are seen. */
static strait_err start_process(struct strait_launched *l, const char *prefix) {
    char line[4 * STRAIT_RUN_TEXT];
    char program[STRAIT_PATH_MAX];
    char *argv[ARGS_MAX + 3];
    STRAIT_TRY(strait_program_path(program));
    STRAIT_TRY(strait_startup_expand(prefix, l->stage, line, sizeof line));
    STRAIT_TRY(build_arguments(line, program, argv));
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "stage %d cannot be started", l->stage);
    (void)posix_spawn_file_actions_adddup2(&actions, l->ends[0], STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, l->ends[1], STDOUT_FILENO);
    const int failed = posix_spawnp(&l->pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    close_fd(&l->ends[0]);
    close_fd(&l->ends[1]);
    if (failed == 0) return STRAIT_OK;
    l->pid = 0;
    return STRAIT_FAIL(STRAIT_ECONFIG, "stage %d: %s cannot be started", l->stage, argv[0]);
}

static strait_err start_thread(struct strait_launched *l) {
    l->has_thread = pthread_create(&l->thread, NULL, thread_main, l) == 0;
    if (!l->has_thread)
        return STRAIT_FAIL(STRAIT_ENOMEM, "the thread of stage %d cannot be started", l->stage);
    return STRAIT_OK;
}

/* Without an in-process network a stage is a process, which can be killed and measured alone. */
strait_err strait_launch(int stage, const char *prefix, struct strait_inproc_network *network,
                         struct strait_launched *out) {
    out->stage = stage;
    out->network = network;
    STRAIT_TRY(make_pipes(out));
    return network == NULL ? start_process(out, prefix) : start_thread(out);
}

strait_err strait_launch_thread(int stage, struct strait_launched *out) {
    out->stage = stage;
    STRAIT_TRY(make_pipes(out));
    return start_thread(out);
}

void strait_launch_at(int stage, int rank, struct strait_launched *out) {
    out->stage = stage;
    out->has_rank = 1;
    out->rank = rank;
}

/* A write fails when the stage has closed its end, that is, when it has ended. */
static strait_err send_line(const struct strait_launched *l, const char *line) {
    if (strait_startup_write_line(l->to, line) == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d ended before it was connected", l->stage);
}

/* The rank answers for its stage, with an error where there is one. */
static strait_err introduce_at(const struct strait_launched *l, const strait_startup *start,
                               const char *line, strait_fingerprint *key,
                               char address[STRAIT_ADDRESS_MAX]) {
    char *answer = NULL;
    STRAIT_TRY(strait_cluster_start(l->rank, line, start->run_path, &answer));
    strait_err err = STRAIT_OK;
    if (strncmp(answer, "error ", 6) == 0)
        err = STRAIT_FAIL(STRAIT_ECLOSED, "%s: %.400s", strait_cluster_rank_text(l->rank),
                          answer + 6);
    else
        err = strait_startup_parse_answer(answer, key, address);
    strait_alloc_free(answer);
    return err;
}

strait_err strait_launch_introduce(struct strait_launched *l, const strait_startup *start,
                                   strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]) {
    char line[STRAIT_STARTUP_LINE];
    l->replica = start->replica;
    STRAIT_TRY(strait_startup_format(start, line));
    if (l->has_rank) return introduce_at(l, start, line, key, address);
    STRAIT_TRY(send_line(l, line));
    STRAIT_TRY(strait_startup_read_line(l->from, line));
    return strait_startup_parse_answer(line, key, address);
}

/* The pipes are closed now, since everything else goes over the mesh: the stage then notices by its
 * link when the coordinator ends. */
strait_err strait_launch_go(struct strait_launched *l) {
    if (l->has_rank) return strait_cluster_go(l->rank, l->stage, l->replica);
    const strait_err err = send_line(l, "go\n");
    close_fd(&l->to);
    close_fd(&l->from);
    return err;
}

static void pause_ms(long ms) {
    const struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&nap, NULL);
}

/* Polls, because waitpid has no timeout and a handler of SIGCHLD would concern the whole program
 * that embeds the library. */
const char *strait_launch_ended(struct strait_launched *l, int wait_ms) {
    static _Thread_local char reason[128];
    const int64_t until = strait_clock_ns() + (int64_t)wait_ms * 1000000;
    if (l->has_rank && strait_mpi_check(l->rank) != STRAIT_OK) {
        (void)snprintf(reason, sizeof reason, "(%s) was killed or failed",
                       strait_cluster_rank_text(l->rank));
        return reason;
    }
    if (l->pid == 0) return NULL;
    for (;;) {
        int status = 0;
        const pid_t ended = waitpid(l->pid, &status, WNOHANG);
        if (ended == l->pid) {
            l->pid = 0;
            if (WIFSIGNALED(status))
                (void)snprintf(reason, sizeof reason, "was killed by signal %d", WTERMSIG(status));
            else
                (void)snprintf(reason, sizeof reason, "ended with code %d", WEXITSTATUS(status));
            return reason;
        }
        if (strait_clock_ns() >= until) return NULL;
        pause_ms(5);
    }
}

/* Polls, because pthread_join has no timeout. */
static int thread_ends(const struct strait_launched *l, int wait_ms) {
    const int64_t until = strait_clock_ns() + (int64_t)wait_ms * 1000000;
    while (!l->has_ended && strait_clock_ns() < until)
        pause_ms(1);
    return l->has_ended;
}

int strait_launch_fini(struct strait_launched *l, int wait_ms, int thread_ms) {
    close_fd(&l->to);
    close_fd(&l->from);
    /* A stage that does not end by itself must not survive the run: it would hold memory and a
     * port. */
    if (l->pid != 0 && strait_launch_ended(l, wait_ms) == NULL) {
        (void)kill(l->pid, SIGKILL);
        (void)waitpid(l->pid, NULL, 0);
        l->pid = 0;
    }
    if (l->has_thread && !thread_ends(l, thread_ms)) return 0;
    if (l->has_thread) (void)pthread_join(l->thread, NULL);
    l->has_thread = 0;
    close_fd(&l->ends[0]);
    close_fd(&l->ends[1]);
    return 1;
}
