#include "stage/outer/outer_command.h"

#include "base/clock.h"
#include "stage/runner_state.h"

enum {
    SLICE_MS = 20, // between two looks at the links
    LOST_MS = 2000 // a link that is down for so long is not waited for
};

/* In proportion to the microbatches of a step. */
static strait_err set_shares(const struct strait_runner *runner, const strait_group_owners *owners,
                             strait_outer_exchange *e) {
    const strait_groups *groups = &runner->plan.groups;
    for (int i = 0; i < groups->n_microbatches; i++) {
        const int replica = owners->replica[strait_groups_of(groups, i)];
        if (replica >= runner->plan.replicas[runner->stage])
            return STRAIT_FAIL(STRAIT_EPROTO, "stage %d has no replica %d to average",
                               runner->stage, replica);
        e->shares[replica] += 1.0f;
    }
    return STRAIT_OK;
}

/* Whether something that is missing may still come. */
static int is_any_up(const struct strait_runner *runner, uint64_t missing) {
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++)
        if ((missing >> r & 1) != 0 &&
            strait_mesh_is_up(runner->mesh, strait_outer_peer(runner->outer, r)))
            return 1;
    return 0;
}

static void describe(const struct strait_outer *outer, strait_stage_reply *reply) {
    reply->outer.is_complete = strait_outer_is_complete(outer);
    reply->outer.missing = strait_outer_missing(outer);
    reply->outer.withheld = strait_outer_withheld(outer);
    reply->outer.rejected = strait_outer_rejected(outer);
}

static strait_err wait_for_sums(struct strait_runner *runner, strait_stage_reply *reply) {
    struct strait_outer *outer = runner->outer;
    const int64_t began = strait_clock_ns(), deadline = (int64_t)runner->deadline_ms * 1000000;
    int64_t until = began + deadline, up = began;
    uint64_t n_delivered = strait_outer_delivered(outer), n_taken = strait_outer_taken(outer);
    for (;;) {
        int is_blocked = 0;
        STRAIT_TRY(strait_outer_progress(outer, &is_blocked));
        describe(outer, reply);
        if (reply->outer.is_complete || strait_outer_is_settled(outer)) return STRAIT_OK;
        runner->awaited_replica = strait_outer_first(reply->outer.missing, reply->outer.withheld);
        const int64_t now = strait_clock_ns();
        if (strait_outer_delivered(outer) != n_delivered) {
            runner->is_waiting = 0; // a worker reports progress
            STRAIT_TRY(strait_runner_poll(runner));
        }
        until = strait_outer_extend(outer, until, strait_outer_taken(outer) - n_taken, now,
                                    deadline);
        n_delivered = strait_outer_delivered(outer);
        n_taken = strait_outer_taken(outer);
        if (is_any_up(runner, reply->outer.missing | reply->outer.withheld)) up = now;
        if (now > until || now - up > LOST_MS * INT64_C(1000000) ||
            now - began > strait_outer_limit_ns(outer, deadline))
            return STRAIT_OK;
        const strait_err err = strait_runner_drain(runner, SLICE_MS);
        if (err != STRAIT_ETIMEDOUT) STRAIT_TRY(err);
    }
}

static strait_err sum(struct strait_runner *runner, strait_stage_reply *reply) {
    const strait_err err = wait_for_sums(runner, reply);
    runner->awaited_replica = 0;
    return err;
}

/* What the model and its codecs derive from the weights. */
static strait_err refresh(struct strait_runner *runner) {
    STRAIT_TRY(strait_runner_state_restored(runner));
    return strait_stage_apply_adapters(runner->model);
}

/* A second command finds it done: the coordinator of a swarm asks all again when one was lost. */
static strait_err apply(struct strait_runner *runner, const strait_stage_command *command,
                        strait_stage_reply *reply) {
    strait_outer_result result;
    if (strait_outer_has_applied(runner->outer, command->outer.step, command->outer.fragment))
        return STRAIT_OK;
    STRAIT_TRY(strait_outer_apply(runner->outer, strait_stage_stream(runner->model), &result));
    reply->outer.distance = result.distance;
    reply->outer.size = result.size;
    return refresh(runner);
}

static strait_err begin(struct strait_runner *runner, const strait_stage_command *command) {
    int is_blocked = 0;
    strait_outer_exchange exchange = {.step = command->outer.step,
                                      .fragment = command->outer.fragment,
                                      .attempt = command->outer.attempt,
                                      .members = command->outer.members,
                                      .alive = command->outer.alive,
                                      .is_resent = command->outer.is_resent};
    STRAIT_TRY(set_shares(runner, &command->outer.owners, &exchange));
    STRAIT_TRY(strait_outer_begin(runner->outer, strait_stage_stream(runner->model), &exchange));
    return strait_outer_progress(runner->outer, &is_blocked);
}

strait_err strait_runner_outer(struct strait_runner *runner, const strait_stage_command *command,
                               strait_stage_reply *reply) {
    if (runner->outer == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: the run has no train.outer", runner->stage);
    switch (command->outer.phase) {
    case STRAIT_OUTER_BEGIN: return begin(runner, command);
    case STRAIT_OUTER_SUM: return sum(runner, reply);
    case STRAIT_OUTER_APPLY: return apply(runner, command, reply);
    default:
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: no phase %d of an exchange", runner->stage,
                           command->outer.phase);
    }
}

strait_err strait_runner_catch_up(struct strait_runner *runner) {
    if (runner->outer == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_outer_catch_up(runner->outer, strait_stage_stream(runner->model)));
    return refresh(runner);
}

strait_err strait_runner_average(struct strait_runner *runner) {
    int is_blocked = 0;
    if (runner->outer == NULL) return STRAIT_OK;
    return strait_outer_progress(runner->outer, &is_blocked);
}

/* Validations read the averaged weights: those of one replica are not what the run ends with. */
strait_err strait_runner_validate_average(struct strait_runner *runner, int64_t step,
                                          double *loss_sum) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->outer == NULL) return strait_runner_validate(runner, step, loss_sum);
    STRAIT_TRY(strait_outer_swap(runner->outer, stream));
    STRAIT_TRY(refresh(runner));
    /* Also after an error: the stages of a swarm continue with the weights that they have. */
    const strait_err err = strait_runner_validate(runner, step, loss_sum);
    STRAIT_TRY(strait_outer_swap(runner->outer, stream));
    STRAIT_TRY(refresh(runner));
    return err;
}
