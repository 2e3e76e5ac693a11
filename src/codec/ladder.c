#include "codec/ladder.h"

#include <math.h>
#include <string.h>

static const char auto_name[] = "auto", learned_name[] = "strait";

/* Ratios of codec strait by its rule (codec/strait/rule.h). Up to 4x that is the stream itself,
 * under the name of the codec that sends it: the model then needs no additions. Between 4x and 16x
 * no code was measured. */
static const strait_codec_rung ladder[] = {
    {"none", "fp32", 0, 0},    {"none", "", 0, 0},         {"int8", "", 0, 0},
    {"int4", "", 0, 0},        {learned_name, "", 16, 1},  {learned_name, "", 32, 1},
    {learned_name, "", 64, 1}, {learned_name, "", 128, 1}, {learned_name, "", 256, 1}};

static const char additions[] = "dense with the same additions",
                  curve[] = "docs/research/curve/README.md";

/* Comparisons of which this program has the figures. `ratio` is 0 where a codec has one width. */
static const struct measured {
    const char *name, *variant;
    int64_t cols;
    int n_boundaries;
    double ratio;
    strait_codec_price price;
} measured[] = {
    {"strait", "context", 1024, 7, 128, {2.2, additions, curve}},
    {"strait", "context", 1024, 7, 64, {1.5, additions, curve}},
    {"strait", "context", 1024, 7, 16, {1.0, additions, curve}},
    {"int4", "", 256, 3, 0, {0.8, "dense", "docs/benchmarks.md"}},
};

int strait_codec_is_auto(const char *name) {
    return strcmp(name, auto_name) == 0;
}

const strait_codec_rung *strait_codec_ladder(int *n) {
    *n = sizeof ladder / sizeof *ladder;
    return ladder;
}

strait_codec_rung strait_codec_rung_at(double ratio) {
    return (strait_codec_rung){learned_name, "", ratio, 1};
}

/* Two bytes per value of the stream, over the bytes of the larger direction. */
static double ratio_of(const strait_codec_spec *spec) {
    const size_t forward = strait_codec_wire_bytes(spec, STRAIT_FORWARD);
    const size_t backward = strait_codec_wire_bytes(spec, STRAIT_BACKWARD);
    return 2.0 * (double)(spec->rows * spec->cols) /
           (double)(forward > backward ? forward : backward);
}

/* Fewer boundaries cost less and more cost more, so a figure holds for half to twice as many.
 */
static int is_such(const struct measured *m, const strait_codec_spec *spec) {
    return strcmp(m->name, spec->name) == 0 && strcmp(m->variant, spec->variant) == 0 &&
           m->cols == spec->cols && 2 * spec->n_boundaries >= m->n_boundaries &&
           spec->n_boundaries <= 2 * m->n_boundaries &&
           (m->ratio == 0 || fabs(ratio_of(spec) / m->ratio - 1.0) < 0.1);
}

const strait_codec_price *strait_codec_find_price(const strait_codec_spec *spec) {
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        if (is_such(&measured[i], spec)) return &measured[i].price;
    return NULL;
}
