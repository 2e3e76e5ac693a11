/* rig.h - how the contract asks every backend the same questions.
 *
 * A case puts inputs on a device, calls a kernel and keeps its outputs. check_case runs it on the
 * plain loops, then on every backend of the registry that is here, the cpu with one, two and three
 * threads (with three alone under a sanitizer, which finds the same with them), and compares:
 * near the plain loops, and the same bits every time. A case that makes
 * activations (rig_act) is asked again in bf16 of every device that computes in it; the plain loops
 * then see the same rounded inputs, in f32.
 *
 * All memory that is taken from a rig's backend, for its tensors and by a codec for itself, lies
 * between two guards, and a case in which one was written has failed, whatever it computed.
 *
 * STRAIT_TEST_QUICK=1 asks less, for runs in which every access to memory is watched and costs
 * a hundred times as much: fewer cases, each once, the cpu with one thread; and no guards, behind
 * which those who watch would not see a read past the end. */
#pragma once

#include "backend/backend.h"
#include "check.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
    RIG_TENSORS = 64,
    RIG_GUARDS = 128 // tensors, and what codecs take
};

/* Memory with guards around it. */
struct rig_guard {
    strait_tensor inside;
    int number; // how many came before it since the rig was cleared
};

/* One backend, the tensors made on it for one case, and what the case kept. */
struct rig {
    struct strait_backend *be;
    const struct strait_backend_ops *own; // the backend's, without guards
    struct strait_backend_ops guarded;    // the same, but memory has guards around it
    struct rig_guard guards[RIG_GUARDS];
    int n_guards, n_taken;
    char about[160]; // which case this is, for people
    char found[880]; // what is wrong with guards, as many lines as there is room for
    struct strait_stream stream;
    const struct strait_kernels *k;
    void *memory[RIG_TENSORS];
    int n_memory;
    int is_alone;    // its bits are not those of the rig before it
    int is_rounding; // activations hold what bf16 can say, in f32
    int n_acts;      // how many of its tensors are activations
    float *kept;
    size_t n_kept, capacity;
    size_t ends[RIG_TENSORS]; // where each kept tensor ends
    int n_ends;
    int n_spoilt; // guards that were found written and are not yet told
};

/* What a case needs to know; each case says what it makes of the fields. */
typedef struct shape {
    int64_t rows, cols, inner;
    strait_heads heads;
    int variant;
    int is_f32_only; // makes no sense in bf16
} shape;

typedef void (*rig_case)(struct rig *rig, shape s);

/* Whether this machine and build have device i of the registry. The one that STRAIT_TEST_DEVICE
 * names counts as there: its absence is then a fault. */
int rig_is_here(int i);

/* Whether STRAIT_TEST_QUICK=1 asks for less. */
int rig_is_quick(void);

void rig_open(struct rig *rig, strait_backend_spec spec);
void rig_close(struct rig *rig);
void rig_clear(struct rig *rig); // forgets the tensors and what was kept; checks the guards

/* Fails if memory next to any tensor was written: a line for each says which, and on which side. */
void rig_check(struct rig *rig);
int rig_count_spoilt(struct rig *rig); // fails not, but says how many guards; rig->found says which

/* Writes byte `at`, below 0 or past the end, of the tensor that was made last. */
void rig_spoil(struct rig *rig, strait_tensor t, int64_t at);

/* Tensors live until rig_clear. `seed` chooses the values: normal numbers of size 1. */
strait_tensor rig_input(struct rig *rig, int64_t rows, int64_t cols, int seed);
strait_tensor rig_values(struct rig *rig, int64_t rows, int64_t cols, const float *values);
strait_tensor rig_tokens(struct rig *rig, int64_t rows, int64_t below, int seed); // i32 [rows x 1]
strait_tensor rig_ints(struct rig *rig, int64_t rows, const int32_t *values);
strait_tensor rig_output(struct rig *rig, int64_t rows, int64_t cols); // full of NaN
strait_tensor rig_zeros(struct rig *rig, int64_t rows, int64_t cols);

/* Activations: of the type that the rig's backend was opened for. */
strait_tensor rig_act(struct rig *rig, int64_t rows, int64_t cols, int seed);
strait_tensor rig_act_large(struct rig *rig, int64_t rows, int64_t cols, int seed, float by);
strait_tensor rig_act_values(struct rig *rig, int64_t rows, int64_t cols, const float *values);
strait_tensor rig_act_output(struct rig *rig, int64_t rows, int64_t cols); // full of NaN

float *rig_floats(int64_t n); // the caller frees them

/* Cosines and sines of the angles of rotary positions, [seq_len x head_dim / 2]. */
void rig_angles(struct rig *rig, strait_heads heads, strait_tensor *cos, strait_tensor *sin);

/* Values of f32 and bf16 as floats; other types byte by byte. */
void rig_read(struct rig *rig, strait_tensor t, float *out);
void rig_write(struct rig *rig, strait_tensor t, const float *values);
void rig_keep(struct rig *rig, strait_tensor t);

/* Room for so many packed bytes and not one more, and every byte of it kept as a number of its own.
 */
strait_tensor rig_bytes(struct rig *rig, int64_t bytes);
void rig_keep_bytes(struct rig *rig, strait_tensor packed);

/* Runs the case everywhere; outputs may differ from the plain loops by `tolerance` of their own
 * size plus `tolerance` of the size of all outputs, or of their tensor if it is larger; in bf16 by
 * 2e-2, if that is more and the rigs are not those of open_half_rigs. */
void check_case(rig_case run, shape s, double tolerance);

/* The same for the cases of a product of sizes: a quick test asks the first and then every
 * seventh of a run of them, so that every size and every variant comes by with some others. */
void check_one_of_many(rig_case run, shape s, double tolerance);

/* The rig of the plain loops, for cases that need nothing else. */
struct rig *reference_rig(void);

/* Asks `test` of the plain loops, then of every device but the cpu in f32: it gets its rig,
 * cleared, from rig_under_test. */
void on_every_device(void (*test)(void));
struct rig *rig_under_test(void);

int open_rigs(void **state); // group set-up and tear-down
/* Beside the plain loops, only devices that compute in bf16, opened for it. */
int open_half_rigs(void **state);
int close_rigs(void **state);

/* How a forward is differentiated: `forward` recomputes every output from the inputs. */
typedef struct gradient {
    struct rig *rig;
    void (*forward)(struct rig *rig, void *arg);
    void *arg;
    strait_tensor outputs[2], d_outputs[2]; // the loss is the sum of d_output * output
} gradient;

/* d_x, made by the backward, equals central differences of the loss by x: the norm of the
 * difference is at most 1e-3 of the norm. */
void check_gradient(const gradient *g, strait_tensor x, strait_tensor d_x, const char *what);

/* Between the files of the rig: all memory that the backend gives from now on has guards; that
 * which was taken last is called `t`. */
void rig_guard(struct rig *rig);
void rig_unguard(struct rig *rig);
void rig_call(struct rig *rig, strait_tensor t);
