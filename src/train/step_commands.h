/* step_commands.h - the commands of a step to all stages of a pipeline.
 *
 * A step has two commands: gradients, then update. With late updates (train.staleness 1) the
 * gradients of the next step are commanded as soon as the update of the step before is known, which
 * goes along with them: two steps are then under way. Where the caller does something else before
 * the next step, nothing is sent ahead, and both updates that are known are sent at the end. */
#pragma once

#include "stage/channel.h"

struct strait_step_commands { // zeroed but for the first three
    struct strait_stage_channel *channel;
    const strait_run_plan *plan;
    const strait_group_owners *owners; // of the groups, in each stage
    int64_t n_begun;                   // steps whose gradients were commanded
    int64_t n_updated;                 // steps whose updates were sent
    float factor;                      // of the first update that was not
};

/* Commands the gradients of `step` and gathers the replies; with `continues` the next call is for
 * the next step, which may begin. STRAIT_ENOTSUP: the channel takes one command at a time. */
strait_err strait_step_commands_gradients(struct strait_step_commands *commands, int64_t step,
                                          int continues);

/* Ends `step`. A factor of 0 skips it (late updates). */
strait_err strait_step_commands_update(struct strait_step_commands *commands, int64_t step,
                                       float factor);
