/* bench.h - shared by the benchmarks of strait bench: a device with tensors on it, and timing. */
#pragma once

#include "config/run_plan.h"

enum {
    STRAIT_LAB_TENSORS = 24
};

/* A device, and the tensors of one kernel on it. */
struct strait_lab {
    struct strait_backend *backend;
    const struct strait_kernels *k;
    struct strait_stream stream;
    strait_run_plan plan;
    int64_t rows;       // tokens of a microbatch
    strait_dtype dtype; // of activations
    struct strait_slab slab;
    strait_tensor t[STRAIT_LAB_TENSORS];
    int n;
    double bytes, flops;       // that one call must move and compute
    double copy_gb_s, tflop_s; // best measured speeds of the device
    int repeats;
};

typedef struct strait_lab_time {
    double median_s, least_s, most_s; // of one call
} strait_lab_time;

/* Opens the device of the run. Close also releases what a failed open left. */
strait_err strait_lab_open(struct strait_lab *lab, const strait_run *run, int repeats);
void strait_lab_close(struct strait_lab *lab);

/* Plans lab->t from a text: four letters a tensor, with a space between. How often it is moved
 * through memory in one call at least (0, 1, 2); its type: a of activations, f f32, i token ids, b
 * bytes; its rows and its columns: n tokens, l tokens whose logits are computed at once, d width, q
 * queries, keys and values, x attention's result, c keys, h the mlp's first product, f ffn, j two
 * of them, v vocabulary, s context, p half a head, g heads, e heads with a norm, r 16, t taps of a
 * convolution; of codes: k values, K padded, w four of them padded, m hidden, u both, o bytes of a
 * code's rows at 4 bits, y at 16, z of top values; digits are themselves. */
strait_err strait_lab_plan(struct strait_lab *lab, const char *text);

/* Allocates the planned tensors and fills them with normal random numbers or token ids; and
 * releases them. */
strait_err strait_lab_make(struct strait_lab *lab);
void strait_lab_clear(struct strait_lab *lab);

/* Warms up, then times `repeats` batches of calls, each long enough (milliseconds) for the clock.
 */
typedef strait_err strait_lab_call(struct strait_lab *lab, void *arg);
strait_err strait_lab_measure(struct strait_lab *lab, strait_lab_call *call, void *arg,
                              strait_lab_time *out);

/* One kernel: its tensors, what it computes, a call. */
typedef struct strait_lab_kernel {
    const char *name, *tensors;
    double (*flops)(const struct strait_lab *lab); // NULL: bound by memory
    strait_lab_call *call;
} strait_lab_kernel;

/* A family from a list of X(id, name, tensors, flops, call); call is an expression of t, the
 * tensors, k, the kernels, s, the stream, and lab. */
#define STRAIT_LAB_CALL(id, name, tensors, flops, expression)        \
    static strait_err call_##id(struct strait_lab *lab, void *arg) { \
        const strait_tensor *t = lab->t;                             \
        const struct strait_kernels *k = lab->k;                     \
        struct strait_stream *s = &lab->stream;                      \
        (void)arg, (void)t, (void)k, (void)s;                        \
        return expression;                                           \
    }
#define STRAIT_LAB_ENTRY(id, name, tensors, flops, expression) {name, tensors, flops, call_##id},
#define STRAIT_LAB_FAMILY(list, family)                        \
    list(STRAIT_LAB_CALL) const strait_lab_kernel family[] = { \
        list(STRAIT_LAB_ENTRY){0},                             \
    };

/* Families of kernels, each ended by an entry without a name. */
extern const strait_lab_kernel strait_lab_layers[], strait_lab_codecs[];

/* The size that a letter of strait_lab_plan stands for. */
int64_t strait_lab_size(const struct strait_lab *lab, char letter);

/* Print JSON lines on standard output. `only` selects names that contain it; NULL: all. */
strait_err strait_bench_kernels(const strait_run *run, int repeats, const char *only);
strait_err strait_bench_codec(const strait_run *run, int repeats, const char *only);
