/* rule.h - what codec strait is at a ratio, so that a run file need not say more than the ratio.
 *
 * Rule 1 has the same settings at every ratio, those that were tuned at k = 31. Rule 2, with d the
 * width of the stream and k + 1 = 4 d / ratio values of 4 bits per token, the scale among them:
 *
 *   ratio <= 4   k would be d, and the code the stream itself: it crosses in 16, 8 or 4 bits, as
 *                codecs none, int8 and int4 send it
 *   ratio > 4    one encoder basis that all boundaries keep, no mixing; token gates computed from
 *                the stage's token table through d / 8 units, where there is such a table;
 *                residual output projections learn sqrt((k + 1) / d) times as fast as other
 *                matrices, those of gates two thirds as fast
 *
 * A run keeps the rule that it began with (link.codec.rule in run.yaml). */
#pragma once

#include <stdint.h>

enum {
    STRAIT_CODEC_RULE_FIXED = 1, // of runs whose record names no rule
    STRAIT_CODEC_RULE_RATIO = 2,
    STRAIT_CODEC_RULE_NEW = STRAIT_CODEC_RULE_RATIO // of new runs
};

/* Settings of rule 2 at ratios above 4. */
typedef struct strait_codec_rule {
    int64_t gate_width; // hidden units of token gates
    double basis_gain;  // of the encoder basis that all boundaries start from
    double learning_rate;
    double residual_out_learning_rate, gate_learning_rate;
} strait_codec_rule;

/* Whether a codec follows rules: strait in its default variant. An empty variant is the default. */
int strait_codec_has_rule(const char *name, const char *variant);

/* The codec that sends the stream itself in as many bits as reach this ratio; NULL above 4. */
const char *strait_codec_rule_stream(double ratio);

/* The share (k + 1) / d of a code, at most 1. `keep` 0: as `ratio` asks; that 0, too: as the codec
 * has it by default. `bits` per value; 0: 4. */
double strait_codec_rule_share(int64_t cols, int64_t keep, double ratio, int bits);

/* The settings for a stream of this width, a share and a learning rate of matrices; 0: the one that
 * the rule was measured with. Learning rates have two digits, as a run file would. */
strait_codec_rule strait_codec_rule_at(int64_t cols, double share, double learning_rate);
