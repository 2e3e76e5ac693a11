/* wire_samples.h - one message of every type and kind, filled from the tables of its layout.
 *
 * The layout test hashes them; the fuzz target of the control plane starts from them. A new kind
 * appears here by itself. */
#pragma once

#include "stage/boundary/boundary_check.h"
#include "stage/commands.h"
#include "swarm/protocol.h"

#include <stdio.h>
#include <string.h>

typedef enum sample_values {
    SMALL_VALUES, // which the parsers accept
    LARGE_VALUES  // every byte of a number differs, so that their order shows
} sample_values;

typedef strait_err sample_fn(struct strait_msg *msg);

/* Fills every field: with a value of its own, or with small integers, which no bounds check
 * rejects.
 */
static void fill(const strait_layout *layout, sample_values values, void *object) {
    static const float floats[] = {1.5f, -2.25f};
    for (int i = 0; i < layout->n_fields; i++) {
        const strait_field *f = &layout->fields[i];
        unsigned char *at = (unsigned char *)object + f->offset;
        const int value = values == LARGE_VALUES ? 0x01020300 + i : i % 3;
        const int64_t wide = values == LARGE_VALUES ? ((int64_t)value << 31) + i : value;
        switch (f->type) {
        case STRAIT_FIELD_FLAG: *(int *)at = i % 2; break;
        case STRAIT_FIELD_INT:
        case STRAIT_FIELD_U32: memcpy(at, &value, 4); break;
        case STRAIT_FIELD_U64:
        case STRAIT_FIELD_I64: *(int64_t *)at = wide; break;
        case STRAIT_FIELD_F32: *(float *)at = 0.5f * (float)(i + 1); break;
        case STRAIT_FIELD_F64: *(double *)at = 0.25 * (i + 1); break;
        case STRAIT_FIELD_BYTES: memset(at, i + 1, f->size); break;
        case STRAIT_FIELD_NAME: (void)snprintf((char *)at, f->size, "name %d", i); break;
        case STRAIT_FIELD_TEXT:
        case STRAIT_FIELD_REASON: *(const char **)at = "a text"; break;
        case STRAIT_FIELD_FLOATS: *(strait_floats *)at = (strait_floats){floats, 2}; break;
        case STRAIT_FIELD_REST:
            *(strait_view *)at = (strait_view){(const unsigned char *)"rest", 4};
            break;
        }
    }
}

static strait_err take(struct strait_msg **msg, sample_fn *with) {
    const strait_err err = with(*msg);
    strait_msg_close(msg);
    return err;
}

static strait_err each_stage_sample(struct strait_msg_pool *pool, sample_values values,
                                    sample_fn *with) {
    for (int k = 1; k < STRAIT_COMMAND_KINDS; k++) {
        const strait_stage_command_kind kind = (strait_stage_command_kind)k;
        struct strait_msg *msg = NULL;
        strait_stage_command command = {0};
        strait_stage_reply reply = {0};
        fill(&strait_stage_command_header, values, &command);
        fill(strait_stage_command_layout(kind), values, &command);
        command.kind = kind;
        STRAIT_TRY(strait_stage_command_pack(pool, &command, &msg));
        STRAIT_TRY(take(&msg, with));
        fill(&strait_stage_reply_header, values, &reply);
        fill(strait_stage_reply_layout(kind), values, &reply);
        reply.kind = kind;
        STRAIT_TRY(strait_stage_reply_pack(pool, &reply, &msg));
        STRAIT_TRY(take(&msg, with));
    }
    return STRAIT_OK;
}

static strait_err each_task_sample(struct strait_msg_pool *pool, sample_values values,
                                   sample_fn *with) {
    const strait_layout *header = NULL;
    const strait_layout *reply_header = NULL;
    for (int i = 0; strait_swarm_layout(i) != NULL; i++) {
        if (strcmp(strait_swarm_layout(i)->name, "task") == 0) header = strait_swarm_layout(i);
        if (strcmp(strait_swarm_layout(i)->name, "task_reply") == 0)
            reply_header = strait_swarm_layout(i);
    }
    for (int k = 1; k < STRAIT_TASK_KINDS; k++) {
        const strait_task_kind kind = (strait_task_kind)k;
        struct strait_msg *msg = NULL;
        strait_task task = {0};
        strait_task_reply reply = {0};
        fill(header, values, &task);
        fill(strait_task_layout(kind), values, &task);
        task.kind = kind;
        STRAIT_TRY(strait_task_pack(pool, &task, &msg));
        STRAIT_TRY(take(&msg, with));
        fill(reply_header, values, &reply);
        fill(strait_task_reply_layout(kind), values, &reply);
        reply.kind = kind;
        STRAIT_TRY(strait_task_reply_pack(pool, &reply, &msg));
        STRAIT_TRY(take(&msg, with));
    }
    return STRAIT_OK;
}

static strait_err each_swarm_sample(struct strait_msg_pool *pool, sample_values values,
                                    sample_fn *with) {
    static const int32_t tokens[] = {1, 65535, 7};
    struct strait_msg *msg = NULL;
    strait_join join = {0};
    strait_heartbeat heartbeat = {0};
    strait_snapshot_request request = {0};
    strait_boundary_check check = {0};
    fill(&strait_boundary_check_layout, values, &check);
    STRAIT_TRY(strait_boundary_check_pack(pool, &check, &msg));
    STRAIT_TRY(take(&msg, with));
    fill(strait_swarm_layout(0), values, &join);
    STRAIT_TRY(strait_join_pack(pool, &join, &msg));
    STRAIT_TRY(take(&msg, with));
    fill(strait_swarm_layout(1), values, &heartbeat);
    STRAIT_TRY(strait_heartbeat_pack(pool, &heartbeat, &msg));
    STRAIT_TRY(take(&msg, with));
    fill(strait_swarm_layout(3), values, &request);
    STRAIT_TRY(strait_snapshot_request_pack(pool, &request, &msg));
    STRAIT_TRY(take(&msg, with));
    strait_commitment_message commitment = {0};
    fill(strait_swarm_layout(STRAIT_LAYOUT_COMMITMENT), values, &commitment);
    STRAIT_TRY(strait_commitment_pack(pool, &commitment, &msg));
    STRAIT_TRY(take(&msg, with));
    strait_work_message work = {0};
    fill(strait_swarm_layout(STRAIT_LAYOUT_WORK), values, &work);
    STRAIT_TRY(strait_work_pack(pool, &work, &msg));
    STRAIT_TRY(take(&msg, with));
    strait_give give = {0};
    fill(strait_swarm_layout(STRAIT_LAYOUT_GIVE), values, &give);
    STRAIT_TRY(strait_give_pack(pool, &give, &msg));
    STRAIT_TRY(take(&msg, with));
    strait_given given = {0};
    fill(strait_swarm_layout(STRAIT_LAYOUT_GIVEN), values, &given);
    STRAIT_TRY(strait_given_pack(pool, &given, &msg));
    STRAIT_TRY(take(&msg, with));
    strait_run_status status = {0};
    fill(strait_swarm_layout(STRAIT_LAYOUT_RUN_STATUS), values, &status);
    if (values == SMALL_VALUES) status.n_stages = 2;
    STRAIT_TRY(strait_run_status_pack(pool, &status, &msg));
    STRAIT_TRY(take(&msg, with));
    const strait_piece piece = {1, 2, 3, 1, 4, 9, (const unsigned char *)"piece", 5};
    STRAIT_TRY(strait_piece_pack(pool, &piece, &msg));
    STRAIT_TRY(take(&msg, with));
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        const strait_batch_ids ids = {5, 6, is_wide, tokens, is_wide ? tokens : NULL, 3, is_wide};
        STRAIT_TRY(strait_batch_ids_pack(pool, &ids, &msg));
        STRAIT_TRY(take(&msg, with));
    }
    return STRAIT_OK;
}

/* Calls `with` for each; it borrows the message. */
static strait_err each_sample(struct strait_msg_pool *pool, sample_values values, sample_fn *with) {
    STRAIT_TRY(each_stage_sample(pool, values, with));
    STRAIT_TRY(each_task_sample(pool, values, with));
    return each_swarm_sample(pool, values, with);
}

/* The invite of a coordinator at one address. */
static strait_err invite_sample(char out[STRAIT_INVITE_TEXT]) {
    strait_invite invite = {.address = "127.0.0.1:4567", .uses = 3, .expires = 1};
    memset(invite.run, 1, sizeof invite.run);
    memset(&invite.key, 2, sizeof invite.key);
    memset(invite.token, 3, sizeof invite.token);
    return strait_invite_format(&invite, out);
}
