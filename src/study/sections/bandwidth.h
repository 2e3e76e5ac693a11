/* bandwidth.h - the section of a report that plans every run for links of several speeds. */
#pragma once

#include "report/document.h"
#include "study/summary.h"

/* Plans each row, as `strait plan` does, for 10, 50, 80 and 200 Mb/s, 1 and 100 Gb/s and delays of
 * 0, 25, 50 and 100 ms: a table of seconds per step, and the loss against the planned time. Every
 * stage is a machine of the speed that the first row was trained with. */
strait_err strait_bandwidth_write(const strait_study *study, const struct strait_queue *queue,
                                  struct strait_document *document);
