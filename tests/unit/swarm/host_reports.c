/* What a host makes of what workers claim and reply: rates of nearly nothing, late replies, and a
 * worker that is banned as a step ends. */
#include "check.h"
#include "swarm/host/replicas.h"
#include "swarm/host/state.h"
#include "train/pipeline.h"
#include "unit/config/run_plan_rig.h"

#include <float.h>
#include <math.h>

enum {
    STAGES = 2,
    SQUARES = 3
};

static struct host h; // large, and zeroed
static struct strait_executor executor;

/* A claim limits what the run file says, down to 1 kb/s: a simulated step ends. */
static void a_claimed_rate_has_a_floor(void **state) {
    (void)state;
    static const struct {
        double given, claimed, expected;
    } cases[] = {{0.0, 0.0, 0.0},        {0.0, 5e6, 5e6},       {8e6, 5e6, 5e6},
                 {8e6, 9e6, 8e6},        {8e6, 0.0, 8e6},       {8e6, 1.0, 1000.0},
                 {0.0, DBL_MIN, 1000.0}, {8e6, 1e-300, 1000.0}, {8e6, 999.9, 1000.0},
                 {500.0, 1.0, 500.0},    {8e6, -1.0, 8e6},      {8e6, NAN, 8e6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h.pace.up_bps[1] = h.pace.down_bps[1] = cases[i].given;
        h.coordinator.workers[3].report.up_bps = cases[i].claimed;
        h.coordinator.workers[3].report.down_bps = cases[i].claimed;
        CHECK_NEAR(strait_host_up_bps(&h, 3, 1), cases[i].expected, 0.0);
        CHECK_NEAR(strait_host_down_bps(&h, 3, 1), cases[i].expected, 0.0);
    }
}

/* A worker that answers, if to a command of an earlier generation, does not hang. */
static void a_late_reply_shows_that_a_worker_works(void **state) {
    (void)state;
    struct connection connection = {.worker = 5, .n_owed = 1};
    h.coordinator.workers[5].asked_ns = 1234;
    h.coordinator.workers[6].asked_ns = 1234;
    strait_host_count_reply(&h, &connection);
    assert_int_equal(connection.n_owed, 0);
    assert_int_equal(h.coordinator.workers[5].asked_ns, 0);
    assert_int_equal(h.coordinator.workers[6].asked_ns, 1234);
}

/* Two stages with two replicas each, whose last replies are those to a step. */
static void compute_step(const char *option, strait_executor_report *report) {
    static float squares[SQUARES] = {1.0f, 2.0f, 4.0f};
    CHECK_OK(make("stages.count=2", "stages.replicas=2", option));
    executor = (struct strait_executor){.run = run, .plan = plan};
    h = (struct host){.run = run, .executor = &executor};
    h.coordinator.config.n_stages = STAGES;
    for (int i = 0; i < STAGES; i++) {
        h.coordinator.owner[i] = i;
        h.coordinator.n_helpers[i] = 1;
        h.coordinator.helper[i][0] = STAGES + i;
        report->times[i] = (strait_step_times){.forward = 1.0, .wall = 1.0};
    }
    h.work.channel.n_members = plan.n_members;
    CHECK_OK(strait_stage_replies_init(&h.work.channel.replies, &plan));
    CHECK_OK(strait_pipeline_open(&executor, &h.work.channel, &h.pipeline));
    for (int i = 0; i < plan.n_members; i++) {
        strait_stage_reply *reply = &h.work.channel.replies.items[i];
        reply->kind = STRAIT_COMMAND_GRADIENTS;
        reply->gradients.times.forward = 3.0;
        reply->gradients.squares = (strait_floats){squares, SQUARES};
        reply->gradients.loss_sum = 1.0;
    }
}

/* The owner of a stage, or a further replica, is gone when its reply is looked at: nothing is
 * written before the arrays that workers have their places in. */
static void a_worker_banned_as_a_step_ends_has_no_place(void **state) {
    (void)state;
    for (int is_helper = 0; is_helper < 2; is_helper++) {
        strait_executor_report report = {.forward_bytes = 100.0, .backward_bytes = 100.0};
        compute_step(NULL, &report);
        if (is_helper)
            h.coordinator.helper[1][0] = -1;
        else
            h.coordinator.owner[1] = -1;
        for (int step = 0; step < 4; step++) // shares are chosen again meanwhile
            strait_host_note_speeds(&h, &report);
        CHECK_OK(strait_host_verify_step(&h, 4, -1, 0));
        CHECK_NEAR(h.pace.busy_s[STRAIT_RUN_STAGES - 1], 0.0, 0.0); // lies before batch_s
        CHECK(h.pace.batch_s[0] > 0.0);
        CHECK(h.coordinator.workers[0].tokens > 0);
        strait_pipeline_close(&h.pipeline);
        strait_stage_replies_fini(&h.work.channel.replies);
    }
}

static strait_err send(struct strait_stage_channel *channel, int member,
                       const strait_stage_command *command) {
    channel->replies.items[member] = (strait_stage_reply){.kind = command->kind};
    channel->replies.items[member].outer.is_complete = 1;
    return STRAIT_OK;
}

static strait_err gather(struct strait_stage_channel *channel) {
    (void)channel;
    return STRAIT_OK;
}

static const struct strait_stage_channel_ops ops = {.send = send, .gather = gather};

static char noted[256];

static void on_noted(void *user, const char *text) {
    (void)user;
    (void)snprintf(noted, sizeof noted, "%s", text);
}

/* The log of an average names those that are left. */
static void an_average_names_nobody_who_is_banned(void **state) {
    (void)state;
    const strait_host_spec spec = {.events = {.noted = on_noted}};
    strait_executor_report report = {0};
    compute_step("train.outer.sync_every=1", &report);
    h.spec = &spec;
    h.work.channel.ops = &ops;
    h.work.channel.labels = h.averages.pipelines;
    for (int i = 0; i < 4; i++)
        (void)snprintf(h.coordinator.workers[i].report.name,
                       sizeof h.coordinator.workers[i].report.name, "w%d", i);
    h.coordinator.helper[1][0] = -1;
    h.averages.pipelines[1] = 1;
    CHECK_OK(strait_host_average_once(&h, 1));
    assert_string_equal(noted, "step 1: averaged pipelines 0 (w0, w1), 1 (w2, lost since)");
    strait_pipeline_close(&h.pipeline);
    strait_stage_replies_fini(&h.work.channel.replies);
}

/* With audits a GPU is no further replica: the host says so, once. */
static void says_that_gpus_stay_spares_with_audits(void **state) {
    (void)state;
    static struct host_audits audits;
    const strait_host_spec spec = {.events = {.noted = on_noted}};
    for (int has_audits = 0; has_audits < 2; has_audits++) {
        strait_executor_report report = {0};
        compute_step(NULL, &report);
        audits = (struct host_audits){0};
        h.spec = &spec;
        h.audits = has_audits ? &audits : NULL;
        h.coordinator.phase = STRAIT_PHASE_READY;
        h.coordinator.config.replicas_limit = 8;
        h.run.train.steps = 1000;
        h.pace.n_steps = 1;
        for (int i = 0; i < STAGES + 3; i++) { // three are spares, one more than audits keep
            strait_swarm_worker *worker = &h.coordinator.workers[i];
            *worker = (strait_swarm_worker){.is_known = 1, .is_connected = 1, .stage = -1};
            worker->helps = worker->will_help = -1;
            if (i < STAGES) worker->stage = i;
            (void)snprintf(worker->report.name, sizeof worker->report.name, "w%d", i);
            (void)snprintf(worker->report.device, sizeof worker->report.device, "%s",
                           i < STAGES ? "1 thread, avx2" : "a GPU");
        }
        noted[0] = '\0';
        for (int i = 0; i < 2; i++) {
            CHECK_OK(strait_host_recruit(&h, 1));
            if (has_audits && i == 0)
                assert_non_null(strstr(noted, "audits: w2 and other workers on GPUs stay spares"));
            else
                assert_null(strstr(noted, "GPUs"));
            noted[0] = '\0';
        }
        strait_pipeline_close(&h.pipeline);
        strait_stage_replies_fini(&h.work.channel.replies);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claimed_rate_has_a_floor),
        cmocka_unit_test(a_late_reply_shows_that_a_worker_works),
        cmocka_unit_test(a_worker_banned_as_a_step_ends_has_no_place),
        cmocka_unit_test(an_average_names_nobody_who_is_banned),
        cmocka_unit_test(says_that_gpus_stay_spares_with_audits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
