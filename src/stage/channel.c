#include "stage/channel.h"

#include "base/alloc.h"
#include "stage/runner.h"

/* The capacity is known in advance, so that receiving a reply allocates nothing: the longest list
 * of floats is a basis or one square per parameter. */
strait_err strait_stage_replies_init(struct strait_stage_replies *replies,
                                     const strait_run_plan *plan) {
    replies->capacity = (int)(plan->codec.cols * plan->codec.keep); // of a basis
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory memory;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &memory));
        if (memory.n_params > replies->capacity) replies->capacity = memory.n_params;
    }
    const int n_members = plan->replicas_limit > 0 ? plan->replicas_limit * plan->n_stages
                                                   : plan->n_members;
    return strait_alloc((size_t)replies->capacity * (size_t)n_members, sizeof(float),
                        "replies of stages", (void **)&replies->floats);
}

void strait_stage_replies_fini(struct strait_stage_replies *replies) {
    for (int i = 0; i < STRAIT_RUN_MEMBERS; i++)
        strait_msg_close(&replies->messages[i]);
    strait_alloc_free(replies->floats);
    *replies = (struct strait_stage_replies){0};
}

strait_err strait_stage_replies_take(struct strait_stage_replies *replies, int member,
                                     strait_stage_command_kind kind, struct strait_msg **msg) {
    const strait_float_memory memory = {
        replies->floats + (size_t)member * (size_t)replies->capacity, replies->capacity};
    strait_stage_reply reply;
    STRAIT_TRY(strait_stage_reply_unpack(*msg, memory, &reply));
    if (reply.err == STRAIT_OK && reply.kind != kind)
        return STRAIT_FAIL(STRAIT_EPROTO, "member %d answered %s with a reply to %s", member,
                           strait_stage_command_name(kind), strait_stage_command_name(reply.kind));
    if (reply.kind != kind) { // an error: its union is of another kind and must not be read
        const strait_stage_reply error = {.kind = reply.kind,
                                          .generation = reply.generation,
                                          .sequence = reply.sequence,
                                          .err = reply.err,
                                          .reason = reply.reason};
        reply = error;
    }
    strait_msg_close(&replies->messages[member]);
    replies->items[member] = reply;
    replies->messages[member] = *msg;
    *msg = NULL;
    return STRAIT_OK;
}

strait_err strait_stage_channel_command_all(struct strait_stage_channel *channel,
                                            const strait_stage_command *command) {
    for (int i = 0; i < channel->n_members; i++)
        STRAIT_TRY(channel->ops->send(channel, i, command));
    return channel->ops->gather(channel);
}

/* Stages that got no command are not waited for. */
strait_err strait_stage_channel_command_one(struct strait_stage_channel *channel, int member,
                                            const strait_stage_command *command) {
    STRAIT_TRY(channel->ops->send(channel, member, command));
    return channel->ops->gather(channel);
}

/* The replies go last: closing sends a command and may receive replies to it. */
void strait_stage_channel_close(struct strait_stage_channel *channel) {
    if (channel == NULL || channel->ops == NULL) return;
    channel->ops->close(channel);
    strait_stage_replies_fini(&channel->replies);
    *channel = (struct strait_stage_channel){0};
}
