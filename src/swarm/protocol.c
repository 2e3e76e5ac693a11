#include "swarm/protocol.h"

#include "base/bytes.h"

#include <stdio.h>
#include <string.h>

enum {
    HOLDING_BYTES = 2 + 1 + STRAIT_SWARM_SNAPSHOTS * (8 + 4),
    JOIN_FIXED = 2 + STRAIT_TOKEN_BYTES + 8 + 8 + 1 + 3 * HOLDING_BYTES + 1 + 1,
    TASK_FIXED = 1 + 2 + 8 + 1 + 1 + 8 + 2 * (1 + STRAIT_FINGERPRINT_BYTES + 1) + 4,
    PULSE_BYTES = 3 * HOLDING_BYTES + 4 + 1,
    PIECE_FIXED = 8 + 8 + 8 + 4
};

static strait_err senseless(const char *what) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a peer sent %s that makes no sense", what);
}

/* A size or a speed: what is none counts as unknown. */
static double get_amount(strait_reader *r) {
    const double value = strait_reader_real(r);
    return value >= 0.0 && value < 1e30 ? value : 0.0;
}

/* Printable, whatever was sent: it ends up on terminals. */
static void get_text(strait_reader *r, char *out, size_t capacity) {
    strait_reader_text(r, 1, out, capacity);
    for (char *c = out; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') *c = '.';
}

static void put_holding(strait_writer *w, const strait_snapshot_set *h) {
    strait_writer_uint(w, (uint16_t)h->stage, 2);
    strait_writer_uint(w, (uint64_t)h->n, 1);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++) {
        strait_writer_uint(w, i < h->n ? (uint64_t)h->steps[i] : 0, 8);
        strait_writer_uint(w, i < h->n ? h->generations[i] : 0, 4);
    }
}

static void get_holding(strait_reader *r, strait_snapshot_set *h) {
    memset(h, 0, sizeof *h);
    h->stage = (int16_t)strait_reader_uint(r, 2);
    h->n = (int)strait_reader_uint(r, 1);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++) {
        h->steps[i] = (int64_t)strait_reader_uint(r, 8);
        h->generations[i] = (uint32_t)strait_reader_uint(r, 4);
        if (h->steps[i] < 0) r->is_short = 1;
    }
    if (h->n > STRAIT_SWARM_SNAPSHOTS || h->stage < -1 || h->stage >= STRAIT_RUN_STAGES)
        r->is_short = 1;
}

static void put_held(strait_writer *w, const strait_snapshot_inventory *inventory) {
    put_holding(w, &inventory->own);
    put_holding(w, &inventory->prev);
    put_holding(w, &inventory->next);
}

static void get_held(strait_reader *r, strait_snapshot_inventory *inventory) {
    get_holding(r, &inventory->own);
    get_holding(r, &inventory->prev);
    get_holding(r, &inventory->next);
}

strait_err strait_join_pack(struct strait_msg_pool *pool, const strait_join *join,
                            struct strait_msg **out) {
    const strait_swarm_report *report = &join->report;
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_JOIN,
                               JOIN_FIXED + strlen(report->name) + strlen(report->device), out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_writer_uint(&w, STRAIT_SWARM_VERSION, 2);
    strait_writer_copy(&w, join->token, sizeof join->token);
    strait_writer_real(&w, report->memory_bytes);
    strait_writer_real(&w, report->flops);
    strait_writer_uint(&w, report->is_reachable != 0, 1);
    put_held(&w, &join->inventory);
    strait_writer_text(&w, 1, report->name);
    strait_writer_text(&w, 1, report->device);
    return STRAIT_OK;
}

strait_err strait_join_unpack(const struct strait_msg *msg, strait_join *out) {
    strait_reader r = {msg->body, msg->size, 0};
    const uint64_t version = strait_reader_uint(&r, 2);
    if (version != STRAIT_SWARM_VERSION)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "a worker of version %u, expected %d: update strait there",
                           (unsigned)version, STRAIT_SWARM_VERSION);
    strait_reader_copy(&r, out->token, sizeof out->token);
    out->report.memory_bytes = get_amount(&r);
    out->report.flops = get_amount(&r);
    out->report.is_reachable = strait_reader_uint(&r, 1) != 0;
    get_held(&r, &out->inventory);
    get_text(&r, out->report.name, sizeof out->report.name);
    get_text(&r, out->report.device, sizeof out->report.device);
    return r.is_short || r.left != 0 ? senseless("a request to join") : STRAIT_OK;
}

static void put_peer(strait_writer *w, const strait_task_peer *peer) {
    strait_writer_uint(w, (uint64_t)((peer->is_there != 0) | (peer->must_listen != 0) << 1), 1);
    strait_writer_copy(w, peer->key.bytes, sizeof peer->key.bytes);
    strait_writer_text(w, 1, peer->address);
}

static void get_peer(strait_reader *r, strait_task_peer *peer) {
    const uint64_t bits = strait_reader_uint(r, 1);
    peer->is_there = (bits & 1) != 0;
    peer->must_listen = (bits & 2) != 0;
    strait_reader_copy(r, peer->key.bytes, sizeof peer->key.bytes);
    get_text(r, peer->address, sizeof peer->address);
}

strait_err strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                            struct strait_msg **out) {
    const size_t text = strlen(task->text);
    STRAIT_TRY(strait_msg_open(
        pool, STRAIT_MSG_TASK,
        TASK_FIXED + strlen(task->prev.address) + strlen(task->next.address) + text, out));
    (*out)->step = task->generation;
    (*out)->microbatch = task->sequence;
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_writer_uint(&w, (uint64_t)task->kind, 1);
    strait_writer_uint(&w, (uint64_t)task->stage, 2);
    strait_writer_uint(&w, (uint64_t)task->step, 8);
    strait_writer_uint(&w, (uint64_t)task->source, 1);
    strait_writer_uint(&w, (uint64_t)((task->gives_prev != 0) | (task->gives_next != 0) << 1), 1);
    strait_writer_uint(&w, (uint64_t)task->valid_windows, 8);
    put_peer(&w, &task->prev);
    put_peer(&w, &task->next);
    strait_writer_uint(&w, text, 4);
    strait_writer_copy(&w, task->text, text);
    return STRAIT_OK;
}

strait_err strait_task_unpack(const struct strait_msg *msg, strait_task *out) {
    strait_reader r = {msg->body, msg->size, 0};
    const uint64_t kind = strait_reader_uint(&r, 1);
    out->kind = (strait_task_kind)kind;
    out->generation = msg->step;
    out->sequence = msg->microbatch;
    out->stage = (int)strait_reader_uint(&r, 2);
    out->step = (int64_t)strait_reader_uint(&r, 8);
    const uint64_t source = strait_reader_uint(&r, 1);
    out->source = (strait_swarm_source)source;
    const uint64_t gives = strait_reader_uint(&r, 1);
    out->gives_prev = (gives & 1) != 0;
    out->gives_next = (gives & 2) != 0;
    out->valid_windows = (int64_t)strait_reader_uint(&r, 8);
    get_peer(&r, &out->prev);
    get_peer(&r, &out->next);
    size_t text = (size_t)strait_reader_uint(&r, 4);
    if (text >= sizeof out->text || text != r.left) {
        r.is_short = 1;
        text = 0;
    }
    strait_reader_copy(&r, out->text, text);
    out->text[text] = '\0';
    if (r.is_short || kind < STRAIT_TASK_REST || kind > STRAIT_TASK_END ||
        source > STRAIT_SWARM_FROM_HOST || out->stage >= STRAIT_RUN_STAGES || out->step < 0 ||
        out->valid_windows < 0)
        return senseless("a task");
    return STRAIT_OK;
}

strait_err strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *pulse,
                                 struct strait_msg **out) {
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_HEARTBEAT, PULSE_BYTES, out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    put_held(&w, &pulse->inventory);
    strait_writer_uint(&w, pulse->progress, 4);
    strait_writer_uint(&w, pulse->is_waiting != 0, 1);
    return STRAIT_OK;
}

strait_err strait_heartbeat_unpack(const struct strait_msg *msg, strait_heartbeat *out) {
    strait_reader r = {msg->body, msg->size, 0};
    get_held(&r, &out->inventory);
    out->progress = (uint32_t)strait_reader_uint(&r, 4);
    out->is_waiting = strait_reader_uint(&r, 1) != 0;
    return r.is_short || r.left != 0 ? senseless("a pulse") : STRAIT_OK;
}

static void put_ids(strait_writer *w, const int32_t *ids, int64_t n, int width) {
    for (int64_t i = 0; i < n; i++)
        strait_writer_uint(w, (uint64_t)(uint32_t)ids[i] & (width == 4 ? UINT32_MAX : UINT16_MAX),
                           width);
}

/* All ones is no id: -1. */
static void get_ids(strait_reader *r, int32_t *ids, int64_t n, int width) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)strait_reader_uint(r, width);
        ids[i] = width == 2 && id == UINT16_MAX ? -1 : (int32_t)id;
    }
}

strait_err strait_ids_pack(struct strait_msg_pool *pool, const strait_ids *ids,
                           struct strait_msg **out) {
    const int width = ids->is_wide ? 4 : 2;
    const int n_arrays = (ids->tokens != NULL) + (ids->targets != NULL);
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_IDS,
                               8 + 4 + (size_t)ids->n * (size_t)(width * n_arrays), out));
    (*out)->flags = (uint8_t)((ids->is_valid ? STRAIT_IDS_VALID : 0) |
                              (ids->tokens != NULL ? STRAIT_IDS_TOKENS : 0) |
                              (ids->targets != NULL ? STRAIT_IDS_TARGETS : 0) |
                              (ids->is_wide ? STRAIT_IDS_WIDE : 0));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_writer_uint(&w, (uint64_t)ids->step, 8);
    strait_writer_uint(&w, (uint64_t)ids->batch, 4);
    if (ids->tokens != NULL) put_ids(&w, ids->tokens, ids->n, width);
    if (ids->targets != NULL) put_ids(&w, ids->targets, ids->n, width);
    return STRAIT_OK;
}

strait_err strait_ids_unpack(const struct strait_msg *msg, int32_t *capacity, int64_t n,
                             strait_ids *out) {
    const int has_tokens = (msg->flags & STRAIT_IDS_TOKENS) != 0;
    const int has_targets = (msg->flags & STRAIT_IDS_TARGETS) != 0;
    const int width = (msg->flags & STRAIT_IDS_WIDE) != 0 ? 4 : 2;
    strait_reader r = {msg->body, msg->size, 0};
    *out = (strait_ids){.is_valid = (msg->flags & STRAIT_IDS_VALID) != 0,
                        .n = n,
                        .is_wide = width == 4,
                        .tokens = has_tokens ? capacity : NULL,
                        .targets = has_targets ? capacity + n : NULL};
    out->step = (int64_t)strait_reader_uint(&r, 8);
    out->batch = (int64_t)strait_reader_uint(&r, 4);
    if (r.is_short || r.left != (size_t)n * (size_t)(width * (has_tokens + has_targets)))
        return senseless("ids of a microbatch");
    if (has_tokens) get_ids(&r, capacity, n, width);
    if (has_targets) get_ids(&r, capacity + n, n, width);
    return STRAIT_OK;
}

strait_err strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                             struct strait_msg **out) {
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_SNAPSHOT, PIECE_FIXED + piece->bytes, out));
    (*out)->priority = STRAIT_PRIORITY_ACTIVATION;
    (*out)->flags = piece->must_keep ? STRAIT_SNAPSHOT_KEEP : 0;
    (*out)->boundary = (uint16_t)piece->stage;
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_writer_uint(&w, (uint64_t)piece->step, 8);
    strait_writer_uint(&w, piece->offset, 8);
    strait_writer_uint(&w, piece->total, 8);
    strait_writer_uint(&w, piece->generation, 4);
    if (piece->data != NULL) strait_writer_copy(&w, piece->data, piece->bytes);
    return STRAIT_OK;
}

strait_err strait_piece_unpack(const struct strait_msg *msg, strait_piece *out) {
    strait_reader r = {msg->body, msg->size, 0};
    *out = (strait_piece){.stage = msg->boundary,
                          .must_keep = (msg->flags & STRAIT_SNAPSHOT_KEEP) != 0};
    out->step = (int64_t)strait_reader_uint(&r, 8);
    out->offset = strait_reader_uint(&r, 8);
    out->total = strait_reader_uint(&r, 8);
    out->generation = (uint32_t)strait_reader_uint(&r, 4);
    out->data = r.at;
    out->bytes = r.left;
    if (r.is_short || out->stage >= STRAIT_RUN_STAGES || out->step < 0 || out->bytes == 0 ||
        out->offset > out->total || out->bytes > out->total - out->offset)
        return senseless("a piece of an image");
    return STRAIT_OK;
}
