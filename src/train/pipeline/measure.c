/* measure.c - how fast stages compute and what the links between them carry. */
#include "train/pipeline/pipeline_state.h"

strait_err strait_pipeline_time_passes(struct strait_pipeline *p, strait_step_times *times,
                                       double *delays_s) {
    STRAIT_TRY(strait_pipeline_command_first(
        p, &(strait_stage_command){.kind = STRAIT_COMMAND_TIME_PASSES}));
    for (int i = 0; i < p->n_stages; i++) {
        times[i] = reply_of(p, i)->time_passes.times;
        delays_s[i] = reply_of(p, i)->time_passes.next_delay_s;
    }
    return STRAIT_OK;
}

strait_err strait_pipeline_probe(struct strait_pipeline *p, int duration_ms, strait_measured *out,
                                 uint64_t *differ) {
    const strait_stage_command command = {.kind = STRAIT_COMMAND_PROBE, .probe = {duration_ms}};
    *differ = 0;
    STRAIT_TRY(strait_pipeline_command_first(p, &command));
    for (int i = 0; i + 1 < p->n_stages; i++) {
        const strait_stage_reply *prev = reply_of(p, i), *next = reply_of(p, i + 1);
        int differs[2];
        out->forward_bps[i] = strait_measured_judge(next->probe.from_prev_bps,
                                                    prev->probe.to_next_bps, &differs[0]);
        out->backward_bps[i] = strait_measured_judge(prev->probe.from_next_bps,
                                                     next->probe.to_prev_bps, &differs[1]);
        if (differs[0] || differs[1]) *differ |= UINT64_C(1) << i;
    }
    return STRAIT_OK;
}
