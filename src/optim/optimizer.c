#include "optim/optimizer.h"

#include "backend/slab.h"
#include "base/alloc.h"
#include "optim/adamw.h"
#include "optim/muon.h"

#include <math.h>
#include <stdio.h>

/* The moments of one parameter. */
struct slot {
    int is_muon; // then there is no v
    strait_tensor m, v;
};

struct strait_optimizer {
    strait_optim_spec spec;
    const strait_param *params; // borrowed
    struct slot *slots;         // one a parameter
    strait_tensor *grads;       // one a parameter, once there is memory
    strait_adamw_item *items;   // of one step, room for all parameters
    int n;
    strait_tensor totals, scale;
    struct strait_muon muon;
    struct strait_slab slab; // holds every tensor above
};

typedef struct bound {
    const char *name;
    float value, below; // 0 <= value < below
} bound;

static strait_err check_bounds(const bound *bounds, int n) {
    for (int i = 0; i < n; i++)
        if (!(bounds[i].value >= 0 && bounds[i].value < bounds[i].below))
            return STRAIT_FAIL(STRAIT_ECONFIG, "optimizer: %s is %g, expected from 0 to below %g",
                               bounds[i].name, (double)bounds[i].value, (double)bounds[i].below);
    return STRAIT_OK;
}

static strait_err check_spec(const strait_optim_spec *spec) {
    const bound bounds[] = {
        {"beta1", spec->beta1, 1},
        {"beta2", spec->beta2, 1},
        {"epsilon", spec->epsilon, INFINITY},
        {"momentum", spec->momentum, 1},
        {"momentum_start", spec->momentum_start, 1},
        {"max_norm", (float)spec->max_norm, INFINITY},
    };
    STRAIT_TRY(check_bounds(bounds, (int)(sizeof bounds / sizeof bounds[0])));
    if (spec->momentum_warmup < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "optimizer: momentum_warmup is %lld, expected 0 or more",
                           (long long)spec->momentum_warmup);
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++) {
        const bound group[] = {{"rate", spec->groups[role].rate, INFINITY},
                               {"decay", spec->groups[role].decay, INFINITY}};
        STRAIT_TRY(check_bounds(group, 2));
        if (spec->groups[role].steps < 0)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "optimizer: a group of %lld steps, expected 0 or more",
                               (long long)spec->groups[role].steps);
    }
    return STRAIT_OK;
}

static strait_err check_memory(const strait_param *params, int n) {
    for (int i = 0; i < n; i++) {
        const strait_tensor w = params[i].value, g = params[i].grad;
        if (w.data == NULL || g.data == NULL || w.dtype != STRAIT_F32 || g.dtype != STRAIT_F32 ||
            w.rows != g.rows || w.cols != g.cols)
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "parameter %s: expected an f32 value and gradient of one shape",
                               params[i].name);
    }
    return STRAIT_OK;
}

static int uses_muon(const strait_optim_spec *spec, const strait_param *param) {
    return spec->kind == STRAIT_OPTIM_MUON && param->value.rows > 1 && param->value.cols > 1 &&
           (param->role == STRAIT_ROLE_MATRIX || param->role == STRAIT_ROLE_RESIDUAL_OUT ||
            param->role == STRAIT_ROLE_BOUNDARY || param->role == STRAIT_ROLE_ENCODER_BASIS);
}

static strait_err plan_slot(struct strait_optimizer *opt, int i) {
    const strait_param *param = &opt->params[i];
    struct slot *slot = &opt->slots[i];
    const strait_tensor w = param->value;
    STRAIT_TRY(strait_slab_add(&opt->slab, STRAIT_F32, w.rows, w.cols, &slot->m));
    slot->is_muon = uses_muon(&opt->spec, param);
    if (slot->is_muon) {
        strait_muon_reserve(&opt->muon, w.rows, w.cols);
        return STRAIT_OK;
    }
    const strait_tensor v = strait_adamw_second(opt->spec.kind, param);
    return strait_slab_add(&opt->slab, STRAIT_F32, v.rows, v.cols, &slot->v);
}

static strait_err plan_tensors(struct strait_optimizer *opt) {
    STRAIT_TRY(strait_slab_add(&opt->slab, STRAIT_F32, opt->n, 1, &opt->totals));
    STRAIT_TRY(strait_slab_add(&opt->slab, STRAIT_F32, 2, 1, &opt->scale));
    for (int i = 0; i < opt->n; i++)
        STRAIT_TRY(plan_slot(opt, i));
    return strait_muon_plan(&opt->muon, &opt->slab);
}

strait_err strait_optimizer_open_dry(const strait_optim_spec *spec, const strait_param *params,
                                     int n, struct strait_optimizer **out) {
    STRAIT_TRY(check_spec(spec));
    if (n < 1) return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: %d parameters, expected some", n);
    struct strait_optimizer *opt = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *opt, "optimizer", (void **)&opt));
    opt->spec = *spec;
    opt->params = params;
    opt->n = n;
    strait_err err = strait_alloc((size_t)n, sizeof *opt->slots, "optimizer slots",
                                  (void **)&opt->slots);
    if (err == STRAIT_OK) err = plan_tensors(opt);
    if (err == STRAIT_OK)
        *out = opt;
    else
        strait_optimizer_close(&opt);
    return err;
}

/* What a step hands to the kernels as a whole. */
static strait_err list_tensors(struct strait_optimizer *opt) {
    STRAIT_TRY(strait_alloc((size_t)opt->n, sizeof *opt->grads, "gradients of the optimizer",
                            (void **)&opt->grads));
    STRAIT_TRY(strait_alloc((size_t)opt->n, sizeof *opt->items, "updates of the optimizer",
                            (void **)&opt->items));
    for (int i = 0; i < opt->n; i++)
        opt->grads[i] = opt->params[i].grad;
    return STRAIT_OK;
}

strait_err strait_optimizer_open(const strait_optim_spec *spec, struct strait_backend *be,
                                 strait_param *params, int n, struct strait_optimizer **out) {
    struct strait_optimizer *opt = NULL;
    STRAIT_TRY(check_memory(params, n));
    STRAIT_TRY(strait_optimizer_open_dry(spec, params, n, &opt));
    strait_err err = strait_slab_commit(&opt->slab, be);
    if (err == STRAIT_OK) err = list_tensors(opt);
    if (err == STRAIT_OK)
        *out = opt;
    else
        strait_optimizer_close(&opt);
    return err;
}

void strait_optimizer_close(struct strait_optimizer **opt) {
    if (*opt == NULL) return;
    strait_slab_fini(&(*opt)->slab);
    strait_alloc_free((*opt)->slots);
    strait_alloc_free((*opt)->grads);
    strait_alloc_free((*opt)->items);
    strait_alloc_free(*opt);
    *opt = NULL;
}

size_t strait_optimizer_bytes(const struct strait_optimizer *opt) {
    return opt->slab.bytes;
}

int strait_optim_is_still(const strait_optim_group *group, int64_t step) {
    return group->rate == 0 || (group->steps > 0 && step > group->steps);
}

static int is_still(const struct strait_optimizer *opt, int i, int64_t step) {
    return strait_optim_is_still(&opt->spec.groups[opt->params[i].role], step);
}

/* How many parameters from `first` on are still, or are not, as it is. */
static int count_alike(const struct strait_optimizer *opt, int first, int64_t step) {
    int n = 1;
    while (first + n < opt->n && is_still(opt, first + n, step) == is_still(opt, first, step))
        n++;
    return n;
}

strait_err strait_optimizer_measure(struct strait_optimizer *opt, struct strait_stream *s,
                                    int64_t step) {
    const struct strait_kernels *kernels = s->backend->kernels;
    for (int i = 0, n = 0; i < opt->n; i += n) {
        n = count_alike(opt, i, step);
        const strait_tensor totals = strait_tensor_rows(opt->totals, i, n);
        STRAIT_TRY(is_still(opt, i, step)
                       ? kernels->fill(s, totals, 0)
                       : kernels->sum_squares_each(s, totals, opt->grads + i, n));
    }
    return STRAIT_OK;
}

strait_tensor strait_optimizer_totals(const struct strait_optimizer *opt) {
    return opt->totals;
}

strait_tensor strait_optimizer_scale(const struct strait_optimizer *opt) {
    return opt->scale;
}

strait_err strait_optimizer_clip(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step) {
    STRAIT_TRY(strait_optimizer_measure(opt, s, step));
    return s->backend->kernels->clip(s, opt->scale, opt->totals, opt->spec.max_norm);
}

/* The bf16 weights that the model computes with, where they are not the weights themselves. */
static strait_tensor copy_of(const strait_param *p) {
    return p->compute.data != p->value.data ? p->compute : (strait_tensor){0};
}

float strait_optim_rate(const strait_optim_group *group, int64_t step, float rate_factor) {
    if (group->steps == 0) return group->rate * rate_factor;
    const float left = step > group->steps ? 0 : 1 - (float)(step - 1) / (float)group->steps;
    return group->rate * (left < rate_factor ? left : rate_factor);
}

static strait_adamw_item item_of(const struct strait_optimizer *opt, int i, int64_t step,
                                 float rate_factor) {
    const strait_param *p = &opt->params[i];
    strait_adamw_item item = {.weight = p->value,
                              .m = opt->slots[i].m,
                              .v = opt->slots[i].v,
                              .grad = p->grad,
                              .params = strait_adamw_at(&opt->spec, p->role, step, rate_factor)};
    item.params.copy = copy_of(p);
    return item;
}

static strait_err update_muon(struct strait_optimizer *opt, struct strait_stream *s, int i,
                              int64_t step, float rate_factor) {
    const strait_optim_spec *spec = &opt->spec;
    const strait_param *p = &opt->params[i];
    const strait_tensor copy = copy_of(p);
    const strait_muon_params how = {
        .rate = strait_optim_rate(&spec->groups[p->role], step, rate_factor),
        .decay = spec->groups[p->role].decay,
        .momentum = strait_muon_momentum(spec->momentum_start, spec->momentum,
                                         spec->momentum_warmup, step),
    };
    STRAIT_TRY(
        strait_muon_step(&opt->muon, s, p->value, opt->slots[i].m, p->grad, opt->scale, how));
    return copy.data != NULL ? s->backend->kernels->cast(s, copy, p->value) : STRAIT_OK;
}

int strait_optimizer_is_guarded(const struct strait_optimizer *opt) {
    for (int i = 0; i < opt->n; i++)
        if (opt->slots[i].is_muon) return 0;
    return 1;
}

strait_err strait_optimizer_step(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step, float rate_factor) {
    int n_items = 0;
    if (step < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: step %lld, expected 1 or more",
                           (long long)step);
    for (int i = 0; i < opt->n; i++) {
        if (is_still(opt, i, step)) continue;
        if (opt->slots[i].is_muon)
            STRAIT_TRY(update_muon(opt, s, i, step, rate_factor));
        else
            opt->items[n_items++] = item_of(opt, i, step, rate_factor);
    }
    return s->backend->kernels->adamw_each(s, opt->items, n_items, opt->scale);
}

int strait_optimizer_states(const struct strait_optimizer *opt) {
    int n = 0;
    for (int p = 0; p < opt->n; p++)
        n += opt->slots[p].is_muon ? 1 : 2;
    return n;
}

strait_err strait_optimizer_state(const struct strait_optimizer *opt, int i,
                                  strait_optim_state *out) {
    int left = i;
    for (int p = 0; p < opt->n && left >= 0; p++) {
        const struct slot *slot = &opt->slots[p];
        const int n_moments = slot->is_muon ? 1 : 2;
        if (left < n_moments) {
            out->tensor = left == 0 ? slot->m : slot->v;
            (void)snprintf(out->name, sizeof out->name, "%s.%c", opt->params[p].name,
                           left == 0 ? 'm' : 'v');
            return STRAIT_OK;
        }
        left -= n_moments;
    }
    return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: there is no moment %d", i);
}
