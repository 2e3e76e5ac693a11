#include "args.h"

#include "backend/backend.h"
#include "base/file.h"
#include "base/names.h"
#include "base/options/options.h"
#include "config/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXAMPLE_INDENT = 6,
    INDENT = 27, // of the descriptions in the help
    WIDTH = 80
};

static const char white[] = " \n";

static const strait_flag *find(const strait_flag *flags, const char *name, size_t length) {
    for (const strait_flag *flag = flags; flag != NULL && flag->name != NULL; flag++)
        if (strlen(flag->name) == length && strncmp(flag->name, name, length) == 0) return flag;
    return NULL;
}

/* Letters are optional; most flags have none. */
static const strait_flag *find_letter(const strait_flag *flags, char letter) {
    for (const strait_flag *flag = flags; flag != NULL && flag->name != NULL; flag++)
        if (flag->letter == letter) return flag;
    return NULL;
}

/* strtod accepts "nan" and "inf", which no flag means. */
static strait_err store_number(const strait_flag *flag, const char *text) {
    char *end = NULL;
    double real = 0.0;
    errno = 0;
    if (flag->kind == STRAIT_FLAG_INT)
        *(int64_t *)flag->value = strtoll(text, &end, 10);
    else
        *(double *)flag->value = real = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !isfinite(real))
        return STRAIT_FAIL(STRAIT_ECONFIG, "--%s: \"%s\" is not a %s", flag->name, text,
                           flag->kind == STRAIT_FLAG_INT ? "whole number" : "number");
    return STRAIT_OK;
}

/* Flags write through pointers of the command's table, so that a command needs no parsing of its
 * own. */
static strait_err store(const strait_flag *flag, const char *text) {
    switch (flag->kind) {
    case STRAIT_FLAG_SWITCH: *(int *)flag->value = 1; return STRAIT_OK;
    case STRAIT_FLAG_TEXT:
        if (text[0] == '\0' && strcmp(flag->unit, "TEXT") != 0) // usually an unset shell variable
            return STRAIT_FAIL(STRAIT_ECONFIG, "--%s: the value is empty, expected %s", flag->name,
                               flag->unit);
        *(const char **)flag->value = text;
        return STRAIT_OK;
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

/* The key of the run file that ends with `name`, for commands with --set: people type --steps for
 * --set train.steps. NULL: there is none. */
static const char *key_of(const strait_command *command, const char *name) {
    size_t length = 0;
    if (find(command->flags, "set", 3) == NULL) return NULL;
    const char *key = strait_options_nearest(strait_run_options(), name, &length);
    const char *dot = key != NULL ? strrchr(key, '.') : NULL;
    return dot != NULL && strcmp(dot + 1, name) == 0 ? key : NULL;
}

/* Suggests, in this order: the new name of a renamed flag, a key of the run file, a similar flag.
 */
static strait_err unknown(const strait_command *command, const char *word) {
    const char *name = word + strspn(word, "-");
    strait_nearest nearest = strait_names_nearest(name, strait_names_max_edits(name));
    const char *key = key_of(command, name);
    for (const strait_flag_rename *r = command->renames; r != NULL && r->old_name != NULL; r++)
        if (strcmp(r->old_name, name) == 0)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s: %s is now called --%s", command->name, word,
                               r->name);
    if (key != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: unknown flag %s; did you mean --set %s=VALUE?",
                           command->name, word, key);
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
        return STRAIT_FAIL(STRAIT_ECONFIG, "--%s needs a value: --%s %s", flag->name, flag->name,
                           flag->unit);
    return store(flag, argv[++*at]);
}

/* Arguments may be mixed with flags; "-" alone is an argument, since it means standard input. */
strait_err strait_args_parse(const strait_command *command, int argc, const char **argv,
                             int *n_args) {
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
    *n_args = n;
    return STRAIT_OK;
}

/* Explains which actions there are; `word` is empty if none was given. */
static strait_err refuse_action(const strait_command *command, const char *word) {
    char known[128] = "";
    strait_nearest nearest = strait_names_nearest(word, strait_names_max_edits(word));
    for (const strait_action *action = command->actions; action->name != NULL; action++) {
        strait_names_list(known, sizeof known, action->name, action[1].name == NULL);
        strait_names_try(&nearest, action->name, strlen(action->name));
    }
    if (word[0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s; \"strait help %s\" shows how",
                           command->name, known, command->name);
    if (nearest.name == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s, not \"%s\"", command->name, known,
                           word);
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected %s, not \"%s\"; did you mean %s?",
                       command->name, known, word, nearest.name);
}

/* The first word chooses the action; its own arguments follow. */
strait_err strait_args_run(const strait_command *command, int n_args, const char **args) {
    if (command->actions == NULL) return command->run(n_args, args);
    for (const strait_action *action = command->actions; action->name != NULL; action++)
        if (n_args > 0 && strcmp(action->name, args[0]) == 0)
            return action->run(n_args - 1, args + 1);
    return refuse_action(command, n_args > 0 ? args[0] : "");
}

/* A second word is usually a value without its flag, which the hint names. An empty one is usually
 * an unset variable of a shell. */
strait_err strait_args_expect_one(const strait_command *command, const char *what, const char *hint,
                                  int n_args, const char **args) {
    if (n_args == 0 && command->usage == NULL) // its actions have one each
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s needs one %s; \"strait help %s\" shows how",
                           command->name, what, command->name);
    if (n_args == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s needs one %s: strait %s %s", command->name, what,
                           command->name, command->usage);
    if (n_args > 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s needs one %s, but also got \"%s\"%s%s",
                           command->name, what, args[1], hint != NULL ? "; " : "",
                           hint != NULL ? hint : "");
    if (args[0][0] == '\0')
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s needs one %s, but its name is empty", command->name,
                           what);
    return STRAIT_OK;
}

/* Names the first superfluous word, which usually shows what was meant. */
strait_err strait_args_expect_none(const char *name, int n_args, const char **args) {
    if (n_args == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s takes no arguments, but got \"%s\"", name, args[0]);
}

/* Checked before hours of work, which a typing mistake must not cost. */
strait_err strait_args_check_output(const char *flag, const char *path) {
    char folder[STRAIT_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);
    STRAIT_TRY(strait_file_path(folder, "%.*s", n, path));
    if (n == 0) STRAIT_TRY(strait_file_path(folder, "."));
    if (strait_file_is_folder(path))
        return STRAIT_FAIL(STRAIT_EIO, "--%s %s: is a folder; name a file in it", flag, path);
    if (strait_file_exists(path) && !strait_file_is_regular(path))
        return STRAIT_FAIL(STRAIT_EIO, "--%s %s: is not a regular file and would be replaced", flag,
                           path);
    if (strait_file_is_folder(folder) && access(folder, W_OK) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO,
                       "--%s %s: folder %s does not exist or is not writable; create it first",
                       flag, path, folder);
}

strait_err strait_args_hint(strait_err err, const char *hint) {
    char detail[512]; // noting an error overwrites the detail of the previous one
    if (err == STRAIT_OK) return err;
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    return STRAIT_FAIL(err, "%s (%s)", detail, hint);
}

/* An override is given in full, or by its first 80 bytes. */
static int begins_with_set(const char *detail, const char *set) {
    const size_t all = strlen(set), n = all < 80 ? all : 80;
    return strncmp(detail, set, n) == 0 && (detail[n] == ':' || detail[n] == ',');
}

strait_err strait_args_name_set(strait_err err, const strait_flag_list *sets) {
    char detail[512];
    if (err == STRAIT_OK) return err;
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    for (int i = 0; i < sets->n; i++)
        if (begins_with_set(detail, sets->items[i])) return STRAIT_FAIL(err, "--set %s", detail);
    return err;
}

strait_err strait_args_check_threads(int64_t n) {
    if (n >= 0 && n <= 256) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "--threads %lld: expected 1 to 256", (long long)n);
}

strait_err strait_args_check_device(const char *name, int may_be_auto) {
    if (may_be_auto && strcmp(name, "auto") == 0) return STRAIT_OK;
    const strait_err err = strait_backend_check_name(name);
    if (err != STRAIT_OK) strait_err_prefix("--device");
    return may_be_auto ? strait_args_hint(err, "or auto: a GPU if there is one") : err;
}

/* A command with actions is used in as many ways as it has actions. */
int strait_args_usage(const strait_command *command, int i, strait_usage *out) {
    if (command->actions == NULL && i > 0) return 0;
    const strait_action *action = command->actions != NULL ? &command->actions[i] : NULL;
    if (action != NULL && action->name == NULL) return 0;
    (void)snprintf(out->name, sizeof out->name, "strait %s%s%s", command->name,
                   action != NULL ? " " : "", action != NULL ? action->name : "");
    out->rest = action != NULL ? action->usage : command->usage;
    return 1;
}

/* Errors of the library advise to change a run file. */
strait_err strait_args_device_advice(strait_err err) {
    static const char advice[] = "set device.kind to cpu";
    char text[512];
    (void)snprintf(text, sizeof text, "%s", strait_err_detail());
    char *at = err != STRAIT_OK ? strstr(text, advice) : NULL;
    if (at == NULL) return err;
    *at = '\0';
    return STRAIT_FAIL(err, "%suse --device cpu%s", text, at + sizeof advice - 1);
}

static int begin_line(int n_ends, int indent) {
    printf("%.*s%*s", n_ends, "\n\n", indent, "");
    return indent;
}

/* Fills text up to WIDTH columns, starting at column `indent` of the current line; later lines and
 * paragraphs are indented by the same. */
static void print_filled(const char *text, int indent) {
    int column = indent;
    while (*text != '\0') {
        const int n = (int)strcspn(text, white);
        const int is_full = column > indent && column + 1 + n > WIDTH;
        if (is_full) column = begin_line(1, indent);
        column += printf("%s%.*s", column > indent ? " " : "", n, text);
        text += n;
        if (strncmp(text, "\n\n", 2) == 0) column = begin_line(2, indent);
        text += strspn(text, white);
    }
    printf("\n");
}

/* A name that does not fit its column gets a line of its own. */
void strait_args_print_item(const char *name, const char *text) {
    printf("  %-*s", INDENT - 2, name);
    if (strlen(name) > INDENT - 3) (void)begin_line(1, INDENT);
    print_filled(text, INDENT);
}

static void print_flag(const strait_flag *flag) {
    char name[64];
    char letter[8] = "";
    if (flag->letter != 0) (void)snprintf(letter, sizeof letter, "-%c, ", flag->letter);
    (void)snprintf(name, sizeof name, "%s--%s%s%s", letter, flag->name,
                   flag->unit != NULL ? " " : "", flag->unit != NULL ? flag->unit : "");
    strait_args_print_item(name, flag->help);
}

void strait_args_help(const strait_command *command) {
    strait_usage usage;
    for (int i = 0; strait_args_usage(command, i, &usage); i++)
        printf("%s%s%s\n", usage.name, usage.rest[0] != '\0' ? " " : "", usage.rest);
    printf("\n");
    print_filled(command->about, 0);
    if (command->flags != NULL) printf("\nflags:\n");
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        print_flag(flag);
    if (command->examples != NULL) printf("\nexamples:\n");
    for (const strait_example *e = command->examples; e != NULL && e->line != NULL; e++) {
        printf("  %s\n      ", e->line);
        print_filled(e->text, EXAMPLE_INDENT);
    }
}
