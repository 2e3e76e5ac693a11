/* codec_rig.h - how the contract asks every codec the same questions.
 *
 * A chain is three stages joined by two boundaries, each stage a simple curve instead of blocks, so
 * that the halves that sit on one stage meet as they do in a run. */
#pragma once

#include "codec/codec.h"
#include "rig.h"

enum {
    CHAIN_STAGES = 3,
    CHAIN_BOUNDARIES = 2,
    CHAIN_SLOTS = 2,
    CHAIN_ROWS = 6,
    CHAIN_COLS = 16,
    CHAIN_VOCAB = 11
};

/* A codec with its options. */
typedef struct codec_case {
    const char *label;
    strait_codec_spec spec; // without rows, cols, place and seed
    double tolerance;       // see case_tolerance; 0: what the bits suggest
} codec_case;

/* Every case, ended by a label of NULL: those listed in codec_rig.c, and then, for each codec and
 * variant of the registry that none of them names, the codec with its defaults and, where it takes
 * 32 bits, exact, deferred and padded. A new codec is tested without being listed. */
const codec_case *codec_cases(void);

#define EACH_CASE(which) \
    for (const codec_case *which = codec_cases(); (which)->label != NULL; (which)++) // NOLINT

/* How far one crossing of a LINEAR codec may be off, because of rounding. */
double case_tolerance(const codec_case *which);

/* The case in its place: boundary b of the chain, awkward sizes, checked. */
strait_codec_spec case_spec(const codec_case *which, int b);

struct chain {
    struct rig *rig;
    int64_t cols; // of x: less than CHAIN_COLS where the model makes the code
    strait_codec_spec spec[CHAIN_BOUNDARIES];
    struct strait_codec *sender[CHAIN_BOUNDARIES], *receiver[CHAIN_BOUNDARIES];
    strait_tensor x[CHAIN_SLOTS][CHAIN_STAGES]; // what enters a stage
    strait_tensor y;                            // what left the last stage that ran
    strait_tensor d;                            // the running gradient
    strait_tensor d_sent[CHAIN_BOUNDARIES];     // what a tail packed: it stays until param_grads
    strait_tensor v;                            // the loss is <y, v>
    strait_tensor wire[CHAIN_BOUNDARIES][2];    // by direction
    strait_tensor tokens;
    int64_t step;
    void (*on_wire)(struct chain *chain, int b); // optional: what happens to activations on the way
};

/* Of the type that the specs say. Takes a cleared rig; the chain's tensors live until it is cleared
 * again. */
void chain_open(struct chain *chain, struct rig *rig, const codec_case *which);
void chain_open_specs(struct chain *chain, struct rig *rig, const strait_codec_spec *specs);
void chain_close(struct chain *chain); // checks the guards of the rig

strait_crossing chain_at(struct chain *chain, int slot);
void chain_forward(struct chain *chain, int slot);  // from x[slot][0] to y
void chain_backward(struct chain *chain, int slot); // from v to the gradient d of x[slot][0]
void chain_param_grads(struct chain *chain, int slot);

/* Steps of two microbatches, forward, backward and parameter gradients. */
void chain_run(struct chain *chain, int steps);

/* Parameters become normal numbers of size 0.3: none is at a special place. */
void chain_shake(struct chain *chain);

/* Every half in turn: 0 to 3. */
struct strait_codec *chain_half(struct chain *chain, int i);

/* As bytes, on the host; the caller frees. */
unsigned char *read_bytes(struct rig *rig, strait_tensor t);
