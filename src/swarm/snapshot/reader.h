/* reader.h - reads a stage of a checkpoint as a snapshot, piece by piece, to send it to a
 * worker. Only the current piece is read into memory. One thread uses a reader. */
#pragma once

#include "store/checkpoint.h"
#include "swarm/protocol.h"
#include "swarm/snapshot/header.h"

struct strait_snapshot_reader {                 // zeroed is empty
    const struct strait_checkpoint *checkpoint; // borrowed; NULL: the reader is empty
    int stage;
    int64_t step;
    uint32_t generation;
    unsigned char *header;
    size_t header_bytes, bytes;    // of the header, and of the whole snapshot
    size_t at;                     // offset of the next piece
    strait_reader tensors;         // the rest of the header
    strait_snapshot_tensor tensor; // the current tensor
    const unsigned char *values;
    size_t left; // bytes of its values that were not read yet
    struct strait_sha256 *hash;
    strait_digest digest; // of the whole snapshot, once the last piece was read
};

/* Borrows `checkpoint` until fini and copies the header of the requested snapshot, which may come
 * from an untrusted worker: STRAIT_EPROTO when it is invalid or the snapshot would be larger than
 * `limit`, STRAIT_EDATA when the checkpoint lacks a tensor of that name, type and shape. On error
 * the reader is empty. */
strait_err strait_snapshot_reader_init(struct strait_snapshot_reader *reader,
                                       const struct strait_checkpoint *checkpoint,
                                       const unsigned char *header, size_t bytes, size_t limit);
void strait_snapshot_reader_fini(struct strait_snapshot_reader *reader); // accepts an empty one

/* Returns whether the last piece was read, or the reader is empty. */
int strait_snapshot_reader_is_done(const struct strait_snapshot_reader *reader);

/* Writes the next piece; call it only if the reader is not over. The data is borrowed until the
 * next call. */
strait_err strait_snapshot_reader_next(struct strait_snapshot_reader *reader, strait_piece *piece);
