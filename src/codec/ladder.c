#include "codec/ladder.h"

#include <math.h>
#include <string.h>

static const char auto_name[] = "auto", learned_name[] = "strait";

/* Codes of `strait` wider than an eighth of the stream (below 32x at 4 bits) are left out: where
 * they were measured, at a quarter of the stream, they lost more than narrower ones and than int4
 * (docs/research/pareto.md). */
static const strait_codec_rung ladder[] = {{"none", "fp32", 0, 0},     {"none", "", 0, 0},
                                           {"int8", "", 0, 0},         {"int4", "", 0, 0},
                                           {learned_name, "", 32, 1},  {learned_name, "", 64, 1},
                                           {learned_name, "", 128, 1}, {learned_name, "", 256, 1}};

/* Comparisons of which this program has the figures. `ratio` is 0 where a codec has one width. */
static const struct measured {
    const char *name, *variant;
    int64_t cols;
    int n_boundaries;
    double ratio;
    strait_codec_price price;
} measured[] = {
    {"strait",
     "context",
     1024,
     7,
     128,
     {2.2, "dense with the same additions", "docs/research/matched/README.md"}},
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
