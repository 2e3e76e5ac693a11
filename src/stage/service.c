#include "base/alloc.h"
#include "stage/outer/outer_command.h"
#include "stage/runner_state.h"
#include "stage/service_state.h"

#include <stdio.h>
#include <string.h>

enum {
    CONNECT_MS = 30000,
    TIMED_PASSES = 3
};

/* ---- neighbours ---- */

strait_err strait_service_greet(struct strait_service *s) {
    return strait_boundary_checks_send(&s->checks, &s->links);
}

static strait_err route(void *user, struct strait_msg **msg) {
    return strait_service_route(user, msg);
}

/* Links first, then codecs: their bytes belong to the handshake, not to the first step. */
static strait_err wait_for_neighbours(struct strait_service *s) {
    STRAIT_TRY(strait_stage_links_wait(&s->links, CONNECT_MS));
    STRAIT_TRY(strait_service_greet(s));
    return strait_boundary_checks_wait(&s->checks, &s->links, route, s);
}

void strait_service_set_links(struct strait_service *s, struct strait_mesh *mesh, int prev,
                              int next) {
    if (mesh != s->links.mesh) // neighbours of another mesh are other neighbours
        strait_boundary_checks_init(&s->checks, &s->plan, s->stage);
    strait_stage_links_init(&s->links, mesh);
    strait_stage_links_set(&s->links, STRAIT_SIDE_PREV, 0, prev);
    strait_stage_links_set(&s->links, STRAIT_SIDE_NEXT, 0, next);
    if (s->runner != NULL) strait_runner_connect(s->runner, &s->links);
}

/* The runner's callbacks. */
static strait_err on_message(void *user, struct strait_msg **msg) {
    struct strait_service *s = user;
    if ((*msg)->type == STRAIT_MSG_BOUNDARY_CHECK)
        return strait_boundary_checks_receive(&s->checks, &s->links, *msg);
    if ((*msg)->type == STRAIT_MSG_PROGRESS) return STRAIT_OK; // of a neighbour that still waits
    return s->hooks.on_message(s->hooks.user, msg);
}

static strait_err on_poll(void *user) {
    struct strait_service *s = user;
    return s->hooks.on_poll(s->hooks.user);
}

static int on_next(void *user, int64_t step, strait_next_step *out) {
    const struct strait_service *s = user;
    return s->hooks.on_next != NULL && s->hooks.on_next(s->hooks.user, step, out);
}

strait_err strait_service_route(struct strait_service *s, struct strait_msg **msg) {
    return s->runner != NULL ? strait_runner_route(s->runner, msg) : on_message(s, msg);
}

/* ---- what replies report ---- */

static uint64_t crossing_bytes(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_crossed_bytes(boundary) : 0;
}

/* Bytes are counted where they arrive: a stage that is done with a step has received all of it, but
 * the last bytes it sent may not have reached the socket. Each call counts from the one before. */
static void count_bytes(struct strait_service *s, uint64_t *forward, uint64_t *backward) {
    const uint64_t frames[] = {crossing_bytes(s->runner->receiver),
                               crossing_bytes(s->runner->sender)};
    *forward = strait_stage_links_received(&s->links, STRAIT_SIDE_PREV);
    *backward = strait_stage_links_received(&s->links, STRAIT_SIDE_NEXT);
    if (!s->counts_frames) return;
    *forward = frames[0];
    *backward = frames[1];
}

static void forget_bytes(struct strait_service *s) {
    uint64_t forward, backward;
    count_bytes(s, &forward, &backward);
    (void)strait_stage_links_received(&s->links, STRAIT_SIDE_SAME);
}

/* Adds what one codec side counted: a sender receives from the next stage. */
static strait_err read_codec(struct strait_service *s, struct strait_boundary *boundary,
                             strait_codec_metrics *out, strait_stage_faults *faults) {
    if (boundary == NULL) return STRAIT_OK;
    struct strait_codec *codec = strait_boundary_codec(boundary);
    STRAIT_TRY(strait_codec_read_metrics(codec, strait_stage_stream(s->runner->model), out));
    faults->nonfinite += out->non_finite;
    const int is_sender = codec->side == STRAIT_SENDER;
    *(is_sender ? &faults->rejected_next : &faults->rejected_prev) = out->rejected;
    return STRAIT_OK;
}

/* ---- commands ---- */

static strait_err execute_connect(struct strait_service *s, const strait_stage_command *command) {
    const strait_stage_peer peer = {&command->connect.key, command->connect.address};
    const strait_stage_side side = command->kind == STRAIT_COMMAND_CONNECT_PREV ? STRAIT_SIDE_PREV
                                   : command->kind == STRAIT_COMMAND_CONNECT_NEXT
                                       ? STRAIT_SIDE_NEXT
                                       : STRAIT_SIDE_SAME;
    return strait_stage_links_add(&s->links, &s->plan, s->stage, side, command->connect.replica,
                                  peer);
}

static strait_err open_runner(struct strait_service *s, int n_slots) {
    const int most = (int)strait_run_plan_slots_max(&s->plan);
    if (n_slots < 1 || n_slots > most)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: invalid window %d, expected 1 to %d", s->stage,
                           n_slots, most);
    strait_runner_close(&s->runner);
    const strait_runner_place place = {s->stage, s->replica, n_slots};
    STRAIT_TRY(strait_runner_open(&s->run, &s->plan, &place, s->loader, &s->runner));
    if (s->keeps_crossings) STRAIT_TRY(strait_runner_keep_crossings(s->runner));
    strait_runner_connect(s->runner, &s->links);
    s->runner->on_message = on_message;
    s->runner->on_poll = s->hooks.on_poll != NULL ? on_poll : NULL;
    s->runner->on_next = on_next;
    s->runner->user = s;
    /* A service that polls was connected before it was told to open. */
    return s->hooks.on_poll == NULL ? wait_for_neighbours(s) : STRAIT_OK;
}

static strait_err execute_open(struct strait_service *s, const strait_stage_command *command,
                               strait_stage_reply *reply) {
    const int n_slots = command->open.n_slots;
    const int is_reused = command->open.may_reuse && s->runner != NULL &&
                          s->runner->n_slots == n_slots;
    if (!is_reused) {
        STRAIT_TRY(open_runner(s, n_slots));
        STRAIT_TRY(strait_runner_init_weights(s->runner, (uint64_t)s->run.train.seed));
        /* A run that starts from other weights has those of the seed after no step. */
        if (s->run.train.init_from[0] != '\0') strait_runner_lose_live(s->runner);
        forget_bytes(s); // handshakes belong to no step
    }
    reply->open.device = strait_runner_device(s->runner);
    return STRAIT_OK;
}

/* Timing needs no weights, so a stage that is not open yet does not draw them twice. */
static strait_err execute_time_passes(struct strait_service *s, strait_stage_reply *reply) {
    if (s->runner == NULL) STRAIT_TRY(open_runner(s, 1));
    reply->time_passes.next_delay_s = strait_runner_next_delay(s->runner);
    return strait_runner_time_passes(s->runner, TIMED_PASSES, &reply->time_passes.times);
}

/* The boundaries must know the step before the first crossing, which a neighbour may send before
 * this stage is told to begin. */
static strait_err execute_load(struct strait_service *s, const char *folder) {
    struct strait_checkpoint *checkpoint = NULL;
    STRAIT_TRY(strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    const strait_err err = strait_runner_state_read(checkpoint, s->runner);
    const int64_t step = strait_checkpoint_step(checkpoint);
    if (s->runner->receiver != NULL) strait_boundary_begin(s->runner->receiver, step);
    if (s->runner->sender != NULL) strait_boundary_begin(s->runner->sender, step);
    if (s->runner->reduction != NULL) strait_reduction_reset(s->runner->reduction, step);
    strait_checkpoint_close(&checkpoint);
    return err;
}

static strait_err check_codecs(struct strait_service *s) {
    s->runner->side = s->checks.mismatch_side;
    return strait_boundary_checks_result(&s->checks);
}

/* Muting ends with the command: a validation may be next. */
static strait_err run_step(struct strait_service *s, const strait_stage_command *command,
                           double *loss_sum) {
    if (command->gradients.has_update)
        STRAIT_TRY(strait_runner_update_late(s->runner, command->gradients.step - 2,
                                             command->gradients.factor));
    STRAIT_TRY(strait_runner_share(s->runner, command->gradients.owners));
    strait_runner_mute(s->runner, command->gradients.mute_prev, command->gradients.mute_next);
    const strait_err err = strait_runner_gradients(s->runner, command->gradients.step, loss_sum);
    strait_runner_mute(s->runner, 0, 0);
    return err;
}

static strait_err execute_gradients(struct strait_service *s, const strait_stage_command *command,
                                    strait_stage_reply *reply) {
    STRAIT_TRY(check_codecs(s));
    STRAIT_TRY(run_step(s, command, &reply->gradients.loss_sum));
    /* Descriptions of codecs overtake crossings, so those of this step cannot be without them. */
    STRAIT_TRY(strait_boundary_checks_require(&s->checks, &s->links, &s->runner->side));
    reply->gradients.times = s->runner->times;
    reply->gradients.squares = (strait_floats){s->runner->squares, s->runner->n_params};
    count_bytes(s, &reply->gradients.forward_bytes, &reply->gradients.backward_bytes);
    reply->gradients.reduce_bytes = strait_stage_links_received(&s->links, STRAIT_SIDE_SAME);
    strait_codec_metrics received = {0}, sent = {0};
    STRAIT_TRY(read_codec(s, s->runner->receiver, &received, &reply->gradients.faults));
    STRAIT_TRY(read_codec(s, s->runner->sender, &sent, &reply->gradients.faults));
    reply->gradients.residual_backward = received.residual;
    reply->gradients.residual_forward = sent.residual;
    reply->gradients.basis = sent.basis;
    strait_runner_end_live(s->runner, command->gradients.step);
    const strait_stage_faults *faults = &reply->gradients.faults;
    const double n_faults = faults->nonfinite + faults->rejected_prev + faults->rejected_next;
    return strait_runner_update_at_once(s->runner, command->gradients.step, n_faults == 0.0);
}

static strait_err execute_validate(struct strait_service *s, int64_t step,
                                   strait_stage_reply *reply) {
    strait_codec_metrics received;
    STRAIT_TRY(check_codecs(s));
    STRAIT_TRY(strait_runner_validate_average(s->runner, step, &reply->validate.loss_sum));
    forget_bytes(s); // a validation's bytes are not the next step's
    return read_codec(s, s->runner->receiver, &received, &reply->validate.faults);
}

static strait_err execute_propose_basis(struct strait_service *s, strait_stage_reply *reply) {
    STRAIT_TRY(strait_runner_propose_basis(s->runner, s->basis));
    reply->propose_basis.basis = (strait_floats){s->basis, s->n_basis};
    return STRAIT_OK;
}

static strait_err execute_adopt_basis(struct strait_service *s,
                                      const strait_stage_command *command) {
    const strait_floats *basis = &command->adopt_basis.basis;
    if (basis->n != s->n_basis)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a basis of %d values, expected %d", s->stage,
                           basis->n, s->n_basis);
    return strait_runner_adopt_basis(s->runner, basis->data, command->adopt_basis.version);
}

/* Local stages write checkpoints themselves, so only the worker of a swarm sets this hook. */
static strait_err execute_send_snapshot(struct strait_service *s, int64_t step) {
    if (s->hooks.send_snapshot == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d of a local run sends no snapshots", s->stage);
    return s->hooks.send_snapshot(s->hooks.user, step);
}

/* The links of a local run have the rates of the run file. */
static strait_err execute_probe(struct strait_service *s, const strait_stage_command *command,
                                strait_stage_reply *reply) {
    if (s->hooks.probe == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d of a local run probes no links", s->stage);
    return s->hooks.probe(s->hooks.user, command, reply);
}

/* Replicas without a folder only tell the digest of what they would have written. */
static strait_err execute_save(struct strait_service *s, const strait_stage_command *command,
                               strait_stage_reply *reply) {
    if (command->save.wants_digest)
        STRAIT_TRY(strait_runner_state_digest(s->runner, &reply->save.digest));
    if (command->save.folder[0] == '\0') return STRAIT_OK;
    return strait_runner_state_write(s->runner, command->save.folder, command->save.step,
                                     command->save.is_partial);
}

static strait_err execute_outer(struct strait_service *s, const strait_stage_command *command,
                                strait_stage_reply *reply) {
    STRAIT_TRY(strait_runner_outer(s->runner, command, reply));
    reply->outer.bytes = strait_stage_links_received(&s->links, STRAIT_SIDE_SAME);
    return STRAIT_OK;
}

static strait_err execute(struct strait_service *s, const strait_stage_command *command,
                          strait_stage_reply *reply) {
    if (s->runner == NULL && strait_stage_command_needs_open(command->kind))
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: command %s before open", s->stage,
                           strait_stage_command_name(command->kind));
    switch (command->kind) {
    case STRAIT_COMMAND_CONNECT_PREV:
    case STRAIT_COMMAND_CONNECT_NEXT:
    case STRAIT_COMMAND_CONNECT_REPLICA: return execute_connect(s, command);
    case STRAIT_COMMAND_OPEN: return execute_open(s, command, reply);
    case STRAIT_COMMAND_TIME_PASSES: return execute_time_passes(s, reply);
    case STRAIT_COMMAND_LOAD: return execute_load(s, command->load.folder);
    case STRAIT_COMMAND_GRADIENTS: return execute_gradients(s, command, reply);
    case STRAIT_COMMAND_UPDATE:
        return strait_runner_update(s->runner, command->update.step, command->update.factor);
    case STRAIT_COMMAND_VALIDATE: return execute_validate(s, command->validate.step, reply);
    case STRAIT_COMMAND_SAVE: return execute_save(s, command, reply);
    case STRAIT_COMMAND_SEND_SNAPSHOT: return execute_send_snapshot(s, command->send_snapshot.step);
    case STRAIT_COMMAND_PROPOSE_BASIS: return execute_propose_basis(s, reply);
    case STRAIT_COMMAND_ADOPT_BASIS: return execute_adopt_basis(s, command);
    case STRAIT_COMMAND_OUTER: return execute_outer(s, command, reply);
    case STRAIT_COMMAND_PROBE: return execute_probe(s, command, reply);
    case STRAIT_COMMAND_TRACE_BEGIN: return strait_runner_trace_begin(s->runner);
    case STRAIT_COMMAND_TRACE_END:
        return strait_runner_trace_end(s->runner, command->trace_end.path);
    case STRAIT_COMMAND_RESEND:
        return strait_runner_resend(s->runner, command->resend.step, command->resend.to_prev,
                                    command->resend.to_next);
    case STRAIT_COMMAND_LEAVE:
    case STRAIT_COMMAND_KINDS: break;
    }
    return STRAIT_OK;
}

/* The hook after a command may turn its error into another, such as that of a lost neighbour. */
static strait_err execute_with_hooks(struct strait_service *s, const strait_stage_command *command,
                                     strait_stage_reply *reply) {
    if (s->hooks.before != NULL) STRAIT_TRY(s->hooks.before(s->hooks.user, command));
    const strait_err err = execute(s, command, reply);
    return s->hooks.after != NULL ? s->hooks.after(s->hooks.user, command, err, reply) : err;
}

strait_err strait_service_execute(struct strait_service *s, const strait_stage_command *command,
                                  strait_stage_reply *reply) {
    *reply = (strait_stage_reply){.kind = command->kind};
    if (s->runner != NULL) s->runner->side = 0;
    reply->err = execute_with_hooks(s, command, reply);
    if (reply->err != STRAIT_OK) {
        if (s->runner != NULL &&
            (command->kind == STRAIT_COMMAND_UPDATE ||
             command->kind == STRAIT_COMMAND_ADOPT_BASIS ||
             (command->kind == STRAIT_COMMAND_OUTER && command->outer.phase == STRAIT_OUTER_APPLY)))
            strait_runner_lose_live(s->runner);
        if (s->runner != NULL && reply->failed_side == 0) reply->failed_side = s->runner->side;
        (void)snprintf(s->reason, sizeof s->reason, "%s", strait_err_detail());
        reply->reason = s->reason;
    } else if (s->runner != NULL) {
        reply->device_bytes = strait_runner_device_bytes(s->runner);
        reply->device_free = strait_runner_device_spare(s->runner);
    }
    return reply->err;
}

/* ---- life ---- */

static strait_err prepare(struct strait_service *s) {
    STRAIT_TRY(strait_run_plan_init(&s->run, strait_loader_vocab(s->loader), &s->plan));
    s->plan.emulate = strait_run_plan_emulate(&s->plan, s->stage, s->replica);
    if (s->is_elastic) strait_run_plan_make_elastic(&s->plan);
    s->n_basis = (int)(s->plan.codec.cols * s->plan.codec.keep);
    STRAIT_TRY(strait_alloc((size_t)s->n_basis, sizeof *s->basis, "basis", (void **)&s->basis));
    return strait_loader_configure(s->loader, &s->plan);
}

strait_err strait_service_open(const strait_service_spec *spec, struct strait_loader **loader,
                               struct strait_service **out) {
    struct strait_service *s = NULL;
    strait_err err = strait_alloc(1, sizeof *s, "stage service", (void **)&s);
    if (err != STRAIT_OK) {
        strait_loader_close(loader);
        return err;
    }
    s->run = *spec->run;
    s->stage = spec->stage;
    s->replica = spec->replica;
    s->counts_frames = spec->counts_frames;
    s->keeps_crossings = spec->keeps_crossings;
    s->is_elastic = spec->is_elastic;
    s->hooks = spec->hooks;
    strait_stage_links_init(&s->links, NULL);
    s->loader = *loader;
    *loader = NULL;
    err = prepare(s);
    if (err != STRAIT_OK) {
        strait_service_close(&s);
        return err;
    }
    strait_boundary_checks_init(&s->checks, &s->plan, s->stage);
    *out = s;
    return STRAIT_OK;
}

void strait_service_close(struct strait_service **service) {
    struct strait_service *s = *service;
    if (s == NULL) return;
    strait_runner_close(&s->runner);
    strait_loader_close(&s->loader);
    strait_alloc_free(s->basis);
    strait_alloc_free(s);
    *service = NULL;
}
