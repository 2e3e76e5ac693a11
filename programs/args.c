#include "args.h"

#include "backend/backend.h"
#include "base/file.h"
#include "base/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const strait_flag *find(const strait_flag *flags, const char *name, size_t length) {
    for (const strait_flag *flag = flags; flag != NULL && flag->name != NULL; flag++)
        if (strlen(flag->name) == length && strncmp(flag->name, name, length) == 0) return flag;
    return NULL;
}

static const strait_flag *find_letter(const strait_flag *flags, char letter) {
    for (const strait_flag *flag = flags; flag != NULL && flag->name != NULL; flag++)
        if (flag->letter == letter) return flag;
    return NULL;
}

static strait_err store_number(const strait_flag *flag, const char *text) {
    char *end = NULL;
    errno = 0;
    if (flag->kind == STRAIT_FLAG_INT)
        *(int64_t *)flag->value = strtoll(text, &end, 10);
    else
        *(double *)flag->value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "--%s: \"%s\" is not a %s", flag->name, text,
                           flag->kind == STRAIT_FLAG_INT ? "whole number" : "number");
    return STRAIT_OK;
}

static strait_err store(const strait_flag *flag, const char *text) {
    switch (flag->kind) {
    case STRAIT_FLAG_SWITCH: *(int *)flag->value = 1; return STRAIT_OK;
    case STRAIT_FLAG_TEXT: *(const char **)flag->value = text; return STRAIT_OK;
    case STRAIT_FLAG_INT:
    case STRAIT_FLAG_REAL: return store_number(flag, text);
    case STRAIT_FLAG_LIST: break;
    }
    strait_flag_list *list = flag->value;
    if (list->n == STRAIT_FLAG_LIST_MAX)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--%s is given more than %d times", flag->name,
                           STRAIT_FLAG_LIST_MAX);
    list->items[list->n++] = text;
    return STRAIT_OK;
}

static strait_err unknown(const strait_command *command, const char *word) {
    const char *name = word + strspn(word, "-");
    strait_nearest nearest = strait_names_nearest(name, strlen(name) > 1 ? STRAIT_NAMES_SLIPS : -1);
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        strait_names_try(&nearest, flag->name, strlen(flag->name));
    if (nearest.name != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: unknown flag %s; did you mean --%s?", command->name,
                           word, nearest.name);
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s: unknown flag %s; \"strait help %s\" lists them",
                       command->name, word, command->name);
}

/* Takes the flag at argv[*at] and its value, and moves *at to the last word it used. */
static strait_err take_flag(const strait_command *command, int argc, const char **argv, int *at) {
    const char *word = argv[*at];
    const char *equals = NULL;
    const strait_flag *flag = NULL;
    if (word[1] == '-') {
        equals = strchr(word, '=');
        flag = find(command->flags, word + 2,
                    equals != NULL ? (size_t)(equals - word - 2) : strlen(word + 2));
    } else if (word[2] == '\0') {
        flag = find_letter(command->flags, word[1]);
    }
    if (flag == NULL) return unknown(command, word);
    if (flag->kind == STRAIT_FLAG_SWITCH) {
        if (equals != NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "--%s takes no value", flag->name);
        return store(flag, NULL);
    }
    if (equals != NULL) return store(flag, equals + 1);
    if (*at + 1 >= argc)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--%s wants a value: --%s %s", flag->name, flag->name,
                           flag->unit);
    return store(flag, argv[++*at]);
}

strait_err strait_args_parse(const strait_command *command, int argc, const char **argv,
                             int *n_words) {
    int n = 0;
    int is_over = 0;
    for (int i = 0; i < argc; i++) {
        if (!is_over && strcmp(argv[i], "--") == 0) {
            is_over = 1;
        } else if (!is_over && argv[i][0] == '-' && argv[i][1] != '\0') {
            STRAIT_TRY(take_flag(command, argc, argv, &i));
        } else {
            argv[n++] = argv[i];
        }
    }
    *n_words = n;
    return STRAIT_OK;
}

static strait_err refuse_action(const strait_command *command, const char *word) {
    char known[128] = "";
    strait_nearest nearest = strait_names_nearest(word != NULL ? word : "", STRAIT_NAMES_SLIPS);
    for (const strait_action *action = command->actions; action->name != NULL; action++) {
        strait_names_list(known, sizeof known, action->name, action[1].name == NULL);
        strait_names_try(&nearest, action->name, strlen(action->name));
    }
    if (word == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s; \"strait help %s\" shows how",
                           command->name, known, command->name);
    if (nearest.name == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s, not \"%s\"", command->name, known,
                           word);
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s, not \"%s\"; did you mean %s?",
                       command->name, known, word, nearest.name);
}

strait_err strait_args_run(const strait_command *command, int n_words, const char **words) {
    if (command->actions == NULL) return command->run(n_words, words);
    for (const strait_action *action = command->actions; action->name != NULL; action++)
        if (n_words > 0 && strcmp(action->name, words[0]) == 0)
            return action->run(n_words - 1, words + 1);
    return refuse_action(command, n_words > 0 ? words[0] : NULL);
}

strait_err strait_args_check_output(const char *flag, const char *path) {
    char folder[STRAIT_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);
    STRAIT_TRY(strait_file_path(folder, "%.*s", n, path));
    if (n == 0) STRAIT_TRY(strait_file_path(folder, "."));
    if (strait_file_is_folder(folder) && access(folder, W_OK) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "--%s %s: %s is no folder that can be written to; make it first",
                       flag, path, folder);
}

strait_err strait_args_check_device(const char *name) {
    const strait_err err = strait_backend_check_name(name);
    if (err != STRAIT_OK) strait_err_prefix("--device");
    return err;
}

int strait_args_usage(const strait_command *command, int i, strait_usage *out) {
    if (command->actions == NULL && i > 0) return 0;
    const strait_action *action = command->actions != NULL ? &command->actions[i] : NULL;
    if (action != NULL && action->name == NULL) return 0;
    (void)snprintf(out->name, sizeof out->name, "strait %s%s%s", command->name,
                   action != NULL ? " " : "", action != NULL ? action->name : "");
    out->rest = action != NULL ? action->usage : command->usage;
    return 1;
}

void strait_args_help(const strait_command *command) {
    strait_usage usage;
    for (int i = 0; strait_args_usage(command, i, &usage); i++)
        printf("%s%s%s\n", usage.name, usage.rest[0] != '\0' ? " " : "", usage.rest);
    printf("\n%s\n", command->about);
    if (command->flags == NULL) return;
    printf("\nflags:\n");
    for (const strait_flag *flag = command->flags; flag->name != NULL; flag++) {
        char left[64];
        char letter[8] = "";
        if (flag->letter != 0) (void)snprintf(letter, sizeof letter, "-%c, ", flag->letter);
        (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, flag->name,
                       flag->unit != NULL ? " " : "", flag->unit != NULL ? flag->unit : "");
        printf("  %-24s %s\n", left, flag->help);
    }
}
