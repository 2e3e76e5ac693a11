/* codec.h - what crosses a pipeline boundary, and how it is compressed.
 *
 * A boundary joins two stages and has two sides. The sender sits at the end of stage i, the
 * receiver at the start of stage i + 1. Activations cross forward, gradients cross backward:
 *
 *      sender (stage i)                            receiver (stage i + 1)
 *     x ---- act_pack ----> wire bytes ----> act_unpack ---- y      forward
 *   d_x <-- grad_unpack <-- wire bytes <---- grad_pack <---- d_y    backward
 *
 * A transparent codec, which leaves the model as it is, has only the act pair: gradients cross
 * through the same functions. A codec that is part of the model has its own grad pair, the adjoint
 * of the act pair; rounding on the wire is treated as the identity in
 * the backward pass (straight-through).
 *
 * The calls for one microbatch (slot) on a stage, in this order; a codec that does not need a call
 * leaves it out of its table, and the call then does nothing:
 *
 *   receiver act_unpack -> the stage's forward pass -> sender act_pack
 *   sender grad_unpack -> the stage's backward pass -> sender input_grad -> receiver grad_pack
 *   sender param_grads, receiver param_grads: at any time later, before the update
 *
 * and for one step: project_gradients, the optimizer, after_update, read_metrics.
 *
 * Every codec is fixed-rate: the bytes per crossing follow from the spec alone. Codecs are written
 * once, over backend kernels on the stream of the crossing, and run on every device. Nothing
 * allocates memory after open. One thread uses a codec, and the same thread uses the other codec
 * side on its stage.
 *
 * To add a codec, write codec/NAME.c with one exported table, add it to registry.c, and describe it
 * in docs/codecs.md. The contract tests read the registry. The table says everything the rest of
 * the program must know: nothing outside this module compares codec names. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "base/error.h"
#include "codec/meter.h"
#include "tensor/param.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stddef.h>

enum {
    STRAIT_CODEC_NAME = 16,   // bytes of a name or variant, with its terminating zero
    STRAIT_CODEC_PARAMS = 10, // most parameters, and most copies of parameters, on one side
    STRAIT_CODEC_STATES = 4   // most state tensors on one side
};

typedef enum strait_codec_side {
    STRAIT_SENDER,
    STRAIT_RECEIVER,
} strait_codec_side;

typedef enum strait_direction {
    STRAIT_FORWARD,  // activations, from sender to receiver
    STRAIT_BACKWARD, // gradients, from receiver to sender
} strait_direction;

/* How gradients are rounded to 8 or 4 bits. Activations are always rounded to nearest. */
typedef enum strait_codec_rounding {
    STRAIT_ROUND_AUTO, // stochastic at 8 and 4 bits, otherwise nearest
    STRAIT_ROUND_NEAREST,
    STRAIT_ROUND_STOCHASTIC, // unbiased; a function of seed, boundary, step and microbatch
} strait_codec_rounding;

/* Members of the spec that came after the others, with the format in which the fingerprint reads
 * them: a row per setting, new ones at the end. */
#define STRAIT_CODEC_SETTINGS(X)                                                                   \
    X(int64_t, context, PRId64) /* strait, context: tokens whose codes the decoder reads */        \
    X(int64_t, encoder, PRId64) /* strait, context: inner width of the encoder */                  \
    X(int64_t, seq_len, PRId64) /* tokens of a sequence, which divide the rows; 0: all rows */     \
    X(double, basis_gain, "a")  /* strait, context: scale of the encoder basis that all boundaries \
                                   start from; 0: each draws its own */                            \
    X(int, has_gates, "d")      /* strait, context: token gates on both sides; link.codec.gains */ \
    X(int, encodes_input,                                                                          \
      "d") /* strait, context: the first boundary encodes all of y, not y - x */                   \
    X(int, drops_identity, "d") /* resbm: no identity path */                                      \
    X(int, keeps_fixed, "d")    /* subspace: T_fixed crosses with the rest of the stream */        \
    X(int64_t, gate_width,                                                                         \
      PRId64) /* strait, context: hidden units of gates computed from a token table; 0: none */    \
    X(int64_t, table_rows,                                                                         \
      PRId64) /* strait, context: rows of tables as wide as the stream; 0: one per token id */     \
    X(double, encoder_gain, "a") /* strait, context: scale that E starts with; 0: 1 */

/* Everything both sides of a boundary agree on; equal specs give equal codecs. A field of 0 or ""
 * asks for the codec's default. */
typedef struct strait_codec_spec {
    char name[STRAIT_CODEC_NAME];    // "strait"
    char variant[STRAIT_CODEC_NAME]; // one of the codec's variants
    int64_t rows;                    // tokens in a microbatch
    int64_t cols;                    // d: width of the residual stream
    int64_t vocab;                   // codecs with STRAIT_CODEC_TOKENS
    int64_t keep;                    // k: values kept per token
    int64_t rank;                    // lowrank
    int64_t tile;                    // int4: values that share a scale, a power of two
    int64_t hidden;                  // m: inner width of resbm and strait
    int64_t table_width;             // strait: width of the token table; link.codec.anchors
#define MEMBER(type, member, format) type member;
    STRAIT_CODEC_SETTINGS(MEMBER)
#undef MEMBER
    int is_stepwise; // rows is 1, and a sequence crosses token by token, in a slot of its own
    int bits;        // per value on the wire: 32, 16, 8 or 4
    int grad_bits;   // the same backward; 0: bits
    strait_codec_rounding rounding;
    int has_feedback;        // transparent codecs: add what was lost to the next crossing
    int64_t widest;          // subspace: most inputs of a residual output projection
    int64_t confine_every;   // subspace, full: project weights every so many steps; 0: on a leak
    double leak_limit;       // subspace, full: a leak above this is corrected
    int64_t grassmann_every; // subspace: steps between basis updates; 0: never
    double grassmann_rate;   // subspace: step size of a basis update
    int boundary;            // index, from 0
    int n_boundaries;        // in the run
    int n_slots;             // most microbatches in flight at once
    strait_dtype precision;  // of the stream. A codec that computes in f32 only gets a bf16 stream
                             // converted to f32 before packing, and back after unpacking
    int is_padded; // compute in the stream's type, on copies of the parameters whose codes are
                   // padded to 16 bytes. Set by check for bf16 where the codec can; in f32 only
                   // on request, so that tests can compare the two
    int can_defer; // param_grads may come after the gradient crossing of another slot
    uint64_t seed; // of the run: both sides draw the same numbers from it
} strait_codec_spec;

/* What the caller of a codec must do, and what the contract tests may expect. */
enum strait_codec_trait {
    STRAIT_CODEC_LOSSLESS = 1 << 0, // y equals x, bit for bit
    STRAIT_CODEC_LINEAR = 1 << 1,   // <act(x) - act(0), v> = <x, grad(v)>, apart from rounding
    STRAIT_CODEC_STATEFUL = 1 << 2, // has state that checkpoints keep beside the parameters
    STRAIT_CODEC_TRAINED = 1 << 3,  // has parameters for the optimizer
    STRAIT_CODEC_CONFINES = 1 << 4, // the sender needs project_gradients and after_update
    STRAIT_CODEC_TOKENS = 1 << 5,   // crossings need the token ids of the microbatch
    STRAIT_CODEC_INPUT = 1 << 6,    // the sender needs the stage's input, and input_grad
    STRAIT_CODEC_CODE = 1 << 7,     // x and y are [rows x keep]: the model computes the code
    STRAIT_CODEC_TABLE = 1 << 9,    // crossings need the token table of their stage
    STRAIT_CODEC_CARRIES = 1 << 8,  // a crossing depends on earlier ones, or an update on what the
                                    // crossings of this side measured: replicas cannot share it
};

/* What a codec requires of the model that it is part of. All zero: any model will do. */
typedef struct strait_codec_requirements {
    int64_t subspace;   // above 0: residual output projections and embedding are stored as this
                        // many coordinates in the basis that the codec owns (codec/basis.h)
    int64_t bottleneck; // above 0: the blocks beside a boundary narrow the stream to this width
                        // and widen it again, and the codec carries [rows x bottleneck]
    int drops_identity; // with a bottleneck: the stream itself does not cross, only what is encoded
    int has_code_stream; // the stream inside the stages is the code itself, [rows x keep]
    int is_closed; // only parameters of the roles RESIDUAL_OUT and EMBEDDING may write the residual
                   // stream: the codec projects those, and would lose what others add
} strait_codec_requirements;

/* One passage over the boundary. */
typedef struct strait_crossing {
    struct strait_stream *stream;
    int64_t step;
    int64_t microbatch;   // of the step, from 0
    int slot;             // in [0, n_slots): where to keep what the backward pass will need
    strait_tensor tokens; // [rows x 1] i32, for STRAIT_CODEC_TOKENS; all below vocab
    strait_tensor lists;  // param_grads: of the tokens' rows in the stage's token tables
                          // (token_tables->list), where the stage lists them
    strait_tensor input;  // [rows x cols], for STRAIT_CODEC_INPUT, act_pack only: the input of the
                          // first block of this stage
    strait_tensor table;  // [vocab or table_rows x cols], for STRAIT_CODEC_TABLE: what this stage
                          // knows of a token; read only, no gradient goes to it
    int is_evaluation;    // forward only: changes no state and no metric except `rejected`
    int64_t past;         // with is_stepwise: tokens of the sequence that crossed before this one
} strait_crossing;

/* A tensor to save and restore, with a name that is unique in the run: "boundary.3.head.warm". */
typedef struct strait_codec_state {
    char name[STRAIT_PARAM_NAME];
    strait_tensor tensor;
} strait_codec_state;

/* A copy of a parameter in the stream's type, with padded columns: the rows of *to from `row` on
 * hold *value. strait_codec_refresh writes it. */
typedef struct strait_codec_copy {
    const strait_tensor *value, *to;
    int64_t row;
    strait_regroup_params layout;
} strait_codec_copy;

/* Codecs with a basis that all stages share; all 0 for others. */
typedef struct strait_codec_basis_metrics {
    double leak;        // sender: share of the stream outside the subspace, since the last read
    double corrections; // sender: updates after which weights were projected because of a leak
    double angle;       // largest principal angle of the last basis update since open, in radians
    double mean_angle;  // root mean square of its principal angles
    double error;       // largest entry of U^T U - I
} strait_codec_basis_metrics;

/* What one side measured since the last read. */
typedef struct strait_codec_metrics {
    double residual;   // ||packed - restored|| / ||packed||; a leak counts as lost
    double non_finite; // values that were not finite when packed
    double rejected;   // values on the wire that were not finite; they were read as 0
    strait_codec_basis_metrics basis;
} strait_codec_metrics;

struct strait_codec {
    const struct strait_codec_ops *ops;
    strait_codec_spec spec; // checked: every default filled in
    strait_codec_side side;
    struct strait_backend *backend;
    struct strait_codec *peer; // the other codec side on this stage, or NULL; borrowed
    struct strait_slab slab;   // owns every tensor of this side
    strait_param params[STRAIT_CODEC_PARAMS];
    int n_params;
    strait_codec_state states[STRAIT_CODEC_STATES];
    int n_states;
    strait_codec_copy copies[STRAIT_CODEC_PARAMS];
    int n_copies;
    uint64_t n_refreshed; // how often parameters may have changed: what follows from them is old
    struct strait_meter meter;
    strait_tensor wide, wide_input; // f32 versions of a bf16 stream, for codecs without padding
    void *state;                    // ops->state_size bytes, zeroed before plan
    void *padded_state;             // ops->padded->state_size bytes where is_padded, else NULL
};

/* Packing reads `x` and fills `wire`; unpacking reads `wire` and fills `x`. */
typedef strait_err (*strait_codec_pack_fn)(struct strait_codec *c, const strait_crossing *at,
                                           strait_tensor wire, strait_tensor x);
typedef strait_err (*strait_codec_unpack_fn)(struct strait_codec *c, const strait_crossing *at,
                                             strait_tensor x, strait_tensor wire);
typedef strait_err (*strait_codec_weights_fn)(struct strait_codec *c, struct strait_stream *s,
                                              strait_param *params, int n);

/* A codec. Only name, wire_bytes, plan, act_pack and act_unpack are mandatory; a NULL entry has
 * the default that its comment names, or does nothing. */
struct strait_codec_ops {
    const char *name;            // several tables may share a name and divide its variants
    const char *const *variants; // ended by NULL; the first variant of the name's first table is
                                 // the default. NULL: there are no variants
    size_t state_size;           // of strait_codec.state

    /* Fills in defaults; STRAIT_ECONFIG for what this codec cannot do. */
    strait_err (*check)(strait_codec_spec *spec);
    unsigned (*traits)(const strait_codec_spec *spec); // enum strait_codec_trait; default 0
    /* The optional kernel tables that a codec of this spec calls: bits of enum strait_kernel_need.
     * The spec is checked, so that a variant, a width or padding that calls none asks for none.
     * Default: 0. */
    unsigned (*kernels)(const strait_codec_spec *spec);
    /* What the model must provide, into a zeroed *out. The spec need not be checked, but its name,
     * variant, keep and drops_identity are set. Default: nothing. */
    void (*requirements)(const strait_codec_spec *spec, strait_codec_requirements *out);
    /* FLOPs per token in one direction, besides the products with parameters, which the caller
     * counts from their shapes. Default: 0. */
    double (*fixed_flops)(const strait_codec_spec *spec, strait_direction direction);
    /* Changes a spec of one row, to generate text token by token; it may name another codec.
     * Default: the codec itself processes one row at a time. */
    void (*for_generation)(strait_codec_spec *spec);
    /* A basis that all stages share and that follows the gradients. Default: there is none. */
    const struct strait_codec_basis_ops *basis;
    /* Where spec.is_padded: state_size, plan and start of this table come after the codec's own,
     * and crossings and param_grads come from it alone; its other entries are not read. A codec
     * may name its own table: then only the crossings apply, and they handle both cases. */
    const struct strait_codec_ops *padded;
    int (*can_pad)(const strait_codec_spec *spec); // default: always, where padded is not NULL
    size_t (*wire_bytes)(const strait_codec_spec *spec, strait_direction direction);

    /* Adds every tensor, parameter and state with the calls in builder.h; must plan the meter. */
    strait_err (*plan)(struct strait_codec *c);
    /* The tensors now exist, zeroed: writes their initial values. */
    strait_err (*start)(struct strait_codec *c, struct strait_stream *s);
    strait_err (*join)(struct strait_codec *c); // c->peer is set, or NULL at the ends

    strait_codec_pack_fn act_pack;      // sender
    strait_codec_unpack_fn act_unpack;  // receiver
    strait_codec_pack_fn grad_pack;     // receiver; default: act_pack
    strait_codec_unpack_fn grad_unpack; // sender; default: act_unpack
    strait_err (*input_grad)(struct strait_codec *c, const strait_crossing *at, strait_tensor d_x);
    strait_err (*param_grads)(struct strait_codec *c, const strait_crossing *at);

    strait_codec_weights_fn project_gradients, after_update; // sender
    /* Gets what a step measured, to correct what it can, and adds what only the codec knows. */
    strait_err (*metrics)(struct strait_codec *c, struct strait_stream *s,
                          strait_codec_metrics *seen);
    /* A checkpoint has overwritten the states. */
    strait_err (*restored)(struct strait_codec *c, struct strait_stream *s);
    uint32_t (*version)(const struct strait_codec *c); // default 0
};

/* The table of a codec; "" finds the table of its default variant. NULL if there is none. */
const struct strait_codec_ops *strait_codec_find(const char *name, const char *variant);

/* STRAIT_ECONFIG, with the choices, for an unknown name or variant. "" is a variant of every codec:
 * its default. */
strait_err strait_codec_check_name(const char *name, const char *variant);

/* The default variant of a codec; "" if it has no variants or the name is unknown. */
const char *strait_codec_default_variant(const char *name);

/* Fills in what the spec leaves to the codec; STRAIT_ECONFIG for what cannot work. Needs rows,
 * cols, boundary, n_boundaries and n_slots, and vocab where the codec wants tokens. Checking a
 * checked spec changes nothing. */
strait_err strait_codec_check(strait_codec_spec *spec);

/* Sets keep, or rank, to the widest code that takes at most so many bytes per token in each
 * direction; a scale per message is not counted. STRAIT_ECONFIG says what the codec needs
 * at least. The spec is complete as for strait_codec_check, and is not checked afterwards. */
strait_err strait_codec_fit(strait_codec_spec *spec, double bytes_per_token);

/* Properties of a checked spec. */
unsigned strait_codec_traits(const strait_codec_spec *spec);
size_t strait_codec_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
int64_t strait_codec_width(const strait_codec_spec *spec); // columns of x and y
double strait_codec_fixed_flops(const strait_codec_spec *spec, strait_direction direction);

/* What the codec requires of the model. Reads only settings that a checkpoint has: name, variant,
 * keep and drops_identity; variant "" is the default. STRAIT_ECONFIG for an unknown name or
 * variant. */
strait_err strait_codec_get_requirements(const strait_codec_spec *spec,
                                         strait_codec_requirements *out);

/* The spec with which a trained model generates text, one token of one sequence per crossing. Not
 * checked yet. */
strait_codec_spec strait_codec_for_generation(const strait_codec_spec *spec);

/* A number that is equal on both sides of a boundary exactly if they would understand each other;
 * boundaries compare it when they connect. It covers name, variant, dimensions, bits, rounding,
 * every other setting that changes values or bytes, and the name, role and shape of each parameter
 * and state of both sides. It leaves out what may differ between two machines: n_slots, precision,
 * is_padded, can_defer and is_stepwise. Takes a checked spec. Allocates; STRAIT_ENOMEM. */
strait_err strait_codec_fingerprint(const strait_codec_spec *spec, uint64_t *out);

/* Device memory that one side would take. */
strait_err strait_codec_plan_bytes(const strait_codec_spec *spec, strait_codec_side side,
                                   size_t *out);

/* A side without device memory, to read its parameters and states from. The caller closes it. */
strait_err strait_codec_open_dry(const strait_codec_spec *spec, strait_codec_side side,
                                 struct strait_codec **out);

/* Opens one side, which keeps `be` until close. Initial values depend on the seed and the names of
 * the parameters alone, so that stages need not exchange them. The caller closes it. */
strait_err strait_codec_open(const strait_codec_spec *spec, strait_codec_side side,
                             struct strait_backend *be, struct strait_codec **out);
void strait_codec_close(struct strait_codec **c); // sets *c to NULL; accepts NULL

/* Introduces the two sides on one stage to each other: the receiver of the previous boundary (NULL
 * on the first stage) and the sender of the next one (NULL on the last). Once, after open and
 * before the first crossing; each borrows the other until close. */
strait_err strait_codec_join(struct strait_codec *receiver, struct strait_codec *sender);

/* The four crossings. Each checks shapes, slot (STRAIT_EINVAL) and wire bytes (STRAIT_EPROTO), then
 * queues work on the stream. Bytes from the wire are not trusted: values that are not finite are
 * read as 0 and counted as `rejected`. */
strait_err strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor wire, strait_tensor x);
strait_err strait_codec_act_unpack(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor y, strait_tensor wire);
strait_err strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor wire, strait_tensor d_y);
strait_err strait_codec_grad_unpack(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor wire);

/* Sender, after the stage's backward pass: adds to d_x, the gradient of the stage's input, the part
 * that flows through the sender itself, which reads that input too. Call it before the receiver's
 * grad_pack, or before the embedding's gradient on the first stage. */
strait_err strait_codec_input_grad(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor d_x);

/* Adds this slot's share to the parameter gradients. Once per slot, after its gradient crossing (on
 * the sender after input_grad) and before the update. Without spec.can_defer it must come before
 * the next gradient crossing of any slot, and the d_y of the receiver's grad_pack must still be
 * valid. */
strait_err strait_codec_param_grads(struct strait_codec *c, const strait_crossing *at);

/* Updates the padded copies after the parameters changed, before the next crossing. open, restored
 * and adopting a basis call it themselves. */
strait_err strait_codec_refresh(struct strait_codec *c, struct strait_stream *s);

/* The i-th parameter, or STRAIT_EINVAL past the last. Matrices are [outputs x inputs]. */
strait_err strait_codec_get_param(const struct strait_codec *c, int i, strait_param *out);
strait_err strait_codec_zero_gradients(struct strait_codec *c, struct strait_stream *s);

/* The i-th tensor a checkpoint keeps besides the parameters, or STRAIT_EINVAL past the last. After
 * overwriting any of them call restored. */
strait_err strait_codec_get_state(const struct strait_codec *c, int i, strait_codec_state *out);
strait_err strait_codec_restored(struct strait_codec *c, struct strait_stream *s);

/* Sender, with the weights of its stage, which it selects by role: before the optimizer; and after
 * it, and once after the weights were initialised. */
strait_err strait_codec_project_gradients(struct strait_codec *c, struct strait_stream *s,
                                          strait_param *params, int n);
strait_err strait_codec_after_update(struct strait_codec *c, struct strait_stream *s,
                                     strait_param *params, int n);

/* The version of the shared basis that packed bytes belong to; 0 for codecs without one. It travels
 * in every frame; STRAIT_EPROTO for a frame of another version. */
uint32_t strait_codec_version(const struct strait_codec *c);
strait_err strait_codec_check_version(const struct strait_codec *c, uint32_t version);

/* What this side measured since the last call. Waits for the stream: call it once per step, not per
 * crossing. */
strait_err strait_codec_read_metrics(struct strait_codec *c, struct strait_stream *s,
                                     strait_codec_metrics *out);

/* The registry, ended by NULL. */
extern const struct strait_codec_ops *const strait_codecs[];
