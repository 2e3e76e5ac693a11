/* apart.c - a crew whose stages live apart: processes joined by TLS, or threads joined by queues.
 * This is the conductor's side; serve.c is theirs. */
#include "train/remote_executor.h"

#include "base/alloc.h"
#include "base/file.h"
#include "stage/limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAVE_MS = 3000,
    END_MS = 500 // to learn how a stage ended whose link broke
};

/* Says which stage failed and how it ended, where that is known: the cause before the symptom. */
static strait_err blame(struct strait_executor *executor, strait_err err) {
    struct remote *a = executor->state;
    char symptom[400];
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    a->has_failed = 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < executor->plan.n_stages; i++) {
            const char *ended = strait_launch_ended(&a->stages[i], round * END_MS);
            if (ended == NULL || strstr(ended, "killed") == NULL) continue;
            return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d %s at step %lld (%s)", i, ended,
                               (long long)a->step + 1, symptom);
        }
    }
    strait_err_note(__FILE__, __LINE__, "step %lld: %s", (long long)a->step + 1, symptom);
    return err;
}

static int stage_of_peer(const struct strait_executor *executor, int peer) {
    const struct remote *a = executor->state;
    for (int i = 0; i < executor->plan.n_stages; i++)
        if (a->peers[i] == peer) return i;
    return -1;
}

static strait_err take_reply(struct strait_executor *executor, const struct strait_msg *msg,
                             int stage) {
    struct remote *a = executor->state;
    strait_reply *reply = &a->replies[stage];
    STRAIT_TRY(strait_reply_unpack(msg, a->squares + (size_t)stage * (size_t)a->capacity,
                                   a->capacity, reply));
    a->has_reply[stage] = 1;
    /* A stage survives a checkpoint that it could not write; see write_files. */
    if (reply->err == STRAIT_OK || reply->kind == STRAIT_COMMAND_SAVE) return STRAIT_OK;
    strait_err_note(__FILE__, __LINE__, "%s", reply->text);
    return reply->err;
}

static strait_err take_message(struct strait_executor *executor, const struct strait_msg *msg) {
    const int stage = stage_of_peer(executor, msg->peer);
    if (stage >= 0 && msg->type == STRAIT_MSG_REPLY) return take_reply(executor, msg, stage);
    if (msg->type == STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the conductor lost its link to stage %d: %.*s", stage,
                           (int)msg->size, (const char *)msg->body);
    return STRAIT_OK; // UP, or something late that no longer matters
}

static strait_err wait_replies(struct strait_executor *executor) {
    struct remote *a = executor->state;
    for (int i = 0; i < executor->plan.n_stages;) {
        if (a->has_reply[i]) {
            i++;
            continue;
        }
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(a->mesh, -1, &msg));
        const strait_err err = take_message(executor, msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

strait_err strait_remote_command_all(struct strait_executor *executor,
                                     const strait_stage_command *command) {
    struct remote *a = executor->state;
    if (a->carry != NULL) return a->carry(executor, -1, command);
    memset(a->has_reply, 0, sizeof a->has_reply);
    strait_err err = STRAIT_OK;
    for (int i = 0; i < executor->plan.n_stages && err == STRAIT_OK; i++)
        err = strait_stage_command_send(a->mesh, a->peers[i], command);
    if (err == STRAIT_OK) err = wait_replies(executor);
    return err == STRAIT_OK ? STRAIT_OK : blame(executor, err);
}

strait_err strait_remote_command_one(struct strait_executor *executor, int stage,
                                     const strait_stage_command *command) {
    struct remote *a = executor->state;
    if (a->carry != NULL) return a->carry(executor, stage, command);
    for (int i = 0; i < executor->plan.n_stages; i++)
        a->has_reply[i] = i != stage;
    strait_err err = strait_stage_command_send(a->mesh, a->peers[stage], command);
    if (err == STRAIT_OK) err = wait_replies(executor);
    return err == STRAIT_OK ? STRAIT_OK : blame(executor, err);
}

strait_err strait_remote_allocate(struct strait_executor *executor) {
    struct remote *a = executor->state;
    const int64_t basis = executor->plan.codec.cols * executor->plan.codec.keep;
    a->capacity = (int)basis; // a turned one comes the same way as the norms of all parameters
    for (int i = 0; i < executor->plan.n_stages; i++) {
        strait_runner_memory memory;
        STRAIT_TRY(strait_runner_plan(&executor->plan, i, 1, &memory));
        if (memory.n_params > a->capacity) a->capacity = memory.n_params;
    }
    const size_t n = (size_t)a->capacity * (size_t)executor->plan.n_stages;
    STRAIT_TRY(strait_alloc(n, sizeof *a->squares, "gradient norms", (void **)&a->squares));
    return strait_alloc(n, sizeof *a->joined, "gradient norms", (void **)&a->joined);
}

/* Opens every stage with its slots. They do so at once: a stage may take seconds to make its
 * weights. */
static strait_err open_with_slots(struct strait_executor *executor) {
    struct remote *a = executor->state;
    static _Thread_local strait_stage_command command;
    strait_err err = STRAIT_OK;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN};
    if (a->carry != NULL)
        return a->carry(executor, -1, &command); // who carries it fills in the slots
    memset(a->has_reply, 0, sizeof a->has_reply);
    for (int i = 0; i < executor->plan.n_stages && err == STRAIT_OK; i++) {
        command.number = executor->windows[i];
        err = strait_stage_command_send(a->mesh, a->peers[i], &command);
    }
    if (err == STRAIT_OK) err = wait_replies(executor);
    return err == STRAIT_OK ? STRAIT_OK : blame(executor, err);
}

strait_err strait_remote_open_stages(struct strait_executor *executor) {
    struct remote *a = executor->state;
    static _Thread_local strait_stage_command command;
    strait_step_times times[STRAIT_RUN_STAGES];
    double delays[STRAIT_RUN_STAGES];
    uint64_t spare[STRAIT_RUN_STAGES];
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN, .number = 1};
    if (a->carry != NULL)
        STRAIT_TRY(strait_remote_command_all(executor, &command)); // it may have more
    command = (strait_stage_command){.kind = STRAIT_COMMAND_TIME_PASSES};
    STRAIT_TRY(strait_remote_command_all(executor, &command));
    for (int i = 0; i < executor->plan.n_stages; i++) {
        times[i] = a->replies[i].times;
        delays[i] = a->replies[i].delay;
        spare[i] = a->replies[i].device_spare;
    }
    STRAIT_TRY(strait_limits_windows(&executor->plan, (int)executor->run.stages.window, times,
                                     delays, executor->plan.scratch_bytes > 0 ? spare : NULL,
                                     executor->windows, &executor->planned_tokens_per_s));
    STRAIT_TRY(open_with_slots(executor));
    (void)snprintf(executor->device, sizeof executor->device, "%d stages, %.100s",
                   executor->plan.n_stages, a->replies[0].text);
    return STRAIT_OK;
}

static strait_err open_apart(struct strait_executor *executor) {
    struct remote *a = executor->state;
    STRAIT_TRY(strait_remote_allocate(executor));
    strait_err err = strait_remote_start(executor);
    a->has_failed |= err != STRAIT_OK; // those that did come up are told by the mesh closing
    if (err == STRAIT_OK) err = strait_remote_open_stages(executor);
    strait_remote_remove_run(a);
    return err;
}

static void close_apart(struct strait_executor *executor) {
    struct remote *a = executor->state;
    static _Thread_local strait_stage_command command;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_LEAVE};
    if (a->mesh != NULL && !a->has_failed) (void)strait_remote_command_all(executor, &command);
    strait_mesh_close(&a->mesh); // stages that still wait for us see that we have gone
    for (int i = 0; i < executor->plan.n_stages; i++)
        strait_launch_fini(&a->stages[i], a->has_failed ? END_MS : LEAVE_MS);
    strait_inproc_network_close(&a->hub);
    strait_identity_close(&a->identity);
    strait_alloc_free(a->squares);
    strait_alloc_free(a->joined);
    strait_remote_remove_run(a);
}

static double all_norm(struct strait_executor *executor) {
    struct remote *a = executor->state;
    int n = 0;
    for (int i = 0; i < executor->plan.n_stages; i++) {
        memcpy(a->joined + n, a->squares + (size_t)i * (size_t)a->capacity,
               (size_t)a->replies[i].n_values * sizeof(float));
        n += a->replies[i].n_values;
    }
    return strait_executor_norm(a->joined, n);
}

static int knows_links(const struct strait_executor *executor) {
    const strait_emulate_spec *e = &executor->plan.emulate;
    return executor->run.link.transport == STRAIT_RUN_INPROC || e->rate_bps > 0 ||
           e->delay_ns > 0 || e->jitter_ns > 0 || e->loss > 0;
}

static void sum_up(struct strait_executor *executor, strait_executor_report *report) {
    struct remote *a = executor->state;
    const int n = executor->plan.n_stages;
    strait_step_times times[STRAIT_RUN_STAGES];
    double spoiled = 0.0;
    for (int i = 0; i < n; i++) {
        const strait_reply *reply = &a->replies[i];
        const double forward = (double)reply->forward_bytes;
        const double backward = (double)reply->backward_bytes;
        times[i] = reply->times;
        executor->device_bytes[i] = reply->device_bytes;
        report->loss_sum += reply->loss_sum;
        report->bubble += reply->times.wait / reply->times.wall / n;
        if (forward > report->forward_bytes) report->forward_bytes = forward;
        if (backward > report->backward_bytes) report->backward_bytes = backward;
        report->residual_forward[i] = reply->residual[STRAIT_SENDER];
        if (i > 0) report->residual_backward[i - 1] = reply->residual[STRAIT_RECEIVER];
        spoiled += reply->spoiled + reply->refused[STRAIT_SENDER] + reply->refused[STRAIT_RECEIVER];
    }
    /* Numbers that are none were cut out on the way: what is left is no gradient to follow. */
    report->norm = spoiled > 0.0 ? NAN : all_norm(executor);
    report->limit = strait_limits_name(&executor->plan, executor->windows, times,
                                       knows_links(executor), report->forward_bytes,
                                       report->backward_bytes);
    report->metered_s = strait_limits_metered(&executor->plan, executor->windows, times,
                                              report->forward_bytes, report->backward_bytes);
}

static strait_err gradients(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out) {
    static _Thread_local strait_stage_command command;
    strait_executor_report report = {0};
    ((struct remote *)executor->state)->step = step;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_GRADIENTS, .step = step};
    STRAIT_TRY(strait_remote_command_all(executor, &command));
    sum_up(executor, &report);
    *out = report;
    return STRAIT_OK;
}

/* The last stage says where, all stages follow. */
static strait_err turn_basis(struct strait_executor *executor, int64_t step) {
    const struct remote *a = executor->state;
    static _Thread_local strait_stage_command command;
    const int last = executor->plan.n_stages - 1;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_PROPOSE_BASIS};
    STRAIT_TRY(strait_remote_command_one(executor, last, &command));
    memcpy(a->joined, a->replies[last].values,
           (size_t)a->replies[last].n_values * sizeof *a->joined);
    command = (strait_stage_command){
        .kind = STRAIT_COMMAND_ADOPT_BASIS,
        .number = (int)step, // rises, whatever grassmann_every was before
        .values = a->joined,
        .n_values = a->replies[last].n_values};
    return strait_remote_command_all(executor, &command);
}

static strait_err update(struct strait_executor *executor, int64_t step, float factor) {
    static _Thread_local strait_stage_command command;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_UPDATE, .step = step, .factor = factor};
    STRAIT_TRY(strait_remote_command_all(executor, &command));
    if (!strait_run_plan_updates_basis(&executor->plan, step + 1)) return STRAIT_OK;
    return turn_basis(executor, step + 1);
}

static strait_err validate(struct strait_executor *executor, int64_t step, double *loss_sum) {
    const struct remote *a = executor->state;
    static _Thread_local strait_stage_command command;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_VALIDATE, .step = step};
    STRAIT_TRY(strait_remote_command_all(executor, &command));
    *loss_sum = a->replies[executor->plan.n_stages - 1].loss_sum;
    return STRAIT_OK;
}

static strait_err write_files(struct strait_executor *executor, const char *folder, int64_t step) {
    static _Thread_local strait_stage_command command;
    char real[STRAIT_PATH_MAX];
    if (realpath(folder, real) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: no such folder", folder);
    command = (strait_stage_command){.kind = STRAIT_COMMAND_SAVE, .step = step};
    (void)snprintf(command.text, sizeof command.text, "%s", real);
    STRAIT_TRY(strait_remote_command_all(executor, &command));
    for (int i = 0; i < executor->plan.n_stages; i++) {
        const strait_reply *reply = &((const struct remote *)executor->state)->replies[i];
        if (reply->err != STRAIT_OK) return STRAIT_FAIL(reply->err, "%s", reply->text);
    }
    return STRAIT_OK;
}

static strait_err read_files(struct strait_executor *executor,
                             struct strait_checkpoint *checkpoint) {
    static _Thread_local strait_stage_command command;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_LOAD};
    if (realpath(strait_checkpoint_path(checkpoint), command.text) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: is gone", strait_checkpoint_path(checkpoint));
    return strait_remote_command_all(executor, &command);
}

/* Every stage writes a file of its own, beside the one that joins them. */
static strait_err write_traces(struct strait_executor *executor, const char *path,
                               char (*files)[STRAIT_COMMAND_TEXT]) {
    static _Thread_local strait_stage_command command;
    for (int i = 0; i < executor->plan.n_stages; i++) {
        const int n = snprintf(files[i], STRAIT_COMMAND_TEXT, "%s.stage-%d", path, i);
        if (n < 0 || n >= STRAIT_COMMAND_TEXT)
            return STRAIT_FAIL(STRAIT_EINVAL, "%s: too long a path", path);
        command = (strait_stage_command){.kind = STRAIT_COMMAND_TRACE};
        memcpy(command.text, files[i], sizeof command.text);
        STRAIT_TRY(strait_remote_command_one(executor, i, &command));
    }
    return STRAIT_OK;
}

static strait_err trace(struct strait_executor *executor, const char *path) {
    static _Thread_local strait_stage_command begin;
    char(*files)[STRAIT_COMMAND_TEXT] = NULL;
    const char *paths[STRAIT_RUN_STAGES];
    const int64_t offsets[STRAIT_RUN_STAGES] = {0}; // one machine, one clock
    begin = (strait_stage_command){.kind = STRAIT_COMMAND_TRACE};
    if (path == NULL) return strait_remote_command_all(executor, &begin);
    const int n = executor->plan.n_stages;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *files, "trace files", (void **)&files));
    strait_err err = write_traces(executor, path, files);
    for (int i = 0; i < n; i++)
        paths[i] = files[i];
    if (err == STRAIT_OK) err = strait_trace_merge(paths, offsets, n, path);
    for (int i = 0; i < n; i++)
        (void)unlink(files[i]);
    strait_alloc_free(files);
    return err;
}

const struct strait_executor_ops strait_remote_executor = {
    .state_size = sizeof(struct remote),
    .open = open_apart,
    .close = close_apart,
    .gradients = gradients,
    .update = update,
    .validate = validate,
    .write = write_files,
    .read = read_files,
    .trace = trace,
};
