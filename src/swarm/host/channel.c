/* channel.c - the stage channel of a swarm: commands go to whichever workers own the stages.
 *
 * The coordinator decides which worker gets a command and when it is done. The channel feeds it a
 * goal and runs the event loop until the goal is reached or the stages were restored instead. */
#include "swarm/host/state.h"

#include <string.h>

enum {
    WAIT_MS = 100
};

strait_err strait_host_wait_ready(struct host *h) {
    while (h->coordinator.phase != STRAIT_PHASE_READY) {
        STRAIT_TRY(strait_host_pump(h, WAIT_MS));
        if (h->spec->session.must_stop(h->spec->session.user) &&
            h->coordinator.phase == STRAIT_PHASE_WAITING)
            return STRAIT_FAIL(STRAIT_EINTERRUPTED,
                               "stopped while waiting for workers; committed steps are kept");
    }
    return STRAIT_OK;
}

static strait_err send(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command) {
    struct host *h = channel->state;
    if (command->kind == STRAIT_COMMAND_ADOPT_BASIS)
        STRAIT_TRY(
            strait_host_note_basis(h, command->adopt_basis.version, &command->adopt_basis.basis));
    h->work.queue[member] = *command;
    h->work.is_queued[member] = 1;
    return STRAIT_OK;
}

/* Returns the step of a command; 0: it has none. */
static int64_t step_of(const strait_stage_command *command) {
    switch (command->kind) {
    case STRAIT_COMMAND_GRADIENTS: return command->gradients.step;
    case STRAIT_COMMAND_UPDATE: return command->update.step;
    case STRAIT_COMMAND_VALIDATE: return command->validate.step;
    case STRAIT_COMMAND_SEND_SNAPSHOT: return command->send_snapshot.step;
    case STRAIT_COMMAND_RESEND: return command->resend.step;
    default: return 0;
    }
}

/* Returns whether a worker that executes the command may be silent for longer than its lease. */
static int is_slow(strait_stage_command_kind kind) {
    return kind == STRAIT_COMMAND_OPEN || kind == STRAIT_COMMAND_TIME_PASSES ||
           kind == STRAIT_COMMAND_SEND_SNAPSHOT;
}

/* One stage is commanded or all, never some of them; of replicas all or the first. In a replay the
 * commands differ: those of the stages that compute say what the goal is, the others send again
 * what they kept. */
static strait_swarm_goal goal_of(const struct host *h, int *main) {
    int n_queued = 0;
    int member = 0;
    int stage = 0;
    int replica = 0;
    int is_replay = 0;
    for (int i = 0; i < h->work.channel.n_members; i++) {
        const int is_resend = h->work.queue[i].kind == STRAIT_COMMAND_RESEND;
        n_queued += h->work.is_queued[i];
        is_replay |= h->work.is_queued[i] && is_resend;
        if (h->work.is_queued[i] && !is_resend) member = i;
    }
    const strait_stage_command *command = &h->work.queue[member];
    strait_run_plan_locate(&h->executor->plan, member, &stage, &replica);
    *main = member;
    return (strait_swarm_goal){
        .stage = n_queued > 1 ? -1 : stage,
        .is_first = n_queued < h->work.channel.n_members,
        .is_replay = is_replay,
        .step = step_of(command),
        .is_update = command->kind == STRAIT_COMMAND_UPDATE,
        .is_begin = command->kind == STRAIT_COMMAND_GRADIENTS,
        .is_validation = command->kind == STRAIT_COMMAND_VALIDATE,
        .is_slow = is_slow(command->kind),
        .is_average = command->kind == STRAIT_COMMAND_OUTER ? 1 + command->outer.phase : 0};
}

/* Gives the queued commands to the coordinator and waits for the outcome. STRAIT_EAGAIN: the stages
 * were restored, so the caller has to replay steps first. */
static strait_err drive(struct host *h) {
    int main = 0;
    const strait_swarm_goal goal = goal_of(h, &main);
    STRAIT_TRY(strait_host_wait_ready(h));
    if (h->work.has_rolled_back) return STRAIT_EAGAIN;
    strait_err err = STRAIT_OK;
    h->work.kind = h->work.queue[main].kind;
    h->work.is_done = 0;
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = goal});
    while (err == STRAIT_OK && !h->work.is_done && h->coordinator.phase == STRAIT_PHASE_WORK)
        err = strait_host_pump(h, WAIT_MS);
    h->work.kind = (strait_stage_command_kind)0;
    STRAIT_TRY(err);
    if (h->work.is_done) return STRAIT_OK;
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

static strait_err gather(struct strait_stage_channel *channel) {
    struct host *h = channel->state;
    const strait_err err = drive(h);
    memset(h->work.is_queued, 0, sizeof h->work.is_queued);
    return err;
}

/* Replicas that train on their own: the coordinator sends their pipelines away. */
static strait_err leave_out(struct strait_stage_channel *channel, uint64_t replicas) {
    struct host *h = channel->state;
    int slots[STRAIT_SWARM_REPLICAS];
    int n = 0;
    for (int r = 0; r < strait_coordinator_n_replicas(&h->coordinator, 0); r++)
        if ((replicas >> r & 1) != 0)
            slots[n++] = strait_coordinator_replica(&h->coordinator, 0, r);
    for (int i = 0; i < n; i++)
        if (slots[i] >= 0) // else it was banned since
            strait_host_feed_coordinator(
                h, &(strait_swarm_event){.kind = STRAIT_SWARM_LEFT_OUT, .worker = slots[i]});
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

/* Of what two others report a worker is not banned: its pipeline goes, which the caller asks for.
 */
static void blame(struct strait_stage_channel *channel, int member, strait_member_fault fault) {
    struct host *h = channel->state;
    int stage, replica;
    strait_run_plan_locate(&h->executor->plan, member, &stage, &replica);
    const int slot = strait_coordinator_replica(&h->coordinator, stage, replica);
    if (slot < 0) return; // it was banned since
    const char *name = h->coordinator.workers[slot].report.name;
    if (fault == STRAIT_MEMBER_DIFFERENCE) {
        strait_host_note(h,
                         "%s, stage %d: sent a difference of its weights that is non-finite or far "
                         "larger than those of others; two workers rejected it",
                         name, stage);
        return;
    }
    strait_host_note(h, "%s, stage %d: reported that it has no average, which needs nobody else",
                     name, stage);
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = slot});
}

/* Workers keep their links: end_workers tells them when the run has ended. */
static void close_channel(struct strait_stage_channel *channel) {
    (void)channel;
}

static const struct strait_stage_channel_ops ops = {
    .send = send, .gather = gather, .leave_out = leave_out, .blame = blame, .close = close_channel};

strait_err strait_host_channel_open(struct host *h, const strait_run_plan *plan) {
    h->work.channel = (struct strait_stage_channel){
        .ops = &ops, .state = h, .n_members = plan->n_members, .labels = h->averages.pipelines};
    return strait_stage_replies_init(&h->work.channel.replies, plan);
}
