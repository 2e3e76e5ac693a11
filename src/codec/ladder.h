/* ladder.h - the codes that link.codec.name auto chooses from, and what is known of their price. */
#pragma once

#include "codec/codec.h"

/* One code. By hand it is link.codec: {name, variant, ratio}, without what is empty or 0. */
typedef struct strait_codec_rung {
    const char *name, *variant;
    double ratio;   // 0: the codec has one width
    int is_learned; // its parameters are part of the model
} strait_codec_rung;

/* Whether this name of a codec leaves the choice to the program. */
int strait_codec_is_auto(const char *name);

/* The codes, widest first, and their number. The first is exact on any stream; the second is exact
 * on a bf16 stream, and the first is then no better. */
const strait_codec_rung *strait_codec_ladder(int *n);

/* A code of this ratio that is not on the ladder, for a run that limits the compression. */
strait_codec_rung strait_codec_rung_at(double ratio);

/* What a code cost in loss in a comparison. */
typedef struct strait_codec_price {
    double percent;      // of loss, above the control
    const char *control; // what it was compared with
    const char *source;  // the document that has the figures
} strait_codec_price;

/* The price of a checked spec where the same code was compared at the same width and about as many
 * boundaries; NULL: not known. */
const strait_codec_price *strait_codec_find_price(const strait_codec_spec *spec);
