/* codec_rig.h - runs the same tests on every codec of the registry.
 *
 * A chain is three stages joined by two boundaries, so that the two codec sides on one stage work
 * together as in a run. Each stage is an elementwise function instead of blocks. */
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

/* Every case, ended by a label of NULL: those listed in codec_cases.c, and then, for each codec and
 * variant of the registry that none of them names, the codec with its defaults and, where it takes
 * 32 bits, exact, deferred and padded. A new codec is tested without being listed. */
const codec_case *codec_cases(void);

#define EACH_CASE(which) \
    for (const codec_case *which = codec_cases(); (which)->label != NULL; (which)++) // NOLINT

/* How far one crossing of a LINEAR codec may be off, because of rounding. */
double case_tolerance(const codec_case *which);

/* The checked spec of a case for boundary b of the chain, with sizes that divide nothing evenly. */
strait_codec_spec case_spec(const codec_case *which, int b);

struct chain {
    struct rig *rig;
    int64_t cols; // of x: less than CHAIN_COLS where the model computes the code
    strait_codec_spec spec[CHAIN_BOUNDARIES];
    struct strait_codec *sender[CHAIN_BOUNDARIES], *receiver[CHAIN_BOUNDARIES];
    strait_tensor x[CHAIN_SLOTS][CHAIN_STAGES]; // input of each stage
    strait_tensor y;                            // output of the stage that ran last
    strait_tensor d;                            // the running gradient
    strait_tensor
        d_sent[CHAIN_BOUNDARIES]; // what a receiver packed: it must stay until param_grads
    strait_tensor v;              // the loss is <y, v>
    strait_tensor wire[CHAIN_BOUNDARIES][2]; // by direction
    strait_tensor tokens, table;             // the table stands for the stage's token table
    strait_tensor lists; // of the tokens' rows in it; absent unless a test sets it
    int64_t step;
    void (*on_wire)(struct chain *chain, int b); // optional: changes activations on the wire
};

/* Opens all codecs in the precision of the specs. Takes a cleared rig; the chain's tensors live
 * until it is cleared again. */
void chain_open(struct chain *chain, struct rig *rig, const codec_case *which);
void chain_open_specs(struct chain *chain, struct rig *rig, const strait_codec_spec *specs);
void chain_close(struct chain *chain); // checks the guards of the rig

strait_crossing chain_at(struct chain *chain, int slot);
void chain_forward(struct chain *chain, int slot);  // from x[slot][0] to y
void chain_backward(struct chain *chain, int slot); // from v to the gradient d of x[slot][0]
void chain_param_grads(struct chain *chain, int slot);

/* Steps of two microbatches, forward, backward and parameter gradients. */
void chain_run(struct chain *chain, int steps);

/* Sets parameters to normal numbers of deviation 0.3, so that none has a special value like 0. */
void chain_shake(struct chain *chain);

/* Codec side i, from 0 to 3. */
struct strait_codec *chain_side(struct chain *chain, int i);

/* As bytes, on the host; the caller frees. */
unsigned char *read_bytes(struct rig *rig, strait_tensor t);
