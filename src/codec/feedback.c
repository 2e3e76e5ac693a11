#include "codec/feedback.h"

#include "codec/builder.h"

#include <assert.h>

/* The residual is state, which checkpoints must contain. */
unsigned strait_feedback_traits(const strait_codec_spec *spec) {
    return spec->has_feedback ? STRAIT_CODEC_STATEFUL | STRAIT_CODEC_CARRIES : 0;
}

/* Without feedback the error is needed only to measure it, unless packing measures it itself. */
strait_err strait_feedback_plan(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_lossy *lossy) {
    const int64_t rows = c->spec.rows, cols = c->spec.cols;
    if (c->spec.has_feedback) {
        assert(c->n_states == 0); // send and metrics expect the residual in state 0
        STRAIT_TRY(strait_codec_add_state(c, "feedback", STRAIT_F32, rows, cols));
        return strait_codec_add(c, &(strait_codec_tensor){&fb->sum, rows, cols}, 1);
    }
    return strait_codec_add(c, &(strait_codec_tensor){&fb->excess, rows, cols}, !lossy->is_metered);
}

/* Packs x. `excess`, unless absent, becomes what was sent minus x. */
static strait_err send(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                       strait_tensor x, strait_tensor excess, const strait_lossy *lossy) {
    const struct strait_kernels *k = c->backend->kernels;
    STRAIT_TRY(lossy->pack(c, at, wire, x));
    if (excess.data == NULL) return STRAIT_OK;
    STRAIT_TRY(lossy->restore(c, at, excess, wire));
    STRAIT_TRY(k->axpy(at->stream, excess, -1.0f, x));
    if (lossy->is_metered) return STRAIT_OK;
    return k->measure_rows(at->stream, strait_meter_stats(&c->meter, STRAIT_METER_PACK, x.rows), x,
                           excess);
}

strait_err strait_feedback_send(struct strait_feedback *fb, struct strait_codec *c,
                                const strait_crossing *at, strait_tensor wire, strait_tensor x,
                                const strait_lossy *lossy) {
    const struct strait_kernels *k = c->backend->kernels;
    /* An evaluation neither uses nor changes what training crossings left behind. */
    if (at->is_evaluation) return lossy->pack(c, at, wire, x);
    if (!c->spec.has_feedback) return send(c, at, wire, x, fb->excess, lossy);
    const strait_tensor excess = c->states[0].tensor;
    STRAIT_TRY(k->cast(at->stream, fb->sum, x));
    STRAIT_TRY(k->axpy(at->stream, fb->sum, -1.0f, excess));
    return send(c, at, wire, fb->sum, excess, lossy);
}

strait_err strait_feedback_metrics(struct strait_codec *c, struct strait_stream *s,
                                   strait_codec_metrics *seen) {
    if (!c->spec.has_feedback || seen->non_finite == 0) return STRAIT_OK;
    return c->backend->kernels->fill(s, c->states[0].tensor, 0.0f);
}
