/* cmd_watch.c - strait watch FOLDER: shows a hosted run live in a terminal. */
#include "base/file.h"
#include "commands.h"
#include "progress.h"
#include "signals.h"
#include "swarm/host/status.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS_SHOWN = 8,
    TAIL_BYTES = 8192,
    LOOK_MS = 1000,
    SILENT_S = 15 // a busy host may miss a few of its updates, one per second
};

/* Scripts and tests want the state once; people want it live. */
static int is_once;

static const strait_flag flags[] = {
    {"once", 0, STRAIT_FLAG_SWITCH, &is_once, NULL, "print the current state once and stop"},
    {0},
};

/* Reads the last whole lines of a file; empty when it cannot be read. */
static void read_tail(const char *folder, const char *name, char out[TAIL_BYTES]) {
    char path[STRAIT_PATH_MAX];
    out[0] = '\0';
    if (strait_file_path(path, "%s/%s", folder, name) != STRAIT_OK) return;
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    (void)fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    const long from = size > TAIL_BYTES - 1 ? size - (TAIL_BYTES - 1) : 0;
    (void)fseek(file, from, SEEK_SET);
    const size_t n = fread(out, 1, TAIL_BYTES - 1, file);
    (void)fclose(file);
    out[n] = '\0';
    const char *line = from > 0 ? strchr(out, '\n') : NULL;
    if (line != NULL) memmove(out, line + 1, strlen(line));
}

/* Prints the last step in metrics.jsonl; lines of validations have no "loss". */
static void show_step(const char *folder) {
    char tail[TAIL_BYTES];
    read_tail(folder, "metrics.jsonl", tail);
    json_t *last = NULL;
    for (char *rest = tail, *line = NULL; (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "loss") == NULL) {
            json_decref(object);
            continue;
        }
        json_decref(last);
        last = object;
    }
    if (last == NULL) return;
    const json_t *loss = json_object_get(last, "loss");
    printf("step %lld  loss %.4f  %.0f tok/s\n",
           (long long)json_integer_value(json_object_get(last, "step")),
           json_is_null(loss) ? (double)NAN : json_number_value(loss),
           json_number_value(json_object_get(last, "tokens_per_s")));
    json_decref(last);
}

/* The key is shown because names are chosen by the workers and need not be unique. */
static void show_worker(const strait_status_worker *m) {
    char sent[32];
    char received[32];
    char stage[24] = "spare";
    strait_progress_bytes(m->sent_bytes, sent);
    strait_progress_bytes(m->received_bytes, received);
    if (m->stage >= 0) (void)snprintf(stage, sizeof stage, "stage %d", m->stage);
    if (m->is_connected)
        printf("  %-16.16s %s  %-8s  %6.1f GFLOP/s  rtt %6.1f ms  %8.1f Mb/s  sent %s  got %s\n",
               m->name, m->key, stage, m->flops / 1e9, 1e3 * m->rtt_s, m->up_bps / 1e6, sent,
               received);
    else
        printf("  %-16.16s %s  %-8s  gone\n", m->name, m->key, stage);
}

/* The last lines of events.log, without reading all of a file that grows with the run. */
static void show_events(const char *folder) {
    char tail[TAIL_BYTES];
    read_tail(folder, "events.log", tail);
    size_t n = strlen(tail);
    int n_lines = 0;
    if (n > 0 && tail[n - 1] == '\n') tail[--n] = '\0';
    while (n > 0 && n_lines < EVENTS_SHOWN)
        if (tail[--n] == '\n') n_lines++;
    printf("%s\n", n > 0 ? tail + n + 1 : tail);
}

/* A running host rewrites swarm.json every second: an old file means that nothing shown is live. */
static void show_silence(const char *folder) {
    char path[STRAIT_PATH_MAX];
    char text[32];
    struct stat file;
    if (strait_file_path(path, "%s/swarm.json", folder) != STRAIT_OK || stat(path, &file) != 0)
        return;
    const double age = difftime(time(NULL), file.st_mtime);
    if (age < SILENT_S) return;
    strait_progress_duration(age, text);
    printf("no update for %s: the run has ended, or \"strait host\" must be restarted\n", text);
}

/* Distinguishes a wrong path from a run that was not hosted. */
static strait_err check_folder(const char *folder) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/swarm.json", folder));
    if (strait_file_exists(path)) return STRAIT_OK;
    if (!strait_file_exists(folder)) return STRAIT_FAIL(STRAIT_EIO, "%s: no such folder", folder);
    return STRAIT_FAIL(
        STRAIT_EIO, "%s: not a run of \"strait host\"; use strait inspect for other runs", folder);
}

/* Workers with a stage come first, in the order of the pipeline; spares follow. */
static strait_err show(const char *folder) {
    static strait_status status; // large
    char ids[32];
    STRAIT_TRY(check_folder(folder));
    STRAIT_TRY(strait_status_load(folder, &status));
    if (!is_once && isatty(STDOUT_FILENO)) printf("\x1b[H\x1b[J");
    strait_progress_bytes(status.ids_bytes, ids);
    printf("%s: %s, generation %lld, %d stages, %lld steps committed; %s of token ids sent, %lld "
           "connections refused\n",
           folder, status.phase, (long long)status.generation, status.n_stages,
           (long long)status.committed, ids, (long long)status.refused);
    show_step(folder);
    for (int stage = 0; stage < status.n_stages; stage++)
        for (int i = 0; i < status.n_workers; i++)
            if (status.workers[i].stage == stage) show_worker(&status.workers[i]);
    for (int i = 0; i < status.n_workers; i++)
        if (status.workers[i].stage < 0) show_worker(&status.workers[i]);
    show_events(folder);
    show_silence(folder);
    if (fflush(stdout) != 0) return STRAIT_FAIL(STRAIT_EIO, "standard output could not be written");
    return STRAIT_OK;
}

/* Polls the files instead of connecting to the host: watching cannot disturb the run. */
static strait_err run_watch(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_watch, "folder of a run", NULL, n_args, args));
    strait_signals_listen(1);
    for (;;) {
        STRAIT_TRY(show(args[0]));
        if (is_once || strait_signals_count() > 0) return STRAIT_OK;
        const struct timespec nap = {.tv_sec = LOOK_MS / 1000};
        (void)nanosleep(&nap, NULL);
    }
}

const strait_command strait_cmd_watch = {
    .name = "watch",
    .usage = "FOLDER [flags]",
    .summary = "show a hosted run while it trains",
    .about =
        "Shows workers, stages, links, the last step and the last events of a run that \"strait\n"
        "host\" coordinates, and refreshes every second. It only reads files of the run's folder.",
    .flags = flags,
    .run = run_watch,
};
