/* Replicas that train on their own, over a channel whose members answer as the test says: an
 * average that nobody gets ends no run of a swarm, and the values of one replica cost that one
 * alone. */
#include "../config/run_plan_rig.h"
#include "stage/channel.h"
#include "train/pipeline.h"

#include <math.h>

enum {
    STAGES = 2,
    REPLICAS = 3,
    MEMBERS = STAGES * REPLICAS,
    ALL = 7,
    SQUARES = 2
};

static struct strait_executor executor;
static struct strait_stage_channel channel;
static struct strait_pipeline *pipeline;
static int64_t n_sums;
static uint64_t left_out, members; // as the commands said
static int n_left_out, n_blamed[2];
static strait_stage_command queue[MEMBERS];
static int is_queued[MEMBERS];
static void (*answer)(int stage, int replica, strait_stage_reply *reply); // of the test

static strait_err send(struct strait_stage_channel *c, int member,
                       const strait_stage_command *command) {
    (void)c;
    queue[member] = *command;
    is_queued[member] = 1;
    return STRAIT_OK;
}

static strait_err gather(struct strait_stage_channel *c) {
    n_sums += queue[0].kind == STRAIT_COMMAND_OUTER && queue[0].outer.phase == STRAIT_OUTER_SUM;
    for (int i = 0; i < MEMBERS; i++) {
        strait_stage_reply *reply = &c->replies.items[i];
        int stage, replica;
        if (!is_queued[i]) continue;
        is_queued[i] = 0;
        strait_run_plan_locate(&executor.plan, i, &stage, &replica);
        *reply = (strait_stage_reply){.kind = queue[i].kind};
        if (queue[i].kind == STRAIT_COMMAND_OUTER) {
            members = queue[i].outer.members;
            reply->outer.is_complete = 1;
        }
        if (queue[i].kind == STRAIT_COMMAND_GRADIENTS) {
            float *squares = c->replies.floats + (ptrdiff_t)i * c->replies.capacity;
            squares[0] = squares[1] = 1.0f;
            reply->gradients.squares = (strait_floats){squares, SQUARES};
            reply->gradients.loss_sum = stage == STAGES - 1 ? 100.0 * (replica + 1) : 0.0;
            reply->gradients.times.wall = 1.0;
        }
        if (answer != NULL) answer(stage, replica, reply);
    }
    return STRAIT_OK;
}

/* Says that the stages have to be ready again, as a swarm does. */
static strait_err leave_out(struct strait_stage_channel *c, uint64_t replicas) {
    (void)c;
    left_out |= replicas;
    n_left_out++;
    return STRAIT_EAGAIN;
}

static void blame(struct strait_stage_channel *c, int member, strait_member_fault fault) {
    (void)c;
    (void)member;
    n_blamed[fault]++;
}

static void close_nothing(struct strait_stage_channel *c) {
    (void)c;
}

static const struct strait_stage_channel_ops swarm = {
    .send = send, .gather = gather, .leave_out = leave_out, .blame = blame, .close = close_nothing};
static const struct strait_stage_channel_ops local = {
    .send = send, .gather = gather, .close = close_nothing};

static void begin(const struct strait_stage_channel_ops *ops, int n_replicas) {
    char replicas[32];
    (void)snprintf(replicas, sizeof replicas, "stages.replicas=%d", n_replicas);
    CHECK_OK(make("stages.count=2", replicas, "train.outer.sync_every=1"));
    executor = (struct strait_executor){.run = run, .plan = plan};
    channel = (struct strait_stage_channel){.ops = ops, .n_members = plan.n_members};
    CHECK_OK(strait_stage_replies_init(&channel.replies, &plan));
    CHECK_OK(strait_pipeline_open(&executor, &channel, &pipeline));
    n_sums = n_left_out = n_blamed[0] = n_blamed[1] = 0;
    left_out = members = 0;
    answer = NULL;
}

static void end(void) {
    strait_pipeline_close(&pipeline);
    strait_stage_replies_fini(&channel.replies);
}

static strait_err average(strait_executor_report *report) {
    *report = (strait_executor_report){0};
    return strait_pipeline_average(pipeline, 1, report);
}

/* ---- averages ---- */

static void nobody_is_complete(int stage, int replica, strait_stage_reply *reply) {
    (void)stage;
    (void)replica;
    if (reply->kind == STRAIT_COMMAND_OUTER) reply->outer.is_complete = 0;
}

static void an_average_that_nobody_gets_ends_no_swarm(void **state) {
    (void)state;
    strait_executor_report report;
    begin(&swarm, REPLICAS);
    answer = nobody_is_complete;
    assert_int_equal(average(&report), STRAIT_EAGAIN);
    assert_int_equal(left_out, 6); // one goes on
    assert_int_equal(n_sums, 4);
    end();
    begin(&swarm, 1);
    answer = nobody_is_complete; // which cannot be: it needs nobody
    assert_int_equal(average(&report), STRAIT_EAGAIN);
    assert_int_equal(left_out, 0);
    assert_int_equal(n_blamed[STRAIT_MEMBER_IMPOSSIBLE], STAGES);
    end();
    begin(&local, REPLICAS);
    answer = nobody_is_complete;
    CHECK_FAILS(average(&report), STRAIT_ETIMEDOUT, "no replica received the average of step 1");
    end();
}

/* Replica 2 takes no results: all others wait for it, whatever it says itself. */
static void replica_2_blocks(int stage, int replica, strait_stage_reply *reply) {
    (void)stage;
    if (reply->kind != STRAIT_COMMAND_OUTER || replica == 2) return;
    reply->outer.is_complete = (channel.lost & 4) != 0;
    reply->outer.withheld = 4;
}

static void who_blocks_the_others_is_left_out(void **state) {
    (void)state;
    strait_executor_report report;
    begin(&swarm, REPLICAS);
    answer = replica_2_blocks;
    assert_int_equal(average(&report), STRAIT_EAGAIN);
    assert_int_equal(left_out, 4);
    end();
    begin(&local, REPLICAS); // the same in a local run, which goes on at once
    answer = replica_2_blocks;
    CHECK_OK(average(&report));
    assert_int_equal(channel.lost, 4);
    assert_int_equal(report.average_members, 3);
    end();
}

static void replica_1_lies(int stage, int replica, strait_stage_reply *reply) {
    if (reply->kind != STRAIT_COMMAND_OUTER || replica != 1 || stage != 1 || members != ALL) return;
    reply->outer.is_complete = 0;
    reply->outer.missing = reply->outer.rejected = 5;
}

static void one_report_leaves_out_the_reporter(void **state) {
    (void)state;
    strait_executor_report report;
    begin(&swarm, REPLICAS);
    answer = replica_1_lies;
    CHECK_OK(average(&report));
    assert_int_equal(report.average_members, 5);
    assert_int_equal(n_left_out, 0);
    assert_int_equal(n_blamed[STRAIT_MEMBER_DIFFERENCE], 0);
    end();
}

static void replica_0_is_rejected(int stage, int replica, strait_stage_reply *reply) {
    if (reply->kind != STRAIT_COMMAND_OUTER || replica == 0 || stage != 1) return;
    reply->outer.is_complete = 0;
    reply->outer.missing = reply->outer.rejected = 1;
}

static void two_rejections_name_the_sender(void **state) {
    (void)state;
    strait_executor_report report;
    begin(&swarm, REPLICAS);
    answer = replica_0_is_rejected;
    assert_int_equal(average(&report), STRAIT_EAGAIN);
    assert_int_equal(n_sums, 1);
    assert_int_equal(left_out, 1);
    assert_int_equal(n_blamed[STRAIT_MEMBER_DIFFERENCE], 1);
    end();
}

/* ---- steps ---- */

static int n_bad; // replicas from 0 on that report non-finite values

static void some_are_nonfinite(int stage, int replica, strait_stage_reply *reply) {
    if (reply->kind != STRAIT_COMMAND_GRADIENTS || stage != 0 || replica >= n_bad) return;
    reply->gradients.faults.nonfinite = 1.0;
}

static void some_losses_are_nan(int stage, int replica, strait_stage_reply *reply) {
    if (reply->kind == STRAIT_COMMAND_GRADIENTS && stage == STAGES - 1 && replica < n_bad)
        reply->gradients.loss_sum = NAN;
}

/* The others' loss is that of the step, and they take it; the one with such values skips it. */
static void nonfinite_values_cost_their_own_replica(void **state) {
    (void)state;
    strait_executor_report report;
    for (int k = 0; k < 2; k++) {
        begin(&swarm, 2);
        answer = k == 0 ? some_are_nonfinite : some_losses_are_nan;
        n_bad = 1;
        CHECK_OK(strait_pipeline_gradients(pipeline, 0, &report));
        assert_int_equal(strait_pipeline_nonfinite_stage(pipeline), -1);
        assert_int_equal(strait_pipeline_nonfinite_in(pipeline, 0), k == 0 ? 0 : STAGES - 1);
        assert_int_equal(strait_pipeline_nonfinite_in(pipeline, 1), -1);
        CHECK_NEAR(report.loss_sum, 400.0, 1e-9); // 200 of half the tokens
        assert_true(isfinite(report.norm));
        CHECK_OK(strait_pipeline_update(pipeline, 0, 1.0f));
        for (int i = 0; i < channel.n_members; i++) {
            int stage, replica;
            strait_run_plan_locate(&plan, i, &stage, &replica);
            assert_true(isfinite(queue[i].update.factor) == (replica == 1));
        }
        n_bad = 2;
        CHECK_OK(strait_pipeline_gradients(pipeline, 1, &report));
        assert_int_equal(strait_pipeline_nonfinite_stage(pipeline), k == 0 ? 0 : STAGES - 1);
        assert_true(isnan(report.norm));
        end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_average_that_nobody_gets_ends_no_swarm),
        cmocka_unit_test(who_blocks_the_others_is_left_out),
        cmocka_unit_test(one_report_leaves_out_the_reporter),
        cmocka_unit_test(two_rejections_name_the_sender),
        cmocka_unit_test(nonfinite_values_cost_their_own_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
