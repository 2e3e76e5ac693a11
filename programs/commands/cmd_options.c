/* cmd_options.c - strait options [SECTION]: prints the keys of run files. */
#include "base/options/options.h"
#include "commands.h"
#include "config/run.h"
#include "option_text.h"

#include <stdio.h>
#include <string.h>

static int is_markdown;

static const strait_flag flags[] = {
    {"markdown", 0, STRAIT_FLAG_SWITCH, &is_markdown, NULL,
     "print the tables of docs/run-file.md (tools/update-run-file-docs)"},
    {0},
};

/* The length of the name of a key's top section; of the whole key if it has none. */
static size_t section_length(const char *key) {
    return strcspn(key, ".");
}

/* Whether a key is `section` itself or a key of that section, such as "link" or "link.codec". */
static int is_in(const char *key, const char *section) {
    if (section == NULL) return 1;
    const size_t length = strlen(section);
    return strncmp(key, section, length) == 0 && (key[length] == '.' || key[length] == '\0');
}

/* Keys without a section, such as name, come first and have no heading. */
static int starts_section(const strait_options *table, int i) {
    const size_t length = section_length(table->rows[i].key);
    if (table->rows[i].key[length] == '\0') return 0;
    return i == 0 || strncmp(table->rows[i].key, table->rows[i - 1].key, length + 1) != 0;
}

/* Shared with the manual page, so that both say the same. */
void strait_cmd_options_value(const strait_options *table, const strait_option *option,
                              char out[STRAIT_OPTION_VALUE_MAX]) {
    char what[STRAIT_OPTION_TEXT_MAX];
    char initial[STRAIT_OPTION_TEXT_MAX];
    strait_options_describe(option, what);
    strait_options_describe_default(table, option, initial);
    (void)snprintf(out, STRAIT_OPTION_VALUE_MAX, "%s%s%s", what,
                   initial[0] != '\0' ? "; default " : "", initial);
}

/* Sections are separated by headings, because the keys repeat their names anyway. */
static void print_plain(const strait_options *table, int i) {
    const strait_option *option = &table->rows[i];
    char value[STRAIT_OPTION_VALUE_MAX];
    strait_cmd_options_value(table, option, value);
    if (starts_section(table, i))
        printf("\n%.*s:\n", (int)section_length(option->key), option->key);
    strait_args_print_item(option->key, option->help);
    strait_args_print_item("", value);
}

/* docs/run-file.md contains this output; a test compares them. */
static void print_markdown(const strait_options *table, int i) {
    const strait_option *option = &table->rows[i];
    char what[STRAIT_OPTION_TEXT_MAX];
    char initial[STRAIT_OPTION_TEXT_MAX];
    strait_options_describe(option, what);
    strait_options_describe_default(table, option, initial);
    if (starts_section(table, i))
        printf("\n### %.*s\n", (int)section_length(option->key), option->key);
    if (i == 0 || starts_section(table, i))
        printf("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
    printf("| `%s` | %s | %s | %s |\n", option->key, what, initial, option->help);
}

/* Old names are listed for readers of old run files, which are refused with the new name. */
static void print_renames(const strait_options *table) {
    printf("\n### Renamed keys\n\n| old key | new key |\n| --- | --- |\n");
    for (int i = 0; i < table->n_renames; i++)
        printf("| `%s` | `%s` |\n", table->renames[i].old_key, table->renames[i].key);
}

/* For the completion of shells. */
static void print_sections(FILE *to) {
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++)
        if (starts_section(table, i))
            fprintf(to, " %.*s", (int)section_length(table->rows[i].key), table->rows[i].key);
}

/* The argument may be a section or a key, so both are searched for a similar name. */
static strait_err refuse_section(const strait_options *table, const char *section) {
    size_t length = 0;
    const char *renamed = strait_options_renamed(table, section);
    if (renamed != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "options: %s was renamed: use %s", section, renamed);
    const char *nearest = strait_options_nearest(table, section, &length);
    if (nearest == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "options: no section or key \"%s\"; \"strait options\" lists all",
                           section);
    return STRAIT_FAIL(STRAIT_ECONFIG, "options: no section or key \"%s\"; did you mean %.*s?",
                       section, (int)length, nearest);
}

/* Nothing printed means that the section does not exist. */
static strait_err run(int n_args, const char **args) {
    const strait_options *table = strait_run_options();
    if (n_args > 1) return STRAIT_FAIL(STRAIT_ECONFIG, "options: expected one section at most");
    const char *section = n_args == 1 ? args[0] : NULL;
    int n = 0;
    for (int i = 0; i < table->n_rows; i++) {
        if (!is_in(table->rows[i].key, section)) continue;
        if (is_markdown)
            print_markdown(table, i);
        else
            print_plain(table, i);
        n++;
    }
    if (is_markdown && section == NULL) print_renames(table);
    return n > 0 ? STRAIT_OK : refuse_section(table, section);
}

const strait_command strait_cmd_options = {
    .name = "options",
    .usage = "[SECTION]",
    .summary = "every key of a run file, with bounds and default",
    .about = "Prints every key that a run file or --set may give, with what it may be, what it is "
             "by\ndefault and what it does; or those of one section, such as train or link.codec.",
    .flags = flags,
    .run = run,
    .print_completions = print_sections,
    .examples = (const strait_example[]){{"strait options train",
                                          "Lists the keys of the section train."},
                                         {0}},
};
