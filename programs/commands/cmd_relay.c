/* cmd_relay.c - strait relay: forwards bytes between workers that cannot reach each other. */
#include "commands.h"
#include "net/core/identity.h"
#include "net/relay/relay.h"
#include "net/relay/relay_secret.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *listen_at = "0.0.0.0:7071", *secret_path;
static int64_t n_connections, n_per_host, n_per_second, idle_s, rate_mbit;

static const strait_flag flags[] = {
    {"listen", 'l', STRAIT_FLAG_TEXT, &listen_at, "ADDRESS",
     "where to listen (default 0.0.0.0:7071; [::]:7071 for IPv6 too)"},
    {"connections", 0, STRAIT_FLAG_INT, &n_connections, "N",
     "most connections at once (default 4096)"},
    {"per-host", 0, STRAIT_FLAG_INT, &n_per_host, "N",
     "most connections at once from one address (default 64)"},
    {"per-second", 0, STRAIT_FLAG_INT, &n_per_second, "N",
     "most new connections per second from one address (default 32)"},
    {"idle", 0, STRAIT_FLAG_INT, &idle_s, "S",
     "seconds without traffic after which a pair is closed (default 60)"},
    {"rate", 0, STRAIT_FLAG_INT, &rate_mbit, "MBIT",
     "most that a pair may send in each direction, in Mb/s (default: no limit)"},
    {"secret", 0, STRAIT_FLAG_TEXT, &secret_path, "FILE",
     "pair only workers whose host knows the secret in FILE (strait host --relay-secret), which is "
     "created if it is missing (default: anyone may use the relay)"},
    {0},
};

static struct strait_relay *relay; // static for the signal handler
static strait_relay_secret secret; // of secret_path

static void interrupted(int number) {
    (void)number;
    strait_relay_stop(relay);
}

/* Not the handlers of util/signals.h: the event loop of the relay has to be woken. */
static void install_signal_handlers(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    action.sa_flags = (int)SA_RESETHAND; // a second signal ends the process
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* The relay calls this once per reason, so that strangers cannot flood the log. */
static void on_peer_refused(void *unused) {
    (void)unused;
    fprintf(stderr, "strait relay: refused: %s\n", strait_err_detail());
}

/* 0 leaves a limit at its default. */
static strait_err check_flags(strait_relay_config *out) {
    const int64_t limits[] = {n_connections, n_per_host, n_per_second, idle_s, rate_mbit};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i] < 0 || limits[i] > 1000000)
            return STRAIT_FAIL(STRAIT_ECONFIG, "relay: limit %lld: expected 0 (default) to 1000000",
                               (long long)limits[i]);
    *out = (strait_relay_config){.max_connections = (int)n_connections,
                                 .max_per_address = (int)n_per_host,
                                 .max_new_per_s = (int)n_per_second,
                                 .idle_timeout_ms = (int)idle_s * 1000,
                                 .bytes_per_s = rate_mbit * 125000,
                                 .secret = secret_path != NULL ? &secret : NULL,
                                 .peer_refused = on_peer_refused};
    return STRAIT_OK;
}

/* A new file is announced, because hosts need a copy of it. */
static strait_err open_secret(void) {
    if (secret_path == NULL) return STRAIT_OK;
    const strait_err err = strait_relay_secret_create(secret_path);
    if (err == STRAIT_OK)
        fprintf(stderr,
                "wrote a new secret to %s: copy it to those who may use this relay, for \"strait "
                "host --relay-secret FILE\"\n",
                secret_path);
    else if (err != STRAIT_EEXISTS)
        return err;
    return strait_relay_secret_load(secret_path, &secret);
}

/* An example, with a random token that nobody can guess. */
static strait_err print_address(const char *where) {
    strait_relay_token token;
    char address[512];
    STRAIT_TRY(strait_identity_random(token.bytes, sizeof token.bytes));
    STRAIT_TRY(strait_relay_address_print(where, &token, address, sizeof address));
    printf("use %s on both sides (any other random token works as well)\n", address);
    return STRAIT_OK;
}

/* With a secret no address is printed: the log would hold a token that is valid for ever. */
static strait_err announce(const char *where) {
    printf("relay at %s\n", where);
    if (secret_path != NULL)
        printf("pairs only workers whose host knows the secret in %s\n", secret_path);
    else
        STRAIT_TRY(print_address(where));
    if (fflush(stdout) != 0) return STRAIT_FAIL(STRAIT_EIO, "cannot write to standard output");
    return STRAIT_OK;
}

static strait_err serve(void) {
    char where[256];
    const strait_err err = strait_relay_listen(relay, listen_at, where, sizeof where);
    if (err == STRAIT_EINVAL) return STRAIT_ECONFIG; // the address is from the command line
    STRAIT_TRY(err);
    STRAIT_TRY(announce(where));
    install_signal_handlers();
    strait_relay_run(relay);
    strait_relay_stats stats;
    strait_relay_read_stats(relay, &stats);
    printf("%lld connections, %lld refused, %lld pairs, %lld bytes forwarded\n",
           (long long)stats.n_accepted, (long long)stats.n_refused, (long long)stats.n_paired,
           (long long)stats.bytes);
    return STRAIT_OK;
}

static strait_err run_relay(int n_args, const char **args) {
    strait_relay_config config;
    STRAIT_TRY(strait_args_expect_none("relay", n_args, args));
    STRAIT_TRY(check_flags(&config));
    STRAIT_TRY(open_secret());
    STRAIT_TRY(strait_relay_open(&config, &relay));
    const strait_err err = serve();
    strait_relay_close(&relay);
    return err;
}

const strait_command strait_cmd_relay = {
    .name = "relay",
    .usage = "[flags]",
    .summary = "forward bytes between workers that cannot reach each other",
    .about = "Two workers that accept no connections both connect to the relay, with the same\n"
             "address relay://HOST:PORT/TOKEN, and it forwards what one sends to the other. They\n"
             "use TLS through it and know each other's keys, so the relay can neither read nor\n"
             "change anything. Anyone who can connect may use it; with --secret, only workers\n"
             "whose host knows the secret. Runs until it is interrupted.",
    .flags = flags,
    .run = run_relay,
    .examples = (const strait_example[]){{"strait relay --listen 0.0.0.0:7071",
                                          "Forwards between workers that accept no connections; "
                                          "\"strait host --relay HOST:7071\" names it."},
                                         {"strait relay --secret relay.secret",
                                          "The same for runs of \"strait host --relay HOST:7071 "
                                          "--relay-secret relay.secret\" only."},
                                         {0}},
};
