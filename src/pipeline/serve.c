#include "pipeline/serve.h"

#include "base/alloc.h"
#include "pipeline/launch.h"
#include "pipeline/serve_state.h"
#include "pipeline/snapshot.h"

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
static strait_err place_of(const struct strait_server *s, int is_inproc,
                           char out[STRAIT_SERVE_LINE]) {
    char host[STRAIT_ADDRESS_MAX];
    STRAIT_TRY(strait_launch_fill(is_inproc ? "stage-{stage}" : s->run.stages.address,
                                  s->start.stage, host, sizeof host));
    (void)snprintf(out, STRAIT_SERVE_LINE, "%s%s", host, is_inproc ? "" : ":0");
    return STRAIT_OK;
}

/* A key, a mesh, a place to be dialled; then the conductor is told who we are. */
static strait_err introduce(struct strait_server *s, int in, int out,
                            struct strait_inproc_hub *hub) {
    char line[STRAIT_SERVE_LINE];
    char key[STRAIT_FINGERPRINT_TEXT];
    char address[STRAIT_ADDRESS_MAX];
    STRAIT_TRY(strait_serve_read_line(in, line));
    STRAIT_TRY(strait_serve_parse_start(line, &s->start));
    STRAIT_TRY(strait_run_load(s->start.run_path, NULL, 0, &s->run));
    STRAIT_TRY(strait_identity_make(&s->identity));
    strait_mesh_config config = {.scheme = s->start.scheme,
                                 .transport = {.identity = s->identity,
                                               .n_streams = (int)s->run.link.streams,
                                               .dead_ms = (int)(s->run.link.deadline * 1e3),
                                               .hub = hub}};
    memcpy(config.transport.run, s->start.run_id, STRAIT_RUN_BYTES);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", s->start.stage);
    STRAIT_TRY(strait_mesh_open(&config, &s->mesh));
    STRAIT_TRY(place_of(s, hub != NULL, line));
    STRAIT_TRY(strait_mesh_listen(s->mesh, line, address));
    strait_fingerprint_text(strait_identity_fingerprint(s->identity), key);
    (void)snprintf(line, sizeof line, "%s %s\n", key, address);
    STRAIT_TRY(strait_serve_write_line(out, line));
    STRAIT_TRY(strait_serve_read_line(in, line)); // now the conductor knows our key
    const strait_mesh_peer conductor = {
        .name = "conductor", .key = s->start.conductor, .address = s->start.address};
    return strait_mesh_add(s->mesh, &conductor, &s->conductor);
}

/* The neighbours: the order names one, and which side it is on. */
static strait_err meet(struct strait_server *s, const strait_order *order) {
    const int is_behind = order->text[0] != '\0';
    const strait_emulate_spec emulate = s->recipe.emulate;
    strait_mesh_peer peer = {
        .key = order->key, .address = is_behind ? order->text : NULL, .emulate = &emulate};
    (void)snprintf(peer.name, sizeof peer.name, "stage %d", s->start.stage + (is_behind ? 1 : -1));
    return strait_mesh_add(s->mesh, &peer, is_behind ? &s->behind : &s->before);
}

static strait_err wait_for_neighbours(struct strait_server *s) {
    if (s->before >= 0) STRAIT_TRY(strait_mesh_wait_up(s->mesh, s->before, MEET_MS));
    if (s->behind >= 0) STRAIT_TRY(strait_mesh_wait_up(s->mesh, s->behind, MEET_MS));
    return STRAIT_OK;
}

/* Whatever is not a crossing: orders wait their turn, a lost link ends the run. */
static strait_err on_other(void *user, struct strait_msg **msg) {
    struct strait_server *s = user;
    const struct strait_msg *m = *msg;
    if (m->type == STRAIT_MSG_ORDER && m->peer == s->conductor && s->order == NULL) {
        s->order = *msg;
        *msg = NULL;
        return STRAIT_OK;
    }
    if (m->type == STRAIT_MSG_UP) return STRAIT_OK;
    if (m->type != STRAIT_MSG_DOWN)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a message of type %d that nobody expects",
                           s->start.stage, m->type);
    char who[32] = "the conductor";
    if (m->peer != s->conductor)
        (void)snprintf(who, sizeof who, "stage %d",
                       s->start.stage + (m->peer == s->before ? -1 : 1));
    return STRAIT_FAIL(STRAIT_ECLOSED, "stage %d lost its link to %s: %.*s", s->start.stage, who,
                       (int)m->size, (const char *)m->body);
}

static strait_err open_worker(struct strait_server *s, int n_slots) {
    if (n_slots < 1 || n_slots > s->recipe.n_microbatches)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: a window of %d for %lld microbatches",
                           s->start.stage, n_slots, (long long)s->recipe.n_microbatches);
    strait_worker_close(&s->worker);
    STRAIT_TRY(
        strait_worker_open(&s->run, &s->recipe, s->start.stage, n_slots, s->feed, &s->worker));
    strait_worker_connect(s->worker, s->mesh, s->before, s->behind);
    s->worker->on_other = s->on_other;
    s->worker->on_look = s->on_look;
    s->worker->user = s;
    return s->on_look == NULL ? wait_for_neighbours(s) : STRAIT_OK; // who looks has met them
}

/* A neighbour may send the first crossing before we are told to begin: its step must be known. */
static strait_err load(struct strait_server *s, const char *folder) {
    struct strait_checkpoint *checkpoint = NULL;
    STRAIT_TRY(strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    const strait_err err = strait_snapshot_read(checkpoint, s->worker);
    const int64_t step = strait_checkpoint_step(checkpoint);
    if (s->worker->tail != NULL) strait_boundary_begin(s->worker->tail, step);
    if (s->worker->head != NULL) strait_boundary_begin(s->worker->head, step);
    strait_checkpoint_close(&checkpoint);
    return err;
}

static uint64_t came_since(struct strait_server *s, int peer, uint64_t *seen) {
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
static void count_bytes(struct strait_server *s, strait_reply *reply) {
    const uint64_t frames[] = {crossed(s->worker->tail), crossed(s->worker->head)};
    reply->forward_bytes = came_since(s, s->before, &s->seen_forward);
    reply->backward_bytes = came_since(s, s->behind, &s->seen_backward);
    if (!s->shares_links) return;
    reply->forward_bytes = frames[0];
    reply->backward_bytes = frames[1];
}

static strait_err read_codec(struct strait_server *s, struct strait_boundary *boundary,
                             strait_reply *reply) {
    strait_codec_metrics metrics;
    if (boundary == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_codec_read_metrics(strait_boundary_codec(boundary),
                                         strait_stage_stream(s->worker->model), &metrics));
    reply->residual[strait_boundary_codec(boundary)->half] = metrics.residual;
    reply->refused[strait_boundary_codec(boundary)->half] = metrics.refused;
    reply->spoiled += metrics.spoiled;
    return STRAIT_OK;
}

/* Half a round trip to the stage behind, as soon as one was made. */
static double delay_behind(struct strait_server *s) {
    strait_link_stats stats = {0};
    for (int waited = 0; s->behind >= 0 && waited < RTT_MS; waited += RTT_LOOK_MS) {
        if (strait_mesh_stats(s->mesh, s->behind, &stats) == STRAIT_OK && stats.rtt_min_s > 0.0)
            break;
        const struct timespec nap = {.tv_nsec = RTT_LOOK_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
    }
    return 0.5 * stats.rtt_min_s;
}

static strait_err compute(struct strait_server *s, const strait_order *order, strait_reply *reply) {
    STRAIT_TRY(strait_worker_gradients(s->worker, order->step, &reply->loss_sum));
    reply->times = s->worker->times;
    reply->values = s->worker->squares;
    reply->n_values = s->worker->n_params;
    count_bytes(s, reply);
    STRAIT_TRY(read_codec(s, s->worker->tail, reply));
    return read_codec(s, s->worker->head, reply);
}

static strait_err obey(struct strait_server *s, const strait_order *order, strait_reply *reply) {
    switch (order->kind) {
    case STRAIT_ORDER_MEET: return meet(s, order);
    case STRAIT_ORDER_OPEN:
        STRAIT_TRY(open_worker(s, order->number));
        STRAIT_TRY(strait_worker_draw(s->worker, (uint64_t)s->run.train.seed));
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_worker_device(s->worker));
        count_bytes(s, reply); // greetings
        return STRAIT_OK;
    case STRAIT_ORDER_REHEARSE:
        if (s->worker == NULL) STRAIT_TRY(open_worker(s, 1));
        reply->delay = delay_behind(s);
        return strait_worker_rehearse(s->worker, REHEARSALS, &reply->times);
    case STRAIT_ORDER_LOAD: return load(s, order->text);
    case STRAIT_ORDER_GRADIENTS: return compute(s, order, reply);
    case STRAIT_ORDER_UPDATE: return strait_worker_update(s->worker, order->step, order->factor);
    case STRAIT_ORDER_VALIDATE:
        STRAIT_TRY(strait_worker_validate(s->worker, order->step, &reply->loss_sum));
        count_bytes(s, reply); // no step's
        return read_codec(s, s->worker->tail, reply);
    case STRAIT_ORDER_SAVE: return strait_snapshot_write(s->worker, order->text, order->step);
    case STRAIT_ORDER_TURN:
        STRAIT_TRY(strait_worker_turn(s->worker, s->basis));
        reply->values = s->basis;
        reply->n_values = s->n_basis;
        return STRAIT_OK;
    case STRAIT_ORDER_ADOPT:
        if (order->n_values != s->n_basis)
            return STRAIT_FAIL(STRAIT_EPROTO, "a basis of %d numbers, not %d", order->n_values,
                               s->n_basis);
        return strait_worker_adopt(s->worker, order->values, (uint32_t)order->number);
    case STRAIT_ORDER_TRACE:
        if (order->text[0] == '\0') return strait_worker_trace_begin(s->worker);
        return strait_worker_trace_end(s->worker, order->text);
    case STRAIT_ORDER_LEAVE: break;
    }
    return STRAIT_OK;
}

strait_err strait_serve_obey(struct strait_server *s, const strait_order *order,
                             strait_reply *reply) {
    STRAIT_TRY(obey(s, order, reply));
    if (s->worker == NULL) return STRAIT_OK;
    reply->device_bytes = strait_worker_device_bytes(s->worker);
    reply->device_spare = strait_worker_device_spare(s->worker);
    return STRAIT_OK;
}

static strait_err next_order(struct strait_server *s, strait_order *out) {
    while (s->order == NULL) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_mesh_receive(s->mesh, -1, &msg));
        const strait_err err = s->worker != NULL ? strait_worker_route(s->worker, &msg)
                                                 : on_other(s, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    const strait_err err = strait_order_unpack(s->order, s->basis, s->n_basis, out);
    strait_msg_close(&s->order);
    return err;
}

static strait_err answer(struct strait_server *s, strait_order_kind kind, strait_err err,
                         strait_reply *reply) {
    reply->kind = kind;
    reply->err = err;
    if (err != STRAIT_OK)
        (void)snprintf(reply->text, sizeof reply->text, "%s", strait_err_detail());
    return strait_reply_send(s->mesh, s->conductor, reply);
}

/* Stays until the conductor hangs up: it has then heard our reply, and all the others'. Neighbours
 * may leave before us. */
static void part(struct strait_server *s) {
    for (int is_over = 0; !is_over;) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(s->mesh, LEAVE_MS, &msg) != STRAIT_OK) return;
        is_over = msg->type == STRAIT_MSG_DOWN && msg->peer == s->conductor;
        strait_msg_close(&msg);
    }
}

/* An error that the conductor has heard is his to tell, and ends the stage; only a checkpoint that
 * could not be written does not. */
static strait_err serve_orders(struct strait_server *s) {
    for (;;) {
        static _Thread_local strait_order order; // large
        strait_reply reply = {0};
        order.kind = STRAIT_ORDER_LEAVE; // should none come
        strait_err err = next_order(s, &order);
        if (err == STRAIT_OK) err = strait_serve_obey(s, &order, &reply);
        STRAIT_TRY(answer(s, order.kind, err, &reply));
        const int goes_on = err == STRAIT_OK ? order.kind != STRAIT_ORDER_LEAVE
                                             : order.kind == STRAIT_ORDER_SAVE;
        if (!goes_on) break;
    }
    part(s);
    return STRAIT_OK;
}

strait_err strait_serve_prepare(struct strait_server *s) {
    STRAIT_TRY(strait_recipe_make(&s->run, strait_feed_vocab(s->feed), &s->recipe));
    s->n_basis = (int)(s->recipe.codec.cols * s->recipe.codec.keep);
    STRAIT_TRY(strait_alloc((size_t)s->n_basis, sizeof *s->basis, "basis", (void **)&s->basis));
    return strait_feed_cut(s->feed, &s->recipe);
}

static strait_err work(struct strait_server *s) {
    strait_err err = strait_feed_open(&s->run, &s->feed);
    if (err == STRAIT_OK) err = strait_serve_prepare(s);
    if (err == STRAIT_OK) return serve_orders(s);
    strait_reply reply = {0};
    if (answer(s, STRAIT_ORDER_OPEN, err, &reply) != STRAIT_OK) return err;
    part(s);
    return STRAIT_OK;
}

strait_err strait_serve(int in, int out, struct strait_inproc_hub *hub) {
    struct strait_server *s = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *s, "stage server", (void **)&s));
    s->before = s->behind = -1;
    s->on_other = on_other;
    strait_err err = introduce(s, in, out, hub);
    if (err == STRAIT_OK) err = work(s);
    strait_worker_close(&s->worker);
    strait_feed_close(&s->feed);
    strait_msg_close(&s->order);
    strait_mesh_close(&s->mesh);
    strait_identity_close(&s->identity);
    strait_alloc_free(s->basis);
    strait_alloc_free(s);
    return err;
}
