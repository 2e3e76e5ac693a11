#include "stage/outer/outer_tensors.h"

#include "stage/outer/outer_state.h"

#include <stdio.h>

static const char *const names[STRAIT_OUTER_TENSORS] = {
    [STRAIT_OUTER_ANCHOR] = "weights",    [STRAIT_OUTER_MOMENTUM] = "momentum",
    [STRAIT_OUTER_RESIDUAL] = "residual", [STRAIT_OUTER_RESULT_RESIDUAL] = "result_residual",
    [STRAIT_OUTER_SENT] = "sent",
};

void strait_outer_name(int replica, strait_outer_tensor kind, const char *param,
                       char out[STRAIT_OUTER_NAME]) {
    if (kind == STRAIT_OUTER_MOMENTUM)
        (void)snprintf(out, STRAIT_OUTER_NAME, "outer.%s.%s", names[kind], param);
    else
        (void)snprintf(out, STRAIT_OUTER_NAME, "replica.%d.%s.%s", replica, names[kind], param);
}

/* As strait_outer_open allocates them. */
static int is_kept(const strait_outer_spec *spec, int kind) {
    if (kind == STRAIT_OUTER_RESIDUAL) return spec->n_replicas > 1;
    if (kind == STRAIT_OUTER_RESULT_RESIDUAL) return spec->n_replicas > 1 && spec->params.bits < 32;
    /* Only while steps are computed does a snapshot find an exchange under way. */
    if (kind == STRAIT_OUTER_SENT) return spec->params.schedule.overlap > 0;
    return kind == STRAIT_OUTER_MOMENTUM;
}

/* Of a snapshot the schedule tells whether an exchange is under way: only the name matters. */
static strait_err visit_mark(const strait_outer_spec *spec, const struct strait_outer *outer,
                             strait_outer_visit *visit, void *user) {
    if (spec->n_weights == 0 || spec->params.schedule.overlap == 0) return STRAIT_OK;
    const strait_tensor mark = {outer != NULL ? outer->mark : NULL, STRAIT_F32, 1, 1};
    return visit(user, NULL, STRAIT_OUTER_IN_FLIGHT, mark);
}

strait_err strait_outer_each(const strait_outer_spec *spec, const struct strait_outer *outer,
                             struct strait_stream *stream, strait_outer_visit *visit, void *user) {
    char name[STRAIT_OUTER_NAME];
    for (int i = 0; i < spec->n_weights; i++) {
        const strait_param *param = &spec->weights[i];
        if (!strait_outer_averages(spec, i)) continue;
        strait_outer_name(0, STRAIT_OUTER_ANCHOR, param->name, name);
        STRAIT_TRY(visit(user, stream, name, param->value));
        for (int kind = STRAIT_OUTER_MOMENTUM; kind < STRAIT_OUTER_TENSORS; kind++) {
            strait_tensor tensor = {NULL, STRAIT_F32, param->value.rows, param->value.cols};
            if (!is_kept(spec, kind)) continue;
            if (outer != NULL) tensor = strait_outer_get(outer, (strait_outer_tensor)kind, i, 1);
            strait_outer_name(0, (strait_outer_tensor)kind, param->name, name);
            STRAIT_TRY(visit(user, NULL, name, tensor));
        }
    }
    return visit_mark(spec, outer, visit, user);
}
