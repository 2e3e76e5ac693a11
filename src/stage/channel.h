/* channel.h - how commands reach the stages of a run, and how their replies come back.
 *
 * Every replica of a stage gets commands of its own. They are numbered stage by stage
 * (strait_run_plan_member): without replicas, the number of a member is that of its stage.
 *
 * A pipeline (train/pipeline.h) queues one command for each stage that is to work, then gathers:
 * the channel delivers the commands and waits for all replies. Two channels exist. The local one
 * (train/local_channel.h) starts processes or threads and reaches them over a mesh; the swarm's
 * (swarm/host/channel.c) reaches whichever workers own the stages at the moment, and answers
 * STRAIT_EAGAIN when the stages went back to an earlier step instead.
 *
 * One thread uses a channel. */
#pragma once

#include "config/run_plan.h"
#include "stage/commands.h"

/* The latest reply of each member with the memory that its texts and floats are in. Zeroed is
 * closed. */
struct strait_stage_replies {
    strait_stage_reply items[STRAIT_RUN_MEMBERS];
    struct strait_msg *messages[STRAIT_RUN_MEMBERS]; // that texts of the items point into
    float *floats;                                   // `capacity` for each
    int capacity;
};

/* Allocates memory for the largest reply that a stage of this plan may send: a norm per parameter,
 * or a basis. */
strait_err strait_stage_replies_init(struct strait_stage_replies *replies,
                                     const strait_run_plan *plan);
void strait_stage_replies_fini(struct strait_stage_replies *replies);

/* Unpacks a reply of `member` to a command of this kind, takes *msg and clears it. STRAIT_EPROTO:
 * malformed, or without an error the reply to another kind, whose union would be misread; *msg is
 * then not taken. */
strait_err strait_stage_replies_take(struct strait_stage_replies *replies, int member,
                                     strait_stage_command_kind kind, struct strait_msg **msg);

struct strait_stage_channel {
    const struct strait_stage_channel_ops *ops;
    void *state; // the implementation's
    int n_members;
    /* With train.outer: replicas that were lost with all of their pipeline, as bits. They get no
     * commands any more, and their replies are not those of the last gather. */
    uint64_t lost;
    char lost_reason[512]; // of the latest
    /* What the record of averages calls each replica; NULL: by its number. Borrowed. */
    const int *labels;
    struct strait_stage_replies replies; // of the last gather; valid until the next
};

/* What a member did that the coordinator can be sure of, or that two others report. */
typedef enum strait_member_fault {
    STRAIT_MEMBER_DIFFERENCE, // sent a difference of its weights that two replicas rejected
    STRAIT_MEMBER_IMPOSSIBLE  // reported what cannot be
} strait_member_fault;

struct strait_stage_channel_ops {
    /* Queues a command for a member that has none yet. Its texts and floats stay borrowed until
     * gather returns. */
    strait_err (*send)(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command);
    /* Delivers what was queued without waiting, while the members may still work on one delivery
     * before; each gather then waits for the oldest. NULL: members take one command at a time. */
    strait_err (*post)(struct strait_stage_channel *channel);
    /* Delivers what was queued, unless a delivery is under way, and waits for those replies, which
     * are then in channel->replies. STRAIT_EAGAIN: the stages went back to an earlier step, nothing
     * was gathered. Any other error of a stage or of the way to it is returned, except that of
     * SAVE, which its reply alone has: the stage works on. The queue is empty afterwards either
     * way. */
    strait_err (*gather)(struct strait_stage_channel *channel);
    /* Leaves out replicas, as bits, that got no average; the others go on. STRAIT_EAGAIN: the
     * stages have to be ready again first. NULL: `lost` says it. */
    strait_err (*leave_out)(struct strait_stage_channel *channel, uint64_t replicas);
    /* Records what a member did. With leave_out only, and not NULL then. */
    void (*blame)(struct strait_stage_channel *channel, int member, strait_member_fault fault);
    /* Tells the stages to leave and releases the implementation's state. */
    void (*close)(struct strait_stage_channel *channel);
};

/* Sends one command to every member, or to one, and gathers. */
strait_err strait_stage_channel_command_all(struct strait_stage_channel *channel,
                                            const strait_stage_command *command);
strait_err strait_stage_channel_command_one(struct strait_stage_channel *channel, int member,
                                            const strait_stage_command *command);

/* Accepts NULL and a channel without ops. */
void strait_stage_channel_close(struct strait_stage_channel *channel);
