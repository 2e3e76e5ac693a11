/* cmd_stage.c - strait stage: one stage of a run, started by its conductor. Not for people. */
#include "commands.h"
#include "stage/service.h"

#include <signal.h>
#include <unistd.h>

static strait_err run_stage(int n_words, const char **words) {
    (void)words;
    if (n_words != 0 || isatty(STDIN_FILENO))
        return STRAIT_FAIL(STRAIT_ECONFIG, "stages are started by \"strait train\"");
    /* Ctrl-C, a closed terminal and an end that a whole group is asked for are for the conductor,
     * who tells us; if it dies we read its end. */
    static const int ignored[] = {SIGINT, SIGHUP, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)signal(ignored[i], SIG_IGN);
    return strait_service_run(STDIN_FILENO, STDOUT_FILENO, NULL);
}

const strait_command strait_cmd_stage = {
    .name = "stage",
    .usage = "",
    .about = "Serves one stage of a run. Started by \"strait train\", never by hand.",
    .run = run_stage,
};
