#include "liar/messages.h"

#include "stage/boundary/boundary.h"
#include "stage/boundary/boundary_check.h"
#include "stage/commands.h"
#include "stage/outer/outer.h"
#include "swarm/protocol.h"

#include <stdio.h>
#include <string.h>

static const strait_layout *command_body(int kind) {
    return strait_stage_command_layout((strait_stage_command_kind)kind);
}

static const strait_layout *reply_body(int kind) {
    return strait_stage_reply_layout((strait_stage_command_kind)kind);
}

static const strait_layout *task_body(int kind) {
    return strait_task_layout((strait_task_kind)kind);
}

static const strait_layout *task_reply_body(int kind) {
    return strait_task_reply_layout((strait_task_kind)kind);
}

/* Rows without a header find it among the tables of the swarm, by their name. */
static message_row rows[] = {
    {"join", STRAIT_MSG_JOIN, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"heartbeat", STRAIT_MSG_HEARTBEAT, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"reply", STRAIT_MSG_REPLY, FROM_WORKER, &strait_stage_reply_header, reply_body, command_body,
     STRAIT_COMMAND_KINDS, 0},
    {"task_reply", STRAIT_MSG_TASK_REPLY, FROM_WORKER, NULL, task_reply_body, task_body,
     STRAIT_TASK_KINDS, 0},
    {"snapshot_request", STRAIT_MSG_SNAPSHOT_REQUEST, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"leave", STRAIT_MSG_LEAVE, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"snapshot", STRAIT_MSG_SNAPSHOT, FROM_WORKER | FROM_NEIGHBOUR | FROM_HOST, NULL, NULL, NULL, 0,
     1},
    {"crossing", STRAIT_MSG_CROSSING, FROM_WORKER | FROM_NEIGHBOUR | FROM_HOST, NULL, NULL, NULL, 0,
     1},
    {"commitment", STRAIT_MSG_COMMITMENT, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"work", STRAIT_MSG_WORK, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"given", STRAIT_MSG_GIVEN, FROM_WORKER, NULL, NULL, NULL, 0, 0},
    {"give", STRAIT_MSG_GIVE, FROM_HOST, NULL, NULL, NULL, 0, 0},
    {"boundary_check", STRAIT_MSG_BOUNDARY_CHECK, FROM_NEIGHBOUR, &strait_boundary_check_layout,
     NULL, NULL, 0, 0},
    {"task", STRAIT_MSG_TASK, FROM_HOST, NULL, task_body, task_body, STRAIT_TASK_KINDS, 0},
    {"command", STRAIT_MSG_COMMAND, FROM_HOST, &strait_stage_command_header, command_body,
     command_body, STRAIT_COMMAND_KINDS, 0},
    {"run_status", STRAIT_MSG_RUN_STATUS, FROM_HOST, NULL, NULL, NULL, 0, 0},
    {"ids", STRAIT_MSG_IDS, FROM_HOST, NULL, NULL, NULL, 0, 1},
    {"outer", STRAIT_MSG_OUTER, FROM_REPLICA, NULL, NULL, NULL, 0, 1},
};
enum {
    N_ROWS = sizeof rows / sizeof *rows
};

#define FRAME(member) STRAIT_FIELD(U32, struct strait_msg, member)

/* What a frame carries for the modules above; each has as many bytes as its member. The priority is
 * not among them, since it would choose a queue of the liar itself. */
static const strait_field frame_fields[] = {FRAME(flags), FRAME(boundary), FRAME(microbatch),
                                            FRAME(basis), FRAME(step),     FRAME(type)};
static const strait_layout frame = STRAIT_LAYOUT("frame", frame_fields);

static const strait_layout *header_of(message_row *row) {
    for (int i = 0; row->header == NULL && strait_swarm_layout(i) != NULL; i++)
        if (strcmp(strait_swarm_layout(i)->name, row->name) == 0)
            row->header = strait_swarm_layout(i);
    return row->header;
}

const message_row *message_at(int i) {
    if (i < 0 || i >= N_ROWS) return NULL;
    (void)header_of(&rows[i]);
    return &rows[i];
}

const message_row *message_of(uint8_t type) {
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].type == type) return message_at(i);
    return NULL;
}

const char *check_messages(void) {
    for (int i = 0; strait_swarm_layout(i) != NULL; i++) {
        int is_listed = 0;
        for (int k = 0; k < N_ROWS; k++)
            is_listed |= strcmp(rows[k].name, strait_swarm_layout(i)->name) == 0;
        if (!is_listed) return strait_swarm_layout(i)->name;
    }
    return NULL;
}

/* ---- names ---- */

/* The members of a kind are named for it: "gradients.loss_sum" is loss_sum of gradients. */
static const char *short_name(const strait_layout *layout, const char *name) {
    const size_t n = strlen(layout->name);
    return strncmp(name, layout->name, n) == 0 && name[n] == '.' ? name + n + 1 : name;
}

static void list_fields(const char *prefix, const char *kind, const strait_layout *layout,
                        void (*with)(const char *name, const strait_field *field)) {
    char name[MESSAGE_NAME];
    for (int i = 0; layout != NULL && i < layout->n_fields; i++) {
        const char *field = kind != NULL ? short_name(layout, layout->fields[i].name)
                                         : layout->fields[i].name;
        (void)snprintf(name, sizeof name, "%s.%s%s%s", prefix, kind != NULL ? kind : "",
                       kind != NULL ? "." : "", field);
        with(name, &layout->fields[i]);
    }
}

void each_field(int senders, void (*with)(const char *name, const strait_field *field)) {
    for (int i = 0; i < N_ROWS; i++) {
        const message_row *row = message_at(i);
        if ((row->senders & senders) == 0) continue;
        list_fields(row->name, NULL, row->header, with);
        for (int k = 1; k < row->n_kinds; k++)
            if (row->body(k)->n_fields > 0)
                list_fields(row->name, row->body(k)->name, row->body(k), with);
        if (row->uses_frame) list_fields(row->name, frame.name, &frame, with);
    }
}

/* Takes `word` and the point behind it off the front of *target; 0: it begins with another. */
static int take_word(const char **target, const char *word) {
    const size_t n = strlen(word);
    if (n == 0 || strncmp(*target, word, n) != 0) return 0;
    if ((*target)[n] != '\0' && (*target)[n] != '.') return 0;
    *target += n + ((*target)[n] == '.');
    return 1;
}

int parcel_is(const struct parcel *parcel, const char *target) {
    if (!take_word(&target, parcel->row->name)) return 0;
    return *target == '\0' || take_word(&target, parcel->kind);
}

static const strait_field *find_in(const strait_layout *layout, const char *name) {
    for (int i = 0; layout != NULL && i < layout->n_fields; i++)
        if (strcmp(short_name(layout, layout->fields[i].name), name) == 0)
            return &layout->fields[i];
    return NULL;
}

const strait_field *parcel_find(struct parcel *parcel, struct strait_msg *msg, const char *target,
                                void **at) {
    const strait_field *field = NULL;
    if (!take_word(&target, parcel->row->name)) return NULL;
    if (take_word(&target, frame.name)) {
        field = find_in(&frame, target);
        *at = (unsigned char *)msg + (field != NULL ? field->offset : 0);
        return field;
    }
    if (take_word(&target, parcel->kind)) field = find_in(parcel->body, target);
    if (field == NULL) field = find_in(parcel->row->header, target);
    *at = parcel->object + (field != NULL ? field->offset : 0);
    return field;
}

/* ---- packing ---- */

static const strait_layout nothing = {"", NULL, 0};

int parcel_unpack(struct strait_msg *msg, struct parcel *out) {
    strait_reader r = {msg->body, msg->size, 0};
    const strait_float_memory memory = {out->floats, PARCEL_FLOATS};
    out->row = message_of(msg->type);
    out->body = NULL;
    out->kind = "";
    if (out->row == NULL) return 0;
    memset(out->object, 0, sizeof out->object);
    if (out->row->header != NULL) strait_layout_read(out->row->header, &r, memory, out->object);
    if (out->row->body != NULL) {
        int kind; // of both structs it is the first member
        memcpy(&kind, out->object, sizeof kind);
        out->body = out->row->body(kind);
        if (out->body == NULL) return 0;
        out->kind = out->row->named(kind)->name;
        strait_layout_read(out->body, &r, memory, out->object);
    }
    out->rest = (strait_view){r.at, r.left};
    return !r.is_short;
}

strait_err message_like(const struct strait_msg *like, size_t size, struct strait_msg **out) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_msg_open(like->pool, like->type, size, &msg));
    msg->priority = like->priority;
    msg->flags = like->flags;
    msg->boundary = like->boundary;
    msg->microbatch = like->microbatch;
    msg->basis = like->basis;
    msg->step = like->step;
    msg->queued_ns = like->queued_ns;
    *out = msg;
    return STRAIT_OK;
}

strait_err parcel_pack(const struct parcel *parcel, const struct strait_msg *like,
                       struct strait_msg **out) {
    const strait_layout *header = parcel->row->header != NULL ? parcel->row->header : &nothing;
    const strait_layout *body = parcel->body != NULL ? parcel->body : &nothing;
    STRAIT_TRY(message_like(like,
                            strait_layout_bytes(header, parcel->object) +
                                strait_layout_bytes(body, parcel->object) + parcel->rest.bytes,
                            out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_layout_write(header, parcel->object, &w);
    strait_layout_write(body, parcel->object, &w);
    strait_writer_copy(&w, parcel->rest.data, parcel->rest.bytes);
    return STRAIT_OK;
}
