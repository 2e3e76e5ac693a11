/* token_table.c - adds a row of a table to the residual stream, chosen by the token id (the option
 * model.anchors): later stages see the token itself, whatever a compressed boundary lost of it.
 *
 * Blocks with local parts have one (strait_shape_has_local), except block 0, whose stream is the
 * embedding already. A table starts as a copy of the embedding's first values. */
#include "model/parts/part.h"

enum {
    TABLE // [rows x D]: strait_shape_table_rows
};

static int is_in_block(const strait_shape *s, int i) {
    return s->has_token_tables && i > 0 && strait_shape_has_local(s, i);
}

static int params(const strait_shape *s, strait_part_param *out) {
    out[TABLE] = (strait_part_param){"anchor", STRAIT_ROLE_TOKEN_TABLE, strait_shape_table_rows(s),
                                     s->width};
    return 1;
}

/* y = x + delta + table[tokens] */
static strait_err forward_sum(const strait_work *work, const strait_part *part, strait_tensor y,
                              strait_tensor x, strait_tensor delta) {
    return strait_layer_table_add(work, y, x, delta, part->params[TABLE]->compute, 0);
}

/* y is x. */
static strait_err forward(const strait_work *work, const strait_part *part,
                          const strait_part_acts *acts, strait_tensor y, strait_tensor x) {
    (void)acts;
    return forward_sum(work, part, y, x, (strait_tensor){0});
}

/* The gradient of the stream passes through unchanged; its rows are added to those of the table. */
static strait_err backward(const strait_work *work, const strait_part *part,
                           const strait_part_acts *acts, strait_tensor d, strait_tensor scratch) {
    (void)acts, (void)scratch;
    return strait_layer_table_backward(work, part->params[TABLE]->grad, d, 0);
}

const struct strait_part_ops strait_part_token_table = {
    .option = "model.anchors",
    .reads_tokens = 1,
    .is_in_block = is_in_block,
    .params = params,
    .forward = forward,
    .forward_sum = forward_sum,
    .backward = backward,
};
