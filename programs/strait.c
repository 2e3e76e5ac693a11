/* strait.c - the command line: one program, one table of commands. */
#include <strait/version.h>

#include "base/names.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* The last has no summary: the overview leaves it out. */
static const strait_command *const commands[] = {
    &strait_cmd_train,      &strait_cmd_host,    &strait_cmd_join,     &strait_cmd_watch,
    &strait_cmd_relay,      &strait_cmd_eval,    &strait_cmd_generate, &strait_cmd_tokenizer,
    &strait_cmd_tokenize,   &strait_cmd_inspect, &strait_cmd_compare,  &strait_cmd_plan,
    &strait_cmd_trace,      &strait_cmd_bench,   &strait_cmd_doctor,   &strait_cmd_options,
    &strait_cmd_completion, &strait_cmd_stage,
};
enum {
    N_COMMANDS = sizeof commands / sizeof *commands
};

const strait_command *strait_commands_find(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

const strait_command *strait_commands_at(int i) {
    return i < N_COMMANDS ? commands[i] : NULL;
}

static void print_overview(FILE *to) {
    fprintf(to, "strait trains transformer language models.\n\nusage: strait COMMAND ...\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i]->summary != NULL)
            fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "  %-12s %s\n", "help", "how to use a command: strait help COMMAND");
    fprintf(to, "  %-12s %s\n", "version", "which strait this is");
}

/* Outside scripts rely on these. */
static int exit_code(strait_err err) {
    switch (err) {
    case STRAIT_OK: return 0;
    case STRAIT_EINVAL:
    case STRAIT_ENOTSUP:
    case STRAIT_ECONFIG: return 2;
    case STRAIT_EDATA:
    case STRAIT_EIO:
    case STRAIT_ENONFINITE: return 3;
    case STRAIT_EAGAIN:
    case STRAIT_ETIMEDOUT:
    case STRAIT_ECLOSED:
    case STRAIT_EDEPOSED:
    case STRAIT_EPROTO: return 4;
    case STRAIT_EDEVICE:
    case STRAIT_ENOMEM: return 5;
    case STRAIT_EAUTH: return 6;
    case STRAIT_EINTERRUPTED: return 130;
    }
    return 1;
}

static int unknown_command(const char *name) {
    strait_nearest nearest = strait_names_nearest(name, STRAIT_NAMES_SLIPS);
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i]->summary != NULL)
            strait_names_try(&nearest, commands[i]->name, strlen(commands[i]->name));
    fprintf(stderr, "strait: unknown command \"%s\"; ", name);
    if (nearest.name != NULL) fprintf(stderr, "did you mean %s? ", nearest.name);
    fprintf(stderr, "\"strait help\" lists them\n");
    return exit_code(STRAIT_ECONFIG);
}

static int help(int argc, const char **argv) {
    if (argc < 1) {
        print_overview(stdout);
        return 0;
    }
    const strait_command *command = strait_commands_find(argv[0]);
    if (command == NULL) return unknown_command(argv[0]);
    strait_args_help(command);
    return 0;
}

static int wants_help(int argc, const char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
    return 0;
}

static int run(const strait_command *command, int argc, const char **argv) {
    int n_words = 0;
    strait_err err = strait_args_parse(command, argc, argv, &n_words);
    if (err == STRAIT_OK) err = command->run(n_words, argv);
    if (err == STRAIT_OK && (fflush(stdout) != 0 || ferror(stdout)))
        err = STRAIT_FAIL(STRAIT_EIO, "standard output could not be written");
    const char *about = err == STRAIT_ENOMEM && strstr(strait_err_detail(), "memory") == NULL
                            ? "not enough memory: "
                            : "";
    if (err != STRAIT_OK) fprintf(stderr, "strait: %s%s\n", about, strait_err_detail());
    return exit_code(err);
}

int main(int argc, char **argv) {
    const char **words = (const char **)argv;
    if (argc < 2) {
        print_overview(stderr);
        return exit_code(STRAIT_ECONFIG);
    }
    if (strcmp(words[1], "help") == 0 || strcmp(words[1], "--help") == 0 ||
        strcmp(words[1], "-h") == 0)
        return help(argc - 2, words + 2);
    if (strcmp(words[1], "version") == 0 || strcmp(words[1], "--version") == 0) {
        printf("strait %s\n", STRAIT_VERSION);
        return 0;
    }
    const strait_command *command = strait_commands_find(words[1]);
    if (command == NULL) return unknown_command(words[1]);
    if (wants_help(argc - 2, words + 2)) return help(1, words + 1);
    return run(command, argc - 2, words + 2);
}
