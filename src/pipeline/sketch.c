#include "pipeline/sketch.h"

#include "base/alloc.h"

static void add(struct strait_sketch *sketch, const strait_param *params, int n) {
    for (int i = 0; i < n; i++)
        sketch->params[sketch->n_params++] = params[i];
}

static void add_codec(struct strait_sketch *sketch, const struct strait_codec *codec) {
    if (codec != NULL) add(sketch, codec->params, codec->n_params);
}

static strait_err draw(struct strait_sketch *sketch, const strait_recipe *recipe, int stage) {
    const strait_optim_spec optim = strait_recipe_optim(recipe, stage);
    STRAIT_TRY(strait_weights_plan(&recipe->shape, recipe->parts[stage], 1, &sketch->weights));
    STRAIT_TRY(strait_recipe_codec_sketch(recipe, stage, STRAIT_TAIL, &sketch->tail));
    STRAIT_TRY(strait_recipe_codec_sketch(recipe, stage, STRAIT_HEAD, &sketch->head));
    STRAIT_TRY(strait_alloc((size_t)sketch->weights.n_params + (size_t)2 * STRAIT_CODEC_PARAMS,
                            sizeof *sketch->params, "parameter list", (void **)&sketch->params));
    add_codec(sketch, sketch->tail);
    add(sketch, sketch->weights.params, sketch->weights.n_params);
    add_codec(sketch, sketch->head);
    return strait_optimizer_sketch(&optim, sketch->params, sketch->n_params, &sketch->optimizer);
}

strait_err strait_sketch_init(struct strait_sketch *sketch, const strait_recipe *recipe,
                              int stage) {
    *sketch = (struct strait_sketch){0};
    const strait_err err = draw(sketch, recipe, stage);
    if (err != STRAIT_OK) strait_sketch_fini(sketch);
    return err;
}

void strait_sketch_fini(struct strait_sketch *sketch) {
    strait_optimizer_close(&sketch->optimizer);
    strait_alloc_free(sketch->params);
    strait_codec_close(&sketch->tail);
    strait_codec_close(&sketch->head);
    strait_weights_fini(&sketch->weights);
    *sketch = (struct strait_sketch){0};
}
