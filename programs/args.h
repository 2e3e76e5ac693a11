/* args.h - a command's flags, described by one table that also makes its help.
 *
 *     static const strait_flag flags[] = {
 *         {"out", 'o', STRAIT_FLAG_TEXT, &out, "DIR", "where the run's files go"},
 *         {"resume", 0, STRAIT_FLAG_SWITCH, &resume, NULL, "go on from the last checkpoint"},
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

/* One of several things that a command does, chosen by its first word: "train" of "tokenizer". */
typedef struct strait_action {
    const char *name, *usage;
    strait_err (*run)(int n_words, const char **words); // those behind its name
} strait_action;

/* One subcommand. `about` is the help's first paragraph, `usage` what follows the name. One with
 * actions has neither usage nor run of its own. */
typedef struct strait_command {
    const char *name, *usage, *summary, *about;
    const strait_flag *flags;     // ended by a NULL name; NULL for none
    const strait_action *actions; // likewise
    strait_err (*run)(int n_words, const char **words);
    void (*print_words)(FILE *to); // what its word may be, a space before each; NULL: a file
} strait_command;

/* One way to call a command. */
typedef struct strait_usage {
    char name[48];    // "strait tokenizer train"
    const char *rest; // the words and flags behind it
} strait_usage;

/* Splits argv into flags, which are stored, and words, which move to the front of argv.
 * Unknown or malformed flags are STRAIT_ECONFIG with the flag's name and the nearest known one. */
strait_err strait_args_parse(const strait_command *command, int argc, const char **argv,
                             int *n_words);

/* Runs a command, or the action that its first word names; another word is STRAIT_ECONFIG with the
 * names of those there are. */
strait_err strait_args_run(const strait_command *command, int n_words, const char **words);

/* STRAIT_ECONFIG unless there is one word, which is `what`: "run file". The hint says where others
 * belong; NULL: nowhere. */
strait_err strait_args_one_word(const strait_command *command, const char *what, const char *hint,
                                int n_words, const char **words);

/* STRAIT_ECONFIG where words stand behind what takes none: "version", "completion bash". */
strait_err strait_args_no_words(const char *name, int n_words, const char **words);

/* STRAIT_EIO where `path`, what a flag says to write, is a folder, or has none that can be written
 * to: before the work that would be lost then. */
strait_err strait_args_check_output(const char *flag, const char *path);

/* Of --threads; 0 is one for each core. */
strait_err strait_args_check_threads(int64_t n);

/* STRAIT_ECONFIG where --device names no kind of device. */
strait_err strait_args_check_device(const char *name);

/* The i-th way to call a command, the same for help and manual; 0 past the last. */
int strait_args_usage(const strait_command *command, int i, strait_usage *out);

/* Prints a name and, beside it and filled, what it means. */
void strait_args_print_item(const char *name, const char *text);

/* Prints the help of one command to standard output. */
void strait_args_help(const strait_command *command);
