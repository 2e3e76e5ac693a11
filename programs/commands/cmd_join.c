/* cmd_join.c - strait join INVITE */
#include "background.h"
#include "base/file.h"
#include "base/text/text.h"
#include "commands.h"
#include "confine.h"
#include "device_auto.h"
#include "invite_source.h"
#include "join_control.h"
#include "join_report.h"
#include "lending.h"
#include "net/core/reachability.h"
#include "signals.h"
#include "swarm/keys.h"
#include "swarm/worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    GIVE_UP_MAX = 1000000000 // seconds: in milliseconds it fits an int64_t
};

static const char *key_folder, *worker_name, *listen_at = "0.0.0.0:0", *announced, *device = "cpu";
static int64_t n_threads, ordinal;
static double give_up = 600.0;
static int cannot_listen, has_no_sandbox, is_forced, in_background, must_show, must_end;
static const char *invite_file;

static strait_lending_flags lending_flags;
static strait_lending lending;

static strait_join_report report;
static strait_background background = {.fd = -1};
static char begun_text[STRAIT_PATH_MAX + 128]; // for the command that started it
static int status_fd = -1;

static const char *fault_text; // --fault, unparsed

/* For tests: the point at which this process kills itself, as a power cut would. */
static struct {
    strait_worker_point point;
    int stage;
    int64_t step; // the first at which the point counts
} fault;

static const strait_flag flags[] = {
    {"invite-file", 0, STRAIT_FLAG_TEXT, &invite_file, "FILE",
     "read the invite from FILE; INVITE - reads it from standard input"},
    {"name", 'n', STRAIT_FLAG_TEXT, &worker_name, "NAME",
     "name of this worker in logs (default: the host name)"},
    {"device", 0, STRAIT_FLAG_TEXT, &device, "KIND",
     "the device that computes: cpu (default), cuda, or auto: a GPU if there is one"},
    {"ordinal", 0, STRAIT_FLAG_INT, &ordinal, "N", "which device of its kind, from 0"},
    {"threads", 't', STRAIT_FLAG_INT, &n_threads, "N",
     "threads on the cpu (default 0: one per core)"},
    {"memory", 0, STRAIT_FLAG_TEXT, &lending_flags.memory, "SIZE",
     "memory to lend, such as 8GiB: larger stages are refused (default: what is free)"},
    {"force", 0, STRAIT_FLAG_SWITCH, &is_forced, NULL,
     "serve a stage even if memory seems too small for it"},
    {"rate-up", 0, STRAIT_FLAG_TEXT, &lending_flags.rate_up, "RATE",
     "how fast to send, all connections together, such as 20mbit (default: no limit)"},
    {"rate-down", 0, STRAIT_FLAG_TEXT, &lending_flags.rate_down, "RATE",
     "how fast to receive (default: no limit)"},
    {"hours", 0, STRAIT_FLAG_TEXT, &lending_flags.hours, "RANGE",
     "hours of the day to work in, local time, such as 22-7 or 9:30-17: leaves the run at the end "
     "and joins again at the beginning"},
    {"listen", 0, STRAIT_FLAG_TEXT, &listen_at, "ADDR:PORT",
     "where neighbours connect (default 0.0.0.0:0, any free port; [::]:0 for IPv6)"},
    {"announce", 0, STRAIT_FLAG_TEXT, &announced, "HOST[:PORT]",
     "the address that neighbours dial, if it differs from --listen"},
    {"no-listen", 0, STRAIT_FLAG_SWITCH, &cannot_listen, NULL,
     "do not accept connections: dial the neighbours, or meet at a relay"},
    {"no-sandbox", 0, STRAIT_FLAG_SWITCH, &has_no_sandbox, NULL,
     "do not confine this process with seccomp and landlock"},
    {"keys", 0, STRAIT_FLAG_TEXT, &key_folder, "DIR",
     "folder of this machine's key (default ~/.config/strait)"},
    {"give-up", 0, STRAIT_FLAG_REAL, &give_up, "SECONDS",
     "how long to wait for a lost coordinator (default 600; 0: forever)"},
    {"background", 0, STRAIT_FLAG_SWITCH, &in_background, NULL,
     "continue in the background, with a log in the folder of keys (node.log)"},
    {"status", 0, STRAIT_FLAG_SWITCH, &must_show, NULL,
     "print what the running workers with these keys do"},
    {"stop", 0, STRAIT_FLAG_SWITCH, &must_end, NULL,
     "let the running workers with these keys hand their stages over and leave"},
    {"fault", 0, STRAIT_FLAG_TEXT, &fault_text, "POINT:STAGE:STEP",
     "for tests: kill this process with SIGKILL at that point (CONTRIBUTING.md)"},
    {0},
};

/* Standard error: standard output stays empty, as of any command without a result. */
static void on_noted(void *user, const char *text) {
    (void)user;
    strait_background_report(&background, STRAIT_OK, begun_text); // its device works
    strait_join_report_note(&report, text);
}

static void on_status(void *user, const strait_worker_status *status) {
    (void)user;
    strait_join_report_status(&report, status);
    strait_join_control_write(status_fd, &report);
}

/* Signal handlers only count; the worker asks at every poll. A signal counts more than the end of
 * the hours: the second one leaves at once. */
static int must_stop(void *user) {
    (void)user;
    const int n_signals = strait_signals_count();
    return n_signals > 0 ? n_signals : !strait_lending_is_open(&lending);
}

/* Waits for the hours in which this machine is lent. */
static strait_err wait_until_open(void) {
    const struct timespec second = {.tv_sec = 1};
    if (!strait_lending_is_open(&lending)) {
        fprintf(stderr, "outside --hours %s: joining at %d:%02d\n", lending_flags.hours,
                lending.begin_minute / 60, lending.begin_minute % 60);
        /* The command that started it must not wait for the hours, too. */
        strait_background_report(&background, STRAIT_OK, begun_text);
    }
    while (!strait_lending_is_open(&lending)) {
        if (strait_signals_count() > 0)
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped while waiting for --hours");
        (void)nanosleep(&second, NULL);
    }
    return STRAIT_OK;
}

/* Works until the run is over, in every range of hours in which this machine is lent. */
static strait_err work(const strait_worker_spec *spec) {
    for (;;) {
        STRAIT_TRY(wait_until_open());
        const strait_err err = strait_worker_run(spec);
        if (err != STRAIT_EINTERRUPTED || strait_signals_count() > 0) return err;
    }
}

/* SIGKILL cannot be handled: nothing is flushed or closed, as after a power cut. */
static void on_reached(void *user, strait_worker_point point, int stage, int64_t step) {
    (void)user;
    if (point != fault.point || stage != fault.stage || step < fault.step) return;
    fprintf(stderr, "--fault: killing this worker at %s, stage %d, step %lld\n",
            strait_worker_point_name(point), stage, (long long)step);
    (void)raise(SIGKILL);
}

/* Parsed before joining: a test that misspells the point must fail at once. */
static strait_err parse_fault(void) {
    const size_t n = strcspn(fault_text, ":");
    char *end = NULL;
    fault.stage = fault_text[n] == ':' ? (int)strtol(fault_text + n + 1, &end, 10) : 0;
    fault.step = end != NULL && *end == ':' ? strtoll(end + 1, &end, 10) : 0;
    for (int i = 0; end != NULL && *end == '\0' && i < STRAIT_WORKER_POINTS; i++) {
        const char *name = strait_worker_point_name((strait_worker_point)i);
        if (strlen(name) != n || strncmp(name, fault_text, n) != 0) continue;
        fault.point = (strait_worker_point)i;
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "--fault '%s': expected POINT:STAGE:STEP, such as backward:1:40",
                       fault_text);
}

/* From here on a confined process opens no file of its user: the key is open and locked. */
static strait_err enter_sandbox(void) {
    char line[512];
    if (has_no_sandbox) {
        fprintf(stderr, "sandbox: off (--no-sandbox): an attacker who finds a memory error in this "
                        "program can act as this user\n");
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_confine(device, !cannot_listen, line, (int)sizeof line));
    fprintf(stderr, "sandbox: %s\n", line);
    return STRAIT_OK;
}

/* All flags but the invite: a mistake in them is found before anything is opened. */
static strait_err check_flags(void) {
    STRAIT_TRY(strait_args_check_device(device, 1));
    const strait_err reach = announced != NULL ? strait_reachability_check(announced, 0)
                                               : STRAIT_OK;
    if (reach != STRAIT_OK) strait_err_prefix("--announce");
    STRAIT_TRY(reach);
    STRAIT_TRY(strait_args_check_threads(n_threads));
    STRAIT_TRY(strait_lending_parse(&lending_flags, &lending));
    if (!(give_up >= 0.0 && give_up <= GIVE_UP_MAX))
        return STRAIT_FAIL(STRAIT_ECONFIG, "--give-up %g: expected seconds; 0: never", give_up);
    return fault_text != NULL ? parse_fault() : STRAIT_OK;
}

/* Fills in everything but invite and identity. */
static void fill_spec(strait_worker_spec *spec) {
    if (worker_name != NULL)
        strait_text_copy(spec->name, sizeof spec->name, worker_name);
    else if (gethostname(spec->name, sizeof spec->name - 1) != 0)
        (void)snprintf(spec->name, sizeof spec->name, "worker");
    strait_text_tame(spec->name);
    (void)snprintf(spec->listen, sizeof spec->listen, "%s", listen_at);
    (void)snprintf(spec->announce, sizeof spec->announce, "%s", announced != NULL ? announced : "");
    (void)snprintf(spec->device, sizeof spec->device, "%s", device);
    spec->cannot_listen = cannot_listen;
    spec->n_threads = (int)n_threads;
    spec->ordinal = (int)ordinal;
    spec->give_up_ms = (int64_t)(give_up * 1e3);
    spec->memory_bytes = (double)lending.memory_bytes;
    spec->is_forced = is_forced;
    spec->up_bps = lending.up_bps;
    spec->down_bps = lending.down_bps;
    spec->events = (strait_worker_events){
        .noted = on_noted, .must_stop = must_stop, .status = on_status};
    if (fault_text != NULL) spec->events.reached = on_reached;
}

/* Chosen before the process confines itself, and said, because the two differ a hundredfold. */
static void choose_device(void) {
    char reason[STRAIT_DEVICE_REASON];
    if (strcmp(device, "auto") != 0) return;
    device = strait_device_auto((int)ordinal, reason);
    fprintf(stderr, "device: %s (%s)\n", device, reason);
}

/* Everything that needs files is opened here, before the process confines itself. */
static strait_err open_files(int *lock, struct strait_identity **identity) {
    char path[STRAIT_PATH_MAX];
    int number = 0;
    const strait_err opened = strait_keys_open_worker(key_folder, &number, lock, identity);
    if (opened != STRAIT_OK) strait_err_prefix("--keys DIR");
    STRAIT_TRY(opened);
    STRAIT_TRY(strait_join_control_open(key_folder, number, &status_fd));
    if (!in_background) return STRAIT_OK;
    STRAIT_TRY(strait_keys_worker_file(key_folder, number, "log", path));
    STRAIT_TRY(strait_background_log(path));
    (void)snprintf(begun_text, sizeof begun_text,
                   "worker %d runs in the background as process %d; its log is %s", number,
                   (int)getpid(), path);
    return STRAIT_OK;
}

/* The lock on the key keeps two workers with one identity from replacing each other for ever. */
static strait_err join(strait_worker_spec *spec) {
    struct strait_identity *identity = NULL;
    int lock = 0;
    strait_err err = open_files(&lock, &identity);
    spec->identity = identity;
    fill_spec(spec);
    strait_signals_listen(2); // the first hands the stage over, the second leaves at once
    strait_join_report_init(&report);
    strait_join_control_write(status_fd, &report);
    if (err == STRAIT_OK) err = enter_sandbox();
    if (err == STRAIT_OK) err = work(spec);
    err = strait_args_device_advice(err);
    /* Another driver may need what the sandbox refuses. */
    if (err != STRAIT_OK && !has_no_sandbox && strncmp(strait_err_detail(), "device cuda", 11) == 0)
        strait_err_prefix("in the sandbox (--no-sandbox turns it off)");
    if (err != STRAIT_OK) strait_background_report(&background, err, strait_err_detail());
    strait_join_report_end(&report);
    strait_identity_close(&identity);
    strait_file_unlock(&lock);
    return err;
}

static strait_err run_join(int n_args, const char **args) {
    static strait_worker_spec spec; // large
    STRAIT_TRY(check_flags());
    if (must_show) return strait_join_control_show(key_folder);
    if (must_end) return strait_join_control_stop(key_folder);
    STRAIT_TRY(strait_invite_from(&strait_cmd_join, n_args, args, invite_file, &spec.invite));
    choose_device();
    if (in_background) STRAIT_TRY(strait_background_begin(&background));
    if (!background.is_parent) return join(&spec);
    char text[STRAIT_PATH_MAX + 128];
    STRAIT_TRY(strait_background_wait(&background, text, (int)sizeof text));
    printf("%s\n\"strait join --status\" says what it does, \"strait join --stop\" ends it\n",
           text);
    return STRAIT_OK;
}

const strait_command strait_cmd_join = {
    .name = "join",
    .usage = "[INVITE | -] [flags]  |  --status | --stop",
    .summary = "contribute this machine to a run as a worker",
    .about = "Joins the run of an invite as a worker: computes the stage that the coordinator\n"
             "assigns, or waits as a spare. Needs no data and no run file. Ctrl-C hands the stage\n"
             "over before leaving; a second Ctrl-C leaves at once. The process confines itself:\n"
             "it starts no program, reads no file of yours and writes none but its status\n"
             "(--no-sandbox). It says what the run needs, how far it is, and at the end what this\n"
             "machine contributed.\n"
             "\n"
             "Other users of this machine can see the arguments of a program, and the invite is a\n"
             "secret: INVITE \"-\" reads it from standard input, --invite-file from a file, and\n"
             "without any of them it is taken from the environment variable STRAIT_INVITE.",
    .flags = flags,
    .run = run_join,
    .examples =
        (const strait_example[]){
            {"strait join --device auto strait1:AQ...", "Joins with the GPU if there is one."},
            {"strait join --invite-file invite.txt --background --hours 22-7",
             "Works at night, in the background."},
            {"strait join --status",
             "Says what the workers in the background do; --stop ends them."},
            {0}},
};
