#include "stage/late/late.h"

#include "base/alloc.h"
#include "optim/axpby.h"

#include <stdio.h>

enum {
    VERSIONS = 2
};

struct strait_late {
    strait_late_spec spec;
    strait_param *params;              // w and the gradients that wait, for the optimizer
    strait_param **live;               // what layers and codecs read through
    strait_tensor *versions[VERSIONS]; // of each parameter
    strait_tensor *scratch;            // f32, of parameters whose versions are not
    strait_tensor one;                 // [1 x 1]: a factor of 1 for axpby
    struct strait_slab weights, gradients;
    int64_t selected; // step of the version that is read, or STRAIT_LATE_CURRENT
};

/* Whether layers read a rounded copy of the parameter. */
static int has_copy(const strait_param *p) {
    return p->compute.rows > 0 && p->compute.dtype != STRAIT_F32;
}

/* Layers join matrices that lie side by side in memory: their versions must do so too. Without
 * memory every matrix counts as alone, which takes no less. */
static int is_adjacent(const strait_param *params, int i) {
    const strait_tensor last = i > 0 ? params[i - 1].value : (strait_tensor){0};
    return last.data != NULL &&
           (char *)last.data + strait_tensor_bytes(last) == (const char *)params[i].value.data;
}

static strait_err add_tensor(struct strait_slab *slab, strait_dtype dtype, const strait_param *p,
                             int is_adjacent_to_last, strait_tensor *out) {
    return is_adjacent_to_last
               ? strait_slab_add_adjacent(slab, dtype, p->value.rows, p->value.cols, out)
               : strait_slab_add(slab, dtype, p->value.rows, p->value.cols, out);
}

static strait_err plan_tensors(struct strait_late *late) {
    const strait_late_spec *spec = &late->spec;
    for (int v = 0; v < VERSIONS; v++)
        for (int i = 0; i < spec->n_params; i++) {
            const strait_param *p = &spec->params[i];
            STRAIT_TRY(add_tensor(&late->weights, has_copy(p) ? p->compute.dtype : STRAIT_F32, p,
                                  is_adjacent(spec->params, i), &late->versions[v][i]));
        }
    for (int i = 0; i < spec->n_params; i++) {
        const strait_param *p = &spec->params[i];
        if (has_copy(p))
            STRAIT_TRY(add_tensor(&late->weights, STRAIT_F32, p, 0, &late->scratch[i]));
        if (spec->keeps_gradients)
            STRAIT_TRY(add_tensor(&late->gradients, STRAIT_F32, p, 0, &late->params[i].grad));
    }
    return strait_slab_add(&late->weights, STRAIT_F32, 1, 1, &late->one);
}

/* Everything but device memory. */
static strait_err open_dry(const strait_late_spec *spec, struct strait_late **out) {
    struct strait_late *late = NULL;
    const size_t n = (size_t)spec->n_params;
    STRAIT_TRY(strait_alloc(1, sizeof *late, "late weights", (void **)&late));
    late->spec = *spec;
    late->selected = STRAIT_LATE_CURRENT;
    *out = late;
    STRAIT_TRY(strait_alloc(n, sizeof *late->params, "parameter list", (void **)&late->params));
    STRAIT_TRY(strait_alloc(n, sizeof *late->live, "parameter list", (void **)&late->live));
    STRAIT_TRY(strait_alloc(n, sizeof *late->scratch, "late weights", (void **)&late->scratch));
    for (int v = 0; v < VERSIONS; v++)
        STRAIT_TRY(
            strait_alloc(n, sizeof **late->versions, "versions", (void **)&late->versions[v]));
    for (int i = 0; i < spec->n_params; i++)
        late->params[i] = spec->params[i];
    return plan_tensors(late);
}

strait_err strait_late_plan(const strait_late_spec *spec, strait_late_memory *out) {
    struct strait_late *late = NULL;
    const strait_err err = open_dry(spec, &late);
    if (err == STRAIT_OK) *out = (strait_late_memory){late->weights.bytes, late->gradients.bytes};
    strait_late_close(&late);
    return err;
}

static void list_codec(struct strait_late *late, struct strait_codec *codec, int *n) {
    for (int i = 0; codec != NULL && i < codec->n_params; i++)
        late->live[(*n)++] = &codec->params[i];
}

/* In the order of the runner's list. */
static void list_live(struct strait_late *late) {
    int n = 0, n_model = 0;
    strait_param *model = strait_stage_params(late->spec.model, &n_model);
    list_codec(late, late->spec.receiver, &n);
    for (int i = 0; i < n_model; i++)
        late->live[n++] = &model[i];
    list_codec(late, late->spec.sender, &n);
}

strait_err strait_late_open(const strait_late_spec *spec, struct strait_backend *backend,
                            struct strait_late **out) {
    struct strait_late *late = NULL;
    strait_err err = open_dry(spec, &late);
    if (err == STRAIT_OK) err = strait_slab_commit(&late->weights, backend);
    if (err == STRAIT_OK && spec->keeps_gradients)
        err = strait_slab_commit(&late->gradients, backend);
    if (err != STRAIT_OK) {
        strait_late_close(&late);
        return err;
    }
    list_live(late);
    *out = late;
    return STRAIT_OK;
}

void strait_late_close(struct strait_late **late_ptr) {
    struct strait_late *late = *late_ptr;
    if (late == NULL) return;
    strait_slab_fini(&late->weights);
    strait_slab_fini(&late->gradients);
    for (int v = 0; v < VERSIONS; v++)
        strait_alloc_free(late->versions[v]);
    strait_alloc_free(late->scratch);
    strait_alloc_free(late->live);
    strait_alloc_free(late->params);
    strait_alloc_free(late);
    *late_ptr = NULL;
}

strait_param *strait_late_params(struct strait_late *late) {
    return late->params;
}

strait_err strait_late_start(struct strait_late *late, struct strait_stream *stream) {
    for (int v = 0; v < VERSIONS; v++)
        for (int i = 0; i < late->spec.n_params; i++)
            STRAIT_TRY(stream->backend->kernels->cast(stream, late->versions[v][i],
                                                      late->spec.params[i].value));
    return STRAIT_OK;
}

/* Codecs count what they lose apart for even and odd steps. */
static strait_err refresh(struct strait_codec *codec, struct strait_stream *stream, int64_t step) {
    if (codec == NULL) return STRAIT_OK;
    if (step != STRAIT_LATE_CURRENT) strait_meter_select(&codec->meter, (int)(step % VERSIONS));
    return strait_codec_refresh(codec, stream);
}

/* Kernels that were queued keep the pointers that they were queued with. */
strait_err strait_late_select(struct strait_late *late, struct strait_stream *stream,
                              int64_t step) {
    if (step == late->selected) return STRAIT_OK;
    const int is_current = step == STRAIT_LATE_CURRENT;
    const int v = is_current ? 0 : (int)(step % VERSIONS);
    for (int i = 0; i < late->spec.n_params; i++) {
        const strait_param *p = &late->spec.params[i];
        strait_param *live = late->live[i];
        live->value = p->value;
        live->compute = p->compute;
        if (is_current) continue;
        if (!has_copy(p)) live->value = late->versions[v][i];
        if (p->compute.data != NULL) live->compute = late->versions[v][i];
    }
    late->selected = step;
    STRAIT_TRY(refresh(late->spec.receiver, stream, step));
    return refresh(late->spec.sender, stream, step);
}

strait_err strait_late_keep_gradients(struct strait_late *late, struct strait_stream *stream) {
    for (int i = 0; i < late->spec.n_params; i++)
        STRAIT_TRY(stream->backend->kernels->cast(stream, late->params[i].grad,
                                                  late->spec.params[i].grad));
    return STRAIT_OK;
}

/* Where w(t) is kept during the update, and w'(t + 2) is computed. */
static strait_tensor workplace(const struct strait_late *late, int i, int64_t step) {
    return has_copy(&late->spec.params[i]) ? late->scratch[i] : late->versions[step % VERSIONS][i];
}

strait_err strait_late_begin_update(struct strait_late *late, struct strait_stream *stream,
                                    int64_t step) {
    for (int i = 0; i < late->spec.n_params; i++)
        STRAIT_TRY(stream->backend->kernels->cast(stream, workplace(late, i, step),
                                                  late->spec.params[i].value));
    return stream->backend->kernels->fill(stream, late->one, 1);
}

strait_err strait_late_end_update(struct strait_late *late, struct strait_stream *stream,
                                  int64_t step) {
    const float c = late->spec.extrapolation;
    for (int i = 0; i < late->spec.n_params; i++) {
        const strait_param *p = &late->spec.params[i];
        const strait_tensor w = workplace(late, i, step);
        STRAIT_TRY(strait_axpby(stream, w, p->value, late->one,
                                (strait_axpby_params){.alpha = 1 + c, .beta = -c}));
        if (has_copy(p))
            STRAIT_TRY(
                stream->backend->kernels->cast(stream, late->versions[step % VERSIONS][i], w));
    }
    return STRAIT_OK;
}

int strait_late_n_states(const struct strait_late *late) {
    return late == NULL ? 0 : VERSIONS * late->spec.n_params;
}

void strait_late_get_state(const struct strait_late *late, int i, strait_late_state *out) {
    const int p = i / VERSIONS, v = i % VERSIONS;
    (void)snprintf(out->name, sizeof out->name, "%.*s.%c", STRAIT_PARAM_NAME - 1,
                   late->spec.params[p].name, v == 0 ? 'e' : 'o');
    out->tensor = late->versions[v][p];
}
