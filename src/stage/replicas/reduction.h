/* reduction.h - sums the gradients of a stage over its replicas.
 *
 * The gradients are cut into chunks of STRAIT_REDUCTION_CHUNK values, or of an equal share for each
 * replica where that is less, in the order of parameters, and chunk c belongs to replica c modulo
 * the number of replicas. Every replica sends each chunk of
 * each sum that its groups give (gradient_sums.h) to the owner of the chunk, which adds them in the
 * tree of plan/pairwise.h, in whatever order they arrive, and sends the result to the others. So
 * all replicas end up with the same bits, those of one pipeline, and each sends and receives about
 * as much as the others.
 *
 * A sum is sent as soon as it is complete, while later groups are computed. Nothing here blocks:
 * send posts what the links accept, deliver takes what arrives. Other replicas may be ahead by part
 * of a step, never by more, because no step ends without us. One thread uses a reduction, that of
 * its runner. */
#pragma once

#include "net/mesh/mesh.h"
#include "stage/replicas/gradient_sums.h"
#include "stage/replicas/sums_hash.h"

enum {
    STRAIT_MSG_REDUCE = STRAIT_MSG_FIRST + 16,
    STRAIT_REDUCTION_CHUNK = 65536 // most values of a message
};

struct strait_reduction;

typedef struct strait_reduction_spec {
    int stage, replica, n_replicas;
    int bits; // of a gradient on the wire: 32, or 8 or 4 with error feedback (quantize.h)
    const strait_groups *groups;             // borrowed
    const struct strait_gradient_sums *sums; // of the groups. Borrowed; NULL: each replica adds its
                                             // groups in order, and replicas are the tree's leaves
    const strait_param *params;              // borrowed
    int n_params;
    double *losses; // one per sequence, on the last stage; NULL elsewhere. Borrowed
    int n_losses;
} strait_reduction_spec;

/* STRAIT_ENOMEM. */
strait_err strait_reduction_open(const strait_reduction_spec *spec, struct strait_backend *backend,
                                 struct strait_reduction **out);
void strait_reduction_close(struct strait_reduction **reduction); // accepts NULL

/* The peers of the other replicas by number; the own entry is not read. Borrows the mesh. */
void strait_reduction_connect(struct strait_reduction *reduction, struct strait_mesh *mesh,
                              const int *peers);
/* From now on hashes what is given and taken, and what results from it; of 32 bits and in the
 * memory of the host. Borrows the hash; NULL: nothing is hashed. */
void strait_reduction_hash(struct strait_reduction *reduction, struct strait_sums_hash *hash);
/* The replica of a peer; -1: it is none of them. */
int strait_reduction_replica(const struct strait_reduction *reduction, int peer);

/* Drops everything; `step` is next. */
void strait_reduction_reset(struct strait_reduction *reduction, int64_t step);

/* Starts `step`, whose groups have these owners. Keeps what has arrived for it. */
void strait_reduction_begin(struct strait_reduction *reduction, int64_t step,
                            const strait_group_owners *owners);

/* The sums of a kind of gradients (strait_param.is_deferred) now include this node. One that is not
 * waited for by others is ignored. */
void strait_reduction_ready(struct strait_reduction *reduction, strait_pairwise_node node,
                            int is_deferred);

/* All gradients of this replica are complete, also on the host, and so are its losses.
 * STRAIT_EPROTO: before the step began, a replica sent a sum of groups that are not its own. */
strait_err strait_reduction_complete(struct strait_reduction *reduction,
                                     struct strait_stream *stream);

/* Posts what is ready. *is_blocked: some of it must wait for space in a queue. */
strait_err strait_reduction_send(struct strait_reduction *reduction, int *is_blocked);

/* The replica whose queue has no space for the next message; -1: none. And how many messages links
 * have accepted so far: it rises while something moves. */
int strait_reduction_blocked(const struct strait_reduction *reduction);
int64_t strait_reduction_posted(const struct strait_reduction *reduction);

/* Takes a message of another replica and clears it. STRAIT_EPROTO, naming both, for one that is not
 * expected; the caller keeps that one. */
strait_err strait_reduction_deliver(struct strait_reduction *reduction, struct strait_msg **msg);

/* Whether the gradients are those of all replicas, and everything for the others was posted. */
int strait_reduction_is_done(const struct strait_reduction *reduction);
/* A replica that has not sent something that is awaited; -1: none. */
int strait_reduction_awaited(const struct strait_reduction *reduction);

/* Copies the sums to the device and ends the step; the losses are complete on replica 0. */
strait_err strait_reduction_finish(struct strait_reduction *reduction,
                                   struct strait_stream *stream);

/* Bytes that one of the replicas of a stage sends for n_values gradients in a step, when shares are
 * equal. */
double strait_reduction_sent_bytes(const strait_run_plan *plan, int stage, int64_t n_values);

/* Values of a chunk, where so many replicas sum n_values in messages of so many bits. */
int64_t strait_reduction_chunk_size(int bits, int n_replicas, int64_t n_values);

/* Bytes of residuals that a replica of the stage keeps; 0 where gradients cross in 32 bits. */
size_t strait_reduction_residual_bytes(const strait_run_plan *plan, int stage, int64_t n_values);
