/* cmd_join.c - strait join INVITE */
#include "base/file.h"
#include "commands.h"
#include "signals.h"
#include "swarm/keys.h"
#include "swarm/lend.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *key_folder, *node_name, *listen_at = "0.0.0.0:0", *announced, *device = "cpu";
static int64_t n_threads, ordinal;
static double give_up = 600.0;
static int cannot_listen;

static const strait_flag flags[] = {
    {"name", 'n', STRAIT_FLAG_TEXT, &node_name, "NAME",
     "what people see (default: the host's name)"},
    {"device", 0, STRAIT_FLAG_TEXT, &device, "KIND", "what computes: cpu, cuda"},
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

static strait_err run_join(int n_words, const char **words) {
    static strait_lend_spec spec; // large
    struct strait_identity *identity = NULL;
    int lock = 0;
    if (n_words != 1)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "join wants the line that \"strait host\" printed: strait join INVITE");
    STRAIT_TRY(strait_invite_parse(words[0], &spec.invite));
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
    spec.events = (strait_lend_events){NULL, on_noted, must_stop};
    strait_signals_listen();
    const strait_err err = strait_lend(&spec);
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
