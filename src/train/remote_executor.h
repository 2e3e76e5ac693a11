/* apart.h - what the two files of a crew apart share: who the stages are and how to order them. */
#pragma once

#include "train/executor.h"
#include "train/launch.h"

struct remote {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    struct strait_inproc_network *hub; // NULL: processes
    struct strait_launched stages[STRAIT_RUN_STAGES];
    int peers[STRAIT_RUN_STAGES];
    strait_reply replies[STRAIT_RUN_STAGES];
    int has_reply[STRAIT_RUN_STAGES];
    float *squares; // of all stages, one behind the other, each with `room` places
    float *joined;  // without the gaps
    int capacity;
    char folder[64]; // where the run file for the stages lies; empty: none
    int64_t step;    // at hand, for messages
    int has_failed;
    /* Brings an order to one stage, or to all (-1), and their replies back, where that is not done
     * by the mesh here; NULL: it is. An order to open with 0 slots tells each stage its window. */
    strait_err (*carry)(struct strait_executor *executor, int stage,
                        const strait_stage_command *command);
};

/* Makes room for the replies of all stages; then rehearses with them, and opens them with the slots
 * that their times ask for. */
strait_err strait_remote_allocate(struct strait_executor *executor);
strait_err strait_remote_open_stages(struct strait_executor *executor);

/* The same order to all, and all their replies; or one order to one. The replies stay in the
 * struct until the next order. */
strait_err strait_remote_command_all(struct strait_executor *executor,
                                     const strait_stage_command *command);
strait_err strait_remote_command_one(struct strait_executor *executor, int stage,
                                     const strait_stage_command *command);

/* Starts every stage and introduces it to its neighbours. */
strait_err strait_remote_start(struct strait_executor *executor);
void strait_remote_remove_run(struct remote *remote);
