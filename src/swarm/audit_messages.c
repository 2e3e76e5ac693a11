/* audit_messages.c - packing and unpacking of the messages of audits and of the status of the run,
 * by the tables of protocol.c. */
#include "swarm/protocol.h"

#include <math.h>
#include <string.h>

static strait_err pack(struct strait_msg_pool *pool, uint8_t type, strait_swarm_layout_kind kind,
                       const void *object, struct strait_msg **out) {
    const strait_layout *layout = strait_swarm_layout((int)kind);
    STRAIT_TRY(strait_msg_open(pool, type, strait_layout_bytes(layout, object), out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_layout_write(layout, object, &w);
    return STRAIT_OK;
}

/* Returns whether the message has exactly the fields of the table. */
static int unpack(const struct strait_msg *msg, strait_swarm_layout_kind kind, void *out) {
    strait_reader r = {msg->body, msg->size, 0};
    strait_layout_read(strait_swarm_layout((int)kind), &r, (strait_float_memory){NULL, 0}, out);
    return !r.is_short && r.left == 0;
}

static strait_err malformed(const char *what) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a peer sent a malformed %s", what);
}

/* Crossings carry the step in 32 bits. */
static int is_interval(int64_t from, int64_t to) {
    return from >= 0 && to >= 0 && from < UINT32_MAX && to < UINT32_MAX;
}

strait_err strait_commitment_pack(struct strait_msg_pool *pool,
                                  const strait_commitment_message *commitment,
                                  struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_COMMITMENT, STRAIT_LAYOUT_COMMITMENT, commitment, out);
}

strait_err strait_commitment_unpack(const struct strait_msg *msg, strait_commitment_message *out) {
    return unpack(msg, STRAIT_LAYOUT_COMMITMENT, out) && out->stage >= 0 &&
                   out->stage < STRAIT_RUN_STAGES &&
                   is_interval(out->interval.from, out->interval.to)
               ? STRAIT_OK
               : malformed("commitment");
}

strait_err strait_work_pack(struct strait_msg_pool *pool, const strait_work_message *work,
                            struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_WORK, STRAIT_LAYOUT_WORK, work, out);
}

strait_err strait_work_unpack(const struct strait_msg *msg, strait_work_message *out) {
    return unpack(msg, STRAIT_LAYOUT_WORK, out) && out->stage >= 0 &&
                   out->stage < STRAIT_RUN_STAGES && is_interval(out->step, out->step)
               ? STRAIT_OK
               : malformed("statement about a step");
}

strait_err strait_work_read(strait_work_shape shape, const strait_view *bytes,
                            strait_digest out[STRAIT_WORK_MAX]) {
    const int n = strait_work_digests(shape);
    if (n > STRAIT_WORK_MAX || bytes->bytes != (size_t)n * sizeof *out)
        return malformed("row of digests");
    memcpy(out, bytes->data, bytes->bytes);
    return STRAIT_OK;
}

strait_err strait_give_pack(struct strait_msg_pool *pool, const strait_give *give,
                            struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_GIVE, STRAIT_LAYOUT_GIVE, give, out);
}

strait_err strait_give_unpack(const struct strait_msg *msg, strait_give *out) {
    return unpack(msg, STRAIT_LAYOUT_GIVE, out) && is_interval(out->from, out->to)
               ? STRAIT_OK
               : malformed("request of an audit");
}

strait_err strait_given_pack(struct strait_msg_pool *pool, const strait_given *given,
                             struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_GIVEN, STRAIT_LAYOUT_GIVEN, given, out);
}

strait_err strait_given_unpack(const struct strait_msg *msg, strait_given *out) {
    return unpack(msg, STRAIT_LAYOUT_GIVEN, out) ? STRAIT_OK
                                                 : malformed("answer to a request of an audit");
}

strait_err strait_run_status_pack(struct strait_msg_pool *pool, const strait_run_status *status,
                                  struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_RUN_STATUS, STRAIT_LAYOUT_RUN_STATUS, status, out);
}

/* Numbers are printed, so they must be numbers; a coordinator that exaggerates fools only itself.
 */
strait_err strait_run_status_unpack(const struct strait_msg *msg, strait_run_status *out) {
    if (!unpack(msg, STRAIT_LAYOUT_RUN_STATUS, out) || out->step < 0 || out->n_steps < 0 ||
        out->batch_tokens < 0 || out->n_stages < 0 || out->n_stages > STRAIT_RUN_STAGES ||
        !isfinite(out->loss) || !(out->tokens_per_s >= 0.0 && out->tokens_per_s < 1e30) ||
        !(out->left_s >= 0.0 && out->left_s < 1e12) ||
        !(out->need_bytes >= 0.0 && out->need_bytes < 1e30))
        return malformed("status of the run");
    return STRAIT_OK;
}
