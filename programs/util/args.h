/* args.h - the flags of a command, described by one table that its help is generated from, too.
 *
 *     static const strait_flag flags[] = {
 *         {"out", 'o', STRAIT_FLAG_TEXT, &out, "DIR", "where the run's files go"},
 *         {"resume", 0, STRAIT_FLAG_SWITCH, &resume, NULL, "continue from the last checkpoint"},
 *         {0}};
 *
 * `--name value`, `--name=value` and `-n value` all work; `--` ends the flags. */
#pragma once

#include <strait/error.h>

#include <stdint.h>
#include <stdio.h>

typedef enum strait_flag_kind {
    STRAIT_FLAG_SWITCH, // int *: set to 1
    STRAIT_FLAG_TEXT,   // const char **
    STRAIT_FLAG_INT,    // int64_t *
    STRAIT_FLAG_REAL,   // double *
    STRAIT_FLAG_LIST,   // strait_flag_list *: may be given several times
} strait_flag_kind;

enum {
    STRAIT_FLAG_LIST_MAX = 64
};
typedef struct strait_flag_list {
    const char *items[STRAIT_FLAG_LIST_MAX];
    int n;
} strait_flag_list;

typedef struct strait_flag {
    const char *name;
    char letter; // 0: none
    strait_flag_kind kind;
    void *value;
    const char *unit; // what follows the flag in the help: "DIR", "N"; NULL for a switch
    const char *help;
} strait_flag;

/* A subcommand of a command, chosen by its first word: "train" of "tokenizer". */
typedef struct strait_action {
    const char *name, *usage;
    strait_err (*run)(int n_args, const char **args); // the arguments after its name
} strait_action;

/* A flag that had another name in earlier versions. The old name is an error that names the new. */
typedef struct strait_flag_rename {
    const char *old_name, *name;
} strait_flag_rename;

/* A command line that can be typed, and what it does. */
typedef struct strait_example {
    const char *line, *text;
} strait_example;

/* A command of the program. `about` is the first paragraph of its help, `usage` what follows its
 * name. A command with actions has neither usage nor run of its own. */
typedef struct strait_command {
    const char *name, *usage, *summary, *about;
    const strait_flag *flags;          // ended by a NULL name; NULL for none
    const strait_action *actions;      // likewise
    const strait_flag_rename *renames; // likewise
    const strait_example *examples;    // likewise
    strait_err (*run)(int n_args, const char **args);
    void (*print_completions)(
        FILE *to); // completions of its first word, a space before each; NULL: files
} strait_command;

/* One way to call a command. */
typedef struct strait_usage {
    char name[48];    // "strait tokenizer train"
    const char *rest; // the arguments and flags after it
} strait_usage;

/* Splits argv into flags, which are stored, and arguments, which move to the front of argv.
 * STRAIT_ECONFIG: a flag is unknown, renamed or malformed; the detail names the flag to use. */
strait_err strait_args_parse(const strait_command *command, int argc, const char **argv,
                             int *n_args);

/* Runs a command, or the action that its first word names. STRAIT_ECONFIG: there is no such action;
 * the detail lists them. */
strait_err strait_args_run(const strait_command *command, int n_args, const char **args);

/* STRAIT_ECONFIG unless there is exactly one argument, a `what`: "run file". The hint says how to
 * give what a second one was meant for; NULL: no hint. */
strait_err strait_args_expect_one(const strait_command *command, const char *what, const char *hint,
                                  int n_args, const char **args);

/* STRAIT_ECONFIG if there are arguments, for a command that takes none: "version", "completion
 * bash".
 */
strait_err strait_args_expect_none(const char *name, int n_args, const char **args);

/* Checks before long work that the output `path` of a flag can be written. STRAIT_EIO: it is a
 * folder or a special file, or its folder is not writable. */
strait_err strait_args_check_output(const char *flag, const char *path);

/* Checks the value of --threads; 0 means one per core. */
strait_err strait_args_check_threads(int64_t n);

/* STRAIT_ECONFIG if --device does not name a kind of device, or "auto" where that is accepted. */
strait_err strait_args_check_device(const char *name, int may_be_auto);

/* For commands that choose the device by a flag: an error that advises to change device.kind
 * advises to use --device instead. Returns err. */
strait_err strait_args_device_advice(strait_err err);

/* For commands with --set: puts the flag before an error that begins with a value of it. Returns
 * err. */
strait_err strait_args_name_set(strait_err err, const strait_flag_list *sets);

/* Appends " (hint)" to the detail of an error and returns it, for a command that knows the flag
 * with which its user can fix an error of the library. Does nothing for STRAIT_OK. */
strait_err strait_args_hint(strait_err err, const char *hint);

/* The i-th way to call a command, shared by help and manual. Returns 0 past the last. */
int strait_args_usage(const strait_command *command, int i, strait_usage *out);

/* Prints a name and, in a column beside it, its description. */
void strait_args_print_item(const char *name, const char *text);

/* Prints the help of one command to standard output. */
void strait_args_help(const strait_command *command);
