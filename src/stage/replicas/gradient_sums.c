#include "stage/replicas/gradient_sums.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

/* Devices other than the host have little memory, and their sums are not bit-exact over replicas
 * anyway. */
int strait_gradient_sums_buffers(const strait_run_plan *plan, int stage) {
    if (!plan->sums_pairwise) return 0;
    int most = strait_groups_buffers(&plan->groups, plan->replicas[stage]);
    /* Of an elastic plan: for any number of replicas here, and in the stage that has most. */
    for (int all = 1; all <= plan->replicas_limit; all++) {
        const strait_groups groups = strait_groups_make(plan->groups.n_microbatches,
                                                        plan->groups.n_groups, all);
        for (int n = 1; n <= all; n++) {
            const int held = strait_groups_buffers(&groups, n);
            if (held > most) most = held;
        }
    }
    return most;
}

static strait_err plan_buffers(struct strait_slab *slab, strait_tensor *tensors,
                               const strait_param *params, int n_params, int n_buffers) {
    for (int i = 0; i < n_buffers * n_params; i++) {
        const strait_tensor shape = params[i % n_params].value;
        STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, shape.rows, shape.cols, &tensors[i]));
    }
    return STRAIT_OK;
}

static strait_err alloc_tensors(int n_params, int n_buffers, strait_tensor **out) {
    return strait_alloc((size_t)n_params * (size_t)n_buffers, sizeof **out, "sums of gradients",
                        (void **)out);
}

strait_err strait_gradient_sums_bytes(const strait_param *params, int n_params, int n_buffers,
                                      size_t *out) {
    struct strait_slab slab = {0};
    strait_tensor *tensors = NULL;
    *out = 0;
    if (n_buffers == 0) return STRAIT_OK;
    strait_err err = alloc_tensors(n_params, n_buffers, &tensors);
    if (err == STRAIT_OK) err = plan_buffers(&slab, tensors, params, n_params, n_buffers);
    *out = slab.bytes;
    strait_slab_fini(&slab);
    strait_alloc_free(tensors);
    return err;
}

strait_err strait_gradient_sums_init(struct strait_gradient_sums *sums, int n_leaves, int n_buffers,
                                     const strait_param *params, int n_params,
                                     struct strait_backend *backend) {
    *sums = (struct strait_gradient_sums){
        .params = params, .n_params = n_params, .n_leaves = n_leaves, .n_buffers = n_buffers};
    if (n_buffers == 0) return STRAIT_OK;
    STRAIT_TRY(alloc_tensors(n_params, n_buffers, &sums->buffers));
    STRAIT_TRY(plan_buffers(&sums->slab, sums->buffers, params, n_params, n_buffers));
    return strait_slab_commit(&sums->slab, backend);
}

void strait_gradient_sums_fini(struct strait_gradient_sums *sums) {
    strait_slab_fini(&sums->slab);
    strait_alloc_free(sums->buffers);
    *sums = (struct strait_gradient_sums){0};
}

void strait_gradient_sums_begin(struct strait_gradient_sums *sums) {
    memset(sums->kinds, 0, sizeof sums->kinds);
}

static strait_tensor buffer_of(const struct strait_gradient_sums *sums, int slot, int param) {
    return sums->buffers[slot * sums->n_params + param];
}

/* The left operand comes first; with two operands that changes nothing but is what the tree says.
 */
static strait_err add_slot(struct strait_gradient_sums *sums, struct strait_stream *stream,
                           int is_deferred, int slot, int is_left) {
    for (int i = 0; i < sums->n_params; i++) {
        const strait_param *param = &sums->params[i];
        if (param->is_deferred != is_deferred) continue;
        const strait_tensor other = buffer_of(sums, slot, i);
        STRAIT_TRY(stream->backend->kernels->add(stream, param->grad, is_left ? other : param->grad,
                                                 is_left ? param->grad : other));
    }
    return STRAIT_OK;
}

/* Every sum is in the gradients once, before it is added to another. */
static strait_err hash_node(const struct strait_gradient_sums *sums, struct strait_stream *stream,
                            int is_deferred, strait_pairwise_node node) {
    if (sums->audited == NULL) return STRAIT_OK;
    STRAIT_TRY(stream->backend->ops->wait(stream));
    return strait_sums_hash_node(sums->audited, sums->audited_owners, node, is_deferred);
}

strait_err strait_gradient_sums_add(struct strait_gradient_sums *sums, struct strait_stream *stream,
                                    int is_deferred, int leaf) {
    struct strait_pairwise *set = &sums->kinds[is_deferred].set;
    strait_pairwise_node node = strait_pairwise_leaf(sums->n_leaves, leaf);
    STRAIT_TRY(hash_node(sums, stream, is_deferred, node));
    while (!strait_pairwise_is_root(sums->n_leaves, node)) {
        const strait_pairwise_node sibling = strait_pairwise_sibling(node);
        const int slot = strait_pairwise_find(set, sibling);
        if (slot < 0) break;
        STRAIT_TRY(add_slot(sums, stream, is_deferred, slot, sibling.index < node.index));
        strait_pairwise_drop(set, sibling);
        sums->kinds[is_deferred].is_used[slot] = 0;
        node = strait_pairwise_sum(sums->n_leaves, node);
        STRAIT_TRY(hash_node(sums, stream, is_deferred, node));
    }
    sums->kinds[is_deferred].newest = node;
    return STRAIT_OK;
}

strait_err strait_gradient_sums_put_aside(struct strait_gradient_sums *sums,
                                          struct strait_stream *stream, int is_deferred) {
    unsigned char *is_used = sums->kinds[is_deferred].is_used;
    int slot = 0;
    while (slot < sums->n_buffers && is_used[slot])
        slot++;
    assert(slot < sums->n_buffers); // strait_groups_buffers counts the most that are needed
    for (int i = 0; i < sums->n_params; i++)
        if (sums->params[i].is_deferred == is_deferred)
            STRAIT_TRY(stream->backend->kernels->cast(stream, buffer_of(sums, slot, i),
                                                      sums->params[i].grad));
    is_used[slot] = 1;
    strait_pairwise_hold(&sums->kinds[is_deferred].set, sums->kinds[is_deferred].newest, slot);
    return STRAIT_OK;
}

strait_tensor strait_gradient_sums_get(const struct strait_gradient_sums *sums,
                                       strait_pairwise_node node, int param) {
    const int slot = strait_pairwise_find(&sums->kinds[sums->params[param].is_deferred].set, node);
    return slot >= 0 ? buffer_of(sums, slot, param) : sums->params[param].grad;
}
