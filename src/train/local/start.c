/* start.c - starts the stages of a local run and connects them. */
#include "base/alloc.h"
#include "base/file.h"
#include "train/cluster/cluster.h"
#include "train/local/local_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECT_MS = 30000,
    END_MS = 500 // to learn how a stage ended that did not start
};

const char *strait_local_name(const struct local *l, int member, char out[STRAIT_NAME_MAX]) {
    strait_run_plan_member_name(l->plan, member, out, STRAIT_NAME_MAX);
    return out;
}

/* Writes the run with every option resolved to a file for the stages, which share out the cores of
 * this machine. */
static strait_err write_run(struct local *l) {
    char path[128];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = cores / l->n_members;
    if (l->run.device.threads == 0 && !l->is_cluster) l->run.device.threads = share < 1 ? 1 : share;
    (void)snprintf(l->folder, sizeof l->folder, "/tmp/strait-run-XXXXXX");
    if (mkdtemp(l->folder) == NULL) {
        l->folder[0] = '\0';
        return STRAIT_FAIL(STRAIT_EIO, "/tmp: cannot create a folder for the run file");
    }
    (void)snprintf(path, sizeof path, "%s/run.yaml", l->folder);
    STRAIT_TRY(strait_run_save(&l->run, path));
    if (!l->is_cluster) return STRAIT_OK;
    (void)snprintf(path, sizeof path, "%s/rank.yaml", l->folder);
    return strait_cluster_write_run(&l->run, l->n_members, path);
}

void strait_local_remove_run(struct local *l) {
    if (l->folder[0] != '\0') (void)strait_file_remove_folder(l->folder);
    l->folder[0] = '\0';
}

static strait_err open_mesh(struct local *l, strait_startup *start) {
    STRAIT_TRY(strait_identity_random(start->run_id, sizeof start->run_id));
    STRAIT_TRY(strait_identity_generate(&l->identity));
    const int is_inproc = !l->is_cluster && l->run.link.transport == STRAIT_RUN_INPROC;
    if (is_inproc) STRAIT_TRY(strait_inproc_network_open(&l->network));
    strait_mesh_config config = {.scheme = l->is_cluster ? "mpi"
                                           : is_inproc   ? "inproc"
                                                         : "tls",
                                 .transport = {.identity = l->identity,
                                               .name = "coordinator",
                                               .n_streams = 1,
                                               .peer_timeout_ms = (int)(l->run.link.deadline * 1e3),
                                               .network = l->network}};
    memcpy(config.transport.run, start->run_id, sizeof start->run_id);
    STRAIT_TRY(strait_mesh_open(&config, &l->mesh));
    start->coordinator = *strait_identity_fingerprint(l->identity);
    (void)snprintf(start->scheme, sizeof start->scheme, "%s", config.scheme);
    char listen[STRAIT_RUN_TEXT + 8] = "";
    if (!l->is_cluster) (void)snprintf(listen, sizeof listen, "%s:0", l->run.stages.coordinator);
    return strait_mesh_listen(l->mesh, is_inproc ? "coordinator" : listen, start->address);
}

/* Says which stage did not start, how it ended where that is known, and by which command. A stage
 * of another release is refused by the mesh, which knows the reason. */
static strait_err blame_start(struct local *l, int member, strait_err err) {
    const char *launch = l->run.stages.launch;
    char symptom[300];
    char refusal[STRAIT_REASON_MAX] = "";
    char name[STRAIT_NAME_MAX];
    if (err == STRAIT_OK) return STRAIT_OK;
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    const char *ended = strait_launch_ended(&l->stages[member], END_MS);
    const int was_refused = strait_mesh_refusals(l->mesh, refusal) > 0;
    strait_err_note(__FILE__, __LINE__, "%s could not be started: %s%s%s%s%s%.200s%s",
                    strait_local_name(l, member, name), ended != NULL ? "it " : "",
                    ended != NULL ? ended : symptom, was_refused ? "; it was refused: " : "",
                    was_refused ? refusal : "",
                    launch[0] != '\0' ? "; started by stages.launch: " : "", launch,
                    ended != NULL && launch[0] == '\0' ? "; see its messages above" : "");
    return err;
}

static strait_err introduce(struct local *l, strait_startup *start, int member,
                            strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]) {
    strait_run_plan_locate(l->plan, member, &start->stage, &start->replica);
    STRAIT_TRY(strait_launch_introduce(&l->stages[member], start, key, address));
    strait_mesh_peer peer = {.key = *key};
    (void)strait_local_name(l, member, peer.name);
    STRAIT_TRY(strait_mesh_add(l->mesh, &peer, &l->peers[member]));
    return strait_launch_go(&l->stages[member]);
}

/* Who the members of a run are, and where they listen. */
struct directory {
    strait_fingerprint keys[STRAIT_RUN_MEMBERS];
    char addresses[STRAIT_RUN_MEMBERS][STRAIT_ADDRESS_MAX];
};

/* Tells a member about the replicas of a stage: whom to expect, or whom to dial. */
static strait_err tell(struct strait_stage_channel *channel, const struct directory *directory,
                       int member, int other, strait_stage_command_kind kind, int dials) {
    const struct local *l = channel->state;
    int stage;
    strait_stage_command command = {.kind = kind, .connect = {.key = directory->keys[other]}};
    strait_run_plan_locate(l->plan, other, &stage, &command.connect.replica);
    if (dials) command.connect.address = directory->addresses[other];
    return strait_stage_channel_command_one(channel, member, &command);
}

/* A stage dials the next one, and of two replicas the later one dials. */
static strait_err connect_to(struct strait_stage_channel *channel,
                             const struct directory *directory, int member, int other, int dials) {
    const struct local *l = channel->state;
    int stages[2], replicas[2];
    strait_run_plan_locate(l->plan, member, &stages[0], &replicas[0]);
    strait_run_plan_locate(l->plan, other, &stages[1], &replicas[1]);
    const int apart = stages[1] - stages[0];
    /* Replicas that train on their own form pipelines. */
    if (apart != 0 && strait_run_plan_has_outer(l->plan) && replicas[0] != replicas[1])
        return STRAIT_OK;
    if (dials && apart == 1)
        return tell(channel, directory, member, other, STRAIT_COMMAND_CONNECT_NEXT, 1);
    if (!dials && apart == -1)
        return tell(channel, directory, member, other, STRAIT_COMMAND_CONNECT_PREV, 0);
    if (apart == 0 && other != member && (other < member) == dials)
        return tell(channel, directory, member, other, STRAIT_COMMAND_CONNECT_REPLICA, dials);
    return STRAIT_OK;
}

/* Each member learns first who will dial it, then whom to dial: nobody is dialled before it expects
 * that. */
static strait_err connect_members(struct strait_stage_channel *channel,
                                  const struct directory *directory) {
    for (int dials = 0; dials < 2; dials++)
        for (int i = 0; i < channel->n_members; i++)
            for (int k = 0; k < channel->n_members; k++)
                STRAIT_TRY(connect_to(channel, directory, i, k, dials));
    return STRAIT_OK;
}

/* On a cluster this process is rank 0, which computes its stages in threads. */
static strait_err launch(struct local *l, int member) {
    struct strait_launched *out = &l->stages[member];
    int stage, replica;
    strait_run_plan_locate(l->plan, member, &stage, &replica);
    if (!l->is_cluster) return strait_launch(stage, l->run.stages.launch, l->network, out);
    if (l->ranks[member] == 0) return strait_launch_thread(stage, out);
    strait_launch_at(stage, l->ranks[member], out);
    return STRAIT_OK;
}

static strait_err start_stages(struct strait_stage_channel *channel, struct directory *directory) {
    struct local *l = channel->state;
    strait_startup start = {0};
    l->is_cluster = strait_cluster_is_joined();
    if (l->is_cluster) STRAIT_TRY(strait_cluster_place(&l->run, l->n_members, l->ranks));
    STRAIT_TRY(write_run(l));
    STRAIT_TRY(open_mesh(l, &start));
    for (int i = 0; i < l->n_members; i++)
        STRAIT_TRY(launch(l, i));
    for (int i = 0; i < l->n_members; i++) {
        (void)snprintf(start.run_path, sizeof start.run_path, "%s/%s.yaml", l->folder,
                       l->is_cluster && l->ranks[i] == 0 ? "rank" : "run");
        STRAIT_TRY(blame_start(
            l, i, introduce(l, &start, i, &directory->keys[i], directory->addresses[i])));
    }
    for (int i = 0; i < l->n_members; i++)
        STRAIT_TRY(blame_start(l, i, strait_mesh_wait_up(l->mesh, l->peers[i], CONNECT_MS)));
    return connect_members(channel, directory);
}

strait_err strait_local_start(struct strait_stage_channel *channel) {
    struct directory *directory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *directory, "addresses of stages", (void **)&directory));
    const strait_err err = start_stages(channel, directory);
    strait_alloc_free(directory);
    return err;
}
