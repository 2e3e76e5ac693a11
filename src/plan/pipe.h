/* pipe.h - a pipeline in numbers: what its stages cost and what its links do.
 *
 * Measured by a run, or guessed before one. Plain data; the arrays are the caller's. */
#pragma once

#include "base/error.h"

/* Seconds of one stage: the first three for a microbatch, the last for a step. */
typedef struct strait_pipe_stage {
    double forward_s;
    double input_s;   // backward pass down to the gradient of the stage's input
    double weights_s; // the rest of the backward pass: gradients of the weights
    double update_s;  // optimizer
} strait_pipe_stage;

/* Link i joins stages i and i + 1. Activations cross it forward, gradients backward. */
typedef struct strait_pipe_link {
    double forward_bytes, backward_bytes; // of a microbatch, on the wire
    double forward_bps, backward_bps;     // bits per second; 0: unlimited
    double delay_s;                       // one way
    double codec_s;                       // compute at each end of each crossing
} strait_pipe_link;

/* What shares a wire. On every wire gradients go ahead of activations that still wait. */
typedef enum strait_pipe_wire {
    STRAIT_WIRE_DUPLEX, // nothing: each direction of each link is a wire of its own
    STRAIT_WIRE_UPLINK, // all that a stage sends, as from a home with one way out
    STRAIT_WIRE_METER,  // all that a stage receives, and the wire is busy until it has arrived:
                        // the delay is charged to each message in turn, as Protocol NanoGPT does
} strait_pipe_wire;

typedef struct strait_pipe {
    int n_stages, n_microbatches;    // of a step
    const strait_pipe_stage *stages; // n_stages
    const strait_pipe_link *links;   // n_stages - 1; may be NULL for one stage
    strait_pipe_wire wire;
    int clips;                // updates wait for the norm of the gradients of all stages
    double control_s;         // one way to whoever adds the norms up
    double microbatch_tokens; // 0 where tokens per second are not asked for
} strait_pipe;

/* Refuses a pipeline without stages or microbatches, and costs that are negative or no numbers;
 * STRAIT_EINVAL names the stage or link. The functions below take a pipeline that passed. */
strait_err strait_pipe_check(const strait_pipe *pipe);

/* Codec work in one pass over a stage: unpack at one end, pack at the other. */
double strait_pipe_codec_s(const strait_pipe *pipe, int stage);

/* Seconds to put the bits of one crossing of link i on its wire. */
double strait_pipe_forward_bits_s(const strait_pipe *pipe, int link);
double strait_pipe_backward_bits_s(const strait_pipe *pipe, int link);

/* Compute of one microbatch on a stage, both passes, codecs included. */
double strait_pipe_work_s(const strait_pipe *pipe, int stage);
