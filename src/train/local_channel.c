#include "train/local_channel.h"

#include "base/alloc.h"
#include "base/file.h"
#include "train/cluster.h"
#include "train/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CONNECT_MS = 30000,
    LEAVE_MS = 3000, // for a stage to end after it was told to leave
    END_MS = 500     // to learn how a stage ended whose link broke
};

struct local {
    strait_run run;
    int n_stages;
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    struct strait_inproc_network *network; // NULL: processes or ranks
    int is_cluster;                        // stages are put onto ranks[]
    int ranks[STRAIT_RUN_STAGES];
    struct strait_launched stages[STRAIT_RUN_STAGES];
    int peers[STRAIT_RUN_STAGES];
    strait_stage_command queue[STRAIT_RUN_STAGES];
    int is_queued[STRAIT_RUN_STAGES];
    int is_awaited[STRAIT_RUN_STAGES];
    uint32_t sequence;
    char folder[64]; // of the run file that the stages read; empty: removed
    int64_t step;    // being computed, for messages
    int has_failed;
};

/* ---- commands and replies ---- */

/* Only queues. gather sends the commands of all stages at once under one sequence number. */
static strait_err send(struct strait_stage_channel *channel, int stage,
                       const strait_stage_command *command) {
    struct local *l = channel->state;
    l->queue[stage] = *command;
    l->is_queued[stage] = 1;
    if (command->kind == STRAIT_COMMAND_GRADIENTS) l->step = command->gradients.step;
    return STRAIT_OK;
}

/* Peer numbers come from the mesh and need not be those of the stages. */
static int stage_of_peer(const struct local *l, int peer) {
    for (int i = 0; i < l->n_stages; i++)
        if (l->peers[i] == peer) return i;
    return -1;
}

/* A failure that no command asked about has sequence 0. Replies to earlier commands are late. */
static strait_err take_reply(struct strait_stage_channel *channel, int stage,
                             struct strait_msg **msg) {
    struct local *l = channel->state;
    strait_stage_reply header;
    STRAIT_TRY(strait_stage_reply_peek(*msg, &header));
    if (header.sequence != l->sequence && header.sequence != 0) return STRAIT_OK;
    STRAIT_TRY(strait_stage_replies_take(&channel->replies, stage, l->queue[stage].kind, msg));
    const strait_stage_reply *reply = &channel->replies.items[stage];
    l->is_awaited[stage] = 0;
    const int is_save = reply->kind == STRAIT_COMMAND_SAVE &&
                        l->queue[stage].kind == STRAIT_COMMAND_SAVE;
    if (reply->err == STRAIT_OK || is_save) return STRAIT_OK;
    strait_err_note(__FILE__, __LINE__, "%s", reply->reason);
    return reply->err;
}

static strait_err take_message(struct strait_stage_channel *channel, struct strait_msg **msg) {
    const struct local *l = channel->state;
    const int stage = stage_of_peer(l, (*msg)->peer);
    if (stage >= 0 && (*msg)->type == STRAIT_MSG_REPLY) return take_reply(channel, stage, msg);
    if ((*msg)->type == STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator lost its link to stage %d%s%s: %.*s",
                           stage, l->is_cluster ? " of " : "",
                           l->is_cluster ? strait_cluster_rank_text(l->ranks[stage]) : "",
                           (int)(*msg)->size, (const char *)(*msg)->body);
    return STRAIT_OK; // a link came up
}

static int is_waiting(const struct local *l) {
    for (int i = 0; i < l->n_stages; i++)
        if (l->is_awaited[i]) return 1;
    return 0;
}

/* Names the stage that failed and how it ended, where that is known. */
static strait_err blame(struct local *l, strait_err err) {
    char symptom[400];
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    l->has_failed = 1;
    if (l->is_cluster) strait_cluster_set_lost();
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int i = 0; i < l->n_stages; i++) {
            const char *ended = strait_launch_ended(&l->stages[i], attempt * END_MS);
            if (ended == NULL || strstr(ended, "killed") == NULL) continue;
            return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d %s at step %lld (%s)", i, ended,
                               (long long)l->step + 1, symptom);
        }
    }
    strait_err_note(__FILE__, __LINE__, "step %lld: %s", (long long)l->step + 1, symptom);
    return err;
}

/* All stages get their commands before any is waited for: they work at the same time. */
static strait_err deliver(struct local *l) {
    l->sequence++;
    for (int i = 0; i < l->n_stages; i++) {
        l->is_awaited[i] = l->is_queued[i];
        l->is_queued[i] = 0;
        if (!l->is_awaited[i]) continue;
        l->queue[i].sequence = l->sequence;
        STRAIT_TRY(strait_stage_command_send(l->mesh, l->peers[i], &l->queue[i]));
    }
    return STRAIT_OK;
}

static strait_err wait_for_replies(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    while (is_waiting(l)) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(l->mesh, -1, &msg));
        const strait_err err = take_message(channel, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static strait_err gather(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    strait_err err = deliver(l);
    if (err == STRAIT_OK) err = wait_for_replies(channel);
    if (err == STRAIT_OK) return STRAIT_OK;
    /* The commands that were not sent belong to a step that has failed. */
    memset(l->is_queued, 0, sizeof l->is_queued);
    return blame(l, err);
}

/* ---- starting ---- */

/* Writes the run with every option resolved to a file for the stages, which share out the cores of
 * this machine. */
static strait_err write_run(struct local *l) {
    char path[128];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = cores / l->n_stages;
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
    return strait_cluster_write_run(&l->run, l->n_stages, path);
}

static void remove_run(struct local *l) {
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
static strait_err blame_start(struct local *l, int stage, strait_err err) {
    const char *launch = l->run.stages.launch;
    char symptom[300];
    char refusal[STRAIT_REASON_MAX] = "";
    if (err == STRAIT_OK) return STRAIT_OK;
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    const char *ended = strait_launch_ended(&l->stages[stage], END_MS);
    const int was_refused = strait_mesh_refusals(l->mesh, refusal) > 0;
    strait_err_note(__FILE__, __LINE__, "stage %d could not be started: %s%s%s%s%s%.200s%s", stage,
                    ended != NULL ? "it " : "", ended != NULL ? ended : symptom,
                    was_refused ? "; it was refused: " : "", was_refused ? refusal : "",
                    launch[0] != '\0' ? "; started by stages.launch: " : "", launch,
                    ended != NULL && launch[0] == '\0' ? "; see its messages above" : "");
    return err;
}

static strait_err introduce(struct local *l, const strait_startup *start, strait_fingerprint *key,
                            char address[STRAIT_ADDRESS_MAX]) {
    const int i = start->stage;
    STRAIT_TRY(strait_launch_introduce(&l->stages[i], start, key, address));
    strait_mesh_peer peer = {.key = *key};
    (void)snprintf(peer.name, sizeof peer.name, "stage %d", i);
    STRAIT_TRY(strait_mesh_add(l->mesh, &peer, &l->peers[i]));
    return strait_launch_go(&l->stages[i]);
}

/* Each stage learns first who will dial it, then whom to dial: nobody is dialled before it expects
 * that. */
static strait_err connect_neighbours(struct strait_stage_channel *channel,
                                     const strait_fingerprint *keys,
                                     char (*addresses)[STRAIT_ADDRESS_MAX]) {
    for (int i = 1; i < channel->n_stages; i++) {
        const strait_stage_command command = {.kind = STRAIT_COMMAND_CONNECT_PREV,
                                              .connect_prev = {keys[i - 1]}};
        STRAIT_TRY(strait_stage_channel_command_one(channel, i, &command));
    }
    for (int i = 0; i + 1 < channel->n_stages; i++) {
        const strait_stage_command command = {.kind = STRAIT_COMMAND_CONNECT_NEXT,
                                              .connect_next = {keys[i + 1], addresses[i + 1]}};
        STRAIT_TRY(strait_stage_channel_command_one(channel, i, &command));
    }
    return STRAIT_OK;
}

/* On a cluster this process is rank 0, which computes its stages in threads. */
static strait_err launch(struct local *l, int stage) {
    struct strait_launched *out = &l->stages[stage];
    if (!l->is_cluster) return strait_launch(stage, l->run.stages.launch, l->network, out);
    if (l->ranks[stage] == 0) return strait_launch_thread(stage, out);
    strait_launch_at(stage, l->ranks[stage], out);
    return STRAIT_OK;
}

static strait_err start_stages(struct strait_stage_channel *channel, strait_fingerprint *keys,
                               char (*addresses)[STRAIT_ADDRESS_MAX]) {
    struct local *l = channel->state;
    strait_startup start = {0};
    l->is_cluster = strait_cluster_is_joined();
    if (l->is_cluster) STRAIT_TRY(strait_cluster_place(&l->run, l->n_stages, l->ranks));
    STRAIT_TRY(write_run(l));
    STRAIT_TRY(open_mesh(l, &start));
    for (int i = 0; i < l->n_stages; i++)
        STRAIT_TRY(launch(l, i));
    for (int i = 0; i < l->n_stages; i++) {
        start.stage = i;
        (void)snprintf(start.run_path, sizeof start.run_path, "%s/%s.yaml", l->folder,
                       l->is_cluster && l->ranks[i] == 0 ? "rank" : "run");
        STRAIT_TRY(blame_start(l, i, introduce(l, &start, &keys[i], addresses[i])));
    }
    for (int i = 0; i < l->n_stages; i++)
        STRAIT_TRY(blame_start(l, i, strait_mesh_wait_up(l->mesh, l->peers[i], CONNECT_MS)));
    return connect_neighbours(channel, keys, addresses);
}

static void close_local(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    const strait_stage_command leave = {.kind = STRAIT_COMMAND_LEAVE};
    if (l == NULL) return;
    if (l->mesh != NULL && !l->has_failed) (void)strait_stage_channel_command_all(channel, &leave);
    strait_mesh_close(&l->mesh); // stages that still wait for us see that we have gone
    for (int i = 0; i < l->n_stages; i++)
        strait_launch_fini(&l->stages[i], l->has_failed ? END_MS : LEAVE_MS);
    strait_inproc_network_close(&l->network);
    strait_identity_close(&l->identity);
    remove_run(l);
    strait_alloc_free(l);
}

static const struct strait_stage_channel_ops ops = {
    .send = send, .gather = gather, .close = close_local};

strait_err strait_local_channel_open(const strait_run *run, const strait_run_plan *plan,
                                     struct strait_stage_channel *out) {
    struct local *l = NULL;
    strait_fingerprint keys[STRAIT_RUN_STAGES];
    char(*addresses)[STRAIT_ADDRESS_MAX] = NULL;
    *out = (struct strait_stage_channel){.ops = &ops, .n_stages = plan->n_stages};
    STRAIT_TRY(strait_alloc(1, sizeof *l, "local stages", (void **)&l));
    out->state = l;
    l->run = *run;
    l->n_stages = plan->n_stages;
    STRAIT_TRY(strait_stage_replies_init(&out->replies, plan));
    STRAIT_TRY(strait_alloc(STRAIT_RUN_STAGES, sizeof *addresses, "addresses of stages",
                            (void **)&addresses));
    const strait_err err = start_stages(out, keys, addresses);
    l->has_failed |= err != STRAIT_OK; // stages that did start see the mesh close
    strait_alloc_free(addresses);
    remove_run(l); // every stage has read it before it answered
    return err;
}
