/* freeze_check.h - whether the patterns of train.freeze mean something. */
#pragma once

#include "config/run_plan.h"

/* STRAIT_ECONFIG names a pattern that no parameter of any stage has a name like: a typing error
 * would otherwise train what should be kept. */
strait_err strait_freeze_check(const strait_run_plan *plan);
