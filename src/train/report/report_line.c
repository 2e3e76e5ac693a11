#include "train/report/report_line.h"

/* The times of the stages are regrouped: the report has one entry per stage, a line one list per
 * figure. */
static void list_stages(strait_report_line *line, const strait_trainer_report *report) {
    for (int i = 0; i < report->n_stages; i++) {
        const strait_trainer_stage_step *stage = &report->stages[i];
        line->busy[i] = stage->forward_s + stage->backward_s + stage->codec_s;
        line->wait[i] = stage->wait_s;
        line->forward[i] = stage->forward_bytes;
        line->backward[i] = stage->backward_bytes;
    }
}

void strait_report_line_init(strait_report_line *line, const strait_trainer_report *report,
                             int64_t batch_tokens) {
    list_stages(line, report);
    line->step = (strait_metrics_step){.step = report->step,
                                       .loss = report->loss,
                                       .learning_rate = report->learning_rate,
                                       .grad_norm = report->grad_norm,
                                       .tokens_per_s = report->tokens_per_s,
                                       .forward_bytes_per_token = report->forward_bytes_per_token,
                                       .backward_bytes_per_token = report->backward_bytes_per_token,
                                       .ratio_forward = report->ratio_forward,
                                       .ratio_backward = report->ratio_backward,
                                       .bubble = report->bubble,
                                       .limit = report->limit,
                                       .seconds = report->seconds,
                                       .batch_tokens = batch_tokens,
                                       .time = report->time,
                                       .meter_seconds = report->meter_seconds,
                                       .reduce_bytes = report->reduce_bytes,
                                       .staleness = report->staleness,
                                       .averaged = report->averaged,
                                       .average_bytes_per_token = report->average_bytes_per_token,
                                       .divergence = report->divergence,
                                       .n_boundaries = report->n_boundaries,
                                       .residual_forward = report->residual_forward,
                                       .residual_backward = report->residual_backward,
                                       .leak = report->leak,
                                       .corrections = report->corrections,
                                       .basis_angle = report->basis_angle,
                                       .basis_mean_angle = report->basis_mean_angle,
                                       .basis_error = report->basis_error,
                                       .n_stages = report->n_stages,
                                       .busy_s = report->stages != NULL ? line->busy : NULL,
                                       .wait_s = line->wait,
                                       .forward_bytes = line->forward,
                                       .backward_bytes = line->backward};
}
