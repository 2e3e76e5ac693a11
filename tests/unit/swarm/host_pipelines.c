/* What a host makes of the losses and squares that pipelines report which train on their own: a
 * liar costs its own pipeline, or all are in doubt; never does it cost an honest one. */
#include "check.h"
#include "swarm/host/state.h"
#include "train/pipeline.h"
#include "unit/config/run_plan_rig.h"

#include <math.h>

enum {
    STAGES = 2,
    REPLICAS = 3, // at most
    SQUARES = 3,
    LAST = STAGES - 1
};

static struct host h; // large, and zeroed
static struct strait_executor executor;
static int64_t step;

/* What the workers report in the next step. */
static double loss[REPLICAS], scale[REPLICAS];
static float squares[REPLICAS][SQUARES];

/* What the coordinator was told. */
static int n_doubts, n_bad;
static int bad;   // the last worker whose values were bad
static int named; // what the last reply said of whom the worker lacks something from

void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event);
void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event) {
    n_doubts += event->kind == STRAIT_SWARM_IN_DOUBT;
    n_bad += event->kind == STRAIT_SWARM_BAD_VALUES;
    if (event->kind == STRAIT_SWARM_BAD_VALUES) bad = event->worker;
    if (event->kind == STRAIT_SWARM_REPLY) named = event->waits_for;
    host->coordinator.phase = STRAIT_PHASE_WAITING;
}

strait_err __wrap_strait_host_wait_ready(struct host *host);
strait_err __wrap_strait_host_wait_ready(struct host *host) {
    host->coordinator.phase = STRAIT_PHASE_READY;
    return STRAIT_OK;
}

static strait_err send(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command) {
    strait_stage_reply *reply = &channel->replies.items[member];
    int stage = 0, r = 0;
    strait_run_plan_locate(&plan, member, &stage, &r);
    *reply = (strait_stage_reply){.kind = command->kind};
    for (int i = 0; i < SQUARES; i++)
        squares[r][i] = (float)ldexp(scale[r], i);
    reply->gradients.squares = (strait_floats){squares[r], SQUARES};
    if (stage == LAST)
        reply->gradients.loss_sum = loss[r] * (double)run.train.batch_tokens *
                                    strait_pipeline_count_microbatches(h.pipeline, stage, r) /
                                    plan.groups.n_microbatches;
    return STRAIT_OK;
}

static strait_err gather(struct strait_stage_channel *channel) {
    (void)channel;
    return STRAIT_OK;
}

static const struct strait_stage_channel_ops ops = {.send = send, .gather = gather};

static void on_noted(void *user, const char *text) {
    (void)user;
    (void)text;
}

/* Pipeline r has the workers STAGES * r and those after it. */
static void begin(const char *replicas) {
    static const strait_host_spec spec = {.events = {.noted = on_noted}};
    CHECK_OK(make("stages.count=2", replicas, "train.outer.sync_every=1"));
    executor = (struct strait_executor){.run = run, .plan = plan};
    h = (struct host){.run = run, .executor = &executor, .spec = &spec};
    h.coordinator.config.n_stages = STAGES;
    h.coordinator.phase = STRAIT_PHASE_READY;
    for (int r = 0; r < plan.replicas[0]; r++) {
        h.averages.pipelines[r] = r;
        for (int i = 0; i < STAGES; i++)
            *(r == 0 ? &h.coordinator.owner[i] : &h.coordinator.helper[i][r - 1]) = STAGES * r + i;
    }
    for (int i = 0; i < STAGES; i++)
        h.coordinator.n_helpers[i] = plan.replicas[0] - 1;
    h.work.channel.ops = &ops;
    h.work.channel.n_members = plan.n_members;
    h.work.channel.labels = h.averages.pipelines;
    CHECK_OK(strait_stage_replies_init(&h.work.channel.replies, &plan));
    CHECK_OK(strait_pipeline_open(&executor, &h.work.channel, &h.pipeline));
    for (int r = 0; r < REPLICAS; r++)
        loss[r] = scale[r] = 1.0;
    step = n_doubts = n_bad = 0;
    bad = -1;
}

static void end(void) {
    strait_pipeline_close(&h.pipeline);
    strait_stage_replies_fini(&h.work.channel.replies);
}

/* Computes steps until the coordinator is told something, `n` at most; returns how many counted. */
static int compute(int n) {
    strait_executor_report report;
    for (int i = 0; i < n; i++, step++) {
        CHECK_OK(strait_pipeline_gradients(h.pipeline, step, &report));
        const strait_err err = strait_host_verify_step(&h, step, -1, 0);
        if (err == STRAIT_EAGAIN) return i;
        CHECK_OK(err);
    }
    return n;
}

/* The range of a history has all of its values: the liar has to wait until the honest ones of a
 * common history would be forgotten. */
static void a_lead_that_scales_its_squares_is_found(void **state) {
    (void)state;
    begin("stages.replicas=3");
    assert_int_equal(compute(10), 10);
    for (int octaves = 20; octaves <= 60 && n_bad == 0; octaves += 20) {
        scale[0] = ldexp(1.0, -octaves);
        (void)compute(10);
    }
    assert_int_equal(n_bad, 1);
    assert_int_equal(bad, 0); // of the lead
    assert_int_equal(n_doubts, 0);
    end();
}

static void one_of_three_that_jumps_is_found(void **state) {
    (void)state;
    begin("stages.replicas=3");
    assert_int_equal(compute(10), 10);
    loss[2] = 4.0;
    assert_int_equal(compute(1), 0);
    assert_int_equal(n_bad, 1);
    assert_int_equal(bad, STAGES * 2 + LAST);
    end();
}

/* A liar moves away step by step, each within the limit of the one before: one of two is wrong. */
static void two_that_drift_apart_are_in_doubt(void **state) {
    (void)state;
    for (int liar = 0; liar < 2; liar++) {
        begin("stages.replicas=2");
        assert_int_equal(compute(10), 10);
        loss[liar] = 1.6;
        assert_int_equal(compute(3), 3);
        for (int i = 0; i < 6 && n_bad + n_doubts == 0; i++) {
            loss[liar] *= 1.6;
            (void)compute(3);
        }
        assert_int_equal(n_bad, 0);
        assert_int_equal(n_doubts, 1);
        end();
    }
}

/* Two of three jump, perhaps because of what the third gave to an average. */
static void most_that_jump_are_in_doubt(void **state) {
    (void)state;
    begin("stages.replicas=3");
    assert_int_equal(compute(10), 10);
    loss[0] = loss[1] = 4.0;
    assert_int_equal(compute(1), 0);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_doubts, 1);
    end();
}

/* What a worker reported before it was away, or another in its place, says nothing about now. */
static void those_who_come_back_have_a_new_history(void **state) {
    (void)state;
    begin("stages.replicas=2");
    loss[0] = loss[1] = 8.0;
    assert_int_equal(compute(10), 10);
    step += 100;
    loss[0] = loss[1] = 1.0;
    assert_int_equal(compute(10), 10);
    loss[1] = 1.6; // within the limit of the others
    for (int i = 0; i < STAGES; i++)
        h.coordinator.workers[STAGES + i].key.bytes[0] = 1;
    assert_int_equal(compute(1), 1);
    assert_int_equal(h.averages.levels[STAGES + LAST].loss.n_seen, 1);
    assert_int_equal(h.averages.levels[LAST].loss.n_seen > 3, 1);
    loss[1] = 4.0; // far from them
    assert_int_equal(compute(1), 0);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_doubts, 1);
    end();
}

int64_t __wrap_strait_loader_valid_windows(const struct strait_loader *loader);
int64_t __wrap_strait_loader_valid_windows(const struct strait_loader *loader) {
    (void)loader;
    return 0;
}

/* The coordinator waits as long as workers wait for each other, which depends on the bits. */
static void the_time_of_an_average_is_planned(void **state) {
    (void)state;
    int64_t before = 0;
    for (int bits = 2; bits <= 32; bits *= 4) {
        begin("stages.replicas=3");
        executor.plan.outer.bits = bits;
        CHECK_OK(strait_host_plan_memory(&h, &executor));
        for (int i = 0; i < STAGES; i++) {
            strait_runner_memory memory;
            CHECK_OK(strait_runner_plan(&executor.plan, i, 1, &memory));
            const double least = 2.0 * (run.link.deadline +
                                        memory.averaged.fragment / STRAIT_OUTER_SLOWEST);
            CHECK((double)h.coordinator.config.average_ns[i] >= 1e9 * least);
        }
        CHECK(h.coordinator.config.average_ns[0] > before);
        CHECK((double)h.coordinator.config.queue_ns * STRAIT_OUTER_SLOWEST >= 4e6 * 1e9);
        before = h.coordinator.config.average_ns[0];
        end();
    }
}

/* Returns what the coordinator is told of a reply to an average by the second replica. */
static int reply_to_average(uint64_t missing, uint64_t withheld) {
    enum {
        SLOT = STAGES
    };
    static struct strait_link link; // nothing is sent over it
    struct strait_msg *msg = NULL;
    strait_stage_reply reply = {.kind = STRAIT_COMMAND_OUTER};
    reply.outer.missing = missing;
    reply.outer.withheld = withheld;
    reply.outer.is_complete = (missing | withheld) == 0;
    begin("stages.replicas=3");
    CHECK_OK(strait_msg_pool_open(&h.pool));
    h.coordinator.phase = STRAIT_PHASE_WORK;
    h.coordinator.workers[SLOT] = (strait_swarm_worker){
        .is_known = 1, .is_connected = 1, .stage = -1, .replica = 1, .is_awaited = 1};
    h.work.queue[strait_run_plan_member(&plan, 0, 1)].kind = STRAIT_COMMAND_OUTER;
    h.links.n_items = 1;
    h.links.items[0] = (struct connection){.worker = SLOT, .link = &link};
    CHECK_OK(strait_stage_reply_pack(h.pool, &reply, &msg));
    strait_priority_queue_push(&h.links.items[0].in, &msg);
    named = -1;
    strait_host_dispatch(&h);
    end();
    strait_msg_pool_close(&h.pool);
    return named;
}

/* Whoever lacks parts has no results to send: others wait for them. */
static void a_reply_names_whom_a_worker_lacks_something_from(void **state) {
    (void)state;
    assert_int_equal(reply_to_average(0, 0), 0);
    assert_int_equal(reply_to_average(4, 1), STRAIT_SWARM_SAME_STAGE + 3);
    assert_int_equal(reply_to_average(0, 1), STRAIT_SWARM_SAME_STAGE + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_names_whom_a_worker_lacks_something_from),
        cmocka_unit_test(a_lead_that_scales_its_squares_is_found),
        cmocka_unit_test(one_of_three_that_jumps_is_found),
        cmocka_unit_test(two_that_drift_apart_are_in_doubt),
        cmocka_unit_test(most_that_jump_are_in_doubt),
        cmocka_unit_test(those_who_come_back_have_a_new_history),
        cmocka_unit_test(the_time_of_an_average_is_planned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
