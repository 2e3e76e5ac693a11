#include "config/run_changes.h"

#include <string.h>

void strait_run_compare(const strait_run *a, const strait_run *b, strait_run_difference visit,
                        void *user) {
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++) {
        char ours[STRAIT_OPTION_TEXT_MAX], theirs[STRAIT_OPTION_TEXT_MAX];
        if (strcmp(table->rows[i].key, "name") == 0) continue;
        strait_options_show(&table->rows[i], a, ours);
        strait_options_show(&table->rows[i], b, theirs);
        if (strcmp(ours, theirs) == 0) continue;
        visit(user, table->rows[i].key, ours, theirs, !a->is_given[i] && !b->is_given[i]);
    }
}
