/* Fuzzes the parsers of the control plane's messages. The first byte of the input selects the
 * message, the second is its flags, the rest its body. A message that is accepted must have the
 * same size when it is packed again. */
#include "stage/commands.h"
#include "swarm/invite.h"
#include "swarm/protocol.h"
#include "swarm/snapshot.h"
#include "swarm/snapshot_header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

enum {
    IDS = 32,
    FLOATS = 64
};

static struct strait_msg_pool *pool;

static void check_size(struct strait_msg **packed, const struct strait_msg *msg) {
    if ((*packed)->size != msg->size) abort();
    strait_msg_close(packed);
}

static void try_task(struct strait_msg *msg) {
    strait_task task;
    struct strait_msg *packed = NULL;
    if (strait_task_unpack(msg, &task) != STRAIT_OK) return;
    if (strait_task_pack(pool, &task, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

static void try_task_reply(struct strait_msg *msg) {
    strait_task_reply reply;
    struct strait_msg *packed = NULL;
    if (strait_task_reply_unpack(msg, &reply) != STRAIT_OK) return;
    if (strait_task_reply_pack(pool, &reply, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

static void try_command(struct strait_msg *msg) {
    float values[FLOATS];
    strait_stage_command command;
    struct strait_msg *packed = NULL;
    if (strait_stage_command_unpack(msg, (strait_float_memory){values, FLOATS}, &command) !=
        STRAIT_OK)
        return;
    if (strait_stage_command_pack(pool, &command, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

static void try_reply(struct strait_msg *msg) {
    float values[FLOATS];
    strait_stage_reply reply;
    struct strait_msg *packed = NULL;
    if (strait_stage_reply_unpack(msg, (strait_float_memory){values, FLOATS}, &reply) != STRAIT_OK)
        return;
    if (strait_stage_reply_pack(pool, &reply, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

static void try_ids(const struct strait_msg *msg) {
    int32_t memory[2 * IDS];
    strait_batch_ids ids;
    struct strait_msg *packed = NULL;
    if (strait_batch_ids_unpack(msg, memory, IDS, &ids) != STRAIT_OK) return;
    if (strait_batch_ids_pack(pool, &ids, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

static void try_piece(const struct strait_msg *msg) {
    strait_piece piece;
    struct strait_snapshot snapshot = {0};
    struct strait_msg *packed = NULL;
    if (strait_piece_unpack(msg, &piece) != STRAIT_OK) return;
    (void)strait_snapshot_add(&snapshot, &piece, 4096);
    strait_snapshot_fini(&snapshot);
    if (strait_piece_pack(pool, &piece, &packed) != STRAIT_OK) abort();
    check_size(&packed, msg);
}

/* The header of a snapshot with two tensors: "a", f32 [2 x 3], and its state "a.m". */
static const unsigned char expected[] = {
    'S', 'I', 'm', 'g', 2,   0,   0,   0, 1, 'a', 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,
    0,   0,   0,   3,   'a', '.', 'm', 0, 1, 2,   0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};

/* Snapshots: checking, comparing and writing must not read past the end. */
static void try_snapshot(const unsigned char *data, size_t size) {
    struct strait_snapshot snapshot = {.data = malloc(size + 1), .bytes = size, .filled = size};
    if (snapshot.data == NULL) return;
    memcpy(snapshot.data, data, size);
    (void)strait_snapshot_check(&snapshot);
    (void)strait_snapshot_header_match(snapshot.data, size, expected, sizeof expected);
    (void)strait_snapshot_write(&snapshot, "/nowhere/at/all", 1);
    free(snapshot.data);
}

static void try_invite(const unsigned char *data, size_t size) {
    char text[2 * STRAIT_INVITE_TEXT];
    char again[STRAIT_INVITE_TEXT];
    strait_invite invite;
    if (size >= sizeof text) size = sizeof text - 1;
    memcpy(text, data, size);
    text[size] = '\0';
    if (strait_invite_parse(text, &invite) != STRAIT_OK) return;
    if (strait_invite_format(&invite, again) != STRAIT_OK || strstr(text, again) == NULL) abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    strait_join join;
    strait_heartbeat heartbeat;
    strait_want want;
    struct strait_msg *msg = NULL;
    if (pool == NULL && strait_msg_pool_open(&pool) != STRAIT_OK) abort();
    if (size < 2) return 0;
    if (strait_msg_open(pool, STRAIT_MSG_FIRST, size - 2, &msg) != STRAIT_OK) return 0;
    msg->flags = data[1];
    memcpy(msg->body, data + 2, size - 2);
    switch (data[0] % 11) {
    case 0: (void)strait_join_unpack(msg, &join); break;
    case 1: try_task(msg); break;
    case 2: (void)strait_heartbeat_unpack(msg, &heartbeat); break;
    case 3: try_ids(msg); break;
    case 4: try_piece(msg); break;
    case 5: try_snapshot(data + 2, size - 2); break;
    case 6: try_invite(data + 2, size - 2); break;
    case 7: try_command(msg); break;
    case 8: try_reply(msg); break;
    case 9: try_task_reply(msg); break;
    default: (void)strait_want_unpack(msg, &want); break;
    }
    strait_msg_close(&msg);
    return 0;
}
