/* cmd_stage.c - strait stage: serves one stage of a run. The coordinator of the run starts it. */
#include "commands.h"
#include "stage/process/stage_process.h"

#include <signal.h>
#include <unistd.h>

static strait_err run_stage(int n_args, const char **args) {
    (void)args;
    if (n_args != 0 || isatty(STDIN_FILENO))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "\"strait stage\" is started by \"strait train\", not by hand");
    /* Signals to the process group (Ctrl-C, a closed terminal, SIGTERM) are for the coordinator,
     * which then tells the stages what to do. If it dies, reading from it ends the stage. */
    static const int ignored[] = {SIGINT, SIGHUP, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)signal(ignored[i], SIG_IGN);
    return strait_stage_process_run(STDIN_FILENO, STDOUT_FILENO, NULL);
}

const strait_command strait_cmd_stage = {
    .name = "stage",
    .usage = "",
    .about = "Serves one stage of a run. Started by \"strait train\", never by hand.",
    .run = run_stage,
};
