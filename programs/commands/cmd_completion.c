/* cmd_completion.c - strait completion SHELL: completion scripts, generated from the tables of the
 * help. */
#include "base/options/options.h"
#include "commands.h"
#include "config/run.h"

#include <stdio.h>
#include <string.h>

static const char help_flag[] = "help", help_text[] = "show the help";

/* Prints the completions of the first word after the command, a space before each; none: a file. */
static void print_first_words(const strait_command *command) {
    for (const strait_action *action = command->actions; action != NULL && action->name != NULL;
         action++)
        printf(" %s", action->name);
    if (command->print_completions != NULL) command->print_completions(stdout);
}

/* Prints name, `ending` and text on one line, quoted for zsh and fish. */
static void print_quoted(const char *name, const char *ending, const char *text) {
    printf("'%s%s", name, ending);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text == '\n' ? ' ' : *text);
    }
    putchar('\'');
}

/* Prints one line of a case statement: the command's flags and the completions of its first word.
 */
static void print_bash_command(const strait_command *command) {
    printf("    %s) flags=\"--%s", command->name, help_flag);
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        printf(" --%s", flag->name);
    printf("\" first=\"");
    print_first_words(command);
    printf("\" ;;\n");
}

/* Keys come from the table of options, so a new option is completed without a change here. */
static void print_keys(void (*print)(const strait_option *key)) {
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++)
        print(&table->rows[i]);
}

/* The "=" is part of the word, since a value must follow. */
static void print_bash_key(const strait_option *key) {
    printf(" %s=", key->key);
}

/* bash has no descriptions: words are enough. Keys of --set end with "=", so no space follows. */
static strait_err print_bash(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_none("completion bash", n_args, args));
    printf("_strait() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local flags= first= words=\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        print_bash_command(strait_commands_at(i));
    printf("    esac\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        words=\"");
    strait_commands_print(stdout);
    printf("\"\n"
           "    elif [[ $before == --set || $before == -s ]]; then\n"
           "        words=\"");
    print_keys(print_bash_key);
    printf("\"\n"
           "        compopt +o filenames -o nospace 2>/dev/null\n"
           "    elif [[ $word == -* ]]; then\n"
           "        words=$flags\n"
           "    elif [ \"$COMP_CWORD\" -eq 2 ]; then\n"
           "        words=$first\n"
           "    fi\n"
           "    if [ -n \"$words\" ]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
           "    else\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "    fi\n"
           "}\n"
           "complete -o filenames -F _strait strait\n");
    return STRAIT_OK;
}

/* Prints "name:description"; zsh shows both. */
static void print_zsh_item(const char *name, const char *ending, const char *text) {
    printf(" ");
    print_quoted(name, ending, text);
}

/* Every command has --help, which no table lists. */
static void print_zsh_command(const strait_command *command) {
    char name[64];
    printf("    %s)\n        flags=(", command->name);
    (void)snprintf(name, sizeof name, "--%s", help_flag);
    print_zsh_item(name, ":", help_text);
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++) {
        (void)snprintf(name, sizeof name, "--%s", flag->name);
        print_zsh_item(name, ":", flag->help);
    }
    printf(")\n        first=(");
    print_first_words(command);
    printf(") ;;\n");
}

/* In zsh a colon separates a word from its description. */
static void print_zsh_key(const strait_option *key) {
    print_zsh_item(key->key, "=:", key->help);
}

/* Works both as a file that compinit finds and as a script that is sourced. */
static strait_err print_zsh(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_none("completion zsh", n_args, args));
    printf("#compdef strait\n_strait() {\n    local -a commands keys flags first\n    commands=(");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        print_zsh_item(strait_commands_at(i)->name, ":", strait_commands_at(i)->summary);
    printf(")\n    keys=(");
    print_keys(print_zsh_key);
    printf(")\n    case $words[2] in\n");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        print_zsh_command(strait_commands_at(i));
    printf("    esac\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "    elif [[ $words[CURRENT-1] == (--set|-s) ]]; then\n"
           "        _describe key keys -S ''\n"
           "    elif [[ $words[CURRENT] == -* ]]; then\n"
           "        _describe -o flag flags\n"
           "    elif (( CURRENT == 3 && $#first > 0 )); then\n"
           "        compadd -- $first\n"
           "    else\n"
           "        _files\n"
           "    fi\n"
           "}\n"
           "if [[ $funcstack[1] == _strait ]]; then\n" // a file that compinit found
           "    _strait \"$@\"\n"
           "else\n"
           "    compdef _strait strait\n"
           "fi\n");
    return STRAIT_OK;
}

static const char fish_in[] =
    "function __strait_in # COMMAND [N]: with N words before the one that is completed\n"
    "    set -l before (commandline -opc)\n"
    "    test \"$before[2]\" = $argv[1]\n"
    "    and begin\n"
    "        test -z \"$argv[2]\"\n"
    "        or test (count $before) -eq $argv[2]\n"
    "    end\n"
    "end\n";

/* Values of --set are keys of run files; other values may be files. */
static void print_fish_flag(const strait_command *command, const strait_flag *flag) {
    printf("complete -c strait -n '__strait_in %s' -l %s", command->name, flag->name);
    if (flag->letter != '\0') printf(" -s %c", flag->letter);
    if (strcmp(flag->name, "set") == 0)
        printf(" -x -a '(__strait_keys)'");
    else if (flag->kind != STRAIT_FLAG_SWITCH)
        printf(" -r");
    printf(" -d ");
    print_quoted("", "", flag->help);
    printf("\n");
}

/* fish asks for each word separately: commands, flags and the first argument are three rules. */
static void print_fish_command(const strait_command *command) {
    const strait_flag help = {help_flag, 'h', STRAIT_FLAG_SWITCH, NULL, NULL, help_text};
    printf("complete -c strait -n 'test (count (commandline -opc)) -eq 1' -f -a %s -d ",
           command->name);
    print_quoted("", "", command->summary);
    printf("\n");
    print_fish_flag(command, &help);
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        print_fish_flag(command, flag);
    if (command->actions == NULL && command->print_completions == NULL) return;
    printf("complete -c strait -n '__strait_in %s 2' -f -a '", command->name);
    print_first_words(command);
    printf("'\n");
}

/* A tab separates a word from its description in fish. */
static void print_fish_key(const strait_option *key) {
    printf(" \\\n        ");
    print_quoted(key->key, "=' '", key->help);
}

/* Keys are a function of their own, because they are many and most commands need them. */
static strait_err print_fish(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_none("completion fish", n_args, args));
    printf("%sfunction __strait_keys\n    printf '%%s\\t%%s\\n'", fish_in);
    print_keys(print_fish_key);
    printf("\nend\n");
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        print_fish_command(strait_commands_at(i));
    return STRAIT_OK;
}

static const strait_action actions[] = {
    {"bash", "", print_bash},
    {"zsh", "", print_zsh},
    {"fish", "", print_fish},
    {0},
};

const strait_command strait_cmd_completion = {
    .name = "completion",
    .summary = "print a script that completes commands, flags and keys",
    .about =
        "In bash: source <(strait completion bash). In zsh, after compinit: source\n"
        "<(strait completion zsh). In fish: strait completion fish | source. \"make install\"\n"
        "installs them where the shells look.",
    .actions = actions,
    .examples = (const strait_example[]){{"strait completion bash >>~/.bashrc",
                                          "Completes commands, flags and keys in bash."},
                                         {0}},
};
