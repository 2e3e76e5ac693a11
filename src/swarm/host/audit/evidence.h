/* evidence.h - what a spare needs to compute an interval of a stage once more, gathered from those
 * who have it: the snapshot at its beginning and the crossings of both neighbours.
 *
 * It is in a file of the run's folder that has no name, so that it takes no memory and a crash
 * leaves nothing: a second and a third spare get the same bytes. Crossings may come from several
 * replicas and in any order. One thread uses it. */
#pragma once

#include "config/run_plan.h"
#include "swarm/protocol.h"

typedef struct strait_evidence_spec {
    const char *folder; // of the run
    int stage;
    int64_t from, to;         // steps
    size_t snapshot_bytes;    // 0: it begins with the seed
    strait_groups groups;     // of the microbatches of a step
    size_t crossing_bytes[2]; // from the previous and from the next stage; 0: there is none
} strait_evidence_spec;

typedef enum strait_evidence_part {
    STRAIT_EVIDENCE_PREV, // crossings of the previous stage
    STRAIT_EVIDENCE_NEXT,
    STRAIT_EVIDENCE_SNAPSHOT,
    STRAIT_EVIDENCE_PARTS
} strait_evidence_part;

struct strait_evidence { // zeroed is closed
    strait_evidence_spec spec;
    int fd; // one more than the descriptor
    struct strait_sha256 *hash;
    size_t n_snapshot;                            // bytes that have arrived
    int64_t n_crossings[2];                       // that have arrived
    unsigned char *is_there[2];                   // each crossing
    uint16_t *bases[2];                           // of each crossing
    strait_digest digests[STRAIT_EVIDENCE_PARTS]; // of each part, when all of it has arrived
};

/* After an error call fini. STRAIT_EIO: the disk is full, or the folder is not writable. */
strait_err strait_evidence_init(struct strait_evidence *evidence, const strait_evidence_spec *spec);
void strait_evidence_fini(struct strait_evidence *evidence); // accepts a zeroed one

/* Takes the next piece, or a crossing of a side. STRAIT_EPROTO: it is another one, or here already.
 */
strait_err strait_evidence_add_piece(struct strait_evidence *evidence, const strait_piece *piece);
strait_err strait_evidence_add_crossing(struct strait_evidence *evidence, strait_evidence_part side,
                                        const struct strait_msg *msg);

/* Whether a crossing of a side has arrived. */
int strait_evidence_has_crossing(const struct strait_evidence *evidence, strait_evidence_part side,
                                 int64_t step, int microbatch);

/* The digests of the groups of a step (crossing_hash.h), all of whose crossings are here. */
strait_err strait_evidence_groups(const struct strait_evidence *evidence, strait_evidence_part side,
                                  int64_t step, strait_digest out[STRAIT_GROUPS_MAX]);

/* Reads bytes of the snapshot, which is complete. */
strait_err strait_evidence_read(const struct strait_evidence *evidence, size_t at, void *out,
                                size_t bytes);

int strait_evidence_has(const struct strait_evidence *evidence, strait_evidence_part part);

/* A message with the piece of the snapshot at *at, which is advanced. */
strait_err strait_evidence_piece(const struct strait_evidence *evidence,
                                 struct strait_msg_pool *pool, size_t *at, struct strait_msg **out);

/* How far two snapshots of a stage are apart, tensor by tensor: the norm of their difference
 * divided by that of what `a` changed since `start` (NULL: by that of `a`); the largest over all
 * tensors. Infinite where they are not snapshots of `plan`, or have values that are not finite. */
strait_err strait_evidence_distance(const strait_run_plan *plan, const struct strait_evidence *a,
                                    const struct strait_evidence *b,
                                    const struct strait_evidence *start, double *out);

/* A message with a crossing. */
strait_err strait_evidence_crossing(const struct strait_evidence *evidence,
                                    struct strait_msg_pool *pool, strait_evidence_part side,
                                    int64_t step, int microbatch, struct strait_msg **out);
