/* fit.c - the widest code that fits a number of bytes per token. */
#include "codec/codec.h"

enum {
    PER_MESSAGE = 4 // bytes of a message beside those of its tokens: a scale
};

/* Bytes of the larger direction, or 0 if the codec refuses this width. */
static size_t bytes_at(const strait_codec_spec *spec, int is_rank, int64_t width) {
    strait_codec_spec at = *spec;
    *(is_rank ? &at.rank : &at.keep) = width;
    if (strait_codec_check(&at) != STRAIT_OK) return 0;
    const size_t forward = strait_codec_wire_bytes(&at, STRAIT_FORWARD);
    const size_t backward = strait_codec_wire_bytes(&at, STRAIT_BACKWARD);
    return forward > backward ? forward : backward;
}

/* Bytes grow with the width, so it is found by bisection. 0: even one value does not fit. */
static int64_t widest(const strait_codec_spec *spec, int is_rank, double bytes) {
    int64_t fits = 0, above = spec->cols + 1;
    while (above - fits > 1) {
        const int64_t middle = fits + (above - fits) / 2;
        const size_t needs = bytes_at(spec, is_rank, middle);
        if (needs != 0 && (double)needs <= bytes)
            fits = middle;
        else
            above = middle;
    }
    return fits;
}

strait_err strait_codec_fit(strait_codec_spec *spec, double bytes_per_token) {
    strait_codec_spec checked = *spec;
    STRAIT_TRY(strait_codec_check(&checked));
    const double bytes = bytes_per_token * (double)spec->rows + PER_MESSAGE;
    /* Narrow codes of few bits may share a byte, so the widest one is compared. */
    const size_t one = bytes_at(&checked, 0, 1), rank_one = bytes_at(&checked, 1, 1);
    const int has_keep = one != bytes_at(&checked, 0, spec->cols);
    const int has_rank = rank_one != bytes_at(&checked, 1, spec->cols);
    if (!has_keep && !has_rank) {
        if ((double)one <= bytes) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec %s always sends %.4g bytes per token, more than the %.4g that "
                           "link.codec.ratio or bytes_per_token allows; choose another codec",
                           spec->name, (double)one / (double)spec->rows, bytes_per_token);
    }
    const int64_t width = widest(&checked, !has_keep, bytes);
    if (width == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec %s sends at least %.4g bytes per token, more than the %.4g that "
                           "link.codec.ratio or bytes_per_token allows",
                           spec->name, (double)(has_keep ? one : rank_one) / (double)spec->rows,
                           bytes_per_token);
    *(has_keep ? &spec->keep : &spec->rank) = width;
    return STRAIT_OK;
}
