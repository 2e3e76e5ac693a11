#include "stage/replicas/reduction_state.h"

#include <string.h>

static float *values_at(const struct strait_reduction *r, strait_pairwise_node node, int param) {
    if (r->copy != NULL) return r->copy + r->offsets[param];
    if (r->spec.sums == NULL) return r->spec.params[param].grad.data;
    return strait_gradient_sums_get(r->spec.sums, node, param).data;
}

void strait_reduction_copy(const struct strait_reduction *r, strait_pairwise_node node, int chunk,
                           float *values, int is_result) {
    const int64_t first = chunk_first(r, chunk), end = first + chunk_values(r, chunk);
    for (int i = 0; i < r->spec.n_params; i++) {
        const int64_t from = r->offsets[i] > first ? r->offsets[i] : first;
        const int64_t to = r->offsets[i + 1] < end ? r->offsets[i + 1] : end;
        if (from >= to) continue;
        float *there = is_result && r->copy == NULL ? r->spec.params[i].grad.data
                                                    : values_at(r, node, i);
        float *here = values + (from - first);
        there += from - r->offsets[i];
        memcpy(is_result ? there : here, is_result ? here : there,
               (size_t)(to - from) * sizeof(float));
    }
}

/* ---- adding ---- */

/* Both messages have the values of one chunk; the sum is left in the first. */
static void add(struct strait_msg *left, struct strait_msg *right) {
    float *restrict a = chunk_body(left);
    const float *restrict b = chunk_body(right);
    const size_t n = left->size / sizeof(float);
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}

void strait_reduction_note_summed(struct strait_reduction *r, int chunk) {
    r->is_summed[chunk] = 1;
    r->n_summed++;
}

static void note_leaves(struct strait_reduction *r, int index, strait_pairwise_node node,
                        int from) {
    struct chunk *chunk = &r->chunks[index / r->spec.n_replicas];
    int first, end;
    strait_pairwise_leaves(r->n_leaves, node, &first, &end);
    for (int i = first; i < end; i++) {
        chunk->leaves |= UINT64_C(1) << i;
        chunk->from[i] = (unsigned char)from;
    }
}

void strait_reduction_add(struct strait_reduction *r, int index, strait_pairwise_node node,
                          int from, struct strait_msg *msg) {
    struct chunk *chunk = &r->chunks[index / r->spec.n_replicas];
    note_leaves(r, index, node, from);
    while (!strait_pairwise_is_root(r->n_leaves, node)) {
        const strait_pairwise_node sibling = strait_pairwise_sibling(node);
        const int slot = strait_pairwise_find(&chunk->set, sibling);
        if (slot < 0) break;
        struct strait_msg *other = chunk->waiting[slot];
        struct strait_msg *left = sibling.index < node.index ? other : msg;
        struct strait_msg *right = left == other ? msg : other;
        chunk->waiting[slot] = NULL;
        strait_pairwise_drop(&chunk->set, sibling);
        add(left, right);
        strait_msg_close(&right);
        msg = left;
        node = strait_pairwise_sum(r->n_leaves, node);
    }
    int first, end;
    strait_pairwise_leaves(r->n_leaves, node, &first, &end);
    chunk->waiting[first] = msg;
    if (!strait_pairwise_is_root(r->n_leaves, node)) {
        strait_pairwise_hold(&chunk->set, node, first);
        return;
    }
    /* Kept until the others got it. With fewer bits, the result is what is sent to them. */
    if (r->spec.bits == 32) {
        strait_reduction_copy(r, node, index, chunk_body(msg), 1);
        strait_reduction_note_summed(r, index);
    }
    r->results[r->n_results++] = index;
}

strait_err strait_reduction_hash_part(struct strait_reduction *r, strait_pairwise_node node,
                                      int chunk, struct strait_msg *msg) {
    int first, end;
    if (r->hash == NULL) return STRAIT_OK;
    strait_pairwise_leaves(r->n_leaves, node, &first, &end);
    return strait_sums_hash_part(r->hash, first, chunk, chunk_body(msg));
}

/* ---- receiving ---- */

static strait_err fail_unexpected(const struct strait_reduction *r, const struct strait_msg *m) {
    return STRAIT_FAIL(STRAIT_EPROTO,
                       "stage %d, replica %d, at step %lld: unexpected gradients of step %u, chunk "
                       "%d, %zu bytes from replica %d",
                       r->spec.stage, r->spec.replica, (long long)r->step, (unsigned)m->step,
                       m->microbatch, m->size, strait_reduction_replica(r, m->peer));
}

/* Replaces a message by one with plain floats. */
static strait_err decode(const struct strait_reduction *r, int chunk, struct strait_msg **msg) {
    const int64_t n = chunk_values(r, chunk);
    struct strait_msg *plain = NULL;
    if (r->spec.bits == 32) return STRAIT_OK;
    STRAIT_TRY(strait_msg_open(strait_mesh_pool(r->mesh), STRAIT_MSG_REDUCE,
                               (size_t)n * sizeof(float), &plain));
    strait_dequantize(r->spec.bits, (*msg)->body, n, chunk_body(plain));
    strait_msg_close(msg);
    *msg = plain;
    return STRAIT_OK;
}

/* A part may come before the owners of this step's groups are known; begin checks it then. */
static strait_err take_part(struct strait_reduction *r, int from, struct strait_msg **msg) {
    const int chunk = (*msg)->microbatch;
    const strait_pairwise_node node = {(*msg)->basis >> 8, (*msg)->basis & 0xFF};
    if (chunk_owner(r, chunk) != r->spec.replica || r->is_summed[chunk] ||
        !strait_pairwise_is_valid(r->n_leaves, node))
        return fail_unexpected(r, *msg);
    const uint64_t before = r->chunks[chunk / r->spec.n_replicas].leaves;
    int first, end;
    strait_pairwise_leaves(r->n_leaves, node, &first, &end);
    for (int i = first; i < end; i++)
        if ((before >> i & 1) != 0 || (r->is_begun && !is_leaf_of(r, i, from)))
            return fail_unexpected(r, *msg); // a duplicate, or somebody else's
    STRAIT_TRY(decode(r, chunk, msg));
    STRAIT_TRY(strait_reduction_hash_part(r, node, chunk, *msg));
    strait_reduction_add(r, chunk, node, from, *msg);
    *msg = NULL;
    return STRAIT_OK;
}

static strait_err take_sum(struct strait_reduction *r, int from, struct strait_msg *msg) {
    const int chunk = msg->microbatch;
    if (chunk_owner(r, chunk) != from || r->is_summed[chunk]) return fail_unexpected(r, msg);
    const int is_plain = r->spec.bits == 32;
    if (!is_plain) strait_dequantize(r->spec.bits, msg->body, chunk_values(r, chunk), r->scratch);
    strait_reduction_copy(r, (strait_pairwise_node){0}, chunk,
                          is_plain ? chunk_body(msg) : r->scratch, 1);
    strait_reduction_note_summed(r, chunk);
    return STRAIT_OK;
}

/* Kept until the step ends: whose losses count may not be known yet. */
static strait_err take_losses(struct strait_reduction *r, int from, struct strait_msg **msg) {
    if (r->spec.losses == NULL || r->spec.replica != 0 || r->losses[from] != NULL ||
        (*msg)->size != (size_t)r->spec.n_losses * sizeof(double))
        return fail_unexpected(r, *msg);
    r->losses[from] = *msg;
    *msg = NULL;
    return STRAIT_OK;
}

strait_err strait_reduction_deliver(struct strait_reduction *r, struct strait_msg **msg) {
    const int from = strait_reduction_replica(r, (*msg)->peer);
    const int is_losses = (*msg)->flags == HOLDS_LOSSES;
    if (from < 0 || (*msg)->flags > HOLDS_LOSSES || (*msg)->boundary != r->spec.stage ||
        (*msg)->step != (uint32_t)r->step ||
        (!is_losses && ((*msg)->microbatch >= r->n_chunks ||
                        (*msg)->size != strait_quantized_bytes(
                                            r->spec.bits, chunk_values(r, (*msg)->microbatch)))))
        return fail_unexpected(r, *msg);
    if ((*msg)->flags == HOLDS_PART) return take_part(r, from, msg);
    if (is_losses) return take_losses(r, from, msg);
    STRAIT_TRY(take_sum(r, from, *msg));
    strait_msg_close(msg);
    return STRAIT_OK;
}

/* ---- what is missing ---- */

int strait_reduction_awaits_losses(const struct strait_reduction *r, int replica) {
    return r->spec.losses != NULL && r->spec.replica == 0 && replica != 0 &&
           r->losses[replica] == NULL;
}

int strait_reduction_awaited(const struct strait_reduction *r) {
    for (int i = 0; i < r->spec.n_replicas; i++)
        if (strait_reduction_awaits_losses(r, i)) return i;
    for (int c = 0; c < r->n_chunks; c++) {
        if (r->is_summed[c]) continue;
        if (chunk_owner(r, c) != r->spec.replica) return chunk_owner(r, c);
        const uint64_t leaves = r->chunks[c / r->spec.n_replicas].leaves;
        for (int i = 0; i < r->n_leaves; i++)
            if (!(leaves >> i & 1)) return r->spec.sums != NULL ? r->owners.replica[i] : i;
    }
    return -1;
}
