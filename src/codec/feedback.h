/* feedback.h - how transparent codecs send: with error feedback if requested, and with their error
 * measured.
 *
 * With feedback, what a crossing loses is added to the next crossing of the same boundary in the
 * same direction, whatever microbatch that is. The sum over a step then loses nothing, but the
 * error of one sample disturbs the activations of another. docs/codecs.md says when that helps. */
#pragma once

#include "codec/codec.h"

/* How a codec converts a tensor to bytes and back. restore does not touch the meter. */
typedef struct strait_lossy {
    strait_codec_pack_fn pack;
    strait_codec_unpack_fn restore;
    int is_metered; // pack itself measures what it loses
} strait_lossy;

struct strait_feedback {
    strait_tensor sum;    // with feedback: x plus what was lost before
    strait_tensor excess; // what was sent minus what should have been sent. With feedback this
                          // tensor is the codec's state 0 instead, which checkpoints keep
};

/* For ops->traits of a codec that has no other traits. */
unsigned strait_feedback_traits(const strait_codec_spec *spec);

/* For ops->plan, before any other state is added: the residual must be state 0. */
strait_err strait_feedback_plan(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_lossy *lossy);

/* For ops->metrics: resets the residual after a non-finite crossing. Otherwise the residual would
 * stay non-finite, and with it every later crossing. */
strait_err strait_feedback_metrics(struct strait_codec *c, struct strait_stream *s,
                                   strait_codec_metrics *seen);

/* For ops->act_pack: packs x, plus the residual with feedback, and updates residual and meter. */
strait_err strait_feedback_send(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_crossing *at, strait_tensor wire, strait_tensor x,
                                const strait_lossy *lossy);
