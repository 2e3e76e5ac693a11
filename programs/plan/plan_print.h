/* plan_print.h - prints what strait plan predicts. */
#pragma once

#include "train/outlook/outlook.h"

/* Prints the outlook of a run, whose file is `path`, for people, or as one JSON object. */
void strait_plan_print(const char *path, const strait_run *run, const strait_outlook *o);
void strait_plan_print_json(const strait_run *run, const strait_outlook *o);
