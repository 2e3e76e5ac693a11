/* cmd_manual.c - strait manual: manual pages, generated from the tables of the help. */
#include "base/file.h"
#include "base/options/options.h"
#include "commands.h"
#include "config/run.h"
#include "option_text.h"
#include "roff.h"

#include <stdio.h>
#include <string.h>

/* Set by --out; NULL prints one page. */
static const char *out;

static const strait_flag flags[] = {
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "DIR",
     "write all pages: DIR/man1/strait.1, DIR/man1/strait-train.1 and so on"},
    {0},
};

static const char run_page[] = "run"; // the page about run files, which is not a command

/* A flag as an item: "-o, --out DIR" and its help below. */
static void put_flag(strait_roff *page, const strait_flag *flag) {
    char text[64];
    strait_roff_item(page);
    if (flag->letter != 0) {
        (void)snprintf(text, sizeof text, "-%c,", flag->letter);
        strait_roff_typed(page, text);
    }
    (void)snprintf(text, sizeof text, "--%s", flag->name);
    strait_roff_typed(page, text);
    if (flag->unit != NULL) strait_roff_usage(page, flag->unit);
    strait_roff_end(page);
    strait_roff_text(page, flag->help);
}

/* A reference to another page, as man writes it: "strait-train(1),". */
static void put_reference(strait_roff *page, const char *name, int section, int is_last) {
    char text[64];
    (void)snprintf(text, sizeof text, "strait%s%s(%d)%s", name[0] != '\0' ? "-" : "", name, section,
                   is_last ? "" : ",");
    strait_roff_text(page, text);
}

/* A line to type, with what it does below. */
static void put_example(strait_roff *page, const strait_example *example) {
    strait_roff_item(page);
    strait_roff_typed(page, example->line);
    strait_roff_end(page);
    strait_roff_text(page, example->text);
}

/* Scripts rely on exit codes, which are the same for all commands. */
static void put_exits(strait_roff *page) {
    char code[16];
    strait_roff_heading(page, "EXIT STATUS");
    for (const strait_exit *exit = strait_exits; exit->means != NULL; exit++) {
        strait_roff_item(page);
        (void)snprintf(code, sizeof code, "%d", exit->code);
        strait_roff_typed(page, code);
        strait_roff_end(page);
        strait_roff_text(page, exit->means);
    }
}

/* The page of a command, from the same table as its help. */
static void put_command(strait_roff *page, const strait_command *command) {
    char name[64];
    strait_usage usage;
    (void)snprintf(name, sizeof name, "strait-%s", command->name);
    strait_roff_title(page, name, 1, command->summary);
    strait_roff_heading(page, "SYNOPSIS");
    for (int i = 0; strait_args_usage(command, i, &usage); i++) {
        if (i > 0) strait_roff_break(page);
        strait_roff_typed(page, usage.name);
        strait_roff_usage(page, usage.rest);
    }
    strait_roff_heading(page, "DESCRIPTION");
    strait_roff_text(page, command->about);
    if (command->flags != NULL) strait_roff_heading(page, "OPTIONS");
    for (const strait_flag *flag = command->flags; flag != NULL && flag->name != NULL; flag++)
        put_flag(page, flag);
    if (command->examples != NULL) strait_roff_heading(page, "EXAMPLES");
    for (const strait_example *e = command->examples; e != NULL && e->line != NULL; e++)
        put_example(page, e);
    put_exits(page);
    strait_roff_heading(page, "SEE ALSO");
    put_reference(page, "", 1, 0);
    put_reference(page, run_page, 5, 1);
    strait_roff_end(page);
}

/* Lists the same commands as "strait help", from the same table. */
static void put_overview(strait_roff *page) {
    const strait_command *command = NULL;
    strait_roff_title(page, "strait", 1, "train transformers across slow links");
    strait_roff_heading(page, "SYNOPSIS");
    strait_roff_typed(page, "strait");
    strait_roff_usage(page, "COMMAND ...");
    strait_roff_heading(page, "DESCRIPTION");
    strait_roff_text(page, strait_help_about);
    strait_roff_text(page, "Each command has a page of its own.");
    strait_roff_paragraph(page);
    strait_roff_text(page, strait_help_first);
    strait_roff_heading(page, "COMMANDS");
    for (int i = 0; (command = strait_commands_at(i)) != NULL; i++) {
        strait_roff_item(page);
        put_reference(page, command->name, 1, 1);
        strait_roff_end(page);
        strait_roff_text(page, command->summary);
    }
    put_exits(page);
    strait_roff_heading(page, "SEE ALSO");
    put_reference(page, run_page, 5, 1);
    strait_roff_end(page);
}

/* A key of the run file: its help, its range and its default. */
static void put_key(strait_roff *page, const strait_options *table, const strait_option *option) {
    char value[STRAIT_OPTION_VALUE_MAX];
    strait_cmd_options_value(table, option, value);
    strait_roff_item(page);
    strait_roff_typed(page, option->key);
    strait_roff_end(page);
    strait_roff_text(page, option->help);
    strait_roff_break(page);
    strait_roff_text(page, value);
}

/* Section 5 of the manual is for file formats. */
static void put_run_file(strait_roff *page) {
    const strait_options *table = strait_run_options();
    strait_roff_title(page, "strait-run", 5, "the keys of a run file");
    strait_roff_heading(page, "DESCRIPTION");
    strait_roff_text(page,
                     "A run file is YAML. A key such as train.steps is written as steps in the "
                     "section train, or given as --set train.steps=N.");
    strait_roff_heading(page, "KEYS");
    for (int i = 0; i < table->n_rows; i++)
        put_key(page, table, &table->rows[i]);
    strait_roff_heading(page, "SEE ALSO");
    put_reference(page, strait_cmd_options.name, 1, 0);
    put_reference(page, strait_cmd_train.name, 1, 1);
    strait_roff_end(page);
}

/* Prints a page by its name after "strait-"; "" is the overview. */
static strait_err put_page(FILE *to, const char *name) {
    strait_roff page = {.to = to};
    const strait_command *command = NULL;
    if (name[0] == '\0') {
        put_overview(&page);
    } else if (strcmp(name, run_page) == 0) {
        put_run_file(&page);
    } else {
        STRAIT_TRY(strait_help_find(name, &command));
        if (command->summary == NULL)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s has no manual page: it is an internal command",
                               name);
        put_command(&page, command);
    }
    return STRAIT_OK;
}

/* Reports a full disk, too: a page that is cut short must not be installed. */
static strait_err write_page(const char *name, int section) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/man%d", out, section));
    STRAIT_TRY(strait_file_make_folders(path));
    STRAIT_TRY(strait_file_path(path, "%s/man%d/strait%s%s.%d", out, section,
                                name[0] != '\0' ? "-" : "", name, section));
    FILE *file = fopen(path, "we");
    if (file == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: not writable", path);
    const strait_err err = put_page(file, name);
    const strait_err ended = strait_file_finish(&file, path);
    return err != STRAIT_OK ? err : ended;
}

/* Without --out one page goes to standard output, which man can show without installing it. */
static strait_err run_manual(int n_args, const char **args) {
    if (n_args > 1 || (n_args == 1 && out != NULL))
        return STRAIT_FAIL(STRAIT_ECONFIG, "manual needs one command, or --out DIR for all pages");
    if (out == NULL) return put_page(stdout, n_args == 1 ? args[0] : "");
    STRAIT_TRY(write_page("", 1));
    STRAIT_TRY(write_page(run_page, 5));
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        STRAIT_TRY(write_page(strait_commands_at(i)->name, 1));
    return STRAIT_OK;
}

/* "run" is a page but not a command. */
static void print_pages(FILE *to) {
    strait_commands_print(to);
    fprintf(to, " %s", run_page);
}

const strait_command strait_cmd_manual = {
    .name = "manual",
    .usage = "[COMMAND | run] [flags]",
    .summary = "print a manual page: strait manual train | man -l -",
    .about =
        "Prints the page of a command, of run files (run), or of the program, for man to show.\n"
        "\"make install\" installs all pages: man strait-train.",
    .flags = flags,
    .run = run_manual,
    .print_completions = print_pages,
    .examples = (const strait_example[]){{"strait manual train | man -l -",
                                          "Shows the page of a command without installing it."},
                                         {"strait manual --out /usr/local/share/man",
                                          "Writes all pages."},
                                         {0}},
};
