/* rig.h - runs the same test cases on every backend.
 *
 * A case puts inputs on a device, calls a kernel and keeps its outputs. check_case runs it on the
 * reference loops, then on every available backend of the registry, the cpu with one, two and three
 * threads (only three under a sanitizer, where fewer find nothing more) and with every instruction
 * set and kind of bf16 products that it has. Outputs must be near those of the reference loops, and
 * have the same bits every time. A case with activations (rig_act) runs
 * again in bf16 on every device that supports it; the reference loops then get the same rounded
 * inputs, in f32.
 *
 * All memory allocated from a rig's backend, by tensors or by a codec, is placed between two
 * guards. A case in which a guard was overwritten fails, whatever it computed.
 *
 * STRAIT_TEST_QUICK=1 runs less, for tools that watch every memory access and cost a factor of a
 * hundred: fewer cases, each once, the cpu with one thread, and no guards, which would hide a read
 * past the end from such a tool. */
#pragma once

#include "backend/backend.h"
#include "check.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
    RIG_TENSORS = 64,
    RIG_GUARDS = 128 // most guarded allocations: tensors, and those of codecs
};

/* Memory with guards around it. */
struct rig_guard {
    strait_tensor inside;
    int number; // counted from 0 since the rig was cleared
};

/* One backend, the tensors of one case on it, and the outputs that the case kept. */
struct rig {
    struct strait_backend *be;
    const struct strait_backend_ops *own; // the backend's own, without guards
    struct strait_backend_ops guarded;    // the same, but allocations have guards
    struct rig_guard guards[RIG_GUARDS];
    int n_guards, n_taken;
    char about[160]; // a description of the case
    char found[880]; // a line per damaged guard, as many as fit
    struct strait_stream stream;
    const struct strait_kernels *k;
    void *memory[RIG_TENSORS];
    int n_memory;
    int is_alone;    // its bits may differ from those of the previous rig
    int is_rounding; // activations are rounded to bf16 values, but stored in f32
    int n_acts;      // number of activation tensors
    float *kept;
    size_t n_kept, capacity;
    size_t ends[RIG_TENSORS]; // where each kept tensor ends
    int n_ends;
    int n_damaged; // guards found overwritten and not yet reported
};

/* The parameters of a case; each case documents how it uses them. */
typedef struct shape {
    int64_t rows, cols, inner;
    strait_heads heads;
    int variant;
    int is_f32_only; // not meaningful in bf16
    double in_bf16;  // the least tolerance in bf16; 0: 2e-2
} shape;

typedef void (*rig_case)(struct rig *rig, shape s);

/* Whether this machine and build have device i of the registry. The device that STRAIT_TEST_DEVICE
 * names counts as available: its absence then fails the test. */
int rig_is_available(int i);

/* Whether STRAIT_TEST_QUICK=1 is set. */
int rig_is_quick(void);

void rig_open(struct rig *rig, strait_backend_spec spec);
void rig_close(struct rig *rig);
void rig_clear(struct rig *rig); // releases tensors and kept outputs; checks the guards

/* Fails if memory next to any tensor was overwritten, and prints which and on which side. */
void rig_check(struct rig *rig);
int rig_count_damaged(struct rig *rig); // the number of damaged guards; rig->found describes them

/* Overwrites byte `at` of the guards of the last tensor: below 0, or beyond its end. */
void rig_overwrite(struct rig *rig, strait_tensor t, int64_t at);

/* Tensors live until rig_clear. `seed` selects the values: standard normal numbers. */
strait_tensor rig_input(struct rig *rig, int64_t rows, int64_t cols, int seed);
strait_tensor rig_values(struct rig *rig, int64_t rows, int64_t cols, const float *values);
strait_tensor rig_tokens(struct rig *rig, int64_t rows, int64_t below, int seed); // i32 [rows x 1]
strait_tensor rig_ints(struct rig *rig, int64_t rows, const int32_t *values);
strait_tensor rig_output(struct rig *rig, int64_t rows, int64_t cols); // full of NaN
strait_tensor rig_zeros(struct rig *rig, int64_t rows, int64_t cols);

/* Activations: of the type for which the rig's backend was opened. */
strait_tensor rig_act(struct rig *rig, int64_t rows, int64_t cols, int seed);
strait_tensor rig_act_large(struct rig *rig, int64_t rows, int64_t cols, int seed, float by);
strait_tensor rig_act_values(struct rig *rig, int64_t rows, int64_t cols, const float *values);
strait_tensor rig_act_output(struct rig *rig, int64_t rows, int64_t cols); // full of NaN

float *rig_floats(int64_t n); // the caller frees them
/* Clears the rig, runs one case, and returns a copy of the *n values that it kept; the caller frees
 * them. */
float *rig_results(struct rig *rig, rig_case run, shape s, size_t *n);

/* Cosines and sines of the angles of rotary positions, [seq_len x head_dim / 2]. */
void rig_angles(struct rig *rig, strait_heads heads, strait_tensor *cos, strait_tensor *sin);

/* Copies values of f32 and bf16 as floats; other types byte by byte. */
void rig_read(struct rig *rig, strait_tensor t, float *out);
void rig_write(struct rig *rig, strait_tensor t, const float *values);
void rig_keep(struct rig *rig, strait_tensor t);

/* A tensor of exactly that many packed bytes; rig_keep_bytes keeps each byte as one number. */
strait_tensor rig_bytes(struct rig *rig, int64_t bytes);
void rig_keep_bytes(struct rig *rig, strait_tensor packed);

/* Runs the case on every rig. Outputs may differ from the reference loops by `tolerance` times
 * their own magnitude plus `tolerance` times the root mean square of all outputs (or of their
 * tensor, if larger); in bf16 by at least s.in_bf16, except with open_bf16_rigs. */
void check_case(rig_case run, shape s, double tolerance);

/* The same for one of many combinations of sizes: a quick test runs the first and then every
 * seventh, so that every size and variant occurs with some of the others. */
void check_one_of_many(rig_case run, shape s, double tolerance);

/* The rig of the reference loops, for cases that need nothing else. */
struct rig *reference_rig(void);

/* Runs `test` on the reference loops, then on every device but the cpu in f32. It gets its cleared
 * rig from rig_under_test. */
void on_every_device(void (*test)(void));
struct rig *rig_under_test(void);

int open_rigs(void **state); // group set-up and tear-down
/* Opens, besides the reference loops, only devices that support bf16, in bf16. */
int open_bf16_rigs(void **state);
int close_rigs(void **state);

/* A function to differentiate: `forward` recomputes every output from the inputs. */
typedef struct gradient {
    struct rig *rig;
    void (*forward)(struct rig *rig, void *arg);
    void *arg;
    strait_tensor outputs[2], d_outputs[2]; // the loss is the sum of d_output * output
} gradient;

/* Checks that d_x, computed by the backward, matches central differences of the loss: the norm of
 * the difference is at most 1e-3 of its norm. */
void check_gradient(const gradient *g, strait_tensor x, strait_tensor d_x, const char *what);

/* For the files of the rig only: rig_guard adds guards to all later allocations; rig_call tells it
 * which tensor the last allocation belongs to. */
void rig_guard(struct rig *rig);
void rig_unguard(struct rig *rig);
void rig_call(struct rig *rig, strait_tensor t);
