/* apart.c - a crew whose stages live apart: processes joined by TLS, or threads joined by queues.
 * This is the conductor's side; serve.c is theirs. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "pipeline/crew.h"
#include "pipeline/launch.h"
#include "pipeline/limits.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEET_MS = 30000,
    LEAVE_MS = 3000,
    END_MS = 500 // to learn how a stage ended whose link broke
};

struct apart {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    struct strait_inproc_hub *hub; // NULL: processes
    struct strait_launched stages[STRAIT_RUN_STAGES];
    int peers[STRAIT_RUN_STAGES];
    strait_reply replies[STRAIT_RUN_STAGES];
    int has_reply[STRAIT_RUN_STAGES];
    float *squares; // of all stages, one behind the other, each with `room` places
    float *joined;  // without the gaps
    int room;
    char folder[64]; // where the run file for the stages lies; empty: none
    int64_t step;    // at hand, for messages
    int has_failed;
};

/* Says which stage failed and how it ended, where that is known: the cause before the symptom. */
static strait_err blame(struct strait_crew *crew, strait_err err) {
    struct apart *a = crew->state;
    char symptom[400];
    (void)snprintf(symptom, sizeof symptom, "%s", strait_err_detail());
    a->has_failed = 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < crew->recipe.n_stages; i++) {
            const char *ended = strait_launch_ended(&a->stages[i], round * END_MS);
            if (ended == NULL || strstr(ended, "killed") == NULL) continue;
            return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d %s at step %lld (%s)", i, ended,
                               (long long)a->step + 1, symptom);
        }
    }
    strait_err_note(__FILE__, __LINE__, "step %lld: %s", (long long)a->step + 1, symptom);
    return err;
}

static int stage_of_peer(const struct strait_crew *crew, int peer) {
    const struct apart *a = crew->state;
    for (int i = 0; i < crew->recipe.n_stages; i++)
        if (a->peers[i] == peer) return i;
    return -1;
}

static strait_err take_reply(struct strait_crew *crew, const struct strait_msg *msg, int stage) {
    struct apart *a = crew->state;
    strait_reply *reply = &a->replies[stage];
    STRAIT_TRY(
        strait_reply_unpack(msg, a->squares + (size_t)stage * (size_t)a->room, a->room, reply));
    a->has_reply[stage] = 1;
    /* A stage survives a checkpoint that it could not write; see write_files. */
    if (reply->err == STRAIT_OK || reply->kind == STRAIT_ORDER_SAVE) return STRAIT_OK;
    strait_err_note(__FILE__, __LINE__, "%s", reply->text);
    return reply->err;
}

static strait_err take_message(struct strait_crew *crew, const struct strait_msg *msg) {
    const int stage = stage_of_peer(crew, msg->peer);
    if (stage >= 0 && msg->type == STRAIT_MSG_REPLY) return take_reply(crew, msg, stage);
    if (msg->type == STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the conductor lost its link to stage %d: %.*s", stage,
                           (int)msg->size, (const char *)msg->body);
    return STRAIT_OK; // UP, or something late that no longer matters
}

static strait_err wait_replies(struct strait_crew *crew) {
    struct apart *a = crew->state;
    for (int i = 0; i < crew->recipe.n_stages;) {
        if (a->has_reply[i]) {
            i++;
            continue;
        }
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(a->mesh, -1, &msg));
        const strait_err err = take_message(crew, msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* The same order to all, and all their replies. */
static strait_err order_all(struct strait_crew *crew, const strait_order *order) {
    struct apart *a = crew->state;
    memset(a->has_reply, 0, sizeof a->has_reply);
    strait_err err = STRAIT_OK;
    for (int i = 0; i < crew->recipe.n_stages && err == STRAIT_OK; i++)
        err = strait_order_send(a->mesh, a->peers[i], order);
    if (err == STRAIT_OK) err = wait_replies(crew);
    return err == STRAIT_OK ? STRAIT_OK : blame(crew, err);
}

static strait_err order_one(struct strait_crew *crew, int stage, const strait_order *order) {
    struct apart *a = crew->state;
    for (int i = 0; i < crew->recipe.n_stages; i++)
        a->has_reply[i] = i != stage;
    strait_err err = strait_order_send(a->mesh, a->peers[stage], order);
    if (err == STRAIT_OK) err = wait_replies(crew);
    return err == STRAIT_OK ? STRAIT_OK : blame(crew, err);
}

/* The resolved run, in a file the stages can read; cores are shared out among them. */
static strait_err write_run(struct strait_crew *crew) {
    struct apart *a = crew->state;
    char path[128];
    strait_run *run = &crew->run;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const long share = cores / crew->recipe.n_stages;
    if (run->device.threads == 0) run->device.threads = share < 1 ? 1 : share;
    (void)snprintf(a->folder, sizeof a->folder, "/tmp/strait-run-XXXXXX");
    if (mkdtemp(a->folder) == NULL) {
        a->folder[0] = '\0';
        return STRAIT_FAIL(STRAIT_EIO, "/tmp: cannot make a folder there");
    }
    (void)snprintf(path, sizeof path, "%s/run.yaml", a->folder);
    return strait_run_save(run, path);
}

static void remove_run(struct apart *a) {
    if (a->folder[0] != '\0') (void)strait_file_remove_folder(a->folder);
    a->folder[0] = '\0';
}

static strait_err open_mesh(struct strait_crew *crew, strait_serve_start *start) {
    struct apart *a = crew->state;
    if (RAND_bytes(start->run_id, sizeof start->run_id) != 1)
        return STRAIT_FAIL(STRAIT_EDEVICE, "the system gives no random numbers");
    STRAIT_TRY(strait_identity_make(&a->identity));
    const int is_inproc = crew->run.link.transport == STRAIT_RUN_INPROC;
    if (is_inproc) STRAIT_TRY(strait_inproc_hub_open(&a->hub));
    strait_mesh_config config = {.scheme = is_inproc ? "inproc" : "tls",
                                 .transport = {.identity = a->identity,
                                               .name = "conductor",
                                               .n_streams = 1,
                                               .dead_ms = (int)(crew->run.link.deadline * 1e3),
                                               .hub = a->hub}};
    memcpy(config.transport.run, start->run_id, sizeof start->run_id);
    STRAIT_TRY(strait_mesh_open(&config, &a->mesh));
    start->conductor = *strait_identity_fingerprint(a->identity);
    (void)snprintf(start->scheme, sizeof start->scheme, "%s", config.scheme);
    (void)snprintf(start->run_path, sizeof start->run_path, "%s/run.yaml", a->folder);
    return strait_mesh_listen(a->mesh, is_inproc ? "conductor" : "127.0.0.1:0", start->address);
}

/* Tells each stage of its neighbours: first who may dial it, then whom to dial. */
static strait_err introduce(struct strait_crew *crew, const strait_fingerprint *keys,
                            char (*addresses)[STRAIT_ADDRESS_MAX]) {
    static _Thread_local strait_order order;
    for (int i = 1; i < crew->recipe.n_stages; i++) {
        order = (strait_order){.kind = STRAIT_ORDER_MEET, .key = keys[i - 1]};
        STRAIT_TRY(order_one(crew, i, &order));
    }
    for (int i = 0; i + 1 < crew->recipe.n_stages; i++) {
        order = (strait_order){.kind = STRAIT_ORDER_MEET, .key = keys[i + 1]};
        (void)snprintf(order.text, sizeof order.text, "%s", addresses[i + 1]);
        STRAIT_TRY(order_one(crew, i, &order));
    }
    return STRAIT_OK;
}

static strait_err start_stages(struct strait_crew *crew) {
    struct apart *a = crew->state;
    strait_serve_start start = {0};
    strait_fingerprint keys[STRAIT_RUN_STAGES];
    static _Thread_local char addresses[STRAIT_RUN_STAGES][STRAIT_ADDRESS_MAX];
    STRAIT_TRY(open_mesh(crew, &start));
    for (int i = 0; i < crew->recipe.n_stages; i++)
        STRAIT_TRY(strait_launch(i, a->hub, &a->stages[i]));
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        start.stage = i;
        STRAIT_TRY(strait_launch_meet(&a->stages[i], &start, &keys[i], addresses[i]));
        strait_mesh_peer peer = {.key = keys[i]};
        (void)snprintf(peer.name, sizeof peer.name, "stage %d", i);
        STRAIT_TRY(strait_mesh_add(a->mesh, &peer, &a->peers[i]));
        STRAIT_TRY(strait_launch_go(&a->stages[i]));
    }
    for (int i = 0; i < crew->recipe.n_stages; i++)
        STRAIT_TRY(strait_mesh_wait_up(a->mesh, a->peers[i], MEET_MS));
    return introduce(crew, keys, addresses);
}

static strait_err make_room(struct strait_crew *crew) {
    struct apart *a = crew->state;
    /* The widest stage's parameters: ten a block, and a few. */
    a->room = 10 * crew->recipe.shape.layers + 4 + 2 * STRAIT_CODEC_PARAMS;
    const size_t n = (size_t)a->room * (size_t)crew->recipe.n_stages;
    STRAIT_TRY(strait_alloc(n, sizeof *a->squares, "gradient norms", (void **)&a->squares));
    return strait_alloc(n, sizeof *a->joined, "gradient norms", (void **)&a->joined);
}

/* Opens every stage with one slot, times it, and opens it again with the slots its times and the
 * links' delays ask for. */
static strait_err open_stages(struct strait_crew *crew) {
    struct apart *a = crew->state;
    static _Thread_local strait_order order;
    strait_worker_times times[STRAIT_RUN_STAGES];
    order = (strait_order){.kind = STRAIT_ORDER_OPEN, .number = 1};
    STRAIT_TRY(order_all(crew, &order));
    (void)snprintf(crew->device, sizeof crew->device, "%d x %.48s", crew->recipe.n_stages,
                   a->replies[0].text);
    order.kind = STRAIT_ORDER_REHEARSE;
    STRAIT_TRY(order_all(crew, &order));
    for (int i = 0; i < crew->recipe.n_stages; i++)
        times[i] = a->replies[i].times;
    STRAIT_TRY(strait_limits_windows(&crew->recipe, (int)crew->run.stages.window, times,
                                     crew->windows, &crew->planned_tokens_per_s));
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        order = (strait_order){.kind = STRAIT_ORDER_OPEN, .number = crew->windows[i]};
        STRAIT_TRY(order_one(crew, i, &order));
    }
    return STRAIT_OK;
}

static strait_err open_apart(struct strait_crew *crew) {
    struct apart *a = crew->state;
    STRAIT_TRY(make_room(crew));
    STRAIT_TRY(write_run(crew));
    strait_err err = start_stages(crew);
    if (err == STRAIT_OK) err = open_stages(crew);
    remove_run(a);
    return err;
}

static void close_apart(struct strait_crew *crew) {
    struct apart *a = crew->state;
    static _Thread_local strait_order order;
    order = (strait_order){.kind = STRAIT_ORDER_LEAVE};
    if (a->mesh != NULL && !a->has_failed) (void)order_all(crew, &order);
    strait_mesh_close(&a->mesh); // stages that still wait for us see that we have gone
    for (int i = 0; i < crew->recipe.n_stages; i++)
        strait_launch_fini(&a->stages[i], a->has_failed ? END_MS : LEAVE_MS);
    strait_inproc_hub_close(&a->hub);
    strait_identity_close(&a->identity);
    strait_alloc_free(a->squares);
    strait_alloc_free(a->joined);
    remove_run(a);
}

static double all_norm(struct strait_crew *crew) {
    struct apart *a = crew->state;
    int n = 0;
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        memcpy(a->joined + n, a->squares + (size_t)i * (size_t)a->room,
               (size_t)a->replies[i].n_squares * sizeof(float));
        n += a->replies[i].n_squares;
    }
    return strait_crew_norm(a->joined, n);
}

static void sum_up(struct strait_crew *crew, strait_crew_report *report) {
    struct apart *a = crew->state;
    const int n = crew->recipe.n_stages;
    strait_worker_times times[STRAIT_RUN_STAGES];
    double spoiled = 0.0;
    for (int i = 0; i < n; i++) {
        const strait_reply *reply = &a->replies[i];
        const double forward = (double)reply->forward_bytes;
        const double backward = (double)reply->backward_bytes;
        times[i] = reply->times;
        report->loss_sum += reply->loss_sum;
        report->bubble += reply->times.wait / reply->times.wall / n;
        if (forward > report->forward_bytes) report->forward_bytes = forward;
        if (backward > report->backward_bytes) report->backward_bytes = backward;
        if (reply->residual > report->residual) report->residual = reply->residual;
        spoiled += reply->spoiled;
    }
    /* Numbers that are none were cut out on the way: what is left is no gradient to follow. */
    report->norm = spoiled > 0.0 ? NAN : all_norm(crew);
    report->limit = strait_limits_name(&crew->recipe, crew->windows, times, report->forward_bytes,
                                       report->backward_bytes);
}

static strait_err gradients(struct strait_crew *crew, int64_t step, strait_crew_report *out) {
    static _Thread_local strait_order order;
    strait_crew_report report = {0};
    ((struct apart *)crew->state)->step = step;
    order = (strait_order){.kind = STRAIT_ORDER_GRADIENTS, .step = step};
    STRAIT_TRY(order_all(crew, &order));
    sum_up(crew, &report);
    *out = report;
    return STRAIT_OK;
}

static strait_err update(struct strait_crew *crew, int64_t step, float factor) {
    static _Thread_local strait_order order;
    order = (strait_order){.kind = STRAIT_ORDER_UPDATE, .step = step, .factor = factor};
    return order_all(crew, &order);
}

static strait_err validate(struct strait_crew *crew, int64_t step, double *loss_sum) {
    const struct apart *a = crew->state;
    static _Thread_local strait_order order;
    order = (strait_order){.kind = STRAIT_ORDER_VALIDATE, .step = step};
    STRAIT_TRY(order_all(crew, &order));
    *loss_sum = a->replies[crew->recipe.n_stages - 1].loss_sum;
    return STRAIT_OK;
}

static strait_err write_files(struct strait_crew *crew, const char *folder, int64_t step) {
    static _Thread_local strait_order order;
    char real[STRAIT_PATH_MAX];
    if (realpath(folder, real) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: there is no such folder", folder);
    order = (strait_order){.kind = STRAIT_ORDER_SAVE, .step = step};
    (void)snprintf(order.text, sizeof order.text, "%s", real);
    STRAIT_TRY(order_all(crew, &order));
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        const strait_reply *reply = &((const struct apart *)crew->state)->replies[i];
        if (reply->err != STRAIT_OK) return STRAIT_FAIL(reply->err, "%s", reply->text);
    }
    return STRAIT_OK;
}

static strait_err read_files(struct strait_crew *crew, struct strait_checkpoint *checkpoint) {
    static _Thread_local strait_order order;
    order = (strait_order){.kind = STRAIT_ORDER_LOAD};
    if (realpath(strait_checkpoint_path(checkpoint), order.text) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: is gone", strait_checkpoint_path(checkpoint));
    return order_all(crew, &order);
}

/* Every stage writes a file of its own, beside the one that joins them. */
static strait_err write_traces(struct strait_crew *crew, const char *path,
                               char (*files)[STRAIT_ORDER_TEXT]) {
    static _Thread_local strait_order order;
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        const int n = snprintf(files[i], STRAIT_ORDER_TEXT, "%s.stage-%d", path, i);
        if (n < 0 || n >= STRAIT_ORDER_TEXT)
            return STRAIT_FAIL(STRAIT_EINVAL, "%s: too long a path", path);
        order = (strait_order){.kind = STRAIT_ORDER_TRACE};
        memcpy(order.text, files[i], sizeof order.text);
        STRAIT_TRY(order_one(crew, i, &order));
    }
    return STRAIT_OK;
}

static strait_err trace(struct strait_crew *crew, const char *path) {
    static _Thread_local strait_order begin;
    char(*files)[STRAIT_ORDER_TEXT] = NULL;
    const char *paths[STRAIT_RUN_STAGES];
    const int64_t offsets[STRAIT_RUN_STAGES] = {0}; // one machine, one clock
    begin = (strait_order){.kind = STRAIT_ORDER_TRACE};
    if (path == NULL) return order_all(crew, &begin);
    const int n = crew->recipe.n_stages;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *files, "trace files", (void **)&files));
    strait_err err = write_traces(crew, path, files);
    for (int i = 0; i < n; i++)
        paths[i] = files[i];
    if (err == STRAIT_OK) err = strait_trace_merge(paths, offsets, n, path);
    for (int i = 0; i < n; i++)
        (void)unlink(files[i]);
    strait_alloc_free(files);
    return err;
}

const struct strait_crew_ops strait_crew_apart = {
    .state_size = sizeof(struct apart),
    .open = open_apart,
    .close = close_apart,
    .gradients = gradients,
    .update = update,
    .validate = validate,
    .write = write_files,
    .read = read_files,
    .trace = trace,
};
