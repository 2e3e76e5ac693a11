#include "stage/commands.h"

#include <string.h>

enum {
    SEND_MS = 60000
};

#define COMMAND(type, member) STRAIT_FIELD(type, strait_stage_command, member)
#define REPLY(type, member)   STRAIT_FIELD(type, strait_stage_reply, member)

/* ---- commands ---- */

static const strait_field command_header[] = {COMMAND(INT, kind), COMMAND(U32, generation),
                                              COMMAND(U32, sequence)};
static const strait_field connect[] = {COMMAND(INT, connect.replica), COMMAND(BYTES, connect.key),
                                       COMMAND(TEXT, connect.address)};
static const strait_field open[] = {COMMAND(INT, open.n_slots), COMMAND(FLAG, open.may_reuse)};
static const strait_field load[] = {COMMAND(TEXT, load.folder)};
static const strait_field gradients[] = {
    COMMAND(I64, gradients.step),        COMMAND(FLAG, gradients.mute_prev),
    COMMAND(FLAG, gradients.mute_next),  COMMAND(BYTES, gradients.owners),
    COMMAND(FLAG, gradients.has_update), COMMAND(F32, gradients.factor)};
static const strait_field update[] = {COMMAND(I64, update.step), COMMAND(F32, update.factor),
                                      COMMAND(FLAG, update.keep_snapshot)};
static const strait_field validate[] = {COMMAND(I64, validate.step)};
static const strait_field save[] = {COMMAND(I64, save.step), COMMAND(TEXT, save.folder),
                                    COMMAND(FLAG, save.wants_digest),
                                    COMMAND(FLAG, save.is_partial)};
static const strait_field send_snapshot[] = {COMMAND(I64, send_snapshot.step)};
static const strait_field adopt_basis[] = {COMMAND(U32, adopt_basis.version),
                                           COMMAND(FLOATS, adopt_basis.basis)};
static const strait_field trace_end[] = {COMMAND(TEXT, trace_end.path)};
static const strait_field resend[] = {COMMAND(I64, resend.step), COMMAND(FLAG, resend.to_prev),
                                      COMMAND(FLAG, resend.to_next)};
static const strait_field outer[] = {COMMAND(INT, outer.phase),      COMMAND(I64, outer.step),
                                     COMMAND(INT, outer.fragment),   COMMAND(INT, outer.attempt),
                                     COMMAND(U64, outer.members),    COMMAND(U64, outer.alive),
                                     COMMAND(FLAG, outer.is_resent), COMMAND(BYTES, outer.owners)};
static const strait_field probe[] = {COMMAND(INT, probe.duration_ms)};

const strait_layout strait_stage_command_header = STRAIT_LAYOUT("command", command_header);

static const strait_layout commands[STRAIT_COMMAND_KINDS] = {
    [STRAIT_COMMAND_CONNECT_PREV] = STRAIT_LAYOUT("connect_prev", connect),
    [STRAIT_COMMAND_CONNECT_NEXT] = STRAIT_LAYOUT("connect_next", connect),
    [STRAIT_COMMAND_OPEN] = STRAIT_LAYOUT("open", open),
    [STRAIT_COMMAND_TIME_PASSES] = {"time_passes", NULL, 0},
    [STRAIT_COMMAND_LOAD] = STRAIT_LAYOUT("load", load),
    [STRAIT_COMMAND_GRADIENTS] = STRAIT_LAYOUT("gradients", gradients),
    [STRAIT_COMMAND_UPDATE] = STRAIT_LAYOUT("update", update),
    [STRAIT_COMMAND_VALIDATE] = STRAIT_LAYOUT("validate", validate),
    [STRAIT_COMMAND_SAVE] = STRAIT_LAYOUT("save", save),
    [STRAIT_COMMAND_SEND_SNAPSHOT] = STRAIT_LAYOUT("send_snapshot", send_snapshot),
    [STRAIT_COMMAND_PROPOSE_BASIS] = {"propose_basis", NULL, 0},
    [STRAIT_COMMAND_ADOPT_BASIS] = STRAIT_LAYOUT("adopt_basis", adopt_basis),
    [STRAIT_COMMAND_TRACE_BEGIN] = {"trace_begin", NULL, 0},
    [STRAIT_COMMAND_TRACE_END] = STRAIT_LAYOUT("trace_end", trace_end),
    [STRAIT_COMMAND_LEAVE] = {"leave", NULL, 0},
    [STRAIT_COMMAND_RESEND] = STRAIT_LAYOUT("resend", resend),
    [STRAIT_COMMAND_CONNECT_REPLICA] = STRAIT_LAYOUT("connect_replica", connect),
    [STRAIT_COMMAND_OUTER] = STRAIT_LAYOUT("outer", outer),
    [STRAIT_COMMAND_PROBE] = STRAIT_LAYOUT("probe", probe),
};

/* ---- replies ---- */

/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments name members */
#define TIMES(kind)                                                                               \
    REPLY(F64, kind.times.forward), REPLY(F64, kind.times.input), REPLY(F64, kind.times.weights), \
        REPLY(F64, kind.times.codec), REPLY(F64, kind.times.wait), REPLY(F64, kind.times.wall)
#define FAULTS(kind)                                                          \
    REPLY(F64, kind.faults.nonfinite), REPLY(F64, kind.faults.rejected_prev), \
        REPLY(F64, kind.faults.rejected_next)
/* NOLINTEND(bugprone-macro-parentheses) */

static const strait_field reply_header[] = {REPLY(INT, kind),
                                            REPLY(U32, generation),
                                            REPLY(U32, sequence),
                                            REPLY(INT, err),
                                            REPLY(REASON, reason),
                                            REPLY(INT, failed_side),
                                            REPLY(U64, device_bytes),
                                            REPLY(U64, device_free),
                                            REPLY(INT, rejected_copies_prev),
                                            REPLY(INT, rejected_copies_next)};
static const strait_field opened[] = {REPLY(REASON, open.device)};
static const strait_field timed[] = {TIMES(time_passes), REPLY(F64, time_passes.next_delay_s)};
static const strait_field computed[] = {REPLY(F64, gradients.loss_sum),
                                        TIMES(gradients),
                                        REPLY(U64, gradients.forward_bytes),
                                        REPLY(U64, gradients.backward_bytes),
                                        REPLY(U64, gradients.reduce_bytes),
                                        REPLY(F64, gradients.residual_forward),
                                        REPLY(F64, gradients.residual_backward),
                                        REPLY(F64, gradients.basis.leak),
                                        REPLY(F64, gradients.basis.corrections),
                                        REPLY(F64, gradients.basis.angle),
                                        REPLY(F64, gradients.basis.mean_angle),
                                        REPLY(F64, gradients.basis.error),
                                        FAULTS(gradients),
                                        REPLY(FLOATS, gradients.squares)};
static const strait_field updated[] = {REPLY(F64, update.snapshot_s), REPLY(F64, update.copy_s),
                                       REPLY(F64, update.link_bps)};
static const strait_field validated[] = {REPLY(F64, validate.loss_sum), FAULTS(validate)};
static const strait_field saved[] = {REPLY(BYTES, save.digest)};
static const strait_field proposed[] = {REPLY(FLOATS, propose_basis.basis)};
static const strait_field averaged[] = {REPLY(FLAG, outer.is_complete), REPLY(U64, outer.missing),
                                        REPLY(U64, outer.withheld),     REPLY(U64, outer.rejected),
                                        REPLY(F64, outer.distance),     REPLY(F64, outer.size),
                                        REPLY(U64, outer.bytes)};
static const strait_field probed[] = {REPLY(F64, probe.from_prev_bps),
                                      REPLY(F64, probe.from_next_bps),
                                      REPLY(F64, probe.to_prev_bps), REPLY(F64, probe.to_next_bps)};

const strait_layout strait_stage_reply_header = STRAIT_LAYOUT("reply", reply_header);

/* Kinds that are not listed answer with the header alone. */
static const strait_layout replies[STRAIT_COMMAND_KINDS] = {
    [STRAIT_COMMAND_OPEN] = STRAIT_LAYOUT("open", opened),
    [STRAIT_COMMAND_TIME_PASSES] = STRAIT_LAYOUT("time_passes", timed),
    [STRAIT_COMMAND_GRADIENTS] = STRAIT_LAYOUT("gradients", computed),
    [STRAIT_COMMAND_UPDATE] = STRAIT_LAYOUT("update", updated),
    [STRAIT_COMMAND_VALIDATE] = STRAIT_LAYOUT("validate", validated),
    [STRAIT_COMMAND_SAVE] = STRAIT_LAYOUT("save", saved),
    [STRAIT_COMMAND_PROPOSE_BASIS] = STRAIT_LAYOUT("propose_basis", proposed),
    [STRAIT_COMMAND_OUTER] = STRAIT_LAYOUT("outer", averaged),
    [STRAIT_COMMAND_PROBE] = STRAIT_LAYOUT("probe", probed),
};

/* The kind comes from the network, so the bounds are checked before the table is read. */
const strait_layout *strait_stage_command_layout(strait_stage_command_kind kind) {
    return (int)kind > 0 && kind < STRAIT_COMMAND_KINDS ? &commands[kind] : NULL;
}

/* Replies have the kind of the command they answer. */
const strait_layout *strait_stage_reply_layout(strait_stage_command_kind kind) {
    return (int)kind > 0 && kind < STRAIT_COMMAND_KINDS ? &replies[kind] : NULL;
}

/* For messages only; kinds of a newer peer are "unknown". */
const char *strait_stage_command_name(strait_stage_command_kind kind) {
    const strait_layout *layout = strait_stage_command_layout(kind);
    return layout != NULL ? layout->name : "unknown";
}

/* ---- packing ---- */

/* Control messages overtake crossings that are queued: a command to stop must not wait behind
 * megabytes of activations. */
static strait_err pack(struct strait_msg_pool *pool, uint8_t type, const strait_layout *header,
                       const strait_layout *body, const void *object, struct strait_msg **out) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_msg_open(
        pool, type, strait_layout_bytes(header, object) + strait_layout_bytes(body, object), &msg));
    strait_writer w = {msg->body, msg->size, 0};
    msg->priority = STRAIT_PRIORITY_CONTROL;
    strait_layout_write(header, object, &w);
    strait_layout_write(body, object, &w);
    *out = msg;
    return STRAIT_OK;
}

strait_err strait_stage_command_pack(struct strait_msg_pool *pool,
                                     const strait_stage_command *command, struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_COMMAND, &strait_stage_command_header, &commands[command->kind],
                command, out);
}

strait_err strait_stage_reply_pack(struct strait_msg_pool *pool, const strait_stage_reply *reply,
                                   struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_REPLY, &strait_stage_reply_header, &replies[reply->kind], reply,
                out);
}

/* Crossings carry the step in 32 bits, and boundaries index by it. */
static int is_step(int64_t step) {
    return step >= 0 && step < UINT32_MAX;
}

/* Checked where commands are read, because in a swarm they come from another machine. */
static int has_valid_step(const strait_stage_command *command) {
    switch (command->kind) {
    case STRAIT_COMMAND_GRADIENTS:
        return is_step(command->gradients.step) &&
               (!command->gradients.has_update || command->gradients.step >= 2);
    case STRAIT_COMMAND_UPDATE: return is_step(command->update.step);
    case STRAIT_COMMAND_VALIDATE: return is_step(command->validate.step);
    case STRAIT_COMMAND_SAVE: return is_step(command->save.step);
    case STRAIT_COMMAND_SEND_SNAPSHOT: return is_step(command->send_snapshot.step);
    case STRAIT_COMMAND_RESEND: return is_step(command->resend.step);
    case STRAIT_COMMAND_OUTER: return is_step(command->outer.step);
    default: return 1;
    }
}

/* The struct is zeroed first, so that fields of other kinds read as nothing. */
strait_err strait_stage_command_unpack(struct strait_msg *msg, strait_float_memory memory,
                                       strait_stage_command *out) {
    strait_reader r = {msg->body, msg->size, 0};
    memset(out, 0, sizeof *out);
    strait_layout_read(&strait_stage_command_header, &r, memory, out);
    const strait_layout *body = strait_stage_command_layout(out->kind);
    if (body != NULL) strait_layout_read(body, &r, memory, out);
    if (body == NULL || r.is_short || r.left != 0 || !has_valid_step(out))
        return STRAIT_FAIL(STRAIT_EPROTO, "malformed command of kind %d", (int)out->kind);
    return STRAIT_OK;
}

/* A message that is longer than its layout is as malformed as one that is shorter. */
strait_err strait_stage_reply_unpack(struct strait_msg *msg, strait_float_memory memory,
                                     strait_stage_reply *out) {
    strait_reader r = {msg->body, msg->size, 0};
    memset(out, 0, sizeof *out);
    strait_layout_read(&strait_stage_reply_header, &r, memory, out);
    const strait_layout *body = strait_stage_reply_layout(out->kind);
    if (body != NULL) strait_layout_read(body, &r, memory, out);
    if (body == NULL || r.is_short || r.left != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "malformed reply of kind %d", (int)out->kind);
    return STRAIT_OK;
}

/* Reads the header alone: a late reply is recognised before memory for its body is touched. */
strait_err strait_stage_reply_peek(struct strait_msg *msg, strait_stage_reply *out) {
    strait_reader r = {msg->body, msg->size, 0};
    memset(out, 0, sizeof *out);
    strait_layout_read(&strait_stage_reply_header, &r, (strait_float_memory){0}, out);
    return r.is_short ? STRAIT_FAIL(STRAIT_EPROTO, "malformed reply") : STRAIT_OK;
}

/* The message is closed here whether it was sent or not, so callers need no cleanup. */
static strait_err post(struct strait_mesh *mesh, int peer, struct strait_msg **msg) {
    const strait_err err = strait_mesh_send_wait(mesh, peer, SEND_MS, msg);
    strait_msg_close(msg);
    return err;
}

strait_err strait_stage_command_send(struct strait_mesh *mesh, int peer,
                                     const strait_stage_command *command) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_stage_command_pack(strait_mesh_pool(mesh), command, &msg));
    return post(mesh, peer, &msg);
}

strait_err strait_stage_reply_send(struct strait_mesh *mesh, int peer,
                                   const strait_stage_reply *reply) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_stage_reply_pack(strait_mesh_pool(mesh), reply, &msg));
    return post(mesh, peer, &msg);
}
