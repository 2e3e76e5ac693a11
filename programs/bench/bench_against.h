/* bench_against.h - strait bench step --against COMMAND: this program and another, in turn. */
#pragma once

#include <strait/error.h>

enum {
    STRAIT_BENCH_PAIRS = 200 // most pairs of runs
};

/* Runs the command line of this process without --against, and `command` by the shell, in turn,
 * n_pairs times; prints a JSON line for each pair and one with the ratio of their speeds. Both must
 * print a line with "tokens_per_s". STRAIT_EDATA: one did not. */
strait_err strait_bench_against(const char *command, int n_pairs);
