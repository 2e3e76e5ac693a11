#include "stage/commands.h"

#include "base/bytes.h"

#include <string.h>

enum {
    ORDER_FIXED = 1 + 8 + 4 + 4 + STRAIT_FINGERPRINT_BYTES + 2 + 4,
    REPLY_FIXED = 1 + 2 + 13 * 8 + 4 * 8 + 2 + 4,
    SEND_MS = 60000
};

static void put_values(strait_writer *w, const float *values, int n) {
    strait_writer_uint(w, (uint64_t)n, 4);
    for (int i = 0; i < n; i++)
        strait_writer_float(w, values[i]);
}

/* At most `room` numbers; how many there are. */
static int get_values(strait_reader *r, float *values, int capacity) {
    const uint64_t n = strait_reader_uint(r, 4);
    if (n > (uint64_t)capacity) {
        r->is_short = 1;
        return 0;
    }
    for (uint64_t i = 0; i < n; i++)
        values[i] = strait_reader_float(r);
    return (int)n;
}

static strait_err post(struct strait_mesh *mesh, int peer, struct strait_msg **msg) {
    (*msg)->priority = STRAIT_PRIORITY_CONTROL;
    const strait_err err = strait_mesh_send_wait(mesh, peer, SEND_MS, msg);
    strait_msg_close(msg);
    return err;
}

strait_err strait_stage_command_pack(struct strait_msg_pool *pool,
                                     const strait_stage_command *command, struct strait_msg **out) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_COMMAND,
                               ORDER_FIXED + strlen(command->text) + 4 * (size_t)command->n_values,
                               &msg));
    strait_writer w = {msg->body, msg->size, 0};
    strait_writer_uint(&w, (uint64_t)command->kind, 1);
    strait_writer_uint(&w, (uint64_t)command->step, 8);
    strait_writer_uint(&w, (uint64_t)(uint32_t)command->number, 4);
    strait_writer_float(&w, command->factor);
    strait_writer_copy(&w, command->key.bytes, STRAIT_FINGERPRINT_BYTES);
    strait_writer_text(&w, 2, command->text);
    put_values(&w, command->values, command->n_values);
    *out = msg;
    return STRAIT_OK;
}

strait_err strait_stage_command_send(struct strait_mesh *mesh, int peer,
                                     const strait_stage_command *command) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_stage_command_pack(strait_mesh_pool(mesh), command, &msg));
    return post(mesh, peer, &msg);
}

strait_err strait_stage_command_unpack(const struct strait_msg *msg, float *values, int capacity,
                                       strait_stage_command *out) {
    strait_reader r = {msg->body, msg->size, 0};
    const uint64_t kind = strait_reader_uint(&r, 1);
    out->kind = (strait_stage_command_kind)kind;
    out->step = (int64_t)strait_reader_uint(&r, 8);
    out->number = (int)(int32_t)strait_reader_uint(&r, 4);
    out->factor = strait_reader_float(&r);
    strait_reader_copy(&r, out->key.bytes, STRAIT_FINGERPRINT_BYTES);
    strait_reader_text(&r, 2, out->text, sizeof out->text);
    out->n_values = get_values(&r, values, capacity);
    out->values = values;
    if (r.is_short || r.left != 0 || kind < STRAIT_COMMAND_MEET || kind > STRAIT_COMMAND_LEAVE)
        return STRAIT_FAIL(STRAIT_EPROTO, "the conductor sent an order that makes no sense");
    return STRAIT_OK;
}

static void put_times(strait_writer *w, const strait_step_times *times) {
    strait_writer_real(w, times->forward);
    strait_writer_real(w, times->input);
    strait_writer_real(w, times->weights);
    strait_writer_real(w, times->codec);
    strait_writer_real(w, times->wait);
    strait_writer_real(w, times->wall);
}

static strait_step_times get_times(strait_reader *r) {
    strait_step_times times;
    times.forward = strait_reader_real(r);
    times.input = strait_reader_real(r);
    times.weights = strait_reader_real(r);
    times.codec = strait_reader_real(r);
    times.wait = strait_reader_real(r);
    times.wall = strait_reader_real(r);
    return times;
}

strait_err strait_reply_pack(struct strait_msg_pool *pool, const strait_reply *reply,
                             struct strait_msg **out) {
    struct strait_msg *msg = NULL;
    const size_t bytes = REPLY_FIXED + strlen(reply->text) + 4 * (size_t)reply->n_values;
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_REPLY, bytes, &msg));
    strait_writer w = {msg->body, msg->size, 0};
    strait_writer_uint(&w, (uint64_t)reply->kind, 1);
    strait_writer_uint(&w, (uint64_t)reply->err, 2);
    strait_writer_real(&w, reply->loss_sum);
    put_times(&w, &reply->times);
    strait_writer_real(&w, reply->residual[STRAIT_SENDER]);
    strait_writer_real(&w, reply->residual[STRAIT_RECEIVER]);
    strait_writer_real(&w, reply->spoiled);
    strait_writer_real(&w, reply->refused[STRAIT_SENDER]);
    strait_writer_real(&w, reply->refused[STRAIT_RECEIVER]);
    strait_writer_real(&w, reply->delay);
    strait_writer_uint(&w, reply->forward_bytes, 8);
    strait_writer_uint(&w, reply->backward_bytes, 8);
    strait_writer_uint(&w, reply->device_bytes, 8);
    strait_writer_uint(&w, reply->device_spare, 8);
    strait_writer_text(&w, 2, reply->text);
    put_values(&w, reply->values, reply->n_values);
    *out = msg;
    return STRAIT_OK;
}

strait_err strait_reply_send(struct strait_mesh *mesh, int peer, const strait_reply *reply) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_reply_pack(strait_mesh_pool(mesh), reply, &msg));
    return post(mesh, peer, &msg);
}

strait_err strait_reply_unpack(const struct strait_msg *msg, float *values, int capacity,
                               strait_reply *out) {
    strait_reader r = {msg->body, msg->size, 0};
    out->kind = (strait_stage_command_kind)strait_reader_uint(&r, 1);
    out->err = (strait_err)strait_reader_uint(&r, 2);
    out->loss_sum = strait_reader_real(&r);
    out->times = get_times(&r);
    out->residual[STRAIT_SENDER] = strait_reader_real(&r);
    out->residual[STRAIT_RECEIVER] = strait_reader_real(&r);
    out->spoiled = strait_reader_real(&r);
    out->refused[STRAIT_SENDER] = strait_reader_real(&r);
    out->refused[STRAIT_RECEIVER] = strait_reader_real(&r);
    out->delay = strait_reader_real(&r);
    out->forward_bytes = strait_reader_uint(&r, 8);
    out->backward_bytes = strait_reader_uint(&r, 8);
    out->device_bytes = strait_reader_uint(&r, 8);
    out->device_spare = strait_reader_uint(&r, 8);
    strait_reader_text(&r, 2, out->text, sizeof out->text);
    strait_text_tame(out->text); // it is shown to people
    out->n_values = get_values(&r, values, capacity);
    out->values = values;
    if (r.is_short || r.left != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "a stage sent a reply that makes no sense");
    return STRAIT_OK;
}
