#include "commands.h"

#include <string.h>

/* Set once by main. The table itself is in strait.c, so that the commands which list all commands
 * (help, manual, completion) do not depend on a file that depends on them. */
static const strait_command *const *table;
static int n_commands;

const strait_exit strait_exits[] = {
    {0, "success"},
    {2, "the command line or the run file is wrong"},
    {3, "data or a file is missing, damaged or not writable, or gradients stay non-finite"},
    {4, "a stage, a worker or a link was lost"},
    {5, "the device failed, or there is not enough memory"},
    {6, "refused: the key of the peer is unknown"},
    {130, "interrupted; a run was saved first"},
    {0},
};

/* The table stays where it is: it is constant. */
void strait_commands_set(const strait_command *const *commands, int n) {
    table = commands;
    n_commands = n;
}

const strait_command *strait_commands_find(const char *name) {
    for (int i = 0; i < n_commands; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

/* Internal commands have no summary and are last in the table, so the list ends before them. */
const strait_command *strait_commands_at(int i) {
    return i < n_commands && table[i]->summary != NULL ? table[i] : NULL;
}

void strait_commands_print(FILE *to) {
    for (int i = 0; strait_commands_at(i) != NULL; i++)
        fprintf(to, " %s", strait_commands_at(i)->name);
}
