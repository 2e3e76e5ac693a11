#include "convert/init_subspace.h"

#include "codec/codec.h"

#include <string.h>

int strait_init_is_confined(const strait_run_plan *plan) {
    return plan->n_stages > 1 &&
           ((strait_codec_traits(&plan->codec) & STRAIT_CODEC_CONFINES) != 0 ||
            plan->shape.subspace > 0);
}

strait_err strait_init_check_subspace(const strait_run_plan *plan,
                                      const struct strait_init_source *source) {
    const strait_codec_spec *a = &plan->codec, *b = &source->plan.codec;
    if (source->checkpoint == NULL || !strait_init_is_confined(&source->plan))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "train.init_from: codec %s keeps the weights in a subspace, where those "
                           "of this source are not: projected on it they would be another model. "
                           "Start from a run of the same codec, or choose another codec",
                           a->name);
    if (strcmp(a->variant, b->variant) == 0 && a->keep == b->keep && a->seed == b->seed &&
        a->keeps_fixed == b->keeps_fixed)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "train.init_from: the source was trained in another subspace: set "
                       "link.codec.variant=%s, link.codec.keep=%lld, link.codec.without_fixed=%s "
                       "and train.seed=%llu, as it has them",
                       b->variant, (long long)b->keep, b->keeps_fixed ? "true" : "false",
                       (unsigned long long)b->seed);
}

static int has_name(const struct strait_init_source *source, const char *wanted) {
    const char *name = NULL;
    int64_t rows = 0, cols = 0;
    for (int i = 0; strait_init_source_at(source, i, &name, &rows, &cols); i++)
        if (strcmp(name, wanted) == 0) return 1;
    return 0;
}

strait_err strait_init_check_confined(const strait_run_plan *plan,
                                      const struct strait_init_source *source, const char *name,
                                      int is_stored) {
    if (!strait_weights_source_is_confined(plan, name)) return STRAIT_OK;
    const int was_confined = strait_weights_source_is_confined(&source->plan, name);
    if (is_stored && was_confined) return STRAIT_OK;
    if (was_confined || !has_name(source, name))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "train.init_from: %s is kept in the subspace, and the source has none "
                           "of its shape",
                           name);
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "train.init_from: %s is outside the subspace, because it was in the last "
                       "stage of the source: let the last stage begin at layer %d or before",
                       name, source->plan.stage_layers[source->plan.n_stages - 1].first);
}

/* All sides of all boundaries hold the same basis. */
static int is_basis(const char *name) {
    const char *dot = strrchr(name, '.');
    return strncmp(name, "boundary.", 9) == 0 && dot != NULL && strcmp(dot, ".basis") == 0;
}

const unsigned char *strait_init_find_basis(const struct strait_init_source *source,
                                            const strait_safetensor *tensor) {
    const struct strait_safetensors *file = NULL;
    const char *name = NULL;
    if (!is_basis(tensor->name)) return NULL;
    for (int f = 0; (file = strait_checkpoint_file(source->checkpoint, f, &name)) != NULL; f++)
        for (int i = 0; i < strait_safetensors_count(file); i++) {
            const strait_safetensor *t = strait_safetensors_at(file, i);
            if (is_basis(t->name) && t->bytes == tensor->bytes &&
                strcmp(t->dtype, tensor->dtype) == 0)
                return t->data;
        }
    return NULL;
}
