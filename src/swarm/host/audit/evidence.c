#include "swarm/host/audit/evidence.h"

#include "base/alloc.h"
#include "base/file.h"
#include "net/core/frame.h"
#include "stage/boundary/boundary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name is removed at once: whatever ends this process, the space is free again. */
static strait_err open_file(struct strait_evidence *e) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/audit.XXXXXX", e->spec.folder));
    const int fd = mkstemp(path);
    if (fd < 0)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create a file there for an audit",
                           e->spec.folder);
    (void)unlink(path);
    e->fd = fd + 1;
    return STRAIT_OK;
}

static int64_t n_of_side(const struct strait_evidence *e, int side) {
    return e->spec.crossing_bytes[side] == 0
               ? 0
               : (e->spec.to - e->spec.from) * e->spec.groups.n_microbatches;
}

/* Where a crossing is in the file: behind the snapshot, and behind those of the other side. */
static off_t place_of(const struct strait_evidence *e, int side, int64_t i) {
    const size_t before = e->spec.snapshot_bytes +
                          (side == 0 ? 0 : (size_t)n_of_side(e, 0) * e->spec.crossing_bytes[0]);
    return (off_t)(before + (size_t)i * e->spec.crossing_bytes[side]);
}

strait_err strait_evidence_init(struct strait_evidence *e, const strait_evidence_spec *spec) {
    *e = (struct strait_evidence){.spec = *spec};
    for (int i = 0; i < 2; i++)
        if (n_of_side(e, i) > 0) {
            const size_t n = (size_t)n_of_side(e, i);
            STRAIT_TRY(strait_alloc(n, sizeof **e->bases, "crossings", (void **)&e->bases[i]));
            STRAIT_TRY(strait_alloc(n, 1, "crossings", (void **)&e->is_there[i]));
        }
    STRAIT_TRY(strait_sha256_open(&e->hash));
    return open_file(e);
}

void strait_evidence_fini(struct strait_evidence *e) {
    if (e->fd > 0) (void)close(e->fd - 1);
    strait_sha256_close(&e->hash);
    for (int i = 0; i < 2; i++) {
        strait_alloc_free(e->bases[i]);
        strait_alloc_free(e->is_there[i]);
    }
    *e = (struct strait_evidence){0};
}

static strait_err write_at(const struct strait_evidence *e, off_t at, const unsigned char *data,
                           size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(e->fd - 1, data + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write what an audit needs", e->spec.folder);
        done += (size_t)n;
    }
    return STRAIT_OK;
}

static strait_err read_at(const struct strait_evidence *e, off_t at, void *out, size_t bytes) {
    size_t n = 0;
    STRAIT_TRY(strait_file_read_at(e->fd - 1, e->spec.folder, at, out, bytes, &n));
    return n == bytes ? STRAIT_OK
                      : STRAIT_FAIL(STRAIT_EIO, "%s: an audit's file is short", e->spec.folder);
}

strait_err strait_evidence_add_piece(struct strait_evidence *e, const strait_piece *piece) {
    if (piece->stage != e->spec.stage || piece->step != e->spec.from ||
        piece->total != e->spec.snapshot_bytes || piece->offset != e->n_snapshot)
        return STRAIT_FAIL(STRAIT_EPROTO, "a piece of another snapshot than was asked for");
    STRAIT_TRY(write_at(e, (off_t)piece->offset, piece->data, piece->bytes));
    STRAIT_TRY(strait_sha256_add(e->hash, piece->data, piece->bytes));
    e->n_snapshot += piece->bytes;
    if (e->n_snapshot < e->spec.snapshot_bytes) return STRAIT_OK;
    return strait_sha256_finish(&e->hash, &e->digests[STRAIT_EVIDENCE_SNAPSHOT]);
}

/* Returns the number of a crossing of a side; -1: it is not asked for. */
static int64_t index_of(const struct strait_evidence *e, int side, int64_t step, int microbatch) {
    if (step < e->spec.from || step >= e->spec.to || microbatch < 0 ||
        microbatch >= e->spec.groups.n_microbatches || n_of_side(e, side) == 0)
        return -1;
    return (step - e->spec.from) * e->spec.groups.n_microbatches + microbatch;
}

int strait_evidence_has_crossing(const struct strait_evidence *e, strait_evidence_part side,
                                 int64_t step, int microbatch) {
    const int64_t i = index_of(e, (int)side, step, microbatch);
    return i >= 0 && e->is_there[side][i];
}

static strait_err hash_crossing(const struct strait_evidence *e, int side, int64_t i,
                                unsigned char *memory, strait_digest *digest) {
    const size_t bytes = e->spec.crossing_bytes[side];
    STRAIT_TRY(read_at(e, place_of(e, side, i), memory, bytes));
    return strait_digest_extend(digest, memory, bytes);
}

strait_err strait_evidence_groups(const struct strait_evidence *e, strait_evidence_part side,
                                  int64_t step, strait_digest out[STRAIT_GROUPS_MAX]) {
    unsigned char *memory = NULL;
    strait_err err = STRAIT_OK;
    STRAIT_TRY(strait_alloc(e->spec.crossing_bytes[side], 1, "a crossing", (void **)&memory));
    memset(out, 0, STRAIT_GROUPS_MAX * sizeof *out);
    for (int m = 0; m < e->spec.groups.n_microbatches && err == STRAIT_OK; m++)
        err = hash_crossing(e, (int)side, index_of(e, (int)side, step, m), memory,
                            &out[strait_groups_of(&e->spec.groups, m)]);
    strait_alloc_free(memory);
    return err;
}

/* All crossings of a side have arrived. */
static strait_err hash_side(struct strait_evidence *e, strait_evidence_part side) {
    strait_digest groups[STRAIT_GROUPS_MAX], one;
    for (int64_t step = e->spec.from; step < e->spec.to; step++) {
        STRAIT_TRY(strait_evidence_groups(e, side, step, groups));
        STRAIT_TRY(strait_crossing_hash_step(groups, e->spec.groups.n_groups, &one));
        STRAIT_TRY(strait_digest_extend(&e->digests[side], one.bytes, sizeof one.bytes));
    }
    return STRAIT_OK;
}

strait_err strait_evidence_add_crossing(struct strait_evidence *e, strait_evidence_part side,
                                        const struct strait_msg *msg) {
    const int64_t i = index_of(e, (int)side, (int64_t)msg->step, msg->microbatch);
    const int boundary = side == STRAIT_EVIDENCE_PREV ? e->spec.stage - 1 : e->spec.stage;
    if (i < 0 || e->is_there[side][i] || msg->size != e->spec.crossing_bytes[side] ||
        msg->boundary != boundary || msg->flags != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "another crossing than was asked for");
    STRAIT_TRY(write_at(e, place_of(e, (int)side, i), msg->body, msg->size));
    e->bases[side][i] = msg->basis;
    e->is_there[side][i] = 1;
    e->n_crossings[side]++;
    return strait_evidence_has(e, side) ? hash_side(e, side) : STRAIT_OK;
}

strait_err strait_evidence_read(const struct strait_evidence *e, size_t at, void *out,
                                size_t bytes) {
    return read_at(e, (off_t)at, out, bytes);
}

int strait_evidence_has(const struct strait_evidence *e, strait_evidence_part part) {
    if (part == STRAIT_EVIDENCE_SNAPSHOT) return e->n_snapshot == e->spec.snapshot_bytes;
    return e->n_crossings[part] == n_of_side(e, (int)part);
}

strait_err strait_evidence_piece(const struct strait_evidence *e, struct strait_msg_pool *pool,
                                 size_t *at, struct strait_msg **out) {
    const size_t left = e->spec.snapshot_bytes - *at;
    const strait_piece piece = {.stage = e->spec.stage,
                                .step = e->spec.from,
                                .offset = *at,
                                .total = e->spec.snapshot_bytes,
                                .bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES};
    STRAIT_TRY(strait_piece_pack(pool, &piece, out));
    (*out)->priority = STRAIT_PRIORITY_CONTROL;
    const strait_err err = read_at(e, (off_t)*at, (*out)->body + (*out)->size - piece.bytes,
                                   piece.bytes);
    if (err != STRAIT_OK) strait_msg_close(out);
    *at += piece.bytes;
    return err;
}

strait_err strait_evidence_crossing(const struct strait_evidence *e, struct strait_msg_pool *pool,
                                    strait_evidence_part side, int64_t step, int microbatch,
                                    struct strait_msg **out) {
    const int64_t i = (step - e->spec.from) * e->spec.groups.n_microbatches + microbatch;
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_CROSSING, e->spec.crossing_bytes[side], out));
    (*out)->priority = STRAIT_PRIORITY_CONTROL; // before the task that needs it
    (*out)->boundary = (uint16_t)(e->spec.stage - (side == STRAIT_EVIDENCE_PREV));
    (*out)->step = (uint32_t)step;
    (*out)->microbatch = (uint16_t)microbatch;
    (*out)->basis = e->bases[side][i];
    const strait_err err = read_at(e, place_of(e, (int)side, i), (*out)->body, (*out)->size);
    if (err != STRAIT_OK) strait_msg_close(out);
    return err;
}
