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
    return e->spec.crossing_bytes[side] == 0 ? 0
                                             : (e->spec.to - e->spec.from) * e->spec.n_microbatches;
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
        if (n_of_side(e, i) > 0)
            STRAIT_TRY(strait_alloc((size_t)n_of_side(e, i), sizeof **e->bases, "crossings",
                                    (void **)&e->bases[i]));
    STRAIT_TRY(strait_sha256_open(&e->hash));
    return open_file(e);
}

void strait_evidence_fini(struct strait_evidence *e) {
    if (e->fd > 0) (void)close(e->fd - 1);
    strait_sha256_close(&e->hash);
    strait_alloc_free(e->bases[0]);
    strait_alloc_free(e->bases[1]);
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

strait_err strait_evidence_add_crossing(struct strait_evidence *e, strait_evidence_part side,
                                        const struct strait_msg *msg) {
    const int64_t i = e->n_crossings[side];
    const int n = e->spec.n_microbatches;
    const int boundary = side == STRAIT_EVIDENCE_PREV ? e->spec.stage - 1 : e->spec.stage;
    if (i >= n_of_side(e, (int)side) || msg->size != e->spec.crossing_bytes[side] ||
        (int64_t)msg->step != e->spec.from + i / n || msg->microbatch != i % n ||
        msg->boundary != boundary || msg->flags != 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "another crossing than was asked for");
    STRAIT_TRY(write_at(e, place_of(e, (int)side, i), msg->body, msg->size));
    e->bases[side][i] = msg->basis;
    STRAIT_TRY(strait_digest_extend(&e->step[side], msg->body, msg->size));
    e->n_crossings[side]++;
    if (msg->microbatch != n - 1) return STRAIT_OK;
    STRAIT_TRY(strait_digest_extend(&e->digests[side], e->step[side].bytes, STRAIT_DIGEST_BYTES));
    e->step[side] = (strait_digest){{0}};
    return STRAIT_OK;
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
    const int64_t i = (step - e->spec.from) * e->spec.n_microbatches + microbatch;
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
