#include "train/local_channel.h"

#include "base/alloc.h"
#include "base/file.h"
#include "train/cluster/cluster.h"
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

enum {
    DELIVERIES = 2 // with late updates, two steps are under way
};

/* Commands that were sent together and whose replies are awaited. */
struct delivery {
    uint32_t sequence;
    int is_awaited[STRAIT_RUN_MEMBERS];
    strait_stage_command_kind kinds[STRAIT_RUN_MEMBERS];
};

struct local {
    strait_run run;
    const strait_run_plan *plan; // borrowed
    int n_members;
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    struct strait_inproc_network *network; // NULL: processes or ranks
    int is_cluster;                        // members are put onto ranks[]
    int ranks[STRAIT_RUN_MEMBERS];
    struct strait_launched stages[STRAIT_RUN_MEMBERS];
    int peers[STRAIT_RUN_MEMBERS];
    strait_stage_command queue[STRAIT_RUN_MEMBERS];
    int is_queued[STRAIT_RUN_MEMBERS];
    struct delivery deliveries[DELIVERIES]; // the oldest first
    int n_deliveries;
    struct strait_msg *early[STRAIT_RUN_MEMBERS]; // replies to the second of them
    uint32_t sequence;
    char folder[64]; // of the run file that the stages read; empty: removed
    int64_t step;    // being computed, for messages
    int has_failed;
};

/* ---- commands and replies ---- */

/* Only queues. gather sends the commands of all stages at once under one sequence number. */
static strait_err send(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command) {
    struct local *l = channel->state;
    l->queue[member] = *command;
    l->is_queued[member] = 1;
    if (command->kind == STRAIT_COMMAND_GRADIENTS) l->step = command->gradients.step;
    return STRAIT_OK;
}

/* Peer numbers come from the mesh and need not be those of the members. */
static int member_of_peer(const struct local *l, int peer) {
    for (int i = 0; i < l->n_members; i++)
        if (l->peers[i] == peer) return i;
    return -1;
}

static const char *name_of(const struct local *l, int member, char out[STRAIT_NAME_MAX]) {
    strait_run_plan_member_name(l->plan, member, out, STRAIT_NAME_MAX);
    return out;
}

/* A member may be done with the second delivery while others work on the first. */
static int is_early(const struct local *l, uint32_t sequence, int member) {
    return l->n_deliveries > 1 && sequence == l->deliveries[1].sequence && l->early[member] == NULL;
}

/* A failure that no command asked about has sequence 0. Replies to earlier commands are late. */
static strait_err take_reply(struct strait_stage_channel *channel, int member,
                             struct strait_msg **msg) {
    struct local *l = channel->state;
    struct delivery *now = &l->deliveries[0];
    strait_stage_reply header;
    STRAIT_TRY(strait_stage_reply_peek(*msg, &header));
    if (is_early(l, header.sequence, member) && header.err == STRAIT_OK) {
        l->early[member] = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (header.sequence != now->sequence && header.sequence != 0 && header.err == STRAIT_OK)
        return STRAIT_OK;
    STRAIT_TRY(strait_stage_replies_take(&channel->replies, member, now->kinds[member], msg));
    const strait_stage_reply *reply = &channel->replies.items[member];
    now->is_awaited[member] = 0;
    const int is_save = reply->kind == STRAIT_COMMAND_SAVE &&
                        now->kinds[member] == STRAIT_COMMAND_SAVE;
    if (reply->err == STRAIT_OK || is_save) return STRAIT_OK;
    strait_err_note(__FILE__, __LINE__, "%s", reply->reason);
    return reply->err;
}

static strait_err take_message(struct strait_stage_channel *channel, struct strait_msg **msg) {
    const struct local *l = channel->state;
    const int member = member_of_peer(l, (*msg)->peer);
    char name[STRAIT_NAME_MAX];
    if (member >= 0 && (*msg)->type == STRAIT_MSG_REPLY) return take_reply(channel, member, msg);
    if ((*msg)->type != STRAIT_MSG_DOWN) return STRAIT_OK; // a link came up
    return STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator lost its link to %s%s%s: %.*s",
                       name_of(l, member, name), l->is_cluster ? " of " : "",
                       l->is_cluster ? strait_cluster_rank_text(l->ranks[member]) : "",
                       (int)(*msg)->size, (const char *)(*msg)->body);
}

static int is_waiting(const struct local *l) {
    for (int i = 0; i < l->n_members; i++)
        if (l->deliveries[0].is_awaited[i]) return 1;
    return 0;
}

/* Names the stage that failed and how it ended, where that is known. */
static strait_err blame(struct local *l, strait_err err) {
    char symptom[400];
    char name[STRAIT_NAME_MAX];
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    l->has_failed = 1;
    if (l->is_cluster) strait_cluster_set_lost();
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int i = 0; i < l->n_members; i++) {
            const char *ended = strait_launch_ended(&l->stages[i], attempt * END_MS);
            if (ended == NULL || strstr(ended, "killed") == NULL) continue;
            return STRAIT_FAIL(STRAIT_ECLOSED, "%s %s at step %lld (%s)", name_of(l, i, name),
                               ended, (long long)l->step + 1, symptom);
        }
    }
    strait_err_note(__FILE__, __LINE__, "step %lld: %s", (long long)l->step + 1, symptom);
    return err;
}

/* All stages get their commands before any is waited for: they work at the same time. */
static strait_err deliver(struct local *l) {
    struct delivery *d = &l->deliveries[l->n_deliveries++];
    d->sequence = ++l->sequence;
    for (int i = 0; i < l->n_members; i++) {
        d->is_awaited[i] = l->is_queued[i];
        d->kinds[i] = l->queue[i].kind;
        l->is_queued[i] = 0;
        if (!d->is_awaited[i]) continue;
        l->queue[i].sequence = l->sequence;
        STRAIT_TRY(strait_stage_command_send(l->mesh, l->peers[i], &l->queue[i]));
    }
    return STRAIT_OK;
}

static strait_err wait_for_replies(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    for (int i = 0; i < l->n_members; i++) {
        if (l->early[i] == NULL) continue;
        struct strait_msg *msg = l->early[i];
        l->early[i] = NULL;
        const strait_err err = take_reply(channel, i, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    while (is_waiting(l)) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(l->mesh, -1, &msg));
        const strait_err err = take_message(channel, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static strait_err post(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    if (l->n_deliveries == DELIVERIES)
        return STRAIT_FAIL(STRAIT_EINVAL, "two deliveries are under way already");
    const strait_err err = deliver(l);
    return err == STRAIT_OK ? STRAIT_OK : blame(l, err);
}

static strait_err gather(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    strait_err err = l->n_deliveries > 0 ? STRAIT_OK : deliver(l);
    if (err == STRAIT_OK) err = wait_for_replies(channel);
    l->deliveries[0] = l->deliveries[1];
    l->n_deliveries--;
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
                    name_of(l, member, name), ended != NULL ? "it " : "",
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
    (void)name_of(l, member, peer.name);
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

static void close_local(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    const strait_stage_command leave = {.kind = STRAIT_COMMAND_LEAVE};
    if (l == NULL) return;
    if (l->mesh != NULL && !l->has_failed) (void)strait_stage_channel_command_all(channel, &leave);
    strait_mesh_close(&l->mesh); // stages that still wait for us see that we have gone
    for (int i = 0; i < l->n_members; i++) {
        strait_msg_close(&l->early[i]);
        strait_launch_fini(&l->stages[i], l->has_failed ? END_MS : LEAVE_MS);
    }
    strait_inproc_network_close(&l->network);
    strait_identity_close(&l->identity);
    remove_run(l);
    strait_alloc_free(l);
}

static const struct strait_stage_channel_ops ops = {
    .send = send, .post = post, .gather = gather, .close = close_local};

strait_err strait_local_channel_open(const strait_run *run, const strait_run_plan *plan,
                                     struct strait_stage_channel *out) {
    struct local *l = NULL;
    struct directory *directory = NULL;
    *out = (struct strait_stage_channel){.ops = &ops, .n_members = plan->n_members};
    STRAIT_TRY(strait_alloc(1, sizeof *l, "local stages", (void **)&l));
    out->state = l;
    l->run = *run;
    l->plan = plan;
    l->n_members = plan->n_members;
    STRAIT_TRY(strait_stage_replies_init(&out->replies, plan));
    STRAIT_TRY(strait_alloc(1, sizeof *directory, "addresses of stages", (void **)&directory));
    const strait_err err = start_stages(out, directory);
    l->has_failed |= err != STRAIT_OK; // stages that did start see the mesh close
    strait_alloc_free(directory);
    remove_run(l); // every stage has read it before it answered
    return err;
}
