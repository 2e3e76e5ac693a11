/* parts.c - walks over the table of optional parts (parts.def).
 *
 * Every function asks each row in the order of the table: that order is the order in which parts
 * are applied at one place, and in which their weights are drawn, so it must not change. */
#include "model/parts/parts.h"

#include <assert.h>

struct row {
    const struct strait_part_ops *ops;
    strait_part_place place;
};

#define PART(name, place, members) {&strait_part_##name, STRAIT_PART_##place},
static const struct row rows[] = {
#include "model/parts/parts.def"
};

strait_part_set strait_parts_of_block(const strait_shape *shape, int i) {
    strait_part_set set;
    for (int p = 0; p < STRAIT_PARTS; p++)
        set.has[p] = rows[p].ops->is_in_block(shape, i);
    return set;
}

/* A part may be in some blocks only, for example in the first of each stage. */
static int is_in_model(const struct row *row, const strait_shape *shape) {
    for (int i = 0; i < shape->layers; i++)
        if (row->ops->is_in_block(shape, i)) return 1;
    return 0;
}

const char *strait_parts_option(const strait_shape *shape) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (is_in_model(&rows[p], shape)) return rows[p].ops->option;
    return NULL;
}

/* Token tables come first: without them, convolutions of the stream may be the next obstacle. */
const char *strait_parts_remedy(const strait_shape *shape) {
    if (shape->has_token_tables) return "set model.anchors to false, or choose another codec";
    return "set model.inner_conv to true, which leaves the convolutions inside attention and MLP, "
           "or "
           "choose another codec";
}

int strait_parts_read_tokens(const strait_shape *shape) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (rows[p].ops->reads_tokens && is_in_model(&rows[p], shape)) return 1;
    return 0;
}

int strait_parts_need_scratch(const strait_shape *shape) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (rows[p].ops->needs_scratch && is_in_model(&rows[p], shape)) return 1;
    return 0;
}

int strait_parts_are_at(const strait_shape *shape, strait_part_place place) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (rows[p].place == place && is_in_model(&rows[p], shape)) return 1;
    return 0;
}

strait_err strait_parts_require(const strait_shape *shape, const struct strait_backend *backend) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (is_in_model(&rows[p], shape))
            STRAIT_TRY(strait_backend_require(backend, rows[p].ops->needs, rows[p].ops->option));
    return STRAIT_OK;
}

/* With is_product only matrices that multiply every token count: FLOPs follow from those. */
int64_t strait_parts_count(const strait_shape *shape, int i, int is_product) {
    strait_part_param params[STRAIT_PART_PARAMS];
    int64_t sum = 0;
    for (int p = 0; p < STRAIT_PARTS; p++) {
        const int n = rows[p].ops->is_in_block(shape, i) ? rows[p].ops->params(shape, params) : 0;
        for (int k = 0; k < n; k++)
            if (!is_product || strait_param_list_is_product(params[k].role))
                sum += params[k].rows * params[k].cols;
    }
    return sum;
}

static strait_err add_params(struct strait_param_list *list, const struct strait_part_ops *ops,
                             strait_part *part) {
    strait_part_param params[STRAIT_PART_PARAMS];
    const int n = ops->params(list->shape, params);
    assert(n <= STRAIT_PART_PARAMS);
    part->is_present = 1;
    for (int k = 0; k < n; k++)
        STRAIT_TRY(strait_param_list_add(list, params[k].name, params[k].role, params[k].rows,
                                         params[k].cols, &part->params[k]));
    return STRAIT_OK;
}

strait_err strait_parts_add_params(struct strait_param_list *list, strait_part_place place,
                                   strait_part *parts) {
    strait_err err = STRAIT_OK;
    /* Parts compute gradients in backward, which a schedule may run for several microbatches before
     * the first deferred product: theirs are always added to. */
    list->sums_grads = 1;
    for (int p = 0; p < STRAIT_PARTS && err == STRAIT_OK; p++)
        if (rows[p].place == place && rows[p].ops->is_in_block(list->shape, list->block))
            err = add_params(list, rows[p].ops, &parts[p]);
    list->sums_grads = 0;
    return err;
}

strait_err strait_parts_plan_acts(const strait_shape *shape, strait_part_place place,
                                  const strait_part_set *set, int64_t n, struct strait_slab *slab,
                                  strait_part_acts *acts) {
    for (int p = 0; p < STRAIT_PARTS; p++) {
        const struct strait_part_ops *ops = rows[p].ops;
        if (rows[p].place != place || !set->has[p]) continue;
        if (ops->keeps_input)
            STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &acts[p].input));
        if (ops->plan_acts != NULL) STRAIT_TRY(ops->plan_acts(shape, n, slab, &acts[p]));
    }
    return STRAIT_OK;
}

strait_err strait_parts_plan_pasts(const strait_shape *shape, const strait_part_set *set,
                                   int64_t n_sequences, struct strait_slab *slab,
                                   strait_tensor *pasts) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (set->has[p] && rows[p].ops->past_rows != NULL)
            STRAIT_TRY(strait_layer_plan_acts(
                shape, slab, n_sequences * rows[p].ops->past_rows(shape), shape->width, &pasts[p]));
    return STRAIT_OK;
}

void strait_parts_copy_acts(strait_part_place place, strait_part_acts *to,
                            const strait_part_acts *from) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (rows[p].place == place) to[p] = from[p];
}

/* The first part from `first` on that is at this place and keeps its input; STRAIT_PARTS: none. */
static int next_keeper(strait_part_place place, const strait_part *parts, int first) {
    int p = first;
    while (p < STRAIT_PARTS &&
           !(parts[p].is_present && rows[p].place == place && rows[p].ops->keeps_input))
        p++;
    return p;
}

int strait_parts_are_present(strait_part_place place, const strait_part *parts) {
    for (int p = 0; p < STRAIT_PARTS; p++)
        if (parts[p].is_present && rows[p].place == place) return 1;
    return 0;
}

strait_tensor *strait_parts_kept_input(strait_part_place place, const strait_part *parts,
                                       strait_part_acts *acts) {
    const int p = next_keeper(place, parts, 0);
    return p < STRAIT_PARTS ? &acts[p].input : NULL;
}

/* The input of the part at index p, or the output of those before it. */
static strait_tensor tensor_before(strait_part_place place, const strait_part *parts,
                                   const strait_part_acts *acts, strait_tensor output, int p) {
    /* Parts that keep nothing work in place, on the input of the next one that does. */
    const int next = next_keeper(place, parts, p);
    return next < STRAIT_PARTS ? acts[next].input : output;
}

strait_tensor strait_parts_input(strait_part_place place, const strait_part *parts,
                                 const strait_part_acts *acts, strait_tensor output) {
    return tensor_before(place, parts, acts, output, 0);
}

/* The parts from number `first` on. */
static strait_err forward_from(const strait_work *work, strait_part_place place,
                               const strait_part *parts, const strait_part_acts *acts,
                               strait_tensor output, int first) {
    for (int p = first; p < STRAIT_PARTS; p++) {
        if (rows[p].place != place || !parts[p].is_present) continue;
        const strait_tensor x = tensor_before(place, parts, acts, output, p);
        const strait_tensor y = tensor_before(place, parts, acts, output, p + 1);
        STRAIT_TRY(rows[p].ops->forward(work, &parts[p], &acts[p], y, x));
    }
    return STRAIT_OK;
}

strait_err strait_parts_forward(const strait_work *work, strait_part_place place,
                                const strait_part *parts, const strait_part_acts *acts,
                                strait_tensor output) {
    return forward_from(work, place, parts, acts, output, 0);
}

strait_err strait_parts_forward_sum(const strait_work *work, strait_part_place place,
                                    const strait_part *parts, const strait_part_acts *acts,
                                    strait_tensor output, strait_tensor x, strait_tensor delta) {
    int p = 0;
    while (rows[p].place != place || !parts[p].is_present)
        p++;
    const strait_tensor sum = tensor_before(place, parts, acts, output, p);
    if (rows[p].ops->forward_sum != NULL) {
        STRAIT_TRY(rows[p].ops->forward_sum(work, &parts[p], sum, x, delta));
        return forward_from(work, place, parts, acts, output, p + 1);
    }
    STRAIT_TRY(work->kernels->add(work->stream, sum, x, delta));
    return forward_from(work, place, parts, acts, output, p);
}

strait_err strait_parts_backward(const strait_work *work, strait_part_place place,
                                 const strait_part *parts, const strait_part_acts *acts,
                                 strait_tensor d, strait_tensor scratch) {
    strait_work adding = *work;
    adding.overwrites_grads = 0; // see strait_parts_add_params
    for (int p = STRAIT_PARTS - 1; p >= 0; p--)
        if (rows[p].place == place && parts[p].is_present)
            STRAIT_TRY(rows[p].ops->backward(&adding, &parts[p], &acts[p], d, scratch));
    return STRAIT_OK;
}
