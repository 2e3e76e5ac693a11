/* local_state.h - the inside of a local channel, for its files: ../local_channel.c sends commands
 * and takes replies, start.c starts the stages and connects them. */
#pragma once

#include "train/launch.h"
#include "train/local_channel.h"

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

/* The name of a member for people. Returns `out`. */
const char *strait_local_name(const struct local *local, int member, char out[STRAIT_NAME_MAX]);

/* Starts all members, introduces them to each other and waits until they are connected. */
strait_err strait_local_start(struct strait_stage_channel *channel);

/* Removes the run file that stages read when they start. */
void strait_local_remove_run(struct local *local);
