/* pipe.h - the costs of a pipeline: times of its stages, bytes and delays of its links.
 *
 * The numbers are measured by a run or estimated before one. Plain data; the arrays belong to the
 * caller. */
#pragma once

#include "base/error.h"

/* Seconds of one stage: the first three per microbatch, the last per step. */
typedef struct strait_pipe_stage {
    double forward_s;
    double input_s;   // backward pass down to the gradient of the stage's input
    double weights_s; // the rest of the backward pass: gradients of the weights
    double update_s;  // optimizer
} strait_pipe_stage;

/* Link i joins stages i and i + 1. Activations cross it forward, gradients backward. */
typedef struct strait_pipe_link {
    double forward_bytes, backward_bytes; // per microbatch, on the wire
    double forward_bps, backward_bps;     // bits per second; 0: unlimited
    double delay_s;                       // one way
    double codec_s;                       // time of encoding, and of decoding, one crossing
} strait_pipe_link;

/* Which messages share a wire. On every wire gradients overtake activations that are queued. */
typedef enum strait_pipe_wire {
    STRAIT_WIRE_DUPLEX, // none: each direction of each link has its own wire
    STRAIT_WIRE_UPLINK, // all that a stage sends, as with one uplink of a home
    STRAIT_WIRE_METER,  // all that a stage receives, and the wire is busy until a message has
                        // arrived: every message pays the delay, as in Protocol NanoGPT
} strait_pipe_wire;

typedef struct strait_pipe {
    int n_stages, n_microbatches;    // per step
    const strait_pipe_stage *stages; // n_stages
    const strait_pipe_link *links;   // n_stages - 1; may be NULL for one stage
    strait_pipe_wire wire;
    int clips;                // updates wait for the norm of the gradients of all stages
    double control_s;         // one-way delay between a stage and the coordinator
    int staleness;            // 1: updates are one step late, so that a step begins without them
    int n_prompt;             // stages at the end whose updates are not late for all that
    double microbatch_tokens; // 0: tokens per second are not wanted
    /* Stages of one device that compute at full speed at the same time, such as cores over threads;
     * when more compute, all of them slow down evenly. 0: any number. */
    double at_once;
    const int *devices; // of each stage, from 0 on and below n_stages; NULL: all have the same
} strait_pipe;

/* Rejects a pipeline without stages or microbatches, costs that are negative or not finite, and
 * devices out of range; STRAIT_EINVAL names the stage or link. The functions below expect a
 * pipeline that passed. */
strait_err strait_pipe_check(const strait_pipe *pipe);

/* The most microbatches that a stage can have in flight: of a step, or of two if it is late. */
int strait_pipe_in_flight(const strait_pipe *pipe, int stage);

/* How many steps to simulate for the seconds of one in a long run: `n`, or with late updates more,
 * because the first ones fill the pipeline and after them every second one takes the same time. */
int strait_pipe_steps(const strait_pipe *pipe, int n);

/* Codec time of one pass of a stage: decoding what arrives and encoding what is sent. */
double strait_pipe_codec_s(const strait_pipe *pipe, int stage);

/* Speed of a stage, relative to one that has its device alone, while n_busy stages compute on that
 * device. */
double strait_pipe_speed(const strait_pipe *pipe, int n_busy);

/* Which of the 2 n_stages wires a stage sends its activations on, or its gradients. */
int strait_pipe_wire_of(const strait_pipe *pipe, int stage, int is_gradient);

/* Serialisation time of one crossing of a link. */
double strait_pipe_forward_bits_s(const strait_pipe *pipe, int link);
double strait_pipe_backward_bits_s(const strait_pipe *pipe, int link);

/* Compute time of one microbatch on a stage: both passes, codecs included. */
double strait_pipe_work_s(const strait_pipe *pipe, int stage);
