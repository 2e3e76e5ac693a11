/* boundary.h - one half of a boundary: its codec, its bytes, its link. The one place where codecs
 * and the network meet.
 *
 * The head sends activations and receives gradients, the tail the other way round; to both of them
 * it is send and receive. What arrives is filed by microbatch and may come early: also the next
 * step's, when the neighbour is ahead. One thread, the worker's, uses a boundary. */
#pragma once

#include "codec/codec.h"
#include "net/core/mesh.h"

/* Types of the messages between neighbours, and flags on them. */
enum {
    STRAIT_MSG_CROSSING = STRAIT_MSG_FIRST,
    STRAIT_CROSSING_IS_VALID = 1 // of a validation, not of a step
};

struct strait_boundary;

typedef struct strait_boundary_spec {
    strait_codec_spec codec;
    strait_codec_side side;
    int n_microbatches; // of a step
    int64_t n_valid;    // of a validation: no more of them wait here
} strait_boundary_spec;

/* Keeps the backend. Checks and completes the codec's spec. */
strait_err strait_boundary_open(const strait_boundary_spec *spec, struct strait_backend *backend,
                                struct strait_boundary **out);
void strait_boundary_close(struct strait_boundary **boundary); // accepts NULL

/* From now on messages go to and come from `peer` of `mesh`, both kept until close. */
void strait_boundary_connect(struct strait_boundary *boundary, struct strait_mesh *mesh, int peer);
int strait_boundary_peer(const struct strait_boundary *boundary); // -1 before connect

/* `look` is called several times a second while a peer takes nothing; its error ends the send. Kept
 * with `user` until close. */
void strait_boundary_set_events(struct strait_boundary *boundary, strait_err (*look)(void *user),
                                void *user);

struct strait_codec *strait_boundary_codec(struct strait_boundary *boundary);

/* Forgets what is left of earlier steps; `step` begins. */
void strait_boundary_begin(struct strait_boundary *boundary, int64_t step);

/* Forgets whatever has come; `step` is next. For stages that return to an earlier step. */
void strait_boundary_reset(struct strait_boundary *boundary, int64_t step);

/* Packs x and hands the bytes to the link, gradients ahead of activations. Where the device is not
 * the host it only queues the packing: the bytes are sent by a later send or flush. */
strait_err strait_boundary_send(struct strait_boundary *boundary, const strait_crossing *at,
                                strait_tensor x);

/* Hands over what a device has packed by now; with `waits` all that was queued. Before anyone waits
 * for the neighbours. */
strait_err strait_boundary_flush(struct strait_boundary *boundary, int waits);

/* Files a message of our peer. STRAIT_EPROTO, naming boundary, step and microbatch, when it cannot
 * be one of ours: then it is not taken. */
strait_err strait_boundary_deliver(struct strait_boundary *boundary, struct strait_msg **msg);

/* How many leading microbatches of the step are here, and whether the next one of a validation is.
 */
int strait_boundary_arrived(const struct strait_boundary *boundary);
int strait_boundary_has_valid(const struct strait_boundary *boundary);

/* Unpacks a microbatch that is here into x, and lets its message go. */
strait_err strait_boundary_receive(struct strait_boundary *boundary, const strait_crossing *at,
                                   strait_tensor x);
strait_err strait_boundary_receive_valid(struct strait_boundary *boundary,
                                         const strait_crossing *at, strait_tensor x);

/* Seconds spent packing and unpacking since the last call. */
double strait_boundary_codec_seconds(struct strait_boundary *boundary);

/* The same for handing messages to the link, which takes time when its queue is full. */
double strait_boundary_post_seconds(struct strait_boundary *boundary);

/* Bytes of frames that came for steps since the last call. */
uint64_t strait_boundary_crossed_bytes(struct strait_boundary *boundary);
