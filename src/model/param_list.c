#include "model/param_list.h"

#include <assert.h>
#include <stdio.h>

int strait_param_list_is_product(strait_role role) {
    return role == STRAIT_ROLE_MATRIX || role == STRAIT_ROLE_RESIDUAL_OUT ||
           role == STRAIT_ROLE_HEAD;
}

/* strait_slab_add or strait_slab_add_adjacent. */
typedef strait_err (*plan_fn)(struct strait_slab *, strait_dtype, int64_t, int64_t,
                              strait_tensor *);

/* What strait_block_weight_grads adds: products, and the value tables of attention. The head's
 * gradient is computed with the loss, those of optional parts with the gradient of their input. */
static int is_deferred(const struct strait_param_list *list, strait_role role) {
    if (list->sums_grads || role == STRAIT_ROLE_HEAD) return 0;
    return strait_param_list_is_product(role) || role == STRAIT_ROLE_VALUES;
}

/* param->value has only a shape so far. Adjacent parameters are adjacent in all slabs: layers join
 * values, gradients and copies alike. */
static strait_err add_with(struct strait_param_list *list, plan_fn plan, const strait_param *param,
                           strait_param **out) {
    const strait_dtype precision = list->shape->precision;
    const int64_t rows = param->value.rows, cols = param->value.cols;
    /* The first product of a step can overwrite the gradient. */
    const int is_product = !list->sums_grads && strait_param_list_is_product(param->role);
    assert(list->n < list->capacity);
    strait_param *slot = &list->params[list->n++];
    *slot = *param;
    slot->is_deferred = is_deferred(list, param->role);
    STRAIT_TRY(plan(list->values, STRAIT_F32, rows, cols, &slot->value));
    if (list->is_training)
        STRAIT_TRY(
            plan(is_product ? list->grads : list->sums, STRAIT_F32, rows, cols, &slot->grad));
    /* With adapters, layers read a sum; all matrices have a copy then, because those that are
     * joined must lie side by side. */
    const int is_adapted = list->shape->lora_rank > 0 && list->block >= 0 && is_product;
    if (!strait_role_is_gain(param->role) && (precision != STRAIT_F32 || is_adapted))
        STRAIT_TRY(plan(list->copies, precision, rows, cols, &slot->compute));
    *out = slot;
    return STRAIT_OK;
}

/* A parameter without memory, under its full name. */
static strait_param describe(const struct strait_param_list *list, const char *name,
                             strait_role role, int64_t rows, int64_t cols) {
    strait_param param = {.role = role, .value = {.rows = rows, .cols = cols}};
    if (list->block < 0)
        (void)snprintf(param.name, sizeof param.name, "%s", name);
    else
        (void)snprintf(param.name, sizeof param.name, "blocks.%d.%s", list->block, name);
    return param;
}

strait_err strait_param_list_add(struct strait_param_list *list, const char *name, strait_role role,
                                 int64_t rows, int64_t cols, strait_param **out) {
    const strait_param param = describe(list, name, role, rows, cols);
    return add_with(list, strait_slab_add, &param, out);
}

strait_err strait_param_list_add_adjacent(struct strait_param_list *list, const char *name,
                                          strait_role role, int64_t rows, int64_t cols,
                                          strait_param **out) {
    const strait_param param = describe(list, name, role, rows, cols);
    return add_with(list, strait_slab_add_adjacent, &param, out);
}
