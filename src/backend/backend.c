#include "backend/backend.h"

#include "base/alloc.h"
#include "base/names.h"

#include <string.h>

/* The registry has a handful of entries: a linear search will do. */
static const struct strait_backend_ops *find(const char *name) {
    for (int i = 0; strait_backends[i] != NULL; i++)
        if (strcmp(strait_backends[i]->name, name) == 0) return strait_backends[i];
    return NULL;
}

/* The error lists the kinds of this build, in the order of the registry. */
strait_err strait_backend_check_name(const char *name) {
    char known[64] = "";
    if (find(name) != NULL) return STRAIT_OK;
    for (int i = 0; strait_backends[i] != NULL; i++)
        strait_names_list(known, sizeof known, strait_backends[i]->name,
                          strait_backends[i + 1] == NULL);
    return STRAIT_FAIL(STRAIT_ECONFIG, "\"%.32s\" is not a device kind; expected %s", name, known);
}

/* Every step after the allocation can fail; close accepts what was reached. */
strait_err strait_backend_open(strait_backend_spec spec, struct strait_backend **out) {
    STRAIT_TRY(strait_backend_check_name(spec.name));
    const struct strait_backend_ops *ops = find(spec.name);
    struct strait_backend *be = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *be, "backend", (void **)&be));
    /* Set before init, which reads them; it may replace n_threads by what it found. */
    be->ops = ops;
    be->ordinal = spec.ordinal;
    be->n_threads = spec.n_threads;
    be->is_reference = spec.is_reference;
    be->precision = spec.precision;
    be->has_fp8 = spec.has_fp8;
    strait_err err;
    STRAIT_TRY_GOTO(err, fail, strait_alloc(1, ops->state_size, "backend state", &be->state));
    STRAIT_TRY_GOTO(err, fail, ops->init(be));
    *out = be;
    return STRAIT_OK;
fail:
    strait_backend_close(&be);
    return err;
}

/* The host is not opened, since that would start its threads, except to report that there is only
 * one. */
strait_err strait_backend_free_bytes(const strait_backend_spec *spec, double *out) {
    struct strait_backend *be = NULL;
    STRAIT_TRY(strait_backend_check_name(spec->name));
    *out = 0.0;
    if (find(spec->name)->is_host && spec->ordinal == 0) return STRAIT_OK;
    STRAIT_TRY(strait_backend_open(*spec, &be));
    if (be->ops->free_bytes != NULL) *out = (double)be->ops->free_bytes(be);
    strait_backend_close(&be);
    return STRAIT_OK;
}

/* Asked while planning, before the device is opened; an unknown name is reported later. */
strait_dtype strait_backend_precision(const char *name, int ordinal, const char **why) {
    const struct strait_backend_ops *ops = find(name);
    *why = NULL;
    return ops != NULL && ops->precision != NULL ? ops->precision(ordinal, why) : STRAIT_F32;
}

int strait_backend_count(const char *name) {
    const struct strait_backend_ops *ops = find(name);
    if (ops == NULL) return 0;
    return ops->count != NULL ? ops->count() : 1;
}

/* For plans and reports, before anything is opened. */
void strait_backend_name_kernels(const char *name, strait_dtype precision, char *out,
                                 size_t capacity) {
    const struct strait_backend_ops *ops = find(name);
    out[0] = '\0';
    if (ops != NULL && ops->name_kernels != NULL) ops->name_kernels(precision, out, capacity);
}

/* One row per optional table, with the name that the error uses. */
strait_err strait_backend_require(const struct strait_backend *be, unsigned needs,
                                  const char *user) {
    const struct strait_kernels *k = be->kernels;
    const struct {
        unsigned need;
        const void *table;
        const char *name;
    } tables[] = {
        {STRAIT_NEEDS_CONV, k->conv, "convolution"},
        {STRAIT_NEEDS_TOPK, k->topk, "top-k"},
        {STRAIT_NEEDS_LOG_SCALE, k->log_scale, "log-scale payload"},
        {STRAIT_NEEDS_HADAMARD, k->hadamard, "Hadamard"},
        {STRAIT_NEEDS_LOWRANK, k->lowrank, "low-rank"},
        {STRAIT_NEEDS_SUBSPACE, k->subspace, "subspace"},
        {STRAIT_NEEDS_TOKEN_GATES, k->token_gates, "token gate"},
        {STRAIT_NEEDS_AUTOENCODER, k->autoencoder, "autoencoder"},
        {STRAIT_NEEDS_FP8, k->fp8, "fp8"},
        {STRAIT_NEEDS_GROUPS, k->groups, "group"},
        {STRAIT_NEEDS_NORM_CONV, k->norm_conv, "norm and convolution"},
        {STRAIT_NEEDS_TOKEN_TABLES, k->token_tables, "token table"},
        {STRAIT_NEEDS_CONV_ROTATE, k->conv_rotate, "convolution and rotation"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if ((needs & tables[i].need) != 0 && tables[i].table == NULL)
            return STRAIT_FAIL(STRAIT_ENOTSUP,
                               "device %s has no %s kernels, which %s needs: choose another device "
                               "kind, or run without %s",
                               be->ops->name, tables[i].name, user, user);
    return STRAIT_OK;
}

/* Without state init never ran, so there is nothing for fini to undo. */
void strait_backend_close(struct strait_backend **be) {
    struct strait_backend *b = *be;
    if (b == NULL) return;
    if (b->state != NULL) b->ops->fini(b);
    strait_alloc_free(b->state);
    strait_alloc_free(b);
    *be = NULL;
}
