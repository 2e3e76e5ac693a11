/* commands.h - the commands of the program. Each is a table in a file of its own; commands.def
 * lists them. */
#pragma once

#include "args.h"

#include <stdio.h>

#define COMMAND(name) extern const strait_command strait_cmd_##name;
#include "commands.def"

/* Registers the commands, before anything below is called. Borrows the table. */
void strait_commands_set(const strait_command *const *commands, int n);

const strait_command *strait_commands_find(const char *name); // NULL: unknown
const strait_command *strait_commands_at(int i);              // the listed ones; NULL past the last
void strait_commands_print(FILE *to);                         // their names, a space before each

/* What an exit code of the program means. Scripts rely on them: they do not change. */
typedef struct strait_exit {
    int code;
    const char *means; // NULL: past the last
} strait_exit;
extern const strait_exit strait_exits[];

/* cmd_help.c: what the program is and how to start; an overview of all commands; and a command by
 * its name, or STRAIT_ECONFIG with the name that was probably meant. */
extern const char strait_help_about[], strait_help_first[];
void strait_help_overview(FILE *to);
strait_err strait_help_find(const char *name, const strait_command **out);
