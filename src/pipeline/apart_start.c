/* apart_start.c - starting the stages of a crew, and introducing them to each other. */
#include "base/file.h"
#include "pipeline/apart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEET_MS = 30000,
    END_MS = 500 // to learn how a stage ended
};

/* The resolved run, in a file the stages can read; cores are shared out among them. */
static strait_err write_run(struct strait_crew *crew) {
    struct apart *a = crew->state;
    char path[128];
    strait_run *run = &crew->run;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = cores / crew->recipe.n_stages;
    if (run->device.threads == 0) run->device.threads = share < 1 ? 1 : share;
    (void)snprintf(a->folder, sizeof a->folder, "/tmp/strait-run-XXXXXX");
    if (mkdtemp(a->folder) == NULL) {
        a->folder[0] = '\0';
        return STRAIT_FAIL(STRAIT_EIO, "/tmp: cannot make a folder there");
    }
    (void)snprintf(path, sizeof path, "%s/run.yaml", a->folder);
    return strait_run_save(run, path);
}

void strait_apart_remove_run(struct apart *a) {
    if (a->folder[0] != '\0') (void)strait_file_remove_folder(a->folder);
    a->folder[0] = '\0';
}

static strait_err open_mesh(struct strait_crew *crew, strait_serve_start *start) {
    struct apart *a = crew->state;
    STRAIT_TRY(strait_identity_draw(start->run_id, sizeof start->run_id));
    STRAIT_TRY(strait_identity_make(&a->identity));
    const int is_inproc = crew->run.link.transport == STRAIT_RUN_INPROC;
    if (is_inproc) STRAIT_TRY(strait_inproc_hub_open(&a->hub));
    strait_mesh_config config = {.scheme = is_inproc ? "inproc" : "tls",
                                 .transport = {.identity = a->identity,
                                               .name = "conductor",
                                               .n_streams = 1,
                                               .dead_ms = (int)(crew->run.link.deadline * 1e3),
                                               .hub = a->hub}};
    memcpy(config.transport.run, start->run_id, sizeof start->run_id);
    STRAIT_TRY(strait_mesh_open(&config, &a->mesh));
    start->conductor = *strait_identity_fingerprint(a->identity);
    (void)snprintf(start->scheme, sizeof start->scheme, "%s", config.scheme);
    (void)snprintf(start->run_path, sizeof start->run_path, "%s/run.yaml", a->folder);
    char listen[STRAIT_RUN_TEXT + 8];
    (void)snprintf(listen, sizeof listen, "%s:0", crew->run.stages.conductor);
    return strait_mesh_listen(a->mesh, is_inproc ? "conductor" : listen, start->address);
}

/* Tells each stage of its neighbours: first who may dial it, then whom to dial. */
static strait_err introduce(struct strait_crew *crew, const strait_fingerprint *keys,
                            char (*addresses)[STRAIT_ADDRESS_MAX]) {
    static _Thread_local strait_order order;
    for (int i = 1; i < crew->recipe.n_stages; i++) {
        order = (strait_order){.kind = STRAIT_ORDER_MEET, .key = keys[i - 1]};
        STRAIT_TRY(strait_apart_order_one(crew, i, &order));
    }
    for (int i = 0; i + 1 < crew->recipe.n_stages; i++) {
        order = (strait_order){.kind = STRAIT_ORDER_MEET, .key = keys[i + 1]};
        (void)snprintf(order.text, sizeof order.text, "%s", addresses[i + 1]);
        STRAIT_TRY(strait_apart_order_one(crew, i, &order));
    }
    return STRAIT_OK;
}

/* Says which stage did not come up, how it ended where that is known, and by which command. */
static strait_err blame(struct strait_crew *crew, int stage, strait_err err) {
    struct apart *a = crew->state;
    const char *launch = crew->run.stages.launch;
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

static strait_err meet_stage(struct strait_crew *crew, const strait_serve_start *start,
                             strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]) {
    struct apart *a = crew->state;
    const int i = start->stage;
    STRAIT_TRY(strait_launch_meet(&a->stages[i], start, key, address));
    strait_mesh_peer peer = {.key = *key};
    (void)snprintf(peer.name, sizeof peer.name, "stage %d", i);
    STRAIT_TRY(strait_mesh_add(a->mesh, &peer, &a->peers[i]));
    return strait_launch_go(&a->stages[i]);
}

strait_err strait_apart_start(struct strait_crew *crew) {
    struct apart *a = crew->state;
    strait_serve_start start = {0};
    strait_fingerprint keys[STRAIT_RUN_STAGES];
    static _Thread_local char addresses[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX];
    STRAIT_TRY(write_run(crew));
    STRAIT_TRY(open_mesh(crew, &start));
    for (int i = 0; i < crew->recipe.n_stages; i++)
        STRAIT_TRY(strait_launch(i, crew->run.stages.launch, a->hub, &a->stages[i]));
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        start.stage = i;
        STRAIT_TRY(blame(crew, i, meet_stage(crew, &start, &keys[i], addresses[i])));
    }
    for (int i = 0; i < crew->recipe.n_stages; i++)
        STRAIT_TRY(blame(crew, i, strait_mesh_wait_up(a->mesh, a->peers[i], MEET_MS)));
    return introduce(crew, keys, addresses);
}
