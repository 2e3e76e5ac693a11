/* muon.c - momentum, orthogonalised, for matrices; AdamW for everything else.
 *
 *   m = b m + (1 - b) g             g: the clipped gradient
 *   u = N(b m + (1 - b) g)          Nesterov's look-ahead; N of newton_schulz.h
 *   w = (1 - rate decay) w - rate sqrt(max(1, rows / cols)) u
 *
 * b rises linearly from momentum_start to momentum over momentum_warmup steps.
 *
 * Matrices of one shape are updated together, as many as spec.group_values allows: the products of
 * a single one are too small for a GPU. The bits do not depend on it, nor on the order. */
#include "base/alloc.h"
#include "optim/adamw.h"
#include "optim/newton_schulz.h"
#include "optim/optimizer_ops.h"

#include <math.h>

struct muon {
    struct strait_newton_schulz ns;
    strait_tensor u;                  // the updates; as large as the largest group of matrices
    const strait_optim_update **left; // of a step, those not updated yet; NULL: done
};

/* Tables, the head and gains are left to AdamW, as Muon's authors do. So is a single row or column:
 * it has one singular value, and orthogonalising it would only normalise it. */
static int accepts(const strait_param *param) {
    const strait_role role = param->role;
    return param->value.rows > 1 && param->value.cols > 1 &&
           (role == STRAIT_ROLE_MATRIX || role == STRAIT_ROLE_RESIDUAL_OUT ||
            role == STRAIT_ROLE_BOUNDARY || role == STRAIT_ROLE_ENCODER_BASIS ||
            role == STRAIT_ROLE_GATE);
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

/* How many matrices of this shape are updated at a time. */
static int group_of(const strait_optim_spec *spec, strait_tensor weight) {
    const int64_t n = spec->group_values / (weight.rows * weight.cols);
    if (n < 1) return 1;
    return n < STRAIT_NEWTON_SCHULZ_MOST ? (int)n : STRAIT_NEWTON_SCHULZ_MOST;
}

static int is_alike(strait_tensor a, strait_tensor b) {
    return a.rows == b.rows && a.cols == b.cols;
}

static strait_err plan(void *scratch, const strait_optim_spec *spec,
                       const strait_optim_update *updates, int n, struct strait_slab *slab) {
    struct muon *muon = scratch;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof(void *), "updates of Muon", (void **)&muon->left));
    for (int i = 0; i < n; i++) {
        const strait_tensor w = updates[i].weight;
        int n_alike = 0;
        for (int j = 0; j < n; j++)
            n_alike += is_alike(w, updates[j].weight);
        const int most = group_of(spec, w);
        strait_newton_schulz_reserve(&muon->ns, w.rows, w.cols, n_alike < most ? n_alike : most);
    }
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, muon->ns.n_max, &muon->u));
    return strait_newton_schulz_plan(&muon->ns, slab);
}

/* Only the list of updates. */
static void release(void *scratch) {
    strait_alloc_free(((struct muon *)scratch)->left);
}

/* b at a step, from 1. */
static float momentum_at(const strait_optim_spec *spec, int64_t step) {
    if (step > spec->momentum_warmup) return spec->momentum;
    return (float)(spec->momentum_start + ((double)spec->momentum - spec->momentum_start) *
                                              (double)(step - 1) / (double)spec->momentum_warmup);
}

/* Updates n matrices of one shape. */
static strait_err update(struct muon *muon, const strait_optim_step *at,
                         const strait_optim_update *const *group, int n, float momentum) {
    struct strait_stream *s = at->stream;
    const struct strait_group_kernels *kernels = s->backend->kernels->groups;
    const int64_t rows = group[0]->weight.rows, cols = group[0]->weight.cols;
    const strait_tensor u = {muon->u.data, muon->u.dtype, n * rows, cols};
    const float stretch = sqrtf(fmaxf(1, (float)rows / (float)cols));
    for (int i = 0; i < n; i++)
        STRAIT_TRY(kernels->momentum(s, strait_tensor_rows(u, i * rows, rows), group[i]->states[0],
                                     group[i]->grad, at->scale, momentum));
    STRAIT_TRY(strait_newton_schulz(&muon->ns, s, u, n));
    for (int i = 0; i < n; i++) {
        const strait_optim_update *p = group[i];
        STRAIT_TRY(kernels->apply(s, p->weight, p->copy, strait_tensor_rows(u, i * rows, rows),
                                  at->scale, 1 - p->learning_rate * p->weight_decay,
                                  p->learning_rate * stretch));
    }
    return STRAIT_OK;
}

/* The first matrix that is left and those like it, as many as fit. */
static int take_group(struct muon *muon, const strait_optim_step *at, int first, int n,
                      const strait_optim_update *group[STRAIT_NEWTON_SCHULZ_MOST]) {
    const strait_tensor w = muon->left[first]->weight;
    const int most = group_of(at->spec, w);
    int count = 0;
    for (int i = first; i < n && count < most; i++) {
        if (muon->left[i] == NULL || !is_alike(w, muon->left[i]->weight)) continue;
        group[count++] = muon->left[i];
        muon->left[i] = NULL;
    }
    return count;
}

/* The largest matrix that is left, the first of equals; -1: none. A device then computes products
 * of large matrices while the host queues the many small ones of codecs, instead of waiting for
 * each of these. */
static int largest_left(const struct muon *muon, int n) {
    int largest = -1;
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        if (muon->left[i] == NULL) continue;
        const int64_t values = muon->left[i]->weight.rows * muon->left[i]->weight.cols;
        if (values <= most) continue;
        most = values;
        largest = i;
    }
    return largest;
}

static strait_err step(void *scratch, const strait_optim_step *at,
                       const strait_optim_update *updates, int n) {
    struct muon *muon = scratch;
    const float momentum = momentum_at(at->spec, at->step);
    for (int i = 0; i < n; i++)
        muon->left[i] = &updates[i];
    for (int first; (first = largest_left(muon, n)) >= 0;) {
        const strait_optim_update *group[STRAIT_NEWTON_SCHULZ_MOST] = {0};
        const int count = take_group(muon, at, first, n, group);
        STRAIT_TRY(update(muon, at, group, count, momentum));
    }
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
    .release = release,
    .step = step,
    .checks_norm = 1,
};
