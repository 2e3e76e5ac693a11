/* cmd_swarm.c - strait swarm ACTION FOLDER: asks a running host, or tells it what to do. */
#include "base/alloc.h"
#include "base/text/text.h"
#include "commands.h"
#include "net/core/local_socket.h"
#include "swarm/host/access/operator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ANSWER_MS = 30000, // a host that writes a checkpoint answers late
    HOURS_MAX = 100000,
    NAME_COLUMNS = 16,
    NAME_BYTES = 128
};

static int is_json, must_list;
static double kick_s = 60.0, valid_hours;
static int64_t n_uses, revoked;

static const strait_flag flags[] = {
    {"json", 0, STRAIT_FLAG_SWITCH, &is_json, NULL, "print the host's answer as JSON"},
    {"for", 0, STRAIT_FLAG_REAL, &kick_s, "SECONDS",
     "kick: how long the worker may not join again (default 60)"},
    {"uses", 0, STRAIT_FLAG_INT, &n_uses, "N",
     "invite: how many workers it admits (default 0: any number)"},
    {"expires", 0, STRAIT_FLAG_REAL, &valid_hours, "HOURS",
     "invite: how long it is valid (default 0: always)"},
    {"revoke", 0, STRAIT_FLAG_INT, &revoked, "ID",
     "invite: make invite ID invalid instead; workers that joined with it stay"},
    {"list", 0, STRAIT_FLAG_SWITCH, &must_list, NULL, "invite: list the invites instead"},
    {0},
};

/* Sends the request to the host of a folder; the answer says whether it was carried out. */
static strait_err ask(const char *folder, const strait_operator_request *request, json_t **out) {
    char *text = strait_operator_format(request);
    char *answer = NULL;
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "no memory for the request");
    strait_err err = strait_local_ask(folder, STRAIT_OPERATOR_SOCKET, text, ANSWER_MS, &answer);
    if (err == STRAIT_ECLOSED) strait_err_prefix("no \"strait host\" of this user runs there");
    free(text);
    if (err == STRAIT_OK) err = strait_json_parse(answer, strlen(answer), out);
    strait_alloc_free(answer);
    if (err != STRAIT_OK || json_is_true(json_object_get(*out, "ok"))) return err;
    const char *why = json_string_value(json_object_get(*out, "error"));
    err = STRAIT_FAIL(STRAIT_ECONFIG, "%s", why != NULL ? why : "the host gave no reason");
    json_decref(*out);
    *out = NULL;
    return err;
}

/* The host may be of another release: a field that it does not send reads as empty or 0. */
static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static long long int_of(const json_t *object, const char *key) {
    return (long long)json_integer_value(json_object_get(object, key));
}

static strait_err print_json(const json_t *answer) {
    if (json_dumpf(answer, stdout, JSON_INDENT(1)) != 0 || printf("\n") < 0 || fflush(stdout) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "standard output could not be written");
    return STRAIT_OK;
}

/* Names come from workers and may be long; the key beside them is what kick and ban take. */
static void print_worker(const json_t *worker) {
    const long long stage = int_of(worker, "stage");
    char role[64] = "spare", name[NAME_BYTES];
    if (stage >= 0) (void)snprintf(role, sizeof role, "stage %lld", stage);
    if (stage >= 0 && int_of(worker, "replicas") > 1)
        (void)snprintf(role, sizeof role, "stage %lld, replica %lld of %lld", stage,
                       int_of(worker, "replica"), int_of(worker, "replicas"));
    strait_text_cell(name, sizeof name, text_of(worker, "name"), NAME_COLUMNS);
    printf("  %s %s  %-9s  %s\n", name, text_of(worker, "key"),
           json_is_true(json_object_get(worker, "connected")) ? "connected" : "gone", role);
}

static void print_status(const json_t *answer) {
    const json_t *workers = json_object_get(answer, "workers");
    const json_t *banned = json_object_get(answer, "banned");
    printf("%s, generation %lld, %lld steps committed, %lld connections refused\n",
           text_of(answer, "phase"), int_of(answer, "generation"), int_of(answer, "committed"),
           int_of(answer, "refused"));
    for (size_t i = 0; i < json_array_size(workers); i++)
        print_worker(json_array_get(workers, i));
    for (size_t i = 0; i < json_array_size(banned); i++) {
        char name[NAME_BYTES];
        strait_text_cell(name, sizeof name, text_of(json_array_get(banned, i), "name"),
                         NAME_COLUMNS);
        printf("  %s %.16s  banned\n", name, text_of(json_array_get(banned, i), "key"));
    }
}

/* Invite 0 is the one that the host printed when it started; it has no number to revoke. */
static void print_invites(const json_t *answer) {
    const json_t *invites = json_object_get(answer, "invites");
    for (size_t i = 0; i < json_array_size(invites); i++) {
        const json_t *invite = json_array_get(invites, i);
        const time_t expires = (time_t)int_of(invite, "expires");
        char id[24] = "first", uses[32] = "any number", until[32] = "always";
        struct tm when;
        if (int_of(invite, "id") > 0) (void)snprintf(id, sizeof id, "%lld", int_of(invite, "id"));
        if (int_of(invite, "uses") > 0)
            (void)snprintf(uses, sizeof uses, "%lld of %lld", int_of(invite, "used"),
                           int_of(invite, "uses"));
        if (expires != 0 && gmtime_r(&expires, &when) != NULL)
            (void)strftime(until, sizeof until, "until %FT%TZ", &when);
        printf("  %-6s used %s, valid %s\n", id, uses, until);
    }
}

/* Runs one request and prints what its answer holds. */
static strait_err run(const char *folder, const strait_operator_request *request) {
    json_t *answer = NULL;
    strait_err err = ask(folder, request, &answer);
    if (err == STRAIT_OK && is_json)
        err = print_json(answer);
    else if (err == STRAIT_OK && request->kind == STRAIT_OPERATOR_STATUS)
        print_status(answer);
    else if (err == STRAIT_OK && request->kind == STRAIT_OPERATOR_INVITES)
        print_invites(answer);
    else if (err == STRAIT_OK && json_object_get(answer, "invite") != NULL)
        printf("%s\n", text_of(answer, "invite"));
    json_decref(answer);
    return err;
}

static strait_err run_for_folder(int n_args, const char **args, strait_operator_request request) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_swarm, "folder of a run", NULL, n_args, args));
    return run(args[0], &request);
}

/* For kick, ban and unban. The host itself finds the worker: only it knows all keys, also those of
 * workers that are gone. */
static strait_err run_for_worker(int n_args, const char **args, strait_operator_kind kind) {
    strait_operator_request request = {.kind = kind, .seconds = kick_s};
    if (n_args != 2)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "swarm: expected the folder of a run and the name of a worker, or the "
                           "first digits of its key");
    if (!(kick_s > 0.0 && kick_s <= HOURS_MAX * 3600.0))
        return STRAIT_FAIL(STRAIT_ECONFIG, "--for %g: expected seconds, more than 0", kick_s);
    if (strlen(args[1]) >= sizeof request.target)
        return STRAIT_FAIL(STRAIT_ECONFIG, "'%s': longer than a name or a key", args[1]);
    (void)snprintf(request.target, sizeof request.target, "%s", args[1]);
    return run(args[0], &request);
}

static strait_err status(int n_args, const char **args) {
    return run_for_folder(n_args, args, (strait_operator_request){.kind = STRAIT_OPERATOR_STATUS});
}

static strait_err kick(int n_args, const char **args) {
    return run_for_worker(n_args, args, STRAIT_OPERATOR_KICK);
}

static strait_err ban(int n_args, const char **args) {
    return run_for_worker(n_args, args, STRAIT_OPERATOR_BAN);
}

static strait_err unban(int n_args, const char **args) {
    return run_for_worker(n_args, args, STRAIT_OPERATOR_UNBAN);
}

static strait_err rotate(int n_args, const char **args) {
    return run_for_folder(n_args, args, (strait_operator_request){.kind = STRAIT_OPERATOR_ROTATE});
}

/* --list and --revoke are actions of their own; they share the word because users look for them
 * there. */
static strait_err invite(int n_args, const char **args) {
    strait_operator_request request = {
        .kind = STRAIT_OPERATOR_INVITE, .uses = (uint32_t)n_uses, .seconds = valid_hours * 3600.0};
    if (n_uses < 0 || n_uses > UINT32_MAX || revoked < 0 || revoked > UINT32_MAX ||
        !(valid_hours >= 0.0 && valid_hours <= HOURS_MAX))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "swarm invite: --uses, --expires and --revoke take numbers from 0 on");
    if (must_list) request = (strait_operator_request){.kind = STRAIT_OPERATOR_INVITES};
    if (revoked > 0)
        request = (strait_operator_request){.kind = STRAIT_OPERATOR_REVOKE,
                                            .id = (uint32_t)revoked};
    return run_for_folder(n_args, args, request);
}

static const strait_action actions[] = {
    {"status", "FOLDER [--json]", status},
    {"kick", "FOLDER WORKER [--for SECONDS]", kick},
    {"ban", "FOLDER WORKER", ban},
    {"unban", "FOLDER WORKER", unban},
    {"rotate", "FOLDER", rotate},
    {"invite", "FOLDER [--uses N] [--expires HOURS] [--list] [--revoke ID]", invite},
    {0},
};

const strait_command strait_cmd_swarm = {
    .name = "swarm",
    .summary = "ask or direct the running host of a run",
    .about =
        "Talks to the \"strait host\" that runs in FOLDER, on the same machine and as the same\n"
        "user. WORKER is a worker's name or at least eight digits of its key, as status prints\n"
        "them. kick disconnects a worker for a while, ban for the rest of the run, also after\n"
        "a restart. rotate replaces the invite that the host printed; workers that joined\n"
        "stay. invite prints a further one.",
    .flags = flags,
    .actions = actions,
    .examples =
        (const strait_example[]){
            {"strait swarm status runs/swarm", "Lists the workers, their keys and stages."},
            {"strait swarm invite runs/swarm --uses 1 --expires 24",
             "Prints an invite for one worker that is valid for a day."},
            {"strait swarm ban runs/swarm 3f09a1c2", "Bans a worker by its key."},
            {0}},
};
