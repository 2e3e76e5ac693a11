/* cluster_serve.c - a rank that computes stages for rank 0.
 *
 * Rank 0 sends texts: "stage " with the startup line and the run file of a stage, which is answered
 * by the stage's own line or by "error " and a reason; "go I R", after which replica R of stage I
 * dials; and "end". Everything else goes over the mesh of each stage, as in every run. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/mpi/world.h"
#include "train/cluster/cluster.h"
#include "train/launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    END_MS = 30000, // for rank 0 to end the job after a stage of ours has ended
    TURN_MS = 3000, // between the reports of two ranks
    TURNS_MAX = 20
};

struct serving {
    struct strait_launched *stages; // STRAIT_RUN_MEMBERS
    int n_stages;
    int64_t ended_ns; // when the first of them was seen to have ended; 0: none
};

/* Rank 0 reports the end of a stage. If it does not, it cannot be reached any more. */
static strait_err check_stages(void *user) {
    struct serving *s = user;
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i].has_ended && s->ended_ns == 0) s->ended_ns = strait_clock_ns();
    if (s->ended_ns == 0 || strait_clock_ns() - s->ended_ns < (int64_t)END_MS * 1000000)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECLOSED, "%s: its stage has ended, and rank 0 does not answer",
                       strait_cluster_rank_text(strait_mpi_rank()));
}

/* Starts a stage from "LINE\nRUN FILE" and formats its answer. */
static strait_err start_stage(struct serving *s, char *text, const char *folder, strait_run *run,
                              char answer[STRAIT_STARTUP_LINE]) {
    strait_startup start;
    strait_fingerprint key;
    char digits[STRAIT_FINGERPRINT_TEXT], address[STRAIT_ADDRESS_MAX];
    char *file = strchr(text, '\n');
    if (file == NULL || s->n_stages == STRAIT_RUN_MEMBERS)
        return STRAIT_FAIL(STRAIT_EPROTO, "malformed startup of a stage");
    *file++ = '\0';
    STRAIT_TRY(strait_startup_parse(text, &start));
    STRAIT_TRY(strait_run_init_text("run", file, strlen(file), NULL, 0, run));
    STRAIT_TRY(strait_file_path(start.run_path, "%s/run.yaml", folder));
    STRAIT_TRY(strait_cluster_write_run(run, strait_run_members(run), start.run_path));
    struct strait_launched *l = &s->stages[s->n_stages++];
    STRAIT_TRY(strait_launch_thread(start.stage, l));
    STRAIT_TRY(strait_launch_introduce(l, &start, &key, address));
    strait_fingerprint_text(&key, digits);
    (void)snprintf(answer, STRAIT_STARTUP_LINE, "%s %s", digits, address);
    return STRAIT_OK;
}

/* The stage has read its run file when it answers, so that the folder is removed afterwards. */
static strait_err answer_start(struct serving *s, char *text) {
    char folder[] = "/tmp/strait-rank-XXXXXX";
    char answer[STRAIT_STARTUP_LINE];
    void *run = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &run));
    strait_err err = STRAIT_OK;
    if (mkdtemp(folder) == NULL)
        err = STRAIT_FAIL(STRAIT_EIO, "/tmp: cannot create a folder for the run file");
    else
        err = start_stage(s, text, folder, run, answer);
    if (err != STRAIT_OK) (void)snprintf(answer, sizeof answer, "error %s", strait_err_detail());
    (void)strait_file_remove_folder(folder);
    strait_alloc_free(run);
    return strait_mpi_send_text(0, answer);
}

static strait_err let_go(struct serving *s, const char *text) {
    char *rest = NULL;
    const long stage = strtol(text, &rest, 10), replica = strtol(rest, NULL, 10);
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i].stage == stage && s->stages[i].replica == replica)
            return strait_launch_go(&s->stages[i]);
    return STRAIT_FAIL(STRAIT_EPROTO, "rank 0 speaks of stage %ld, which is not here", stage);
}

static strait_err serve(struct serving *s) {
    for (;;) {
        char *text = NULL;
        strait_err err = strait_mpi_receive_text(0, -1, check_stages, s, &text);
        STRAIT_TRY(err);
        const int is_end = strcmp(text, "end") == 0;
        if (strncmp(text, "stage ", 6) == 0)
            err = answer_start(s, text + 6);
        else if (strncmp(text, "go ", 3) == 0)
            err = let_go(s, text + 3);
        else if (!is_end)
            err = STRAIT_FAIL(STRAIT_EPROTO, "rank 0 sent an unknown command");
        strait_alloc_free(text);
        STRAIT_TRY(err);
        if (is_end) return STRAIT_OK;
    }
}

/* All ranks notice the end of rank 0. The lowest of them reports it and ends the job, before the
 * others have waited for their turn. */
static strait_err report(strait_err err) {
    const int turn = strait_mpi_rank() - 1 < TURNS_MAX ? strait_mpi_rank() - 1 : TURNS_MAX;
    const struct timespec nap = {.tv_sec = turn * TURN_MS / 1000,
                                 .tv_nsec = turn * TURN_MS % 1000 * 1000000L};
    char reason[300];
    (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
    (void)nanosleep(&nap, NULL);
    return STRAIT_FAIL(err, "%s; rank 0 coordinates the run: start the job again with --resume",
                       reason);
}

/* Threads of stages cannot be stopped from outside: after an error the whole process ends. */
strait_err strait_cluster_serve(void) {
    struct serving s = {.stages = NULL};
    STRAIT_TRY(strait_alloc(STRAIT_RUN_MEMBERS, sizeof *s.stages, "stages", (void **)&s.stages));
    const strait_err err = serve(&s);
    if (err != STRAIT_OK) return report(err);
    for (int i = 0; i < s.n_stages; i++)
        (void)strait_launch_fini(&s.stages[i], 0, INT_MAX); // the launcher ends a job that hangs
    strait_alloc_free(s.stages);
    return STRAIT_OK;
}
