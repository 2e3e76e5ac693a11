/* The owner of a stage is banned in the same turn of the event loop in which the last reply to a
 * command arrives, and no spare takes the stage: what the host does with the replies then concerns
 * a stage without an owner. Sanitizers find whatever lies before the first worker. */
#include "check.h"
#include "swarm/host/codec/codec.h"
#include "swarm/host/outer/averages.h"
#include "train/pipeline.h"
#include "unit/config/run_plan_rig.h"

#include <math.h>

enum {
    STAGES = 3,
    GONE = 1, // the stage without an owner
    SQUARES = 3
};

static struct host h; // large, and zeroed
static struct strait_executor executor;
static char noted[2048];
static int n_fed;

/* What the coordinator does about a worker needs one. */
void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event);
void __wrap_strait_host_feed_coordinator(struct host *host, const strait_swarm_event *event) {
    (void)host;
    n_fed++;
    assert_in_range(event->worker, 0, STRAIT_SWARM_WORKERS - 1);
}

strait_err __wrap_strait_host_wait_ready(struct host *host);
strait_err __wrap_strait_host_wait_ready(struct host *host) {
    host->coordinator.owner[GONE] = GONE;
    host->coordinator.phase = STRAIT_PHASE_READY;
    return STRAIT_OK;
}

/* What runs beside the event loop, which serves workers that leave and others that come. */
static int leaves, n_async;
strait_err __wrap_strait_host_run_async(struct host *host, strait_err (*work)(void *arg), void *arg,
                                        strait_err (*serve)(struct host *h));
strait_err __wrap_strait_host_run_async(struct host *host, strait_err (*work)(void *arg), void *arg,
                                        strait_err (*serve)(struct host *h)) {
    (void)serve;
    if (n_async++ > 0) return STRAIT_EIO;
    const strait_err err = work(arg);
    if (leaves) host->coordinator.workers[0].key.bytes[0] ^= 1;
    return err;
}

static int is_kept; // nobody is banned

static void lose_owner(void) {
    h.coordinator.owner[GONE] = -1;
    h.coordinator.phase = STRAIT_PHASE_WAITING;
}

static float values[1 << 12] = {1.0f, 2.0f, 4.0f};

static strait_err send(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command) {
    strait_stage_reply *reply = &channel->replies.items[member];
    *reply = (strait_stage_reply){.kind = command->kind};
    if (command->kind == STRAIT_COMMAND_TIME_PASSES) reply->time_passes.times.forward = 1.0;
    if (command->kind == STRAIT_COMMAND_PROPOSE_BASIS)
        reply->propose_basis.basis = (strait_floats){values, SQUARES};
    return STRAIT_OK;
}

static strait_err gather(struct strait_stage_channel *channel) {
    (void)channel;
    if (!is_kept) lose_owner();
    return STRAIT_OK;
}

static const struct strait_stage_channel_ops ops = {.send = send, .gather = gather};

static void on_noted(void *user, const char *text) {
    const size_t used = strlen(noted);
    (void)user;
    (void)snprintf(noted + used, sizeof noted - used, "%s\n", text);
}

static int never(void *user) {
    (void)user;
    return 0;
}

static const strait_host_spec spec = {
    .events = {.noted = on_noted}, .session = {.must_stop = never}, .probe_s = 1.0};

/* Stage i is of worker wi. The replies are those to a step. */
static void begin(const char *option, const char *other) {
    CHECK_OK(make("stages.count=3", option, other));
    executor = (struct strait_executor){.run = run, .plan = plan, .user = &h};
    h = (struct host){.run = run, .executor = &executor, .spec = &spec};
    h.coordinator.config.n_stages = STAGES;
    h.coordinator.phase = STRAIT_PHASE_READY;
    h.work.channel.ops = &ops;
    h.work.channel.n_members = plan.n_members;
    CHECK_OK(strait_stage_replies_init(&h.work.channel.replies, &plan));
    CHECK_OK(strait_pipeline_open(&executor, &h.work.channel, &h.pipeline));
    for (int i = 0; i < STAGES; i++) {
        strait_stage_reply *reply = &h.work.channel.replies.items[i];
        strait_swarm_report *report = &h.coordinator.workers[i].report;
        h.coordinator.owner[i] = i;
        *reply = (strait_stage_reply){.kind = STRAIT_COMMAND_GRADIENTS};
        reply->gradients.squares = (strait_floats){values, SQUARES};
        reply->gradients.loss_sum = 1.0;
        (void)snprintf(report->name, sizeof report->name, "w%d", i);
        (void)snprintf(report->device, sizeof report->device, "1 thread, neon");
        report->flops = 1e9;
    }
    noted[0] = '\0';
    n_fed = 0;
}

static void end(void) {
    strait_pipeline_close(&h.pipeline);
    strait_stage_replies_fini(&h.work.channel.replies);
    strait_host_history_fini(&h);
}

/* The kernels of nobody are those of no other: what the step gives again is compared loosely. */
static void results_are_kept_without_its_kernels(void **state) {
    (void)state;
    const strait_executor_report report = {.loss_sum = 1.0, .norm = 1.0};
    begin(NULL, NULL);
    strait_host_keep_result(&h, 3, &report);
    strait_host_note_step(&h, 3, &report);
    assert_string_not_equal(strait_host_find_step(&h, 3)->kernels[GONE], "");
    lose_owner();
    CHECK_OK(strait_host_check_replay(&h, 3, &report));
    strait_host_keep_result(&h, 4, &report);
    strait_host_note_step(&h, 4, &report);
    assert_string_equal(strait_host_find_step(&h, 4)->kernels[GONE], "");
    assert_string_not_equal(strait_host_find_step(&h, 4)->kernels[0], "");
    h.coordinator.replay.is_late[GONE] = 1;
    assert_int_equal(strait_host_find_difference(&h, 4, 0), -1);
    end();
}

/* Nobody is suspected in its place: the stage gets another owner, and the step is computed again.
 */
static void nobody_is_suspected_of_what_it_reported(void **state) {
    (void)state;
    begin(NULL, NULL);
    lose_owner();
    assert_int_equal(strait_host_verify_step(&h, 3, GONE, 0), STRAIT_EAGAIN);
    assert_int_equal(n_fed, 0);
    assert_string_equal(noted, "");
    /* The same of a worker that is there. */
    h.coordinator.phase = STRAIT_PHASE_READY;
    CHECK_OK(strait_host_verify_step(&h, 3, GONE, 0));
    assert_int_equal(n_fed, 1);
    end();
}

static void speeds_are_corrected_without_it(void **state) {
    (void)state;
    begin(NULL, NULL);
    for (int i = 0; i < STAGES; i++)
        h.work.channel.replies.items[i].time_passes.times.forward = i == 2 ? 100.0 : 1.0;
    lose_owner();
    strait_host_correct_speeds(&h);
    for (int i = 0; i < STAGES; i++)
        CHECK_NEAR(h.coordinator.workers[i].report.flops, 1e9, 0.0); // two are no majority
    end();
}

static void a_link_of_nobody_is_measured(void **state) {
    (void)state;
    begin(NULL, NULL);
    CHECK_OK(strait_host_measure(&h));
    CHECK(h.probes.is_known);
    assert_non_null(strstr(noted, "(w0 and a worker that has left"));
    assert_non_null(strstr(noted, "(a worker that has left and w2"));
    end();
}

/* Steps that were replayed may have ended the generation before the links are looked at. */
static void links_of_nobody_are_not_measured_again(void **state) {
    (void)state;
    begin(NULL, NULL);
    (void)snprintf(h.run.link.codec.chosen_for, sizeof h.run.link.codec.chosen_for, "1mbit");
    h.pace.n_steps = 2;
    lose_owner();
    CHECK_OK(strait_host_check_links(&h));
    assert_int_equal(h.probes.checked_ns, 0);
    end();
}

/* The last stage proposes a basis once more, and is gone when it is compared with the first. */
static void a_basis_of_nobody_is_not_compared(void **state) {
    (void)state;
    const strait_executor_report report = {.loss_sum = 1.0, .norm = 1.0};
    begin("link.codec.name=subspace", "link.codec.grassmann_every=1");
    CHECK(strait_run_plan_updates_basis(&plan, 3));
    CHECK_OK(strait_host_note_basis(&h, 3, &(strait_floats){values + 1, SQUARES}));
    strait_host_note_step(&h, 2, &report);
    strait_host_note_factor(&h, 2, 1.0f);
    h.coordinator.replay.is_late[STAGES - 1] = 1;
    h.coordinator.owner[STAGES - 1] = -1;
    CHECK_OK(strait_host_finish_step(&h, 2));
    end();
}

static void a_pipeline_that_is_gone_is_not_left_out(void **state) {
    (void)state;
    begin("stages.replicas=2", "train.outer.sync_every=1");
    strait_stage_replies_fini(&h.work.channel.replies);
    CHECK_OK(strait_host_channel_open(&h, &plan));
    for (int i = 0; i < STAGES; i++) {
        h.coordinator.n_helpers[i] = 1;
        h.coordinator.helper[i][0] = STAGES + i;
    }
    h.coordinator.owner[0] = -1;
    assert_int_equal(h.work.channel.ops->leave_out(&h.work.channel, 3), STRAIT_EAGAIN);
    assert_int_equal(n_fed, 1); // the second pipeline
    h.coordinator.owner[0] = -1;
    assert_int_equal(strait_host_repeat_updates(&h, 1), STRAIT_EAGAIN);
    end();
}

/* An owner sends a snapshot that is not what it took, and leaves while the host looks at it: its
 * slot is another's by then. */
static void a_snapshot_of_nobody_counts_against_no_other(void **state) {
    (void)state;
    for (int has_left = 0; has_left < 2; has_left++) {
        struct strait_link link = {0};
        begin(NULL, NULL);
        is_kept = 1;
        leaves = has_left;
        n_async = 0;
        h.links.items[0].link = &link;
        h.work.step = 1;
        h.coordinator.workers[0].is_known = 1;
        assert_int_equal(strait_host_write(&executor, "nowhere", 1), STRAIT_EIO);
        assert_int_equal(n_async, 2);
        assert_int_equal(n_fed, !has_left);
        is_kept = 0;
        end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_kept_without_its_kernels),
        cmocka_unit_test(nobody_is_suspected_of_what_it_reported),
        cmocka_unit_test(speeds_are_corrected_without_it),
        cmocka_unit_test(a_link_of_nobody_is_measured),
        cmocka_unit_test(links_of_nobody_are_not_measured_again),
        cmocka_unit_test(a_basis_of_nobody_is_not_compared),
        cmocka_unit_test(a_pipeline_that_is_gone_is_not_left_out),
        cmocka_unit_test(a_snapshot_of_nobody_counts_against_no_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
