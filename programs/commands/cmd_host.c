/* cmd_host.c - strait host RUN.yaml */
#include "approval.h"
#include "base/file.h"
#include "codec_note.h"
#include "commands.h"
#include "net/core/reachability.h"
#include "net/relay/relay_secret.h"
#include "own_addresses.h"
#include "page.h"
#include "progress_log.h"
#include "run_source.h"
#include "signals.h"
#include "swarm/host/host.h"
#include "swarm/host/status.h"
#include "swarm/keys.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *out_folder, *key_folder, *listen_at = "0.0.0.0:7070", *announced, *store, *relay,
                                            *relay_secret_path;
static const char *store_ca, *store_cert, *store_key;
static strait_relay_secret relay_secret; // of relay_secret_path
static strait_flag_list sets;
enum {
    LOG_BYTES = 16 << 20, // of events.log, before it becomes events.log.1
    TIME_MAX = 100000000  // seconds, or hours
};

static int resumes, is_forced, must_approve, is_for_strangers;
static int64_t n_uses, n_spares;
static double valid_hours, max_lost_work_s = 10.0, lease_s = 10.0, stall_s = 60.0,
                           rebalance_s = 60.0, probe_s = 900.0;
static double store_wait_s = 600.0, audit_share = -1.0, relay_mbit;
static const double public_share = 0.01; // of stage-steps that are audited

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out_folder, "DIR", "the run's folder (default runs/NAME)"},
    {"set", 's', STRAIT_FLAG_LIST, &sets, "KEY=VALUE", "override an option of the run file"},
    {"listen", 0, STRAIT_FLAG_TEXT, &listen_at, "ADDR:PORT",
     "where workers connect (default 0.0.0.0:7070; [::]:7070 adds IPv6; port 0: any free one)"},
    {"announce", 0, STRAIT_FLAG_TEXT, &announced, "HOST[:PORT],...",
     "addresses for the invite, tried in this order, if they differ from --listen"},
    {"uses", 0, STRAIT_FLAG_INT, &n_uses, "N",
     "how many workers the invite admits (default 0: any number)"},
    {"expires", 0, STRAIT_FLAG_REAL, &valid_hours, "HOURS",
     "how long the invite is valid (default 0: always)"},
    {"approve", 0, STRAIT_FLAG_SWITCH, &must_approve, NULL,
     "list the keys of workers that ask to join; admit those typed on standard input"},
    {"public", 0, STRAIT_FLAG_SWITCH, &is_for_strangers, NULL,
     "workers may be strangers: audits their work (--audit-share 0.01)"},
    {"audit-share", 0, STRAIT_FLAG_REAL, &audit_share, "SHARE",
     "share of all stage-steps that spares compute again, 0 to 1 (default 0; with --public 0.01)"},
    {"resume", 0, STRAIT_FLAG_SWITCH, &resumes, NULL,
     "continue the run in DIR from its last checkpoint, with its own run file or another"},
    {"force", 0, STRAIT_FLAG_SWITCH, &is_forced, NULL,
     "host even if memory or disk space seem too small; never replaces a run"},
    {"max-lost-work", 0, STRAIT_FLAG_REAL, &max_lost_work_s, "SECONDS",
     "work that a failure may cost at most (default 10)"},
    {"lease", 0, STRAIT_FLAG_REAL, &lease_s, "SECONDS",
     "silence after which a worker counts as lost (default 10)"},
    {"stall", 0, STRAIT_FLAG_REAL, &stall_s, "SECONDS",
     "time without progress after which a worker loses its stage (default 60)"},
    {"rebalance", 0, STRAIT_FLAG_REAL, &rebalance_s, "SECONDS",
     "time between moves of stages to faster workers that joined later (default 60; 0: never)"},
    {"probe-every", 0, STRAIT_FLAG_REAL, &probe_s, "SECONDS",
     "between measurements of links that the codec was chosen by (default 900; 0: only the first)"},
    {"spares", 0, STRAIT_FLAG_INT, &n_spares, "N",
     "how many workers wait as spares; others become replicas of stages (default 0; with "
     "audits at least 2)"},
    {"relay", 0, STRAIT_FLAG_TEXT, &relay, "HOST:PORT",
     "a \"strait relay\" for workers that cannot reach each other"},
    {"relay-secret", 0, STRAIT_FLAG_TEXT, &relay_secret_path, "FILE",
     "the secret of that relay, if it has one (strait relay --secret)"},
    {"relay-rate", 0, STRAIT_FLAG_REAL, &relay_mbit, "MBIT",
     "most that averages (train.outer) may send through it in each direction, as planned, in Mb/s "
     "(default: no limit)"},
    {"store", 0, STRAIT_FLAG_TEXT, &store, "STORE",
     "the metastore: journal:PATH (default, in DIR) or etcd:URL,URL,..."},
    {"store-wait", 0, STRAIT_FLAG_REAL, &store_wait_s, "SECONDS",
     "how long a run waits for a metastore that is out of reach (default 600)"},
    {"store-ca", 0, STRAIT_FLAG_TEXT, &store_ca, "FILE", "CA certificate of etcd (PEM)"},
    {"store-cert", 0, STRAIT_FLAG_TEXT, &store_cert, "FILE", "client certificate for etcd (PEM)"},
    {"store-key", 0, STRAIT_FLAG_TEXT, &store_key, "FILE", "key of the client certificate (PEM)"},
    {"keys", 0, STRAIT_FLAG_TEXT, &key_folder, "DIR",
     "folder of this machine's key (default ~/.config/strait)"},
    STRAIT_PROGRESS_FLAGS,
    STRAIT_PAGE_FLAGS,
    {0},
};

/* Where the events of a hosted run go: the terminal and events.log. */
struct host_log {
    strait_progress_log progress;
    FILE *file; // events.log; NULL: no event yet
    struct strait_page *page;
};

/* Opened at the first event, so that a run that is refused leaves no file. A log that cannot be
 * written does not stop the run. */
static void open_log(struct host_log *log) {
    char path[STRAIT_PATH_MAX];
    if (log->file == NULL &&
        strait_file_path(path, "%s/events.log", log->progress.folder) == STRAIT_OK)
        log->file = fopen(path, "ae");
}

/* Workers that come and go cause lines without end: a full log replaces the one before it. */
static void rotate_log(struct host_log *log) {
    char path[STRAIT_PATH_MAX], old[STRAIT_PATH_MAX];
    if (log->file == NULL || ftell(log->file) < LOG_BYTES) return;
    if (strait_file_path(path, "%s/events.log", log->progress.folder) != STRAIT_OK ||
        strait_file_path(old, "%s.1", path) != STRAIT_OK || rename(path, old) != 0)
        return;
    (void)fclose(log->file);
    log->file = NULL;
    open_log(log);
}

/* The invite alone goes to standard output, so that scripts can read it. */
static void on_invited(void *user, const char *line) {
    struct host_log *log = user;
    open_log(log);
    strait_progress_log_text(&log->progress, "invited", "invite", line);
    if (log->progress.is_json) return;
    printf("%s\n", line);
    (void)fflush(stdout);
    if (!log->progress.progress.is_quiet) fprintf(stderr, "on each worker: strait join %s\n", line);
}

/* Writes the status for "strait watch". A full disk does not stop the run. */
static void on_changed(void *user, const strait_host_status *now) {
    static strait_status status; // large
    const struct host_log *log = user;
    strait_status_collect(now, &status);
    (void)strait_status_save(&status, log->progress.folder);
    if (log->page != NULL) strait_page_swarm(log->page, strait_status_pack(&status));
}

/* UTC with milliseconds: logs of workers in other time zones can be merged. */
static void log_event(const struct host_log *log, const char *text) {
    char date[32];
    if (log->file == NULL) return;
    strait_progress_date(0.0, date);
    fprintf(log->file, "%s %s\n", date, text);
    (void)fflush(log->file);
}

static void on_noted(void *user, const char *text) {
    struct host_log *log = user;
    strait_progress_log_event(&log->progress, text);
    strait_page_noted(log->page, text);
    open_log(log);
    rotate_log(log);
    log_event(log, text);
}

static int approves(void *user, const strait_fingerprint *key, const char *name) {
    return strait_approval_is_given(key, name, on_noted, user);
}

/* Creates the folder and checks that it is writable, before workers are invited. */
static strait_err claim_folder(const char *folder, int *is_new) {
    *is_new = !strait_file_exists(folder);
    STRAIT_TRY(strait_file_make_folders(folder));
    if (access(folder, W_OK) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "%s: not writable; choose another folder with --out", folder);
}

/* If no address is announced and the host listens on all interfaces, its own are found. */
static strait_err host(const strait_run *run, const char *folder,
                       const struct strait_identity *identity) {
    char address[STRAIT_ADDRESS_MAX] = "";
    struct host_log log = {0};
    int is_new = 0;
    STRAIT_TRY(claim_folder(folder, &is_new));
    STRAIT_TRY(strait_progress_log_init(&log.progress, run, folder));
    STRAIT_TRY(strait_page_open(run, &log.progress, &log.page));
    const int has_v6 = strncmp(listen_at, "[::]:", 5) == 0;
    if (announced == NULL && (has_v6 || strncmp(listen_at, "0.0.0.0:", 8) == 0))
        strait_own_addresses(has_v6, address);
    if (address[0] != '\0') announced = address;
    const strait_host_spec spec = {
        .run = run,
        .folder = folder,
        .resumes = resumes,
        .is_forced = is_forced,
        .identity = identity,
        .listen = listen_at,
        .announce = announced,
        .relay = relay,
        .relay_bps = relay_mbit * 1e6,
        .relay_secret = relay_secret_path != NULL ? &relay_secret : NULL,
        .store = store,
        .store_ca = store_ca,
        .store_cert = store_cert,
        .store_key = store_key,
        .uses = (uint32_t)n_uses,
        .valid_s = valid_hours > 0.0 ? 1 + (uint64_t)(valid_hours * 3600.0) : 0,
        .max_lost_work_s = max_lost_work_s,
        .lease_s = lease_s,
        .stall_s = stall_s,
        .probe_s = probe_s,
        .rebalance_s = rebalance_s,
        .n_spares = n_spares,
        .audit_share = audit_share >= 0.0 ? audit_share
                       : is_for_strangers ? public_share
                                          : 0.0,
        .store_wait_s = store_wait_s,
        .session = strait_page_events(log.page, &log.progress),
        .events = {.user = &log,
                   .invited = on_invited,
                   .noted = on_noted,
                   .changed = on_changed,
                   .approves = must_approve ? approves : NULL}};
    strait_signals_listen(1);
    strait_err err = strait_host(&spec);
    if (!is_forced && err == STRAIT_ENOMEM) err = strait_args_hint(err, "--force tries anyway");
    strait_page_close(&log.page, err);
    /* Only the metastore times out: workers that do are replaced. */
    if (err == STRAIT_ETIMEDOUT) strait_err_prefix("--store-wait %g", store_wait_s);
    if (err == STRAIT_OK) strait_progress_log_done(&log.progress);
    log_event(&log, err == STRAIT_OK ? "done" : strait_err_detail());
    if (log.file != NULL) (void)fclose(log.file);
    strait_progress_log_close(&log.progress);
    if (err == STRAIT_EINTERRUPTED && log.progress.began > 0.0)
        fprintf(stderr, "to resume: the same command again; the workers reconnect\n");
    if (is_new) (void)rmdir(folder); // only if it is still empty
    return err;
}

/* Checked before the run is opened: a wrong invite would be found only by the workers. */
static strait_err check_addresses(void) {
    strait_err err = relay != NULL ? strait_reachability_check(relay, 1) : STRAIT_OK;
    if (err != STRAIT_OK) strait_err_prefix("--relay");
    for (const char *next = announced; err == STRAIT_OK && next != NULL;) {
        char one[STRAIT_ADDRESS_MAX];
        const size_t n = strcspn(next, ",");
        (void)snprintf(one, sizeof one, "%.*s", (int)n, next);
        err = strait_reachability_check(one, 0);
        if (err != STRAIT_OK) strait_err_prefix("--announce");
        next = next[n] == ',' ? next + n + 1 : NULL;
    }
    return err;
}

static strait_err load_relay_secret(void) {
    if (relay_secret_path == NULL) return STRAIT_OK;
    const strait_err err = strait_relay_secret_load(relay_secret_path, &relay_secret);
    if (err != STRAIT_OK) strait_err_prefix("--relay-secret");
    return err;
}

/* Checked before the run file is read: a typing error should not cost the time of opening data. */
static strait_err check_flags(void) {
    const struct {
        const char *name;
        double value;
        int may_be_zero;
    } times[] = {{"expires", valid_hours, 1},   {"max-lost-work", max_lost_work_s, 0},
                 {"lease", lease_s, 0},         {"stall", stall_s, 0},
                 {"rebalance", rebalance_s, 1}, {"store-wait", store_wait_s, 1},
                 {"probe-every", probe_s, 1}};
    if (n_uses < 0 || n_uses > UINT32_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--uses %lld: expected a number of workers; 0: any",
                           (long long)n_uses);
    if (n_spares < 0 || n_spares > UINT32_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--spares %lld: expected a number of workers",
                           (long long)n_spares);
    if (!(relay_mbit >= 0.0 && relay_mbit <= 1e6) || (relay_mbit > 0.0 && relay == NULL))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "--relay-rate %g: expected Mb/s, with --relay; 0: no limit", relay_mbit);
    if (relay_secret_path != NULL && relay == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--relay-secret is for --relay, which is missing");
    if (audit_share != -1.0 && !(audit_share >= 0.0 && audit_share <= 1.0))
        return STRAIT_FAIL(STRAIT_ECONFIG, "--audit-share %g: expected 0 to 1", audit_share);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!(times[i].value >= 0.0 && times[i].value < TIME_MAX) ||
            (times[i].value == 0.0 && !times[i].may_be_zero))
            return STRAIT_FAIL(STRAIT_ECONFIG, "--%s %g: expected more than 0%s", times[i].name,
                               times[i].value, times[i].may_be_zero ? ", or 0" : "");
    return STRAIT_OK;
}

/* The TLS files of etcd must be readable, and make sense only with etcd. */
static strait_err check_store_files(void) {
    const struct {
        const char *name, *path;
    } files[] = {{"store-ca", store_ca}, {"store-cert", store_cert}, {"store-key", store_key}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (files[i].path == NULL) continue;
        if (store == NULL || strncmp(store, "etcd:", 5) != 0)
            return STRAIT_FAIL(STRAIT_ECONFIG, "--%s is for --store etcd:https://HOST:PORT,...",
                               files[i].name);
        if (access(files[i].path, R_OK) != 0 || strait_file_is_folder(files[i].path))
            return STRAIT_FAIL(STRAIT_EIO, "--%s %s: not a readable file", files[i].name,
                               files[i].path);
    }
    return STRAIT_OK;
}

static const strait_flag_rename renames[] = {
    {"lose", "max-lost-work"}, {"recut", "rebalance"}, {0}};

static strait_err run_host(int n_args, const char **args) {
    static strait_run run; // large, and there is one
    static strait_run_source source;
    struct strait_identity *identity = NULL;
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_host, "run file",
                                      "--set KEY=VALUE overrides keys of the file", n_args, args));
    STRAIT_TRY(check_flags());
    STRAIT_TRY(check_addresses());
    STRAIT_TRY(load_relay_secret());
    STRAIT_TRY(check_store_files());
    STRAIT_TRY(strait_run_source_find(args[0], resumes, out_folder, &source));
    STRAIT_TRY(
        strait_args_name_set(strait_run_init_file(source.file, sets.items, sets.n, &run), &sets));
    STRAIT_TRY(strait_run_source_name(&source, run.name));
    STRAIT_TRY(strait_codec_choose(&run, source.folder, 1));
    strait_codec_note(&run);
    strait_err err = strait_keys_open_host(key_folder, &identity);
    if (err != STRAIT_OK) strait_err_prefix("--keys DIR");
    if (err == STRAIT_OK) err = host(&run, source.folder, identity);
    strait_identity_close(&identity);
    return err;
}

const strait_command strait_cmd_host = {
    .name = "host",
    .usage = "RUN.yaml | --resume DIR [flags]",
    .summary = "coordinate a run on workers that join it",
    .about =
        "Prints an invite, one line to paste into \"strait join\" on the workers, and trains as\n"
        "soon as there is a worker for each stage. The host has the data and receives the\n"
        "checkpoints; it computes nothing unless it joins too. After a crash, start it again on\n"
        "the same folder: it resumes, and the workers reconnect.",
    .flags = flags,
    .renames = renames,
    .run = run_host,
    .examples =
        (const strait_example[]){
            {"strait host run.yaml --set stages.count=4 --out runs/swarm",
             "Prints the invite and waits for four workers."},
            {"strait host run.yaml --approve --page 127.0.0.1:7777",
             "Asks before a worker is admitted and shows the run on a page."},
            {"strait host --resume runs/swarm", "Continues after a crash; the workers reconnect."},
            {0}},
};
