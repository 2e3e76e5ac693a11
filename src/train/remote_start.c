/* apart_start.c - starting the stages of a crew, and introducing them to each other. */
#include "base/file.h"
#include "train/remote_executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEET_MS = 30000,
    END_MS = 500 // to learn how a stage ended
};

/* The resolved run, in a file the stages can read; cores are shared out among them. */
static strait_err write_run(struct strait_executor *executor) {
    struct remote *a = executor->state;
    char path[128];
    strait_run *run = &executor->run;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = cores / executor->plan.n_stages;
    if (run->device.threads == 0) run->device.threads = share < 1 ? 1 : share;
    (void)snprintf(a->folder, sizeof a->folder, "/tmp/strait-run-XXXXXX");
    if (mkdtemp(a->folder) == NULL) {
        a->folder[0] = '\0';
        return STRAIT_FAIL(STRAIT_EIO, "/tmp: cannot make a folder there");
    }
    (void)snprintf(path, sizeof path, "%s/run.yaml", a->folder);
    return strait_run_save(run, path);
}

void strait_remote_remove_run(struct remote *a) {
    if (a->folder[0] != '\0') (void)strait_file_remove_folder(a->folder);
    a->folder[0] = '\0';
}

static strait_err open_mesh(struct strait_executor *executor, strait_startup *start) {
    struct remote *a = executor->state;
    STRAIT_TRY(strait_identity_random(start->run_id, sizeof start->run_id));
    STRAIT_TRY(strait_identity_generate(&a->identity));
    const int is_inproc = executor->run.link.transport == STRAIT_RUN_INPROC;
    if (is_inproc) STRAIT_TRY(strait_inproc_network_open(&a->hub));
    strait_mesh_config config = {
        .scheme = is_inproc ? "inproc" : "tls",
        .transport = {.identity = a->identity,
                      .name = "conductor",
                      .n_streams = 1,
                      .peer_timeout_ms = (int)(executor->run.link.deadline * 1e3),
                      .network = a->hub}};
    memcpy(config.transport.run, start->run_id, sizeof start->run_id);
    STRAIT_TRY(strait_mesh_open(&config, &a->mesh));
    start->coordinator = *strait_identity_fingerprint(a->identity);
    (void)snprintf(start->scheme, sizeof start->scheme, "%s", config.scheme);
    (void)snprintf(start->run_path, sizeof start->run_path, "%s/run.yaml", a->folder);
    char listen[STRAIT_RUN_TEXT + 8];
    (void)snprintf(listen, sizeof listen, "%s:0", executor->run.stages.coordinator);
    return strait_mesh_listen(a->mesh, is_inproc ? "conductor" : listen, start->address);
}

/* Tells each stage of its neighbours: first who may dial it, then whom to dial. */
static strait_err introduce(struct strait_executor *executor, const strait_fingerprint *keys,
                            char (*addresses)[STRAIT_ADDRESS_MAX]) {
    static _Thread_local strait_stage_command command;
    for (int i = 1; i < executor->plan.n_stages; i++) {
        command = (strait_stage_command){.kind = STRAIT_COMMAND_MEET, .key = keys[i - 1]};
        STRAIT_TRY(strait_remote_command_one(executor, i, &command));
    }
    for (int i = 0; i + 1 < executor->plan.n_stages; i++) {
        command = (strait_stage_command){.kind = STRAIT_COMMAND_MEET, .key = keys[i + 1]};
        (void)snprintf(command.text, sizeof command.text, "%s", addresses[i + 1]);
        STRAIT_TRY(strait_remote_command_one(executor, i, &command));
    }
    return STRAIT_OK;
}

/* Says which stage did not come up, how it ended where that is known, and by which command. */
static strait_err blame(struct strait_executor *executor, int stage, strait_err err) {
    struct remote *a = executor->state;
    const char *launch = executor->run.stages.launch;
    char symptom[300];
    if (err == STRAIT_OK) return STRAIT_OK;
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    const char *ended = strait_launch_ended(&a->stages[stage], END_MS);
    strait_err_note(__FILE__, __LINE__, "stage %d could not be started: %s%s%s%s%.200s", stage,
                    ended != NULL ? "it " : "", ended != NULL ? ended : symptom,
                    launch[0] != '\0' ? "; what starts it is stages.launch: " : "", launch,
                    ended != NULL && launch[0] == '\0' ? "; its own words are above" : "");
    return err;
}

static strait_err meet_stage(struct strait_executor *executor, const strait_startup *start,
                             strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]) {
    struct remote *a = executor->state;
    const int i = start->stage;
    STRAIT_TRY(strait_launch_meet(&a->stages[i], start, key, address));
    strait_mesh_peer peer = {.key = *key};
    (void)snprintf(peer.name, sizeof peer.name, "stage %d", i);
    STRAIT_TRY(strait_mesh_add(a->mesh, &peer, &a->peers[i]));
    return strait_launch_go(&a->stages[i]);
}

strait_err strait_remote_start(struct strait_executor *executor) {
    struct remote *a = executor->state;
    strait_startup start = {0};
    strait_fingerprint keys[STRAIT_RUN_STAGES];
    static _Thread_local char addresses[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX];
    STRAIT_TRY(write_run(executor));
    STRAIT_TRY(open_mesh(executor, &start));
    for (int i = 0; i < executor->plan.n_stages; i++)
        STRAIT_TRY(strait_launch(i, executor->run.stages.launch, a->hub, &a->stages[i]));
    for (int i = 0; i < executor->plan.n_stages; i++) {
        start.stage = i;
        STRAIT_TRY(blame(executor, i, meet_stage(executor, &start, &keys[i], addresses[i])));
    }
    for (int i = 0; i < executor->plan.n_stages; i++)
        STRAIT_TRY(blame(executor, i, strait_mesh_wait_up(a->mesh, a->peers[i], MEET_MS)));
    return introduce(executor, keys, addresses);
}
