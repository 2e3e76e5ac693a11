/* run_rule.h - the rule of codec strait (codec/strait/rule.h) among the options of a run. */
#pragma once

#include "config/run.h"

/* Gives a run whose codec has rules the rule of new runs, or that of runs without one where it
 * `is_of_before`, and sets the options that follow from it and that the user left out. The rule
 * counts as given from then on, so that the record of the run names it. Options are as
 * strait_options_load leaves them. */
void strait_run_apply_rule(strait_run *run, int is_of_before);

/* STRAIT_ECONFIG: the stream itself crosses, but an option of a code is given. */
strait_err strait_run_check_rule(const strait_run *run);

/* The codec that sends the stream itself, where the rule says so at the ratio of this run; else
 * NULL. A variant that the user names is a code at any ratio. */
const char *strait_run_rule_stream(const strait_run *run);

/* One line for people where the stream itself crosses; empty otherwise. */
void strait_run_describe_rule(const strait_run *run, char *out, size_t capacity);

/* Whether this text was written by strait_run_save or strait_run_render, of any version. */
int strait_run_is_record(const char *text, size_t bytes);
