/* time_to_loss.h - the section of a report that says how much sooner a run reaches its loss than
 * others do over slow links. */
#pragma once

#include "report/document.h"
#include "study/summary.h"

/* The step at which a curve of [step, loss] falls to `loss`, interpolated linearly. Where its first
 * point is below already, the step of that point, with *is_bound set: it may have been earlier.
 * NaN: it does not fall that far. */
double strait_time_steps_to(const json_t *curve, double loss, int *is_bound);

/* Plans the rows that share a control with study->time for 80 and 200 Mb/s and 25 and 50 ms: a step
 * over full-duplex links and on the meter of Protocol NanoGPT, and how much sooner each row reaches
 * the loss of its end than the named ones. A row that has not run is named as such. */
strait_err strait_time_write(const strait_study *study, const struct strait_queue *queue,
                             struct strait_document *document);
