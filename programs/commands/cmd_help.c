/* cmd_help.c - strait help and strait version. */
#include <strait/version.h>

#include "base/names.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

const char strait_help_about[] = "Strait trains transformer language models across slow links.";

/* Shown by help and by the manual, so it is a variable. */
const char strait_help_first[] =
    "A first run: \"strait tokenizer train\" and \"strait tokenize\" turn text into data,\n"
    "\"strait train\" trains the model of a run file, \"strait generate\" samples text\n"
    "from it.";

/* Also printed to standard error when the command line is empty, which is an error. */
void strait_help_overview(FILE *to) {
    const strait_command *command = NULL;
    fprintf(to, "%s\n\nusage: strait COMMAND ...\n\n", strait_help_about);
    for (int i = 0; (command = strait_commands_at(i)) != NULL; i++)
        fprintf(to, "  %-12s %s\n", command->name, command->summary);
    fprintf(to, "\n%s\n", strait_help_first);
}

/* Suggests the command with the smallest edit distance, if one is close enough. */
strait_err strait_help_find(const char *name, const strait_command **out) {
    const strait_command *command = strait_commands_find(name);
    strait_nearest nearest = strait_names_nearest(name, strait_names_max_edits(name));
    if (command != NULL) {
        *out = command;
        return STRAIT_OK;
    }
    for (int i = 0; (command = strait_commands_at(i)) != NULL; i++)
        strait_names_try(&nearest, command->name, strlen(command->name));
    if (nearest.name == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "unknown command \"%s\"; \"strait help\" lists them",
                           name);
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "unknown command \"%s\"; did you mean %s? \"strait help\" lists them", name,
                       nearest.name);
}

/* "strait help train" and "strait train --help" print the same text. */
static strait_err run_help(int n_args, const char **args) {
    if (n_args == 0) {
        strait_help_overview(stdout);
        return STRAIT_OK;
    }
    const strait_command *command = NULL;
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_help, "command", NULL, n_args, args));
    STRAIT_TRY(strait_help_find(args[0], &command));
    strait_args_help(command);
    return STRAIT_OK;
}

/* One line that scripts can split at the space. */
static strait_err run_version(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_none("version", n_args, args));
    printf("strait %s\n", strait_version());
    return STRAIT_OK;
}

const strait_command strait_cmd_help = {
    .name = "help",
    .usage = "[COMMAND]",
    .summary = "explain a command: strait help COMMAND",
    .about = "Explains a command, or lists all of them. \"strait COMMAND --help\" prints the same.",
    .run = run_help,
    .print_completions = strait_commands_print,
    .examples = (const strait_example[]){{"strait help train", "Explains a command and its flags."},
                                         {0}},
};

const strait_command strait_cmd_version = {
    .name = "version",
    .usage = "",
    .summary = "print the version",
    .about = "Prints the name and the version of the program.",
    .run = run_version,
    .examples = (const strait_example[]){{"strait version",
                                          "Prints a line such as \"strait 0.1.0\"."},
                                         {0}},
};
