/* feedback.h - how transparent codecs send: with error feedback if asked for, and metered.
 *
 * With feedback, what a crossing loses is added to the next crossing of the same boundary in the
 * same direction, whatever microbatch that is. The error of one sample then reaches another: in the
 * sum over a step nothing is lost, but single activations are disturbed. docs/codecs.md says when
 * that helps. */
#pragma once

#include "codec/codec.h"

/* How a codec turns a tensor into bytes and back. restore does not touch the meter. */
typedef struct strait_lossy {
    strait_codec_pack_fn pack;
    strait_codec_unpack_fn restore;
    int is_metered; // pack meters what it loses
} strait_lossy;

struct strait_feedback {
    strait_tensor sum;    // x and what was lost before; with feedback
    strait_tensor excess; // what was sent less what should have been; with feedback it is state 0
};

/* For ops->traits, of a codec that has no others. */
unsigned strait_feedback_traits(const strait_codec_spec *spec);

strait_err strait_feedback_plan(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_lossy *how);

/* For ops->metrics: forgets what was lost if a crossing was not finite, or it would never be again.
 */
strait_err strait_feedback_metrics(struct strait_codec *c, struct strait_stream *s,
                                   const strait_codec_metrics *seen);

strait_err strait_feedback_send(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_crossing *at, strait_tensor wire, strait_tensor x,
                                const strait_lossy *how);
