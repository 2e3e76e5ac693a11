#include "train/step_commands.h"

/* Tells a member which replicas it exchanges microbatches with. */
static void fill_owners(const struct strait_step_commands *c, int member,
                        strait_stage_command *command) {
    int stage, replica;
    strait_run_plan_locate(c->plan, member, &stage, &replica);
    for (int side = 0; side < STRAIT_SIDES; side++) {
        const int theirs = stage + side - STRAIT_SIDE_SAME;
        if (theirs >= 0 && theirs < c->plan->n_stages)
            command->gradients.owners[side] = c->owners[theirs];
    }
}

/* Queues the gradients of a step, with the update that they need if it was not sent. */
static strait_err queue_gradients(struct strait_step_commands *c, int64_t step) {
    const int has_update = c->plan->staleness > 0 && c->n_updated < step - 1;
    for (int i = 0; i < c->channel->n_members; i++) {
        strait_stage_command command = {.kind = STRAIT_COMMAND_GRADIENTS,
                                        .gradients = {.step = step,
                                                      .has_update = has_update,
                                                      .factor = has_update ? c->factor : 0}};
        fill_owners(c, i, &command);
        STRAIT_TRY(c->channel->ops->send(c->channel, i, &command));
    }
    if (has_update) c->n_updated = step - 1;
    c->n_begun = step + 1;
    return STRAIT_OK;
}

static strait_err post_gradients(struct strait_step_commands *c, int64_t step) {
    if (c->channel->ops->post == NULL)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "train.staleness: the stages take one command at a time");
    STRAIT_TRY(queue_gradients(c, step));
    return c->channel->ops->post(c->channel);
}

strait_err strait_step_commands_gradients(struct strait_step_commands *c, int64_t step,
                                          int continues) {
    if (c->plan->staleness == 0) {
        STRAIT_TRY(queue_gradients(c, step));
        return c->channel->ops->gather(c->channel);
    }
    if (c->n_begun != step + 1) { // nothing is under way: every update was sent
        c->n_updated = step;
        STRAIT_TRY(post_gradients(c, step));
    }
    if (continues) STRAIT_TRY(post_gradients(c, step + 1));
    return c->channel->ops->gather(c->channel);
}

static strait_err send_update(struct strait_step_commands *c, int64_t step, float factor) {
    const strait_stage_command command = {.kind = STRAIT_COMMAND_UPDATE,
                                          .update = {.step = step, .factor = factor}};
    return strait_stage_channel_command_all(c->channel, &command);
}

strait_err strait_step_commands_update(struct strait_step_commands *c, int64_t step, float factor) {
    if (c->plan->staleness == 0) return send_update(c, step, factor);
    if (c->n_begun > step + 1) { // it goes along with the step after the next
        c->factor = factor;
        return STRAIT_OK;
    }
    if (c->n_updated < step) STRAIT_TRY(send_update(c, step - 1, c->factor));
    c->n_updated = step + 1;
    return send_update(c, step, factor);
}
