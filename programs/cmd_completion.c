/* cmd_completion.c - strait completion bash: what a shell needs to complete our words. */
#include "base/options.h"
#include "commands.h"
#include "pipeline/run.h"

#include <stdio.h>

static void print_first_words(const strait_command *command) {
    for (const strait_action *action = command->actions; action != NULL && action->name != NULL;
         action++)
        printf(" %s", action->name);
    if (command->print_words != NULL) command->print_words(stdout);
}

/* One line of a case: the command's flags, and what its first word may be. */
static void print_command(const strait_command *command) {
    printf("    %s) flags=\"--help", command->name);
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        printf(" --%s", flag->name);
    printf("\" first=\"");
    print_first_words(command);
    printf("\" ;;\n");
}

static void print_keys(void) {
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++)
        printf(" %s=", table->rows[i].key);
}

static strait_err print_bash(int n_words, const char **words) {
    (void)n_words;
    (void)words;
    printf("_strait() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local flags= first= words=\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        print_command(strait_commands_at(i));
    printf("    esac\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        words=\"");
    strait_commands_print(stdout);
    printf("\"\n"
           "    elif [[ $before == --set || $before == -s ]]; then\n"
           "        words=\"");
    print_keys();
    printf("\"\n"
           "        compopt +o filenames -o nospace 2>/dev/null\n"
           "    elif [[ $word == -* ]]; then\n"
           "        words=$flags\n"
           "    elif [ \"$COMP_CWORD\" -eq 2 ]; then\n"
           "        words=$first\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    [ -n \"$words\" ] || COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "}\n"
           "complete -o filenames -F _strait strait\n");
    return STRAIT_OK;
}

static const strait_action actions[] = {
    {"bash", "", print_bash},
    {0},
};

const strait_command strait_cmd_completion = {
    .name = "completion",
    .summary = "print a script that completes commands, flags and keys",
    .about = "In a shell: source <(strait completion bash)",
    .actions = actions,
};
