/* gap.h - the section of a report that shows how far rows are above their controls, over sizes of
 * models and over training time. */
#pragma once

#include "report/document.h"
#include "study/summary.h"

/* For each row with a control of which both have ended: a table (gap.csv), the gap of the
 * validation losses over the tokens of both (gap-tokens.svg), and the gap at the end over the FLOPs
 * per token of the control (gap-scale.svg), where rows with one `curve` are joined and rows without
 * are left out. A gap is a percentage of the control's loss. */
strait_err strait_gap_write(const strait_study *study, const struct strait_queue *queue,
                            struct strait_document *document);
