/* muon.c - momentum, orthogonalised, for matrices; AdamW for everything else.
 *
 *   m = b m + (1 - b) g             g: the clipped gradient
 *   u = N(b m + (1 - b) g)          Nesterov's look-ahead; N of newton_schulz.h
 *   w = (1 - rate decay) w - rate sqrt(max(1, rows / cols)) u
 *
 * b rises linearly from momentum_start to momentum over momentum_warmup steps. */
#include "optim/adamw.h"
#include "optim/axpby.h"
#include "optim/newton_schulz.h"
#include "optim/optimizer_ops.h"

#include <math.h>

struct muon {
    struct strait_newton_schulz ns;
    strait_tensor u;   // the update; as large as the largest matrix
    strait_tensor one; // [1 x 1]: a factor of 1 for axpby
};

/* Tables, the head and gains are left to AdamW, as Muon's authors do. So is a single row or column:
 * it has one singular value, and orthogonalising it would only normalise it. */
static int accepts(const strait_param *param) {
    const strait_role role = param->role;
    return param->value.rows > 1 && param->value.cols > 1 &&
           (role == STRAIT_ROLE_MATRIX || role == STRAIT_ROLE_RESIDUAL_OUT ||
            role == STRAIT_ROLE_BOUNDARY || role == STRAIT_ROLE_ENCODER_BASIS);
}

/* Muon's update has a fixed size per singular value and AdamW's per weight, so that the learning
 * rates of what AdamW updates differ from those of matrices in scale. */
static double default_learning_rate(strait_role role, double matrix, double embedding) {
    switch (role) {
    case STRAIT_ROLE_EMBEDDING: return 15 * matrix;
    case STRAIT_ROLE_HEAD: return 0.15 * matrix;
    case STRAIT_ROLE_GAIN: return 0.5 * matrix;
    case STRAIT_ROLE_VALUES: return 0.1 * embedding;
    default: return matrix;
    }
}

static int describe_states(const strait_optim_spec *spec, const strait_param *param,
                           strait_optim_state_spec out[STRAIT_OPTIM_STATES]) {
    (void)spec;
    const strait_tensor w = param->value;
    out[0] = (strait_optim_state_spec){'m', STRAIT_F32, w.rows, w.cols, .is_linear = 1};
    return 1;
}

static strait_err plan(void *scratch, const strait_optim_update *updates, int n,
                       struct strait_slab *slab) {
    struct muon *muon = scratch;
    for (int i = 0; i < n; i++)
        strait_newton_schulz_reserve(&muon->ns, updates[i].weight.rows, updates[i].weight.cols);
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, muon->ns.n_max, &muon->u));
    STRAIT_TRY(strait_newton_schulz_plan(&muon->ns, slab));
    return strait_slab_add(slab, STRAIT_F32, 1, 1, &muon->one);
}

/* b at a step, from 1. */
static float momentum_at(const strait_optim_spec *spec, int64_t step) {
    if (step > spec->momentum_warmup) return spec->momentum;
    return (float)(spec->momentum_start + ((double)spec->momentum - spec->momentum_start) *
                                              (double)(step - 1) / (double)spec->momentum_warmup);
}

static strait_err update(struct muon *muon, const strait_optim_step *at,
                         const strait_optim_update *p, float momentum) {
    struct strait_stream *s = at->stream;
    const struct strait_kernels *kernels = s->backend->kernels;
    const strait_tensor m = p->states[0];
    const strait_tensor u = {muon->u.data, muon->u.dtype, p->weight.rows, p->weight.cols};
    const strait_axpby_params average = {.alpha = 1 - momentum, .beta = momentum};
    STRAIT_TRY(strait_axpby(s, m, p->grad, at->scale, average));
    STRAIT_TRY(kernels->cast(s, u, m));
    STRAIT_TRY(strait_axpby(s, u, p->grad, at->scale, average));
    STRAIT_TRY(strait_newton_schulz(&muon->ns, s, u));
    const float stretch = sqrtf(fmaxf(1, (float)p->weight.rows / (float)p->weight.cols));
    STRAIT_TRY(kernels->fill(s, muon->one, 1));
    STRAIT_TRY(strait_axpby(s, p->weight, u, muon->one,
                            (strait_axpby_params){.alpha = -p->learning_rate * stretch,
                                                  .beta = 1 - p->learning_rate * p->weight_decay}));
    return p->copy.data != NULL ? kernels->cast(s, p->copy, p->weight) : STRAIT_OK;
}

static strait_err step(void *scratch, const strait_optim_step *at,
                       const strait_optim_update *updates, int n) {
    const float momentum = momentum_at(at->spec, at->step);
    for (int i = 0; i < n; i++)
        STRAIT_TRY(update(scratch, at, &updates[i], momentum));
    return STRAIT_OK;
}

const struct strait_optimizer_ops strait_optimizer_muon = {
    .name = "muon",
    .default_learning_rate = default_learning_rate,
    .accepts = accepts,
    .fallback = &strait_optimizer_adamw,
    .states = describe_states,
    .scratch_size = sizeof(struct muon),
    .plan = plan,
    .step = step,
};
