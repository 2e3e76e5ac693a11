/* strait.c - the program: the table of commands, dispatch, and exit codes. */
#include <strait/program.h>

#include "commands.h"
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND(name) &strait_cmd_##name,
static const strait_command *const commands[] = {
#include "commands.def"
};
enum {
    N_COMMANDS = sizeof commands / sizeof *commands
};

/* Scripts and job managers decide by these codes whether to try again. */
static int exit_code(strait_err err) {
    switch (err) {
    case STRAIT_OK: return 0;
    case STRAIT_EINVAL:
    case STRAIT_ENOTSUP:
    case STRAIT_EINUSE:
    case STRAIT_EEXISTS:
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

static int wants_help(int argc, const char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
    return 0;
}

static strait_err run(const char *name, int argc, const char **argv) {
    const strait_command *command = NULL;
    int n_args = 0;
    STRAIT_TRY(strait_help_find(name, &command));
    if (wants_help(argc, argv)) {
        strait_args_help(command);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_args_parse(command, argc, argv, &n_args));
    return strait_args_run(command, n_args, argv);
}

/* Accepts the conventional spellings of help and version. */
static const char *name_of(const char *word) {
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return "help";
    return strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 ? "version" : word;
}

/* Opens standard input, output and error if the parent closed them. Otherwise a socket or a lock
 * file would get one of these numbers, and printing would write into it. */
static void hold_standard_files(void) {
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR); // without O_CLOEXEC: stages need it, too
    if (fd > STDERR_FILENO) (void)close(fd);
}

/* Stages are processes of this very file, whatever is installed elsewhere. */
static void set_own_program(void) {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) return; // the library then looks for an installed one
    path[n] = '\0';
    (void)strait_set_program(path);
}

int main(int argc, char **argv) {
    const char **args = (const char **)argv;
    hold_standard_files();
    set_own_program();
    strait_commands_set(commands, N_COMMANDS);
    if (argc < 2) {
        strait_help_overview(stderr);
        return exit_code(STRAIT_ECONFIG);
    }
    strait_err err = run(name_of(args[1]), argc - 2, args + 2);
    if (err == STRAIT_OK && (fflush(stdout) != 0 || ferror(stdout)))
        err = STRAIT_FAIL(STRAIT_EIO, "standard output could not be written");
    const char *about = err == STRAIT_ENOMEM && strstr(strait_err_detail(), "memory") == NULL
                            ? "not enough memory: "
                            : "";
    if (err != STRAIT_OK) fprintf(stderr, "strait: %s%s\n", about, strait_err_detail());
    strait_launcher_leave(exit_code(err));
    return exit_code(err);
}
