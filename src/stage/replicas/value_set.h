/* value_set.h - the loops over the values that replicas exchange, compiled per instruction set.
 *
 * value_set.c is compiled once per instruction set, which STRAIT_ISA names. All of it is static but
 * the functions of the table, so that the linker cannot mix code of a newer set into an older one.
 * All sets give the same bits: operations are rounded by IEEE 754 one by one, the compiler may not
 * fuse them, and what is added up is added up in lanes whose number does not depend on the set. */
#pragma once

#include <stdint.h>

/* What an outer step reads and changes, n values each (outer.h). */
typedef struct strait_value_step {
    float rate, momentum;
    const float *average;
    float *anchor, *velocity;
    const float *sent;
    double distance, size; // squared: of the difference from the average; of the anchor. Added to
} strait_value_step;

struct strait_value_set {
    const char *name;
    int (*is_supported)(void); // whether this processor supports it
    /* As strait_quantize and strait_dequantize (quantize.h), for one block of n values. */
    void (*quantize)(int bits, const float *x, float *residual, int n, unsigned char *out);
    void (*dequantize)(int bits, const unsigned char *in, int n, float *out);
    /* sum += share x values */
    void (*add)(float share, const float *values, int n, float *sum);
    /* out = a - b */
    void (*subtract)(const float *a, const float *b, int n, float *out);
    /* Sum of squares; values x factor */
    double (*squares)(const float *values, int n);
    void (*scale)(float factor, int n, float *values);
    void (*step)(strait_value_step *step, int n);
};

/* The functions of a set that value_set.c defines, and its row of the table. */
#define STRAIT_VALUE_DECLARE(isa)                                                        \
    void strait_value_quantize_##isa(int, const float *, float *, int, unsigned char *); \
    void strait_value_dequantize_##isa(int, const unsigned char *, int, float *);        \
    void strait_value_add_##isa(float, const float *, int, float *);                     \
    void strait_value_subtract_##isa(const float *, const float *, int, float *);        \
    double strait_value_squares_##isa(const float *, int);                               \
    void strait_value_scale_##isa(float, int, float *);                                  \
    void strait_value_step_##isa(strait_value_step *, int);
#define STRAIT_VALUE_SET(isa, supported)                                                    \
    {                                                                                       \
        .name = #isa, .is_supported = (supported), .quantize = strait_value_quantize_##isa, \
        .dequantize = strait_value_dequantize_##isa, .add = strait_value_add_##isa,         \
        .subtract = strait_value_subtract_##isa, .squares = strait_value_squares_##isa,     \
        .scale = strait_value_scale_##isa, .step = strait_value_step_##isa                  \
    }

/* All sets, slowest first, terminated by one without a name. The first is always supported. */
extern const struct strait_value_set strait_value_sets[];

/* The newest that this processor has. */
const struct strait_value_set *strait_value_set_best(void);
