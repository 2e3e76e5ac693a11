#include "stage/service.h"

#include "base/alloc.h"
#include "stage/runner_state.h"
#include "stage/service_state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    MEET_MS = 30000,
    LEAVE_MS = 3000, // for the conductor to hear our last reply and hang up
    RTT_MS = 2000,   // for a first round trip
    RTT_LOOK_MS = 10,
    REHEARSALS = 3
};

/* Where our neighbour can dial us; the system chooses the port. */
static strait_err place_of(const struct strait_service *s, int is_inproc,
                           char out[STRAIT_SERVICE_LINE]) {
    char host[STRAIT_ADDRESS_MAX];
    STRAIT_TRY(strait_startup_expand(is_inproc ? "stage-{stage}" : s->run.stages.address,
                                     s->start.stage, host, sizeof host));
    (void)snprintf(out, STRAIT_SERVICE_LINE, "%s%s", host, is_inproc ? "" : ":0");
    return STRAIT_OK;
}

/* A key, a mesh, a place to be dialled; then the conductor is told who we are. */
static strait_err introduce(struct strait_service *s, int in, int out,
                            struct strait_inproc_network *hub) {
    char line[STRAIT_SERVICE_LINE];
    char key[STRAIT_FINGERPRINT_TEXT];
    char address[STRAIT_ADDRESS_MAX];
    STRAIT_TRY(strait_service_read_line(in, line));
    STRAIT_TRY(strait_service_parse_start(line, &s->start));
    STRAIT_TRY(strait_run_init_file(s->start.run_path, NULL, 0, &s->run));
    STRAIT_TRY(strait_identity_generate(&s->identity));
    strait_mesh_config config = {.scheme = s->start.scheme,
                                 .transport = {.identity = s->identity,
                                               .n_streams = (int)s->run.link.streams,
                                               .peer_timeout_ms = (int)(s->run.link.deadline * 1e3),
                                               .network = hub}};
    memcpy(config.transport.run, s->start.run_id, STRAIT_RUN_BYTES);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", s->start.stage);
    STRAIT_TRY(strait_mesh_open(&config, &s->mesh));
    STRAIT_TRY(place_of(s, hub != NULL, line));
    STRAIT_TRY(strait_mesh_listen(s->mesh, line, address));
    strait_fingerprint_text(strait_identity_fingerprint(s->identity), key);
    (void)snprintf(line, sizeof line, "%s %s\n", key, address);
    STRAIT_TRY(strait_service_write_line(out, line));
    STRAIT_TRY(strait_service_read_line(in, line)); // now the conductor knows our key
    const strait_mesh_peer coordinator = {
        .name = "conductor", .key = s->start.coordinator, .address = s->start.address};
    return strait_mesh_add(s->mesh, &coordinator, &s->coordinator);
}

/* The neighbours: the order names one, and which side it is on. */
static strait_err meet(struct strait_service *s, const strait_stage_command *command) {
    const int is_behind = command->text[0] != '\0';
    const strait_emulate_spec emulate = s->plan.emulate;
    strait_mesh_peer peer = {
        .key = command->key, .address = is_behind ? command->text : NULL, .emulate = &emulate};
    (void)snprintf(peer.name, sizeof peer.name, "stage %d", s->start.stage + (is_behind ? 1 : -1));
    return strait_mesh_add(s->mesh, &peer, is_behind ? &s->next : &s->prev);
}

static strait_err wait_for_neighbours(struct strait_service *s) {
    if (s->prev >= 0) STRAIT_TRY(strait_mesh_wait_up(s->mesh, s->prev, MEET_MS));
    if (s->next >= 0) STRAIT_TRY(strait_mesh_wait_up(s->mesh, s->next, MEET_MS));
    return STRAIT_OK;
}

/* Whatever is not a crossing: orders wait their turn, a lost link ends the run. */
static strait_err on_other(void *user, struct strait_msg **msg) {
    struct strait_service *s = user;
    const struct strait_msg *m = *msg;
    if (m->type == STRAIT_MSG_COMMAND && m->peer == s->coordinator && s->command == NULL) {
        s->command = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (m->type == STRAIT_MSG_UP) return STRAIT_OK;
    if (m->type != STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a message of type %d that nobody expects",
                           s->start.stage, m->type);
    char who[32] = "the conductor";
    if (m->peer != s->coordinator)
        (void)snprintf(who, sizeof who, "stage %d", s->start.stage + (m->peer == s->prev ? -1 : 1));
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to %s: %.*s", s->start.stage, who,
                       (int)m->size, (const char *)m->body);
}

static strait_err open_worker(struct strait_service *s, int n_slots) {
    if (n_slots < 1 || n_slots > s->plan.n_microbatches)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a window of %d for %lld microbatches",
                           s->start.stage, n_slots, (long long)s->plan.n_microbatches);
    strait_runner_close(&s->worker);
    STRAIT_TRY(
        strait_runner_open(&s->run, &s->plan, s->start.stage, n_slots, s->loader, &s->worker));
    strait_runner_connect(s->worker, s->mesh, s->prev, s->next);
    s->worker->on_other = s->on_other;
    s->worker->on_look = s->on_look;
    s->worker->user = s;
    return s->on_look == NULL ? wait_for_neighbours(s) : STRAIT_OK; // who looks has met them
}

/* A neighbour may send the first crossing before we are told to begin: its step must be known. */
static strait_err load(struct strait_service *s, const char *folder) {
    struct strait_checkpoint *checkpoint = NULL;
    STRAIT_TRY(strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    const strait_err err = strait_runner_state_read(checkpoint, s->worker);
    const int64_t step = strait_checkpoint_step(checkpoint);
    if (s->worker->receiver != NULL) strait_boundary_begin(s->worker->receiver, step);
    if (s->worker->sender != NULL) strait_boundary_begin(s->worker->sender, step);
    strait_checkpoint_close(&checkpoint);
    return err;
}

static uint64_t came_since(struct strait_service *s, int peer, uint64_t *seen) {
    strait_link_stats stats = {0};
    if (peer < 0 || strait_mesh_stats(s->mesh, peer, &stats) != STRAIT_OK) return 0;
    const uint64_t came = stats.received_bytes - *seen;
    *seen = stats.received_bytes;
    return came;
}

static uint64_t crossed(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_crossed_bytes(boundary) : 0;
}

/* Counted where they arrive: who is done with a step has all of it and nothing of the next, while
 * what it sent last may still be on its way to the socket. */
static void count_bytes(struct strait_service *s, strait_reply *reply) {
    const uint64_t frames[] = {crossed(s->worker->receiver), crossed(s->worker->sender)};
    reply->forward_bytes = came_since(s, s->prev, &s->seen_forward);
    reply->backward_bytes = came_since(s, s->next, &s->seen_backward);
    if (!s->shares_links) return;
    reply->forward_bytes = frames[0];
    reply->backward_bytes = frames[1];
}

static strait_err read_codec(struct strait_service *s, struct strait_boundary *boundary,
                             strait_reply *reply) {
    strait_codec_metrics metrics;
    if (boundary == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_codec_read_metrics(strait_boundary_codec(boundary),
                                         strait_stage_stream(s->worker->model), &metrics));
    reply->residual[strait_boundary_codec(boundary)->side] = metrics.residual;
    reply->refused[strait_boundary_codec(boundary)->side] = metrics.rejected;
    reply->spoiled += metrics.non_finite;
    return STRAIT_OK;
}

/* Half a round trip to the stage behind, as soon as one was made. */
static double delay_behind(struct strait_service *s) {
    strait_link_stats stats = {0};
    for (int waited = 0; s->next >= 0 && waited < RTT_MS; waited += RTT_LOOK_MS) {
        if (strait_mesh_stats(s->mesh, s->next, &stats) == STRAIT_OK && stats.rtt_min_s > 0.0)
            break;
        const struct timespec nap = {.tv_nsec = RTT_LOOK_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
    }
    return 0.5 * stats.rtt_min_s;
}

static strait_err compute(struct strait_service *s, const strait_stage_command *command,
                          strait_reply *reply) {
    STRAIT_TRY(strait_runner_gradients(s->worker, command->step, &reply->loss_sum));
    reply->times = s->worker->times;
    reply->values = s->worker->squares;
    reply->n_values = s->worker->n_params;
    count_bytes(s, reply);
    STRAIT_TRY(read_codec(s, s->worker->receiver, reply));
    return read_codec(s, s->worker->sender, reply);
}

static strait_err obey(struct strait_service *s, const strait_stage_command *command,
                       strait_reply *reply) {
    switch (command->kind) {
    case STRAIT_COMMAND_MEET: return meet(s, command);
    case STRAIT_COMMAND_OPEN:
        STRAIT_TRY(open_worker(s, command->number));
        STRAIT_TRY(strait_runner_init_weights(s->worker, (uint64_t)s->run.train.seed));
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_runner_device(s->worker));
        count_bytes(s, reply); // greetings
        return STRAIT_OK;
    case STRAIT_COMMAND_TIME_PASSES:
        if (s->worker == NULL) STRAIT_TRY(open_worker(s, 1));
        reply->delay = delay_behind(s);
        return strait_runner_time_passes(s->worker, REHEARSALS, &reply->times);
    case STRAIT_COMMAND_LOAD: return load(s, command->text);
    case STRAIT_COMMAND_GRADIENTS: return compute(s, command, reply);
    case STRAIT_COMMAND_UPDATE:
        return strait_runner_update(s->worker, command->step, command->factor);
    case STRAIT_COMMAND_VALIDATE:
        STRAIT_TRY(strait_runner_validate(s->worker, command->step, &reply->loss_sum));
        count_bytes(s, reply); // no step's
        return read_codec(s, s->worker->receiver, reply);
    case STRAIT_COMMAND_SAVE:
        return strait_runner_state_write(s->worker, command->text, command->step);
    case STRAIT_COMMAND_PROPOSE_BASIS:
        STRAIT_TRY(strait_runner_propose_basis(s->worker, s->basis));
        reply->values = s->basis;
        reply->n_values = s->n_basis;
        return STRAIT_OK;
    case STRAIT_COMMAND_ADOPT_BASIS:
        if (command->n_values != s->n_basis)
            return STRAIT_FAIL(STRAIT_EPROTO, "a basis of %d numbers, not %d", command->n_values,
                               s->n_basis);
        return strait_runner_adopt_basis(s->worker, command->values, (uint32_t)command->number);
    case STRAIT_COMMAND_TRACE:
        if (command->text[0] == '\0') return strait_runner_trace_begin(s->worker);
        return strait_runner_trace_end(s->worker, command->text);
    case STRAIT_COMMAND_LEAVE: break;
    }
    return STRAIT_OK;
}

strait_err strait_service_execute(struct strait_service *s, const strait_stage_command *command,
                                  strait_reply *reply) {
    STRAIT_TRY(obey(s, command, reply));
    if (s->worker == NULL) return STRAIT_OK;
    reply->device_bytes = strait_runner_device_bytes(s->worker);
    reply->device_spare = strait_runner_device_spare(s->worker);
    return STRAIT_OK;
}

static strait_err next_order(struct strait_service *s, strait_stage_command *out) {
    while (s->command == NULL) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(s->mesh, -1, &msg));
        const strait_err err = s->worker != NULL ? strait_runner_route(s->worker, &msg)
                                                 : on_other(s, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    const strait_err err = strait_stage_command_unpack(s->command, s->basis, s->n_basis, out);
    strait_msg_close(&s->command);
    return err;
}

static strait_err answer(struct strait_service *s, strait_stage_command_kind kind, strait_err err,
                         strait_reply *reply) {
    reply->kind = kind;
    reply->err = err;
    if (err != STRAIT_OK)
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_err_detail());
    return strait_reply_send(s->mesh, s->coordinator, reply);
}

/* Stays until the conductor hangs up: it has then heard our reply, and all the others'. Neighbours
 * may leave before us. */
static void part(struct strait_service *s) {
    for (int is_over = 0; !is_over;) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(s->mesh, LEAVE_MS, &msg) != STRAIT_OK) return;
        is_over = msg->type == STRAIT_MSG_DOWN && msg->peer == s->coordinator;
        strait_msg_close(&msg);
    }
}

/* An error that the conductor has heard is his to tell, and ends the stage; only a checkpoint that
 * could not be written does not. */
static strait_err serve_orders(struct strait_service *s) {
    for (;;) {
        static _Thread_local strait_stage_command command; // large
        strait_reply reply = {0};
        command.kind = STRAIT_COMMAND_LEAVE; // should none come
        strait_err err = next_order(s, &command);
        if (err == STRAIT_OK) err = strait_service_execute(s, &command, &reply);
        STRAIT_TRY(answer(s, command.kind, err, &reply));
        const int goes_on = err == STRAIT_OK ? command.kind != STRAIT_COMMAND_LEAVE
                                             : command.kind == STRAIT_COMMAND_SAVE;
        if (!goes_on) break;
    }
    part(s);
    return STRAIT_OK;
}

strait_err strait_service_prepare(struct strait_service *s) {
    STRAIT_TRY(strait_run_plan_init(&s->run, strait_loader_vocab(s->loader), &s->plan));
    s->n_basis = (int)(s->plan.codec.cols * s->plan.codec.keep);
    STRAIT_TRY(strait_alloc((size_t)s->n_basis, sizeof *s->basis, "basis", (void **)&s->basis));
    return strait_loader_cut(s->loader, &s->plan);
}

static strait_err work(struct strait_service *s) {
    strait_err err = strait_loader_open(&s->run, &s->loader);
    if (err == STRAIT_OK) err = strait_service_prepare(s);
    if (err == STRAIT_OK) return serve_orders(s);
    strait_reply reply = {0};
    if (answer(s, STRAIT_COMMAND_OPEN, err, &reply) != STRAIT_OK) return err;
    part(s);
    return STRAIT_OK;
}

strait_err strait_service_run(int in, int out, struct strait_inproc_network *hub) {
    struct strait_service *s = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *s, "stage server", (void **)&s));
    s->prev = s->next = -1;
    s->on_other = on_other;
    strait_err err = introduce(s, in, out, hub);
    if (err == STRAIT_OK) err = work(s);
    strait_runner_close(&s->worker);
    strait_loader_close(&s->loader);
    strait_msg_close(&s->command);
    strait_mesh_close(&s->mesh);
    strait_identity_close(&s->identity);
    strait_alloc_free(s->basis);
    strait_alloc_free(s);
    return err;
}
