#include "optim/optimizer.h"

#include "backend/slab.h"
#include "base/alloc.h"
#include "optim/optimizer_ops.h"

#include <assert.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    N_RULES = 2 // the chosen optimizer, and its fallback if it has one
};

/* One optimizer and the parameters that it updates. */
struct rule {
    const struct strait_optimizer_ops *ops; // NULL: no fallback
    void *scratch;                          // ops->scratch_size bytes
    strait_optim_update *updates; // filled anew by every step; capacity for all parameters
    int n;                        // filled in so far
};

/* The state of one parameter. */
struct slot {
    int rule;     // index of the rule that updates it
    int is_named; // by a pattern of spec.freeze
    int n_states;
    strait_optim_state_spec specs[STRAIT_OPTIM_STATES];
    strait_tensor states[STRAIT_OPTIM_STATES];
};

struct strait_optimizer {
    strait_optim_spec spec;
    const strait_param *params; // borrowed
    struct slot *slots;         // one per parameter
    strait_tensor *grads;       // one per parameter; NULL in a dry run
    int n;
    struct rule rules[N_RULES];
    strait_tensor squared_norms; // [n x 1]
    strait_tensor scale;         // [2 x 1]: factor of the gradients, norm
    struct strait_slab slab;     // holds every tensor above and the rules' scratch
};

typedef struct bound {
    const char *name;
    float value, below; // 0 <= value < below
} bound;

/* The negated form also rejects NaN. */
static strait_err check_bounds(const bound *bounds, int n) {
    for (int i = 0; i < n; i++)
        if (!(bounds[i].value >= 0 && bounds[i].value < bounds[i].below))
            return STRAIT_FAIL(STRAIT_ECONFIG, "optimizer: %s is %g, expected from 0 to below %g",
                               bounds[i].name, (double)bounds[i].value, (double)bounds[i].below);
    return STRAIT_OK;
}

/* Options have bounds of their own; programs that embed the library may bypass them. */
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
        const strait_optim_group *group = &spec->groups[role];
        const bound limits[] = {{"learning rate", group->learning_rate, INFINITY},
                                {"weight decay", group->weight_decay, INFINITY}};
        STRAIT_TRY(check_bounds(limits, 2));
        if (group->steps < 0)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "optimizer: a parameter group has %lld steps, expected 0 or more",
                               (long long)group->steps);
    }
    return STRAIT_OK;
}

/* A wrong shape would corrupt memory in a kernel later. */
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

/* The bf16 copy that layers read, absent where they read the f32 weights themselves. */
static strait_tensor copy_of(const strait_param *p) {
    return p->compute.data != p->value.data ? p->compute : (strait_tensor){0};
}

/* Appends parameter i to the updates of its rule. */
static strait_optim_update *append_update(struct strait_optimizer *opt, int i) {
    const strait_param *p = &opt->params[i];
    const struct slot *slot = &opt->slots[i];
    struct rule *rule = &opt->rules[slot->rule];
    strait_optim_update *update = &rule->updates[rule->n++];
    *update = (strait_optim_update){.weight = p->value, .grad = p->grad, .copy = copy_of(p)};
    memcpy(update->states, slot->states, sizeof update->states);
    return update;
}

/* Chooses the rule of parameter i and plans its state. */
static strait_err plan_slot(struct strait_optimizer *opt, int i) {
    const strait_param *param = &opt->params[i];
    struct slot *slot = &opt->slots[i];
    const int is_outside = opt->spec.only[0] != '\0' &&
                           !strait_optim_is_named(opt->spec.only, param->name);
    slot->is_named = is_outside || strait_optim_is_named(opt->spec.freeze, param->name);
    const struct strait_optimizer_ops *ops = opt->spec.ops;
    slot->rule = ops->accepts != NULL && !ops->accepts(param) ? 1 : 0;
    if (is_outside) return STRAIT_OK;
    slot->n_states = opt->rules[slot->rule].ops->states(&opt->spec, param, slot->specs);
    assert(slot->n_states <= STRAIT_OPTIM_STATES);
    for (int k = 0; k < slot->n_states; k++) {
        const strait_optim_state_spec *spec = &slot->specs[k];
        STRAIT_TRY(
            strait_slab_add(&opt->slab, spec->dtype, spec->rows, spec->cols, &slot->states[k]));
    }
    (void)append_update(opt, i);
    return STRAIT_OK;
}

static strait_err open_rules(struct strait_optimizer *opt) {
    opt->rules[0].ops = opt->spec.ops;
    opt->rules[1].ops = opt->spec.ops->fallback;
    for (int r = 0; r < N_RULES; r++) {
        struct rule *rule = &opt->rules[r];
        if (rule->ops == NULL) continue;
        assert(r == 0 || rule->ops->accepts == NULL); // a fallback takes every parameter
        STRAIT_TRY(strait_alloc((size_t)opt->n, sizeof *rule->updates, "updates of the optimizer",
                                (void **)&rule->updates));
        if (rule->ops->scratch_size > 0)
            STRAIT_TRY(strait_alloc(1, rule->ops->scratch_size, "scratch of the optimizer",
                                    &rule->scratch));
    }
    return STRAIT_OK;
}

/* State first, in the order of the parameters, then the scratch of the rules. */
static strait_err plan_tensors(struct strait_optimizer *opt) {
    STRAIT_TRY(strait_slab_add(&opt->slab, STRAIT_F32, opt->n, 1, &opt->squared_norms));
    STRAIT_TRY(strait_slab_add(&opt->slab, STRAIT_F32, 2, 1, &opt->scale));
    for (int i = 0; i < opt->n; i++)
        STRAIT_TRY(plan_slot(opt, i));
    for (int r = 0; r < N_RULES; r++) {
        const struct rule *rule = &opt->rules[r];
        if (rule->n > 0 && rule->ops->plan != NULL)
            STRAIT_TRY(
                rule->ops->plan(rule->scratch, &opt->spec, rule->updates, rule->n, &opt->slab));
    }
    return STRAIT_OK;
}

strait_err strait_optimizer_open_dry(const strait_optim_spec *spec, const strait_param *params,
                                     int n, struct strait_optimizer **out) {
    STRAIT_TRY(check_spec(spec));
    if (n < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: %d parameters, expected at least 1", n);
    struct strait_optimizer *opt = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *opt, "optimizer", (void **)&opt));
    opt->spec = *spec;
    opt->params = params;
    opt->n = n;
    strait_err err = strait_alloc((size_t)n, sizeof *opt->slots, "optimizer slots",
                                  (void **)&opt->slots);
    if (err == STRAIT_OK) err = open_rules(opt);
    if (err == STRAIT_OK) err = plan_tensors(opt);
    if (err == STRAIT_OK)
        *out = opt;
    else
        strait_optimizer_close(&opt);
    return err;
}

/* The kernel that measures gradients takes them as one list. */
static strait_err list_gradients(struct strait_optimizer *opt) {
    STRAIT_TRY(strait_alloc((size_t)opt->n, sizeof *opt->grads, "gradients of the optimizer",
                            (void **)&opt->grads));
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
    if (err == STRAIT_OK) err = list_gradients(opt);
    if (err == STRAIT_OK)
        *out = opt;
    else
        strait_optimizer_close(&opt);
    return err;
}

void strait_optimizer_close(struct strait_optimizer **opt) {
    struct strait_optimizer *o = *opt;
    if (o == NULL) return;
    strait_slab_fini(&o->slab);
    for (int r = 0; r < N_RULES; r++) {
        struct rule *rule = &o->rules[r];
        if (rule->scratch != NULL && rule->ops->release != NULL) rule->ops->release(rule->scratch);
        strait_alloc_free(rule->scratch);
        strait_alloc_free(rule->updates);
    }
    strait_alloc_free(o->slots);
    strait_alloc_free(o->grads);
    strait_alloc_free(o);
    *opt = NULL;
}

size_t strait_optimizer_bytes(const struct strait_optimizer *opt) {
    return opt->slab.bytes;
}

int strait_optim_is_frozen(const strait_optim_group *group, int64_t step) {
    return group->learning_rate == 0 || (group->steps > 0 && step > group->steps);
}

int strait_optim_is_named(const char *patterns, const char *name) {
    char one[STRAIT_OPTIM_PATTERNS];
    for (const char *at = patterns + strspn(patterns, ", "); *at != '\0'; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ", ");
        (void)snprintf(one, sizeof one, "%.*s", (int)n, at);
        if (fnmatch(one, name, 0) == 0) return 1;
        at += n;
    }
    return 0;
}

int strait_optimizer_learns(const struct strait_optimizer *opt, int i) {
    return !opt->slots[i].is_named && opt->spec.groups[opt->params[i].role].learning_rate != 0;
}

static int is_frozen(const struct strait_optimizer *opt, int i, int64_t step) {
    if (opt->slots[i].is_named) return 1;
    return strait_optim_is_frozen(&opt->spec.groups[opt->params[i].role], step);
}

/* The number of consecutive parameters, from `first`, that are frozen like it or learn like it. */
static int count_alike(const struct strait_optimizer *opt, int first, int64_t step) {
    int n = 1;
    while (first + n < opt->n && is_frozen(opt, first + n, step) == is_frozen(opt, first, step))
        n++;
    return n;
}

strait_err strait_optimizer_measure(struct strait_optimizer *opt, struct strait_stream *s,
                                    int64_t step) {
    const struct strait_kernels *kernels = s->backend->kernels;
    for (int i = 0, n = 0; i < opt->n; i += n) {
        n = count_alike(opt, i, step);
        const strait_tensor norms = strait_tensor_rows(opt->squared_norms, i, n);
        STRAIT_TRY(is_frozen(opt, i, step)
                       ? kernels->fill(s, norms, 0)
                       : kernels->sum_squares_each(s, norms, opt->grads + i, n));
    }
    return STRAIT_OK;
}

void strait_optimizer_measure_at(struct strait_optimizer *opt, const strait_param *params) {
    for (int i = 0; i < opt->n; i++)
        opt->grads[i] = params[i].grad;
}

strait_tensor strait_optimizer_squared_norms(const struct strait_optimizer *opt) {
    return opt->squared_norms;
}

strait_tensor strait_optimizer_scale(const struct strait_optimizer *opt) {
    return opt->scale;
}

strait_err strait_optimizer_clip(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step) {
    STRAIT_TRY(strait_optimizer_measure(opt, s, step));
    return s->backend->kernels->clip(s, opt->scale, opt->squared_norms, opt->spec.max_norm);
}

int strait_optimizer_checks_norm(const struct strait_optimizer *opt) {
    for (int i = 0; i < opt->n; i++)
        if (!opt->rules[opt->slots[i].rule].ops->checks_norm) return 0;
    return 1;
}

float strait_optim_learning_rate(const strait_optim_group *group, int64_t step, float factor) {
    if (group->steps == 0) return group->learning_rate * factor;
    const float left = step > group->steps ? 0 : 1 - (float)(step - 1) / (float)group->steps;
    return group->learning_rate * (left < factor ? left : factor);
}

strait_err strait_optimizer_step(struct strait_optimizer *opt, struct strait_stream *s,
                                 int64_t step, float factor) {
    if (step < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: step %lld, expected 1 or more",
                           (long long)step);
    for (int r = 0; r < N_RULES; r++)
        opt->rules[r].n = 0;
    for (int i = 0; i < opt->n; i++) {
        if (is_frozen(opt, i, step)) continue;
        const strait_optim_group *group = &opt->spec.groups[opt->params[i].role];
        strait_optim_update *update = append_update(opt, i);
        update->learning_rate = strait_optim_learning_rate(group, step, factor);
        update->weight_decay = group->weight_decay;
    }
    const strait_optim_step at = {s, &opt->spec, step, opt->scale};
    for (int r = 0; r < N_RULES; r++) {
        const struct rule *rule = &opt->rules[r];
        if (rule->n > 0) STRAIT_TRY(rule->ops->step(rule->scratch, &at, rule->updates, rule->n));
    }
    return STRAIT_OK;
}

int strait_optimizer_n_states(const struct strait_optimizer *opt) {
    int n = 0;
    for (int p = 0; p < opt->n; p++)
        n += opt->slots[p].n_states;
    return n;
}

strait_err strait_optimizer_state(const struct strait_optimizer *opt, int i,
                                  strait_optim_state *out) {
    int k = i; // of the states of the parameters from p on
    for (int p = 0; p < opt->n && k >= 0; k -= opt->slots[p++].n_states) {
        const struct slot *slot = &opt->slots[p];
        if (k >= slot->n_states) continue;
        *out = (strait_optim_state){.param = &opt->params[p],
                                    .tensor = slot->states[k],
                                    .is_linear = slot->specs[k].is_linear,
                                    .is_only = slot->n_states == 1};
        (void)snprintf(out->name, sizeof out->name, "%s.%c", out->param->name,
                       slot->specs[k].letter);
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_EINVAL, "optimizer: no state tensor %d", i);
}
