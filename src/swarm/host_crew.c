/* host_crew.c - the workers of a swarm as a crew: what a trainer asks for is done, however often
 * the stages have to go back and come again. */
#include "base/alloc.h"
#include "base/clock.h"
#include "pipeline/run.h"
#include "swarm/host_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WAIT_MS = 100,
    KEEP_MAX = 1000000
};

static const double keep_share = 0.02; // of the time, for images and sealing their copies

static struct host *host_of(struct strait_crew *crew) {
    return crew->user;
}

/* Until the stages stand ready; their step is then h->at. */
static strait_err wait_ready(struct host *h) {
    while (h->machine.phase != STRAIT_SWARM_READY) {
        STRAIT_TRY(strait_host_pump(h, WAIT_MS));
        if (h->spec->session.must_stop(h->spec->session.user) &&
            h->machine.phase == STRAIT_SWARM_GATHER)
            return STRAIT_FAIL(STRAIT_EINTERRUPTED,
                               "stopped while waiting for machines; what was committed is kept");
    }
    return STRAIT_OK;
}

static int is_slow(strait_order_kind kind) {
    return kind == STRAIT_ORDER_OPEN || kind == STRAIT_ORDER_REHEARSE || kind == STRAIT_ORDER_SAVE;
}

strait_err strait_host_carry(struct strait_crew *crew, int stage, const strait_order *order) {
    struct host *h = host_of(crew);
    STRAIT_TRY(wait_ready(h));
    if (h->has_rolled) return STRAIT_EAGAIN;
    h->order = order;
    h->is_done = 0;
    strait_host_tell(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                 .goal = {.stage = stage,
                                          .step = order->step,
                                          .is_update = order->kind == STRAIT_ORDER_UPDATE,
                                          .is_begin = order->kind == STRAIT_ORDER_GRADIENTS,
                                          .is_slow = is_slow(order->kind)}});
    strait_err err = STRAIT_OK;
    while (err == STRAIT_OK && !h->is_done && h->machine.phase == STRAIT_SWARM_WORK)
        err = strait_host_pump(h, WAIT_MS);
    h->order = NULL;
    STRAIT_TRY(err);
    if (h->is_done) return STRAIT_OK;
    STRAIT_TRY(wait_ready(h));
    return STRAIT_EAGAIN;
}

/* What the step that was just made took. */
static void see_times(struct strait_crew *crew, double began) {
    struct host *h = host_of(crew);
    const struct apart *a = crew->state;
    h->step_s = strait_clock_seconds() - began;
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        const strait_worker_times *t = &a->replies[i].times;
        h->busy_s[i] = t->forward + t->input + t->weights + t->codec;
    }
}

/* How often an image is worth its time, how much work may be lost, and how long the copies take: a
 * copy that comes when all others have gone on to newer images helps nobody. */
static void choose_cadence(struct host *h) {
    const struct apart *a = h->crew->state;
    double copy_s = 0.0;
    for (int i = 0; i < h->crew->recipe.n_stages; i++) {
        if (a->replies[i].times.wall > h->image_s) h->image_s = a->replies[i].times.wall;
        if (a->replies[i].delay > copy_s) copy_s = a->replies[i].delay;
    }
    if (copy_s > 0.0) h->copy_s = copy_s; // there are images
    if (h->step_s <= 0.0) return;
    const double worth = ceil(h->image_s / keep_share / h->step_s);
    const double most = floor(h->spec->lose_s / h->step_s);
    double every = worth < most ? worth : most;
    if (every < 1.0) every = 1.0;
    if (every < ceil(h->copy_s / h->step_s)) every = ceil(h->copy_s / h->step_s);
    h->keep_every = every > KEEP_MAX ? KEEP_MAX : (int)every;
}

static strait_err make_step(struct strait_crew *crew, int64_t step);

strait_err strait_host_bring_to(struct strait_crew *crew, int64_t step) {
    struct host *h = host_of(crew);
    do {
        STRAIT_TRY(wait_ready(h));
        h->has_rolled = 0;
        while (h->at < step && !h->has_rolled) {
            const strait_err err = make_step(crew, h->at);
            if (err != STRAIT_OK && err != STRAIT_EAGAIN) return err;
        }
    } while (h->has_rolled);
    return STRAIT_OK;
}

/* The stage where numbers ceased to be any; -1: they are still. */
static int find_spoiled(const struct strait_crew *crew) {
    const struct apart *a = crew->state;
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        const strait_reply *reply = &a->replies[i];
        const float *squares = a->squares + (size_t)i * (size_t)a->room;
        if (!(reply->spoiled == 0.0) || !isfinite(reply->loss_sum)) return i;
        for (int k = 0; k < reply->n_values; k++)
            if (!isfinite(squares[k])) return i;
    }
    return -1;
}

/* Where a step is among those whose numbers were none; NULL: it is not. */
static int64_t *find_doubted(struct host *h, int64_t step) {
    for (int i = 0; i < STRAIT_HOST_DOUBTS; i++)
        if (h->doubted[i] == step) return &h->doubted[i];
    return NULL;
}

/* A step whose numbers are none is made once more, on another machine if there is one, before that
 * is believed, also of those that are made again on the way there. STRAIT_EAGAIN: it has to be. */
static strait_err doubt(struct strait_crew *crew, int64_t step) {
    struct host *h = host_of(crew);
    const int stage = find_spoiled(crew);
    int64_t *doubted = find_doubted(h, step);
    if (doubted != NULL && stage < 0) *doubted = -1; // it was not so
    if (doubted != NULL || stage < 0) return STRAIT_OK;
    h->doubted[h->n_doubted++ % STRAIT_HOST_DOUBTS] = step;
    strait_host_tell(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_DOUBT, .node = h->machine.owner[stage]});
    STRAIT_TRY(wait_ready(h));
    return STRAIT_EAGAIN;
}

/* A step that was made before, again. */
static strait_err make_step(struct strait_crew *crew, int64_t step) {
    struct host *h = host_of(crew);
    strait_crew_report report;
    STRAIT_TRY(strait_crew_apart.gradients(crew, step, &report));
    STRAIT_TRY(doubt(crew, step));
    const double loss = report.loss_sum / (double)crew->run.train.batch_tokens;
    if (isfinite(loss) && isfinite(report.norm))
        STRAIT_TRY(strait_crew_apart.update(crew, step,
                                            strait_crew_factor(crew->run.train.clip, report.norm)));
    h->at = step + 1;
    return STRAIT_OK;
}

static strait_err gradients(struct strait_crew *crew, int64_t step, strait_crew_report *out) {
    struct host *h = host_of(crew);
    strait_err err = STRAIT_EAGAIN;
    strait_host_see_checkpoint(h);
    while (err == STRAIT_EAGAIN) {
        STRAIT_TRY(strait_host_bring_to(crew, step));
        strait_host_recut(h, step);
        const double began = strait_clock_seconds();
        err = strait_crew_apart.gradients(crew, step, out);
        if (err == STRAIT_OK) see_times(crew, began);
        if (err == STRAIT_OK) err = doubt(crew, step);
    }
    /* The trainer will not update by what is no number. */
    if (err == STRAIT_OK && !(isfinite(out->loss_sum) && isfinite(out->norm))) h->at = step + 1;
    return err;
}

static strait_err update(struct strait_crew *crew, int64_t step, float factor) {
    struct host *h = host_of(crew);
    strait_err err = strait_crew_apart.update(crew, step, factor);
    if (err == STRAIT_EAGAIN) return strait_host_bring_to(crew, step + 1); // to the same bits
    if (err != STRAIT_OK) return err;
    h->at = step + 1;
    choose_cadence(h);
    return STRAIT_OK;
}

static strait_err validate(struct strait_crew *crew, int64_t step, double *loss_sum) {
    for (;;) {
        STRAIT_TRY(strait_host_bring_to(crew, step));
        const strait_err err = strait_crew_apart.validate(crew, step, loss_sum);
        if (err != STRAIT_EAGAIN) return err;
    }
}

/* The machine has seen to it: stages were restored from the checkpoint, or from something newer. */
static strait_err read_files(struct strait_crew *crew, struct strait_checkpoint *checkpoint) {
    (void)crew;
    (void)checkpoint;
    return STRAIT_OK;
}

static strait_err trace(struct strait_crew *crew, const char *path) {
    (void)crew;
    (void)path;
    return STRAIT_FAIL(STRAIT_ENOTSUP, "a swarm writes no traces");
}

/* ---- opening ---- */

/* The run as workers see it: complete, and without our paths and devices. */
static strait_err describe_run(struct host *h, const struct strait_crew *crew) {
    static _Thread_local strait_run run; // large
    run = crew->run;
    run.data.train[0] = run.data.valid[0] = run.data.tokenizer[0] = '\0';
    run.stages.launch[0] = '\0';
    (void)snprintf(run.device.kind, sizeof run.device.kind, "cpu");
    run.device.ordinal = run.device.threads = 0;
    run.model.vocab = crew->recipe.shape.vocab;
    run.stages.microbatch = crew->recipe.microbatch;
    run.stages.split.n = crew->recipe.n_stages;
    for (int i = 0; i < crew->recipe.n_stages; i++)
        run.stages.split.items[i] = crew->recipe.parts[i].last - crew->recipe.parts[i].first;
    const size_t bytes = strait_options_render(strait_run_options(), &run, h->task_text,
                                               sizeof h->task_text);
    return bytes < sizeof h->task_text
               ? STRAIT_OK
               : STRAIT_FAIL(STRAIT_EINVAL, "the run's description has %zu bytes", bytes);
}

/* What a stage and its images take. */
static strait_err find_needs(struct host *h, const struct strait_crew *crew) {
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        strait_worker_memory m;
        STRAIT_TRY(strait_worker_plan(&crew->recipe, i, 1, &m));
        h->machine.config.need_bytes[i] = strait_image_need(&m);
    }
    return STRAIT_OK;
}

/* Times the stages and gives them the slots they want. */
static strait_err rehearse(struct strait_crew *crew) {
    struct host *h = host_of(crew);
    strait_err err = STRAIT_EAGAIN;
    while (err == STRAIT_EAGAIN) {
        STRAIT_TRY(strait_host_bring_to(crew, 0));
        err = strait_apart_open_stages(crew);
    }
    STRAIT_TRY(err);
    memcpy(h->windows, crew->windows, sizeof h->windows);
    return strait_host_save_run(h);
}

static void default_windows(struct host *h, const struct strait_crew *crew) {
    for (int i = 0; i < crew->recipe.n_stages; i++) {
        const int64_t ahead = crew->recipe.n_stages - i;
        if (h->windows[i] > 0) continue;
        h->windows[i] = (int)(ahead < crew->recipe.n_microbatches ? ahead
                                                                  : crew->recipe.n_microbatches);
    }
}

static strait_err open_swarm(struct strait_crew *crew) {
    struct host *h = host_of(crew);
    struct apart *a = crew->state;
    const size_t n = (size_t)(crew->recipe.microbatch * crew->recipe.shape.context);
    a->carry = strait_host_carry;
    h->crew = crew;
    STRAIT_TRY(strait_apart_make_room(crew));
    STRAIT_TRY(strait_alloc(2 * n, sizeof *h->ids, "ids", (void **)&h->ids));
    STRAIT_TRY(describe_run(h, crew));
    STRAIT_TRY(find_needs(h, crew));
    STRAIT_TRY(strait_host_find_checkpoint(h));
    const int is_new = h->machine.committed == 0 && crew->recipe.n_stages > 1;
    if (!is_new) default_windows(h, crew);
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_START});
    STRAIT_TRY(wait_ready(h));
    if (is_new && h->at == 0 && h->windows[0] == 0) STRAIT_TRY(rehearse(crew));
    memcpy(crew->windows, h->windows, sizeof crew->windows);
    (void)snprintf(crew->device, sizeof crew->device, "%d machines", crew->recipe.n_stages);
    crew->step = h->at;
    h->has_rolled = 0;
    return STRAIT_OK;
}

static void close_swarm(struct strait_crew *crew) {
    struct host *h = host_of(crew);
    struct apart *a = crew->state;
    h->crew = NULL;
    strait_alloc_free(h->ids);
    h->ids = NULL;
    strait_alloc_free(a->squares);
    strait_alloc_free(a->joined);
}

static strait_err beside(struct strait_crew *crew, strait_err (*run)(void *arg), void *arg) {
    return strait_host_beside(crew->user, run, arg, strait_host_hold_on);
}

const struct strait_crew_ops strait_crew_swarm = {
    .state_size = sizeof(struct apart),
    .open = open_swarm,
    .close = close_swarm,
    .gradients = gradients,
    .update = update,
    .validate = validate,
    .write = strait_host_write,
    .read = read_files,
    .trace = trace,
    .beside = beside,
};
