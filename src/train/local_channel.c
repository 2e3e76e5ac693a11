#include "train/local_channel.h"

#include "base/alloc.h"
#include "train/cluster/cluster.h"
#include "train/local/local_state.h"

#include <stdio.h>
#include <string.h>

enum {
    LEAVE_MS = 3000, // for a stage to end after it was told to leave
    END_MS = 500     // to learn how a stage ended whose link broke
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

/* A member may be done with the second delivery while others work on the first. */
static int is_early(const struct local *l, uint32_t sequence, int member) {
    return l->n_deliveries > 1 && sequence == l->deliveries[1].sequence && l->early[member] == NULL;
}

static int replica_of(const struct local *l, int member) {
    int stage, replica;
    strait_run_plan_locate(l->plan, member, &stage, &replica);
    return replica;
}

/* Whether the run goes on without a replica that trains on its own. Under mpirun a lost rank ends
 * the job. */
static int may_lose(const struct strait_stage_channel *channel, int member) {
    const struct local *l = channel->state;
    uint64_t left = 0;
    for (int i = 0; i < l->n_members; i++)
        left |= UINT64_C(1) << replica_of(l, i);
    left &= ~channel->lost & ~(UINT64_C(1) << replica_of(l, member));
    return strait_run_plan_has_outer(l->plan) && !l->is_cluster && left != 0;
}

/* The member of a replica (-1: of any) whose process was killed, and how it ended; -1: none, or not
 * known. A neighbour may report the loss before its own link breaks. */
static int find_killed(struct local *l, int replica, const char **ended) {
    for (int attempt = 0; attempt < 2; attempt++)
        for (int i = 0; i < l->n_members; i++) {
            if (replica >= 0 && replica_of(l, i) != replica) continue;
            *ended = strait_launch_ended(&l->stages[i], attempt * END_MS);
            if (*ended != NULL && strstr(*ended, "killed") != NULL) return i;
        }
    return -1;
}

/* Nothing is awaited of the pipeline of this member any more. */
static void lose(struct strait_stage_channel *channel, int member, const char *why) {
    struct local *l = channel->state;
    const int replica = replica_of(l, member);
    char name[STRAIT_NAME_MAX];
    const char *ended = NULL;
    const int killed = find_killed(l, replica, &ended);
    channel->lost |= UINT64_C(1) << replica;
    (void)snprintf(channel->lost_reason, sizeof channel->lost_reason, "%s%s%.400s",
                   strait_local_name(l, killed >= 0 ? killed : member, name),
                   killed >= 0 ? " " : ": ", killed >= 0 ? ended : why);
    for (int i = 0; i < l->n_members; i++)
        for (int k = 0; replica_of(l, i) == replica && k < DELIVERIES; k++)
            l->deliveries[k].is_awaited[i] = 0;
}

static int is_lost(const struct strait_stage_channel *channel, int member) {
    return (int)(channel->lost >> replica_of(channel->state, member) & 1);
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
    /* A stage whose neighbour is gone. Its own end would be a lost link. */
    if ((reply->err == STRAIT_ECLOSED || reply->err == STRAIT_ETIMEDOUT) &&
        may_lose(channel, member)) {
        lose(channel, member, reply->reason);
        return STRAIT_OK;
    }
    strait_err_note(__FILE__, __LINE__, "%s", reply->reason);
    return reply->err;
}

static strait_err take_message(struct strait_stage_channel *channel, struct strait_msg **msg) {
    const struct local *l = channel->state;
    const int member = member_of_peer(l, (*msg)->peer);
    char name[STRAIT_NAME_MAX];
    if (member >= 0 && is_lost(channel, member)) return STRAIT_OK;
    if (member >= 0 && (*msg)->type == STRAIT_MSG_REPLY) return take_reply(channel, member, msg);
    if ((*msg)->type != STRAIT_MSG_DOWN) return STRAIT_OK; // a link came up
    if (member >= 0 && may_lose(channel, member)) {
        lose(channel, member, "the coordinator lost its link");
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator lost its link to %s%s%s: %.*s",
                       strait_local_name(l, member, name), l->is_cluster ? " of " : "",
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
    const char *ended = NULL;
    const int killed = find_killed(l, -1, &ended);
    if (killed >= 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "%s %s at step %lld (%s)",
                           strait_local_name(l, killed, name), ended, (long long)l->step + 1,
                           symptom);
    strait_err_note(__FILE__, __LINE__, "step %lld: %s", (long long)l->step + 1, symptom);
    return err;
}

/* All stages get their commands before any is waited for: they work at the same time. */
static strait_err deliver(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    struct delivery *d = &l->deliveries[l->n_deliveries++];
    d->sequence = ++l->sequence;
    for (int i = 0; i < l->n_members; i++) {
        d->is_awaited[i] = l->is_queued[i] && !is_lost(channel, i);
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
    const strait_err err = deliver(channel);
    return err == STRAIT_OK ? STRAIT_OK : blame(l, err);
}

static strait_err gather(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    strait_err err = l->n_deliveries > 0 ? STRAIT_OK : deliver(channel);
    if (err == STRAIT_OK) err = wait_for_replies(channel);
    l->deliveries[0] = l->deliveries[1];
    l->n_deliveries--;
    if (err == STRAIT_OK) return STRAIT_OK;
    /* The commands that were not sent belong to a step that has failed. */
    memset(l->is_queued, 0, sizeof l->is_queued);
    return blame(l, err);
}

/* A thread that is busy ends after what it computes now; one that hangs, on a file system that does
 * not answer for example, does not end at all. The run ends without it. */
static void close_local(struct strait_stage_channel *channel) {
    struct local *l = channel->state;
    const int thread_ms = (int)(l != NULL ? l->run.link.deadline * 1e3 : 0) + LEAVE_MS;
    int n_left = 0;
    const strait_stage_command leave = {.kind = STRAIT_COMMAND_LEAVE};
    if (l == NULL) return;
    if (l->mesh != NULL && !l->has_failed) (void)strait_stage_channel_command_all(channel, &leave);
    strait_mesh_close(&l->mesh); // stages that still wait for us see that we have gone
    for (int i = 0; i < l->n_members; i++) {
        strait_msg_close(&l->early[i]);
        n_left += !strait_launch_fini(&l->stages[i], l->has_failed ? END_MS : LEAVE_MS, thread_ms);
    }
    if (n_left > 0) return; // those threads use what follows
    strait_inproc_network_close(&l->network);
    strait_identity_close(&l->identity);
    strait_local_remove_run(l);
    strait_alloc_free(l);
}

static const struct strait_stage_channel_ops ops = {
    .send = send, .post = post, .gather = gather, .close = close_local};

strait_err strait_local_channel_open(const strait_run *run, const strait_run_plan *plan,
                                     struct strait_stage_channel *out) {
    struct local *l = NULL;
    *out = (struct strait_stage_channel){.ops = &ops, .n_members = plan->n_members};
    STRAIT_TRY(strait_alloc(1, sizeof *l, "local stages", (void **)&l));
    out->state = l;
    l->run = *run;
    l->plan = plan;
    l->n_members = plan->n_members;
    STRAIT_TRY(strait_stage_replies_init(&out->replies, plan));
    const strait_err err = strait_local_start(out);
    l->has_failed |= err != STRAIT_OK; // stages that did start see the mesh close
    strait_local_remove_run(l);        // every stage has read it before it answered
    return err;
}
