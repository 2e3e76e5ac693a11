/* swarm_parsers.h - the parsers of the control plane's messages, by the type of the message.
 *
 * A message that is accepted must have the same size when it is packed again: anything else ends
 * the program. Shared by the fuzz target and by the test of its seeds. */
#pragma once

#include "stage/boundary/boundary_check.h"
#include "stage/commands.h"
#include "swarm/invite.h"
#include "swarm/protocol.h"
#include "swarm/snapshot/header.h"
#include "swarm/snapshot/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum {
    IDS = 3, // of a microbatch, as in wire_samples.h
    FLOATS = 64
};

static void check_size(struct strait_msg **packed, const struct strait_msg *msg) {
    if ((*packed)->size != msg->size) abort();
    strait_msg_close(packed);
}

static strait_err parse_task(struct strait_msg_pool *pool, struct strait_msg *msg) {
    strait_task task;
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_task_unpack(msg, &task));
    if (strait_task_pack(pool, &task, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_task_reply(struct strait_msg_pool *pool, struct strait_msg *msg) {
    strait_task_reply reply;
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_task_reply_unpack(msg, &reply));
    if (strait_task_reply_pack(pool, &reply, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_command(struct strait_msg_pool *pool, struct strait_msg *msg) {
    float values[FLOATS];
    strait_stage_command command;
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_stage_command_unpack(msg, (strait_float_memory){values, FLOATS}, &command));
    if (strait_stage_command_pack(pool, &command, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_reply(struct strait_msg_pool *pool, struct strait_msg *msg) {
    float values[FLOATS];
    strait_stage_reply reply;
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_stage_reply_unpack(msg, (strait_float_memory){values, FLOATS}, &reply));
    if (strait_stage_reply_pack(pool, &reply, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_ids(struct strait_msg_pool *pool, const struct strait_msg *msg) {
    int32_t memory[2 * IDS];
    strait_batch_ids ids;
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_batch_ids_unpack(msg, memory, IDS, &ids));
    if (strait_batch_ids_pack(pool, &ids, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_piece(struct strait_msg_pool *pool, const struct strait_msg *msg) {
    strait_piece piece;
    struct strait_snapshot snapshot = {0};
    struct strait_msg *packed = NULL;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    (void)strait_snapshot_add_piece(&snapshot, &piece,
                                    piece.total < 4096 ? (size_t)piece.total : 4096);
    strait_snapshot_fini(&snapshot);
    if (strait_piece_pack(pool, &piece, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
    return STRAIT_OK;
}

static strait_err parse_join(const struct strait_msg *msg) {
    strait_join join;
    return strait_join_unpack(msg, &join);
}

static strait_err parse_heartbeat(const struct strait_msg *msg) {
    strait_heartbeat heartbeat;
    return strait_heartbeat_unpack(msg, &heartbeat);
}

static strait_err parse_snapshot_request(const struct strait_msg *msg) {
    strait_snapshot_request request;
    return strait_snapshot_request_unpack(msg, &request);
}

static strait_err parse_boundary_check(const struct strait_msg *msg) {
    strait_boundary_check check;
    return strait_boundary_check_unpack(msg, &check);
}

static strait_err parse_commitment(const struct strait_msg *msg) {
    strait_commitment_message commitment;
    return strait_commitment_unpack(msg, &commitment);
}

static strait_err parse_work(const struct strait_msg *msg) {
    strait_work_message work;
    strait_digest row[STRAIT_WORK_MAX];
    STRAIT_TRY(strait_work_unpack(msg, &work));
    (void)strait_work_read((strait_work_shape){1, 2, 1, 1}, &work.row, row);
    return STRAIT_OK;
}

static strait_err parse_give(const struct strait_msg *msg) {
    strait_give give;
    return strait_give_unpack(msg, &give);
}

static strait_err parse_given(const struct strait_msg *msg) {
    strait_given given;
    return strait_given_unpack(msg, &given);
}

static strait_err parse_run_status(const struct strait_msg *msg) {
    strait_run_status status;
    return strait_run_status_unpack(msg, &status);
}

/* The error of the parser of this type; STRAIT_EINVAL where there is none. */
static strait_err parse_message(struct strait_msg_pool *pool, struct strait_msg *msg) {
    switch (msg->type) {
    case STRAIT_MSG_COMMAND: return parse_command(pool, msg);
    case STRAIT_MSG_REPLY: return parse_reply(pool, msg);
    case STRAIT_MSG_JOIN: return parse_join(msg);
    case STRAIT_MSG_TASK: return parse_task(pool, msg);
    case STRAIT_MSG_TASK_REPLY: return parse_task_reply(pool, msg);
    case STRAIT_MSG_HEARTBEAT: return parse_heartbeat(msg);
    case STRAIT_MSG_IDS: return parse_ids(pool, msg);
    case STRAIT_MSG_SNAPSHOT: return parse_piece(pool, msg);
    case STRAIT_MSG_SNAPSHOT_REQUEST: return parse_snapshot_request(msg);
    case STRAIT_MSG_BOUNDARY_CHECK: return parse_boundary_check(msg);
    case STRAIT_MSG_COMMITMENT: return parse_commitment(msg);
    case STRAIT_MSG_WORK: return parse_work(msg);
    case STRAIT_MSG_GIVE: return parse_give(msg);
    case STRAIT_MSG_GIVEN: return parse_given(msg);
    case STRAIT_MSG_RUN_STATUS: return parse_run_status(msg);
    default: return STRAIT_FAIL(STRAIT_EINVAL, "no parser for messages of type %d", msg->type);
    }
}

enum {
    SNAPSHOT_HEADER = 50, // bytes of the sample's
    SNAPSHOT_BYTES = SNAPSHOT_HEADER + 2 * 2 * 3 * 4
};

/* A snapshot of two tensors: "a", f32 [2 x 3], and its state "a.m", with all values 0. */
static const unsigned char snapshot_sample[SNAPSHOT_BYTES] = {
    'S', 'I', 'm', 'g', 2,   0,   0,   0, 1, 'a', 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,
    0,   0,   0,   3,   'a', '.', 'm', 0, 1, 2,   0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};

/* Snapshots: checking, comparing and writing must not read past the end. Returns the error of
 * comparing with the sample, or of the check before. */
static inline strait_err parse_snapshot(const unsigned char *data, size_t size) {
    struct strait_snapshot snapshot = {.data = malloc(size + 1), .bytes = size, .filled = size};
    if (snapshot.data == NULL) return STRAIT_ENOMEM;
    memcpy(snapshot.data, data, size);
    (void)strait_snapshot_write(&snapshot, "/nowhere/at/all", 1);
    strait_err err = strait_snapshot_check_finite(&snapshot);
    const strait_err matched = strait_snapshot_header_match(snapshot.data, size, snapshot_sample,
                                                            SNAPSHOT_HEADER);
    if (err == STRAIT_OK) err = matched;
    free(snapshot.data);
    return err;
}

static inline strait_err parse_invite(const unsigned char *data, size_t size) {
    char text[2 * STRAIT_INVITE_TEXT];
    char again[STRAIT_INVITE_TEXT];
    strait_invite invite;
    if (size >= sizeof text) size = sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    STRAIT_TRY(strait_invite_parse(text, &invite));
    if (strait_invite_format(&invite, again) != STRAIT_OK || strstr(text, again) == NULL) abort();
    return STRAIT_OK;
}
