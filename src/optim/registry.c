#include "optim/optimizer_ops.h"

#include <string.h>

/* Name in run files, and suffix of the table's symbol. One line per optimizer: the options table
 * takes the choices of train.optimizer from this list, so new ones go to the end. */
#define OPTIMIZERS(X)           \
    X("adamw", adamw)           \
    X("adamw-rows", adamw_rows) \
    X("muon", muon)

#define DECLARE(text, symbol) extern const struct strait_optimizer_ops strait_optimizer_##symbol;
#define TABLE(text, symbol)   &strait_optimizer_##symbol,
#define NAME(text, symbol)    text,

OPTIMIZERS(DECLARE)

const struct strait_optimizer_ops *const strait_optimizers[] = {OPTIMIZERS(TABLE) NULL};
const char *const strait_optimizer_names[] = {OPTIMIZERS(NAME) NULL};

const struct strait_optimizer_ops *strait_optimizer_find(const char *name) {
    for (int i = 0; strait_optimizers[i] != NULL; i++)
        if (strcmp(strait_optimizers[i]->name, name) == 0) return strait_optimizers[i];
    return NULL;
}

/* Most optimizers use one learning rate for all roles; Muon needs another for tables. */
double strait_optimizer_default_learning_rate(const struct strait_optimizer_ops *ops,
                                              strait_role role, double matrix, double embedding) {
    if (ops->default_learning_rate == NULL) return matrix;
    return ops->default_learning_rate(role, matrix, embedding);
}
