#include "join_control.h"

#include "base/file.h"
#include "base/json.h"
#include "swarm/keys.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_BYTES = 1024, // always as many, so that a new text replaces all of the old one
    STOP_MS = 150000,  // more than a worker takes to hand its stage over
    POLL_MS = 100,
    TRIES = 5 // to read a file that is being written
};

strait_err strait_join_control_open(const char *keys, int number, int *fd) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_keys_worker_file(keys, number, "status", path));
    *fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    return *fd >= 0 ? STRAIT_OK : STRAIT_FAIL(STRAIT_EIO, "%s: cannot write", path);
}

void strait_join_control_write(int fd, const strait_join_report *report) {
    char role[64], text[FILE_BYTES];
    const strait_worker_status *s = &report->now;
    const strait_run_status *run = &report->run;
    if (fd < 0) return;
    strait_join_report_role(report, role);
    json_t *object = json_pack(
        "{si ss ss ss sI sI sf sf sI sf sf sf sI}", "pid", (int)getpid(), "role", role, "run",
        run->name, "model", run->model, "step", (json_int_t)run->step, "steps",
        (json_int_t)run->n_steps, "loss", run->loss, "left_s", run->left_s, "tokens",
        (json_int_t)s->tokens, "sent_bytes", s->sent_bytes, "received_bytes", s->received_bytes,
        "memory_bytes", strait_join_report_memory(), "updated", (json_int_t)time(NULL));
    const size_t n = object != NULL ? json_dumpb(object, text, sizeof text - 1, JSON_COMPACT) : 0;
    json_decref(object);
    if (n == 0 || n >= sizeof text) return;
    memset(text + n, ' ', sizeof text - 1 - n);
    text[sizeof text - 1] = '\n';
    (void)!pwrite(fd, text, sizeof text, 0);
}

/* The caller releases *out. A file may be read while it is written: it is then read again. */
static strait_err read_status(const char *keys, int number, json_t **out) {
    char path[STRAIT_PATH_MAX];
    const struct timespec nap = {.tv_nsec = POLL_MS * 1000000L};
    STRAIT_TRY(strait_keys_worker_file(keys, number, "status", path));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < TRIES; i++) {
        err = strait_json_load(path, (size_t)2 * FILE_BYTES, out);
        if (err == STRAIT_OK) return STRAIT_OK;
        (void)nanosleep(&nap, NULL);
    }
    return err;
}

static double real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key) {
    const char *found = json_string_value(json_object_get(object, key));
    return found != NULL ? found : "";
}

static void show_one(int number, const json_t *s) {
    char tokens[32], memory[32], left[32];
    strait_progress_count(real(s, "tokens"), tokens);
    strait_progress_bytes(real(s, "memory_bytes"), memory);
    strait_progress_duration(real(s, "left_s"), left);
    printf("worker %d, process %.0f: ", number, real(s, "pid"));
    if (text(s, "run")[0] == '\0')
        printf("%s; memory %s\n", text(s, "role"), memory);
    else
        printf("%s of run %s (%s); step %.0f/%.0f, loss %.4f, %s left; %s tokens contributed, sent "
               "%.1f MB, received %.1f MB, memory %s\n",
               text(s, "role"), text(s, "run"), text(s, "model"), real(s, "step"), real(s, "steps"),
               real(s, "loss"), real(s, "left_s") > 0.0 ? left : "?", tokens,
               real(s, "sent_bytes") / 1e6, real(s, "received_bytes") / 1e6, memory);
}

strait_err strait_join_control_show(const char *keys) {
    int n = 0;
    for (int i = 1; i <= STRAIT_KEYS_WORKERS; i++) {
        json_t *status = NULL;
        if (strait_keys_process(keys, i) == 0) continue;
        STRAIT_TRY(read_status(keys, i, &status));
        show_one(i, status);
        json_decref(status);
        n++;
    }
    if (n > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECLOSED, "no worker runs with the keys in %s",
                       keys != NULL ? keys : "~/.config/strait");
}

/* The lock says who it is, not the status: that may be an earlier worker's, whose number belongs to
 * another process by now. It is free once the worker has ended. */
static strait_err stop_one(const char *keys, int number) {
    const struct timespec nap = {.tv_nsec = POLL_MS * 1000000L};
    const pid_t pid = (pid_t)strait_keys_process(keys, number);
    if (pid == 0) return STRAIT_OK; // it has just ended
    if (pid <= 1 || kill(pid, SIGTERM) != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "worker %d: its process %d cannot be signalled", number,
                           (int)pid);
    for (int ms = 0; strait_keys_process(keys, number) != 0; ms += POLL_MS) {
        if (ms >= STOP_MS)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "worker %d, process %d, still hands its stage over: --stop again "
                               "makes it leave at once",
                               number, (int)pid);
        (void)nanosleep(&nap, NULL);
    }
    printf("worker %d, process %d, has left\n", number, (int)pid);
    return STRAIT_OK;
}

strait_err strait_join_control_stop(const char *keys) {
    int n = 0;
    for (int i = 1; i <= STRAIT_KEYS_WORKERS; i++) {
        if (strait_keys_process(keys, i) == 0) continue;
        STRAIT_TRY(stop_one(keys, i));
        n++;
    }
    if (n == 0)
        printf("no worker runs with the keys in %s\n", keys != NULL ? keys : "~/.config/strait");
    return STRAIT_OK;
}
