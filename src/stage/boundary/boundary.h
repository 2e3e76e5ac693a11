/* boundary.h - one side of a boundary between two stages: its codec, its messages and its peer.
 * This is the only place where codecs and the network meet.
 *
 * The sender side sends activations and receives gradients; the receiver side does the opposite.
 * Both use the same send and receive functions. Received messages are stored by microbatch. They
 * may arrive early, and also for the next step when the neighbour is ahead. A boundary is used by
 * one thread, that of its runner. */
#pragma once

#include "codec/codec.h"
#include "net/mesh/mesh.h"
#include "plan/groups.h"
#include "stage/boundary/crossing_hash.h"
#include "stage/boundary/crossing_log.h"

/* Types of the messages between neighbours, and flags on them. */
enum {
    STRAIT_MSG_CROSSING = STRAIT_MSG_FIRST,
    STRAIT_CROSSING_IS_VALID = 1 // belongs to a validation, not to a training step
};

struct strait_boundary;

typedef struct strait_boundary_spec {
    strait_codec_spec codec;
    strait_codec_side side;
    int n_microbatches; // per step
    int64_t n_valid;    // per validation; also the most validation messages that may be queued
} strait_boundary_spec;

/* Checks and completes a copy of the codec's spec and allocates all buffers. The backend is
 * borrowed and must outlive the boundary. STRAIT_ECONFIG for a codec that does not exist or does
 * not fit. */
strait_err strait_boundary_open(const strait_boundary_spec *spec, struct strait_backend *backend,
                                struct strait_boundary **out);

/* Closes every message still stored and sets the pointer to NULL. Accepts NULL. */
void strait_boundary_close(struct strait_boundary **boundary);

/* From now on messages go to and come from these peers of `mesh`, which is borrowed until close:
 * the replicas of the neighbour stage, in order. At most STRAIT_GROUPS_MAX. */
void strait_boundary_connect(struct strait_boundary *boundary, struct strait_mesh *mesh,
                             const int *peers, int n_peers);

/* The number of a replica in the mesh; -1: it does not exist. And back: the replica of a peer; -1:
 * the peer is none of them. */
int strait_boundary_peer(const struct strait_boundary *boundary, int replica);
int strait_boundary_replica(const struct strait_boundary *boundary, int peer);

/* How the microbatches of the next steps are shared. Borrowed until the next call. */
typedef struct strait_boundary_share {
    const strait_groups *groups;
    const strait_group_owners *theirs; // of the neighbour stage
    const int *microbatches;           // that this side computes, in order
    int n_microbatches;
    int valid_replica; // of the neighbour, for validations
} strait_boundary_share;

/* Without it, all microbatches cross to replica 0, in order. Call it before begin. */
void strait_boundary_set_share(struct strait_boundary *boundary,
                               const strait_boundary_share *share);

/* Sets a callback for the time that send or flush waits for space in the peer's queue: `poll` is
 * called several times per second, on the same thread, and its error aborts the wait. Both
 * arguments are borrowed until close. */
void strait_boundary_set_poll(struct strait_boundary *boundary, strait_err (*poll)(void *user),
                              void *user);

/* The codec of this side; borrowed. */
struct strait_codec *strait_boundary_codec(struct strait_boundary *boundary);

/* Starts `step`: drops messages of the step before, keeps those that arrived early for this one. */
void strait_boundary_begin(struct strait_boundary *boundary, int64_t step);

/* Drops every message, also unsent ones; `step` is next. For stages that return to an earlier step,
 * where what arrived early would otherwise count as a duplicate. */
void strait_boundary_reset(struct strait_boundary *boundary, int64_t step);

/* From now on keeps the crossings that this side sends, of as many steps as `bytes_max` holds; of
 * none if that is not even one. Allocates. */
strait_err strait_boundary_keep(struct strait_boundary *boundary, size_t bytes_max);

/* What was kept; borrowed, NULL when nothing is. */
struct strait_crossing_log *strait_boundary_log(struct strait_boundary *boundary);

/* With is_muted, what this side packs for training is kept but not sent, until called with 0: the
 * neighbour has got the same bytes before. A muted boundary needs no mesh. */
void strait_boundary_mute(struct strait_boundary *boundary, int is_muted);

/* Sends the neighbour the kept crossings of a step once more. STRAIT_EPROTO: they are not complete
 * any more. */
strait_err strait_boundary_resend(struct strait_boundary *boundary, int64_t step);

/* From now on computes digests of the crossings of each step. */
void strait_boundary_hash(struct strait_boundary *boundary);

/* Those of the current step, or of the last one if it is complete. Borrowed. */
const struct strait_crossing_hash *strait_boundary_digests(const struct strait_boundary *boundary);

/* Packs x and queues the message at the link, gradients with priority over activations. On a device
 * other than the host it only queues the packing: a later send or flush posts the message.
 * STRAIT_ETIMEDOUT when the peer's queue stays full. */
strait_err strait_boundary_send(struct strait_boundary *boundary, const strait_crossing *at,
                                strait_tensor x);

/* Posts the messages that the device has packed by now; with `waits`, all of them. Call it before
 * waiting for a neighbour: that neighbour may be waiting for one of these. */
strait_err strait_boundary_flush(struct strait_boundary *boundary, int waits);

/* Stores a message of the peer, takes ownership and sets `*msg` to NULL. STRAIT_EPROTO, naming
 * boundary, step and microbatch, for a message that is not expected; the caller keeps that one. */
strait_err strait_boundary_deliver(struct strait_boundary *boundary, struct strait_msg **msg);

/* How many microbatches of the step, or with `ahead` of the next one, have arrived without a gap,
 * counted from the first. */
int strait_boundary_arrived(const struct strait_boundary *boundary, int ahead);

/* Whether a message of a validation is queued. */
int strait_boundary_has_valid(const struct strait_boundary *boundary);

/* Unpacks a microbatch that has arrived into x and closes its message. The validation variant takes
 * messages in order; STRAIT_EPROTO when the oldest is not the microbatch of `at`. */
strait_err strait_boundary_receive(struct strait_boundary *boundary, const strait_crossing *at,
                                   strait_tensor x);
strait_err strait_boundary_receive_valid(struct strait_boundary *boundary,
                                         const strait_crossing *at, strait_tensor x);

/* Seconds spent packing and unpacking since the last call. */
double strait_boundary_codec_seconds(struct strait_boundary *boundary);

/* Seconds spent handing messages to the link since the last call: long when its queue is full. */
double strait_boundary_post_seconds(struct strait_boundary *boundary);

/* Bytes of frames received for training steps since the last call, headers included. */
uint64_t strait_boundary_crossed_bytes(struct strait_boundary *boundary);

/* Adds bytes that came from elsewhere for the crossings of the step to the count: token ids. */
void strait_boundary_add_bytes(struct strait_boundary *boundary, uint64_t bytes);
