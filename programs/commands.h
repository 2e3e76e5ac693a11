/* commands.h - every subcommand of the program, one table a file. */
#pragma once

#include "args.h"

extern const strait_command strait_cmd_train;
extern const strait_command strait_cmd_host;
extern const strait_command strait_cmd_join;
extern const strait_command strait_cmd_watch;
extern const strait_command strait_cmd_relay;
extern const strait_command strait_cmd_stage;
extern const strait_command strait_cmd_eval;
extern const strait_command strait_cmd_generate;
extern const strait_command strait_cmd_tokenizer;
extern const strait_command strait_cmd_tokenize;
extern const strait_command strait_cmd_inspect;
extern const strait_command strait_cmd_compare;
extern const strait_command strait_cmd_plan;
extern const strait_command strait_cmd_trace;
extern const strait_command strait_cmd_bench;
extern const strait_command strait_cmd_doctor;
extern const strait_command strait_cmd_options;
extern const strait_command strait_cmd_completion;

const strait_command *strait_commands_find(const char *name); // NULL: unknown
const strait_command *strait_commands_at(int i);              // NULL past the last
