/* cmd_join.c - strait join INVITE */
#include "base/file.h"
#include "commands.h"
#include "net/core/reachability.h"
#include "signals.h"
#include "swarm/keys.h"
#include "swarm/worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GIVE_UP_MAX = 1000000000
};

static const char *key_folder, *node_name, *listen_at = "0.0.0.0:0", *announced, *device = "cpu";
static int64_t n_threads, ordinal;
static double give_up = 600.0;
static int cannot_listen;

static const char *fault_text;

/* For tests: where this process shall die, as if its plug were pulled. */
static struct {
    strait_worker_point point;
    int stage;
    int64_t step; // or the first such point after it
} fault;

static const strait_flag flags[] = {
    {"name", 'n', STRAIT_FLAG_TEXT, &node_name, "NAME",
     "what people see (default: the host's name)"},
    {"device", 0, STRAIT_FLAG_TEXT, &device, "KIND", "what computes: cpu (default) or cuda"},
    {"ordinal", 0, STRAIT_FLAG_INT, &ordinal, "N", "which device of its kind, from 0"},
    {"threads", 't', STRAIT_FLAG_INT, &n_threads, "N", "on the cpu; 0: one for each core"},
    {"listen", 0, STRAIT_FLAG_TEXT, &listen_at, "ADDR:PORT",
     "where neighbours connect (default 0.0.0.0:0, any free port; [::]:0 for IPv6)"},
    {"announce", 0, STRAIT_FLAG_TEXT, &announced, "HOST[:PORT]",
     "what neighbours dial, where that differs"},
    {"no-listen", 0, STRAIT_FLAG_SWITCH, &cannot_listen, NULL,
     "nobody can connect to this machine: it dials its neighbours"},
    {"keys", 0, STRAIT_FLAG_TEXT, &key_folder, "DIR",
     "where this machine's key lies (default ~/.config/strait)"},
    {"give-up", 0, STRAIT_FLAG_REAL, &give_up, "SECONDS",
     "without the coordinator (default 600; 0: never)"},
    {"fault", 0, STRAIT_FLAG_TEXT, &fault_text, "POINT:STAGE:STEP",
     "for tests: kill this process with signal 9 there (CONTRIBUTING.md)"},
    {0},
};

static void on_noted(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "%s\n", text);
}

static int must_stop(void *user) {
    (void)user;
    return strait_signals_count();
}

static void on_passed(void *user, strait_worker_point point, int stage, int64_t step) {
    (void)user;
    if (point != fault.point || stage != fault.stage || step < fault.step) return;
    fprintf(stderr, "dies as asked: %s, stage %d, step %lld\n", strait_worker_point_name(point),
            stage, (long long)step);
    (void)raise(SIGKILL);
}

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

static strait_err run_join(int n_words, const char **words) {
    static strait_worker_spec spec; // large
    struct strait_identity *identity = NULL;
    int lock = 0;
    STRAIT_TRY(strait_args_one_word(
        &strait_cmd_join, "invite, the line that \"strait host\" printed", NULL, n_words, words));
    STRAIT_TRY(strait_args_check_device(device));
    const strait_err reach = announced != NULL ? strait_reachability_check(announced, 0)
                                               : STRAIT_OK;
    if (reach != STRAIT_OK) strait_err_prefix("--announce");
    STRAIT_TRY(reach);
    STRAIT_TRY(strait_invite_parse(words[0], &spec.invite));
    if (!(give_up >= 0.0 && give_up <= GIVE_UP_MAX))
        return STRAIT_FAIL(STRAIT_ECONFIG, "--give-up %g: expected seconds; 0: never", give_up);
    if (fault_text != NULL) STRAIT_TRY(parse_fault());
    STRAIT_TRY(strait_keys_open_worker(key_folder, &lock, &identity));
    spec.identity = identity;
    if (node_name != NULL)
        (void)snprintf(spec.name, sizeof spec.name, "%s", node_name);
    else if (gethostname(spec.name, sizeof spec.name - 1) != 0)
        (void)snprintf(spec.name, sizeof spec.name, "worker");
    (void)snprintf(spec.listen, sizeof spec.listen, "%s", listen_at);
    (void)snprintf(spec.announce, sizeof spec.announce, "%s", announced != NULL ? announced : "");
    (void)snprintf(spec.device, sizeof spec.device, "%s", device);
    spec.cannot_listen = cannot_listen;
    spec.n_threads = (int)n_threads;
    spec.ordinal = (int)ordinal;
    spec.give_up_ms = (int64_t)(give_up * 1e3);
    spec.events = (strait_worker_events){.noted = on_noted, .must_stop = must_stop};
    if (fault_text != NULL) spec.events.passes = on_passed;
    strait_signals_listen(2); // hand over; leave at once
    const strait_err err = strait_worker_run(&spec);
    strait_identity_close(&identity);
    strait_file_unlock(&lock);
    return err;
}

const strait_command strait_cmd_join = {
    .name = "join",
    .usage = "INVITE [flags]",
    .summary = "lend this machine to a run",
    .about = "Joins the run of an invite and computes what its coordinator asks for: a stage, or\n"
             "nothing as long as it is a spare. Needs no data and no run file. Ctrl-C hands the\n"
             "stage over first; again, and it leaves at once.",
    .flags = flags,
    .run = run_join,
};
