/* cmd_completion.c - strait completion bash: what a shell needs to complete our words. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void print_flags(const strait_command *command) {
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        printf(" --%s", flag->name);
}

static void print_bash(void) {
    printf("_strait() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"help version");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        if (strait_commands_at(i)->summary != NULL) printf(" %s", strait_commands_at(i)->name);
    printf("\"\n    else\n        case ${COMP_WORDS[1]} in\n");
    for (int i = 0; strait_commands_at(i) != NULL; i++) {
        if (strait_commands_at(i)->summary == NULL) continue; // not for people
        printf("        %s) words=\"--help", strait_commands_at(i)->name);
        print_flags(strait_commands_at(i));
        printf("\" ;;\n");
    }
    printf("        esac\n"
           "        [[ $word == -* ]] || words=\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    [ \"$COMP_CWORD\" -gt 1 ] && [ -z \"$words\" ] && "
           "COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "}\n"
           "complete -o filenames -F _strait strait\n");
}

static strait_err run_completion(int n_words, const char **words) {
    if (n_words != 1 || strcmp(words[0], "bash") != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "completion knows one shell: strait completion bash");
    print_bash();
    return STRAIT_OK;
}

const strait_command strait_cmd_completion = {
    .name = "completion",
    .usage = "bash",
    .summary = "print a script that completes commands and flags",
    .about = "In a shell: source <(strait completion bash)",
    .run = run_completion,
};
