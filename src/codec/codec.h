/* codec.h - what crosses a pipeline boundary, and how it is made smaller.
 *
 * A boundary has two halves. The head sits at the end of stage i, the tail at the start of stage
 * i + 1. Activations cross forward, gradients cross back:
 *
 *        head (stage i)                              tail (stage i + 1)
 *     x ---- act_pack ----> wire bytes ----> act_unpack ---- y      forward
 *   d_x <-- grad_unpack <-- wire bytes <---- grad_pack <---- d_y    backward
 *
 * A transparent codec (none, int8, int4, topk, lowrank) has only the act pair: gradients cross by
 * the same route. A codec that is part of the model (subspace, resbm, strait) has its own grad
 * pair, the adjoint of the act pair; rounding on the wire is passed straight through.
 *
 * The life of one microbatch (slot) on a stage, in this order; what a codec does not need costs
 * nothing:
 *
 *   tail act_unpack -> the stage forward -> head act_pack
 *   head grad_unpack -> the stage backward -> head input_grad -> tail grad_pack
 *   head param_grads, tail param_grads: any time later, before the update
 *
 * and of one step: project_gradients, the optimizer, after_update, metrics.
 *
 * Every codec is fixed-rate: the bytes per crossing follow from the spec alone. Codecs are written
 * once, over backend kernels on the stream of the crossing, and run on every device. Nothing
 * allocates after open. One thread uses a codec, and the same one the half it is joined with.
 *
 * To add a codec: write codec/NAME.c with one exported table, add its line to registry.c, and
 * pass tests/contract/codec*.c. docs/codecs.md has the equations. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "base/error.h"
#include "codec/meter.h"
#include "tensor/param.h"
#include "tensor/tensor.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_CODEC_NAME = 16,
    STRAIT_CODEC_PARAMS = 8,
    STRAIT_CODEC_STATES = 4
};

typedef enum strait_codec_side {
    STRAIT_SENDER,
    STRAIT_RECEIVER,
} strait_codec_side;

typedef enum strait_direction {
    STRAIT_FORWARD,
    STRAIT_BACKWARD,
} strait_direction;

/* How gradients are rounded to 8 or 4 bits. Activations are always rounded to nearest. */
typedef enum strait_codec_rounding {
    STRAIT_ROUND_AUTO, // stochastic at 8 and 4 bits, else nearest
    STRAIT_ROUND_NEAREST,
    STRAIT_ROUND_STOCHASTIC, // unbiased; bits follow from seed, boundary, step and microbatch
} strait_codec_rounding;

/* Agreed by both halves; equal specs give equal codecs. 0 or "" asks for the codec's default. */
typedef struct strait_codec_spec {
    char name[STRAIT_CODEC_NAME];    // "strait"
    char variant[STRAIT_CODEC_NAME]; // one of the codec's variants
    int64_t rows;                    // tokens in a microbatch
    int64_t cols;                    // width of the residual stream
    int64_t vocab;                   // codecs with STRAIT_CODEC_TOKENS
    int64_t keep;                    // k: values kept per token; topk, subspace, resbm, strait
    int64_t rank;                    // lowrank
    int64_t tile;                    // int4: values that share a scale, a power of two
    int64_t hidden;                  // m: inner width of resbm and strait
    int64_t anchors;                 // r: width of the token table of strait
    int64_t context;                 // strait, context: codes the widening reads
    int64_t encoder;                 // strait, context: inner width of the encoder
    double frame;                    // strait, context: gain of a shared start; 0: none
    int has_gains;                   // strait, context: gains of tokens, on both sides
    int64_t seq_len;                 // tokens of a sequence, which divide the rows; 0: all rows
    int is_stepwise;                 // rows is 1, and a sequence crosses token by token
    int bits;                        // a value on the wire: 32, 16, 8 or 4
    int grad_bits;                   // the same backward; 0: bits
    strait_codec_rounding rounding;
    int has_feedback;        // transparent codecs: what was lost is added to the next crossing
    int64_t widest;          // subspace: most inputs of a weight that writes the stream
    int64_t confine_every;   // subspace, full: project weights every so many steps; 0: on a leak
    double leak_limit;       // subspace, full: a leak above this is corrected
    int64_t grassmann_every; // subspace: steps between turns of the basis; 0: never
    double grassmann_rate;   // subspace: how far a turn goes
    int boundary;            // which one, from 0
    int n_boundaries;        // in the run
    int n_slots;             // most microbatches in flight at once
    strait_dtype precision; // of the stream: where a codec does not compute in bf16, it becomes f32
                            // before it is packed, and back
    int is_padded; // computes in the stream's type, on copies of the parameters, with codes
                   // padded to whole 16 bytes: always in bf16 where the codec knows how;
                   // in f32 only if asked, to test it
    int can_defer; // param_grads may come after the gradient crossing of another slot
    uint64_t seed; // of the run: both halves draw the same numbers
} strait_codec_spec;

/* What the rest of the system must do for a codec, and what the contract test may ask of it. */
enum strait_codec_trait {
    STRAIT_CODEC_LOSSLESS = 1 << 0, // y equals x, bit for bit
    STRAIT_CODEC_LINEAR = 1 << 1,   // <act(x), v> = <x, grad(v)>, once the value at x = 0 is taken
                                    // away and rounding is left aside
    STRAIT_CODEC_STATEFUL = 1 << 2, // has state: goes into checkpoints beside the parameters
    STRAIT_CODEC_TRAINED = 1 << 3,  // has parameters for the optimizer
    STRAIT_CODEC_CONFINES = 1 << 4, // the head needs project_gradients and after_update
    STRAIT_CODEC_TOKENS = 1 << 5,   // crossings need the token ids of the microbatch
    STRAIT_CODEC_INPUT = 1 << 6,    // the head needs the stage's input, and input_grad
    STRAIT_CODEC_CODE = 1 << 7,     // x and y are [rows x keep]: the model makes the code itself
};

/* One passage over the boundary. */
typedef struct strait_crossing {
    struct strait_stream *stream;
    int64_t step;
    int64_t microbatch;   // of the step, from 0
    int slot;             // in [0, n_slots): where to keep what the backward pass will need
    strait_tensor tokens; // [rows x 1] i32, STRAIT_CODEC_TOKENS; all below vocab
    strait_tensor input;  // [rows x cols], STRAIT_CODEC_INPUT, act_pack only: what entered the
                          // first block of this stage
    int is_evaluation;    // forward only: leaves no trace in states or metrics, but for `refused`
    int64_t past;         // with is_stepwise: tokens of the sequence that crossed before, 0 at its
                          // start
} strait_crossing;

/* A tensor to save and restore, with a name that is unique in the run: "boundary.3.head.warm". */
typedef struct strait_codec_state {
    char name[STRAIT_PARAM_NAME];
    strait_tensor tensor;
} strait_codec_state;

/* What a padded codec computes with: rows of *to from `row` on are *value, its columns regrouped.
 */
typedef struct strait_codec_copy {
    const strait_tensor *value, *to;
    int64_t row;
    strait_regroup_params how;
} strait_codec_copy;

/* What one half saw. */
typedef struct strait_codec_metrics {
    double residual; // size of what packing lost, as a share of the size of what was packed
    double spoiled;  // values that were not finite when packed
    double refused;  // values on the wire that were no finite number
} strait_codec_metrics;

struct strait_codec {
    const struct strait_codec_ops *ops;
    strait_codec_spec spec; // checked: every default filled in
    strait_codec_side side;
    struct strait_backend *backend;
    struct strait_codec *peer; // the other half on this stage, or NULL; borrowed
    struct strait_slab slab;   // every tensor of this half
    strait_param params[STRAIT_CODEC_PARAMS];
    int n_params;
    strait_codec_state states[STRAIT_CODEC_STATES];
    int n_states;
    strait_codec_copy copies[STRAIT_CODEC_PARAMS];
    int n_copies;
    struct strait_meter meter;
    strait_tensor wide, wide_input; // f32, where the stream is bf16
    void *state;                    // ops->state_size bytes, zeroed before plan
};

/* Packing reads `x` and fills `wire`; unpacking reads `wire` and fills `x`. */
typedef strait_err (*strait_codec_pack_fn)(struct strait_codec *c, const strait_crossing *at,
                                           strait_tensor wire, strait_tensor x);
typedef strait_err (*strait_codec_unpack_fn)(struct strait_codec *c, const strait_crossing *at,
                                             strait_tensor x, strait_tensor wire);
typedef strait_err (*strait_codec_weights_fn)(struct strait_codec *c, struct strait_stream *s,
                                              strait_param *params, int n);

/* A codec. Everything but name, wire_bytes, plan and the act pair is optional. */
struct strait_codec_ops {
    const char *name;            // tables of one name share out its variants; the first of them
    const char *const *variants; // has the default, first in this list, which NULL ends
    size_t state_size;
    unsigned needs; // optional kernel tables: enum strait_kernel_need

    /* Fills in defaults and refuses with STRAIT_ECONFIG what this codec cannot do. */
    strait_err (*check)(strait_codec_spec *spec);
    unsigned (*traits)(const strait_codec_spec *spec); // enum strait_codec_trait
    /* Where spec.is_padded: crossings and param_grads from this table, and its start after the
     * codec's own; its other slots are not looked at. plan then plans for them. can_pad: whether
     * this spec can be; NULL for any. */
    const struct strait_codec_ops *padded;
    int (*can_pad)(const strait_codec_spec *spec);
    size_t (*wire_bytes)(const strait_codec_spec *spec, strait_direction direction);

    /* Adds every tensor, parameter and state with the calls in parts.h; must plan the meter. */
    strait_err (*plan)(struct strait_codec *c);
    /* The tensors now exist, zeroed: gives them their first values. */
    strait_err (*start)(struct strait_codec *c, struct strait_stream *s);
    strait_err (*join)(struct strait_codec *c); // c->peer is set, or NULL

    strait_codec_pack_fn act_pack;      // head
    strait_codec_unpack_fn act_unpack;  // tail
    strait_codec_pack_fn grad_pack;     // tail; NULL: act_pack
    strait_codec_unpack_fn grad_unpack; // head; NULL: act_unpack
    strait_err (*input_grad)(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x);
    strait_err (*param_grads)(struct strait_codec *c, const strait_crossing *at);

    strait_codec_weights_fn project_gradients, after_update; // head
    /* Told what a step measured: to put right what it can. */
    strait_err (*metrics)(struct strait_codec *c, struct strait_stream *s,
                          const strait_codec_metrics *seen);
    strait_err (*restored)(struct strait_codec *c, struct strait_stream *s);
    uint32_t (*version)(const struct strait_codec *c);
};

/* STRAIT_ECONFIG, with what there is, for a name that no codec has, or a variant that it has not;
 * "" is a variant of all. */
strait_err strait_codec_check_name(const char *name, const char *variant);

/* The variant of a codec for which a spec names none; "" if it has none, or is unknown. */
const char *strait_codec_own_variant(const char *name);

/* Fills in what the spec leaves to the codec and refuses with STRAIT_ECONFIG what cannot be. Needs
 * rows, cols, boundary, n_boundaries and n_slots, and vocab where the codec wants tokens. */
strait_err strait_codec_check(strait_codec_spec *spec);

/* Of a checked spec. */
unsigned strait_codec_traits(const strait_codec_spec *spec);
size_t strait_codec_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
int64_t strait_codec_width(const strait_codec_spec *spec); // columns of x and y

/* A number that two halves of one boundary compare in their handshake. */
uint64_t strait_codec_fingerprint(const strait_codec_spec *spec);

/* Device memory that one half would take. */
strait_err strait_codec_plan_bytes(const strait_codec_spec *spec, strait_codec_side side,
                                   size_t *out);

/* A half without memory, to be asked for its parameters and states and closed. */
strait_err strait_codec_open_dry(const strait_codec_spec *spec, strait_codec_side side,
                                 struct strait_codec **out);

/* Keeps `be` until close. First values come from the seed and the names alone. */
strait_err strait_codec_open(const strait_codec_spec *spec, strait_codec_side side,
                             struct strait_backend *be, struct strait_codec **out);
void strait_codec_close(struct strait_codec **c); // sets *c to NULL; accepts NULL

/* Tells the two halves that sit on one stage of each other: the tail of the boundary before it
 * (NULL on the first stage) and the head of the boundary behind it (NULL on the last). Once, after
 * open and before the first crossing; each keeps the other until close. */
strait_err strait_codec_join(struct strait_codec *tail, struct strait_codec *head);

/* The four crossings. Each checks shapes, slot and wire bytes (STRAIT_EPROTO), then queues work.
 * What came over the wire is never trusted: bytes that make no number count as 0, and are counted
 * in the metrics. */
strait_err strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor wire, strait_tensor x);
strait_err strait_codec_act_unpack(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor y, strait_tensor wire);
strait_err strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor wire, strait_tensor d_y);
strait_err strait_codec_grad_unpack(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor wire);

/* Head, after the stage's blocks ran backward: adds to d_x, the gradient of the stage's input, what
 * the head itself took from that input. Before the tail's grad_pack or the embedding's gradient. */
strait_err strait_codec_input_grad(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor d_x);

/* Adds this slot's share to the parameter gradients. Once per slot, after its gradient crossing
 * (on the head after input_grad) and before the update; without spec.can_defer, before the next
 * gradient crossing of any slot, and the d_y of the tail's grad_pack must still be there. */
strait_err strait_codec_param_grads(struct strait_codec *c, const strait_crossing *at);

/* After parameters changed, by an update or otherwise: before the next crossing. open, restored and
 * adopting a basis do it themselves. */
strait_err strait_codec_refresh(struct strait_codec *c, struct strait_stream *s);

/* The i-th parameter, or STRAIT_EINVAL past the last. Matrices are [outputs x inputs]. */
strait_err strait_codec_get_param(const struct strait_codec *c, int i, strait_param *out);
strait_err strait_codec_zero_gradients(struct strait_codec *c, struct strait_stream *s);

/* The i-th tensor a checkpoint keeps besides the parameters, or STRAIT_EINVAL past the last. After
 * overwriting any of them call restored. */
strait_err strait_codec_get_state(const struct strait_codec *c, int i, strait_codec_state *out);
strait_err strait_codec_restored(struct strait_codec *c, struct strait_stream *s);

/* Head, with the weights of its stage, chosen by role. Before the optimizer; after it, and once
 * after the first values of the weights were made. */
strait_err strait_codec_project_gradients(struct strait_codec *c, struct strait_stream *s,
                                          strait_param *params, int n);
strait_err strait_codec_after_update(struct strait_codec *c, struct strait_stream *s,
                                     strait_param *params, int n);

/* Which shared basis packed bytes belong to; 0 for codecs without one. It travels in every frame;
 * STRAIT_EPROTO for a frame of another version. */
uint32_t strait_codec_version(const struct strait_codec *c);
strait_err strait_codec_check_version(const struct strait_codec *c, uint32_t version);

/* What this half saw since the last call. Waits for the stream: once a step, not per crossing. */
strait_err strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                     strait_codec_metrics *out);

/* The registry, ended by NULL. */
extern const struct strait_codec_ops *const strait_codecs[];
