/* pareto.h - the plot of loss against bytes of a report. */
#pragma once

#include "report/document.h"
#include "study/summary.h"

/* Rows with a curve are joined by its name, in the order of their bytes, and a row of one stage is
 * a horizontal line; rows without one are left out. Where no row has a curve, each is a point.
 * Bars are intervals of the paired differences to the control. */
strait_err strait_pareto_write(const strait_study *study, const struct strait_queue *queue,
                               struct strait_document *document);
