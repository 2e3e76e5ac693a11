#include "codec/strait/rule.h"

#include "codec/codec.h"
#include "codec/strait/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATE_MULTIPLE = 8, // gates have a multiple of this many units
    GATE_SHARE = 8,    // a unit per so many values of the stream
    BITS = 4
};

static const double measured_rate = 0.06, gate_share = 2.0 / 3.0;

/* Twice the ratio halves the bits: the scales of a payload are not counted. */
static const struct {
    double ratio;
    const char *name;
} streams[] = {{1, "none"}, {2, "int8"}, {4, "int4"}};

int strait_codec_has_rule(const char *name, const char *variant) {
    return strait_codec_find(name, variant) == &strait_codec_context;
}

const char *strait_codec_rule_stream(double ratio) {
    for (size_t i = 0; i < STRAIT_COUNT(streams); i++)
        if (ratio <= streams[i].ratio) return streams[i].name;
    return NULL;
}

double strait_codec_rule_share(int64_t cols, int64_t keep, double ratio, int bits) {
    const double bits_per_value = bits > 0 ? bits : BITS;
    double share = (double)((keep > 0 ? keep : STRAIT_CONTEXT_KEEP) + 1) / (double)cols;
    if (keep == 0 && ratio > 0) share = 16.0 / (bits_per_value * ratio);
    return fmin(share, 1.0);
}

static double two_digits(double value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.1e", value);
    return strtod(text, NULL);
}

strait_codec_rule strait_codec_rule_at(int64_t cols, double share, double learning_rate) {
    const double rate = learning_rate > 0 ? learning_rate : measured_rate;
    const int64_t unit = (int64_t)GATE_MULTIPLE * GATE_SHARE;
    return (strait_codec_rule){.gate_width = (cols + unit - 1) / unit * GATE_MULTIPLE,
                               .basis_gain = 1,
                               .learning_rate = rate,
                               .residual_out_learning_rate = two_digits(rate * sqrt(share)),
                               .gate_learning_rate = two_digits(rate * gate_share)};
}
