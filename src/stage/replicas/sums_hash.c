#include "stage/replicas/sums_hash.h"

#include "base/alloc.h"
#include "stage/replicas/reduction_state.h"

#include <string.h>

enum {
    KINDS = 2 // of gradients, by strait_param.is_deferred: complete at different times
};

struct strait_sums_hash {
    strait_sums_hash_spec spec;
    int64_t *offsets; // of each parameter in the row of all values, and its end
    int64_t chunk_size;
    int n_chunks;
    /* By the first group of a part and the owner of its chunks. */
    strait_digest parts[KINDS][STRAIT_GROUPS_MAX][STRAIT_SUMS_REPLICAS];
    strait_sums_work work;
};

static strait_err open_into(struct strait_sums_hash *h) {
    const strait_sums_hash_spec *spec = &h->spec;
    STRAIT_TRY(strait_alloc((size_t)spec->n_params + 1, sizeof *h->offsets, "digests of gradients",
                            (void **)&h->offsets));
    for (int i = 0; i < spec->n_params; i++)
        h->offsets[i + 1] = h->offsets[i] + spec->params[i].value.rows * spec->params[i].value.cols;
    const int64_t n_values = h->offsets[spec->n_params];
    h->chunk_size = strait_reduction_chunk_size(32, spec->n_replicas, n_values);
    h->n_chunks = (int)((n_values + h->chunk_size - 1) / h->chunk_size);
    return STRAIT_OK;
}

strait_err strait_sums_hash_open(const strait_sums_hash_spec *spec, struct strait_sums_hash **out) {
    struct strait_sums_hash *h = NULL;
    if (spec->n_replicas > STRAIT_SUMS_REPLICAS)
        return STRAIT_FAIL(STRAIT_EINVAL, "the sums of %d replicas cannot be audited, but of %d",
                           spec->n_replicas, STRAIT_SUMS_REPLICAS);
    STRAIT_TRY(strait_alloc(1, sizeof *h, "digests of gradients", (void **)&h));
    h->spec = *spec;
    const strait_err err = open_into(h);
    if (err != STRAIT_OK) {
        strait_sums_hash_close(&h);
        return err;
    }
    *out = h;
    return STRAIT_OK;
}

void strait_sums_hash_close(struct strait_sums_hash **hash) {
    if (*hash == NULL) return;
    strait_alloc_free((*hash)->offsets);
    strait_alloc_free(*hash);
    *hash = NULL;
}

void strait_sums_hash_reset(struct strait_sums_hash *h) {
    memset(h->parts, 0, sizeof h->parts);
}

/* Extends a digest by the values of a chunk that belong to a kind of gradients; -1: by all. They
 * are in `values`, or in the gradients themselves. */
static strait_err hash_chunk(const struct strait_sums_hash *h, int chunk, int kind,
                             const float *values, strait_digest *digest) {
    const int64_t first = (int64_t)chunk * h->chunk_size, end = first + h->chunk_size;
    for (int i = 0; i < h->spec.n_params; i++) {
        const strait_param *param = &h->spec.params[i];
        const int64_t from = h->offsets[i] > first ? h->offsets[i] : first;
        const int64_t to = h->offsets[i + 1] < end ? h->offsets[i + 1] : end;
        if (from >= to || (kind >= 0 && param->is_deferred != kind)) continue;
        const float *at = values != NULL ? values + (from - first)
                                         : (const float *)param->grad.data + (from - h->offsets[i]);
        STRAIT_TRY(strait_digest_extend(digest, at, (size_t)(to - from) * sizeof *at));
    }
    return STRAIT_OK;
}

strait_err strait_sums_hash_part(struct strait_sums_hash *h, int leaf, int chunk,
                                 const float *values) {
    for (int kind = 0; kind < KINDS; kind++)
        STRAIT_TRY(
            hash_chunk(h, chunk, kind, values, &h->parts[kind][leaf][chunk % h->spec.n_replicas]));
    return STRAIT_OK;
}

static int list_parts(const struct strait_sums_hash *h, const strait_group_owners *owners,
                      int replica, strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES]) {
    unsigned char is_mine[STRAIT_PAIRWISE_LEAVES];
    for (int i = 0; i < h->spec.groups->n_groups; i++)
        is_mine[i] = owners->replica[i] == replica;
    return strait_pairwise_parts(h->spec.groups->n_groups, is_mine, nodes);
}

static int first_leaf(const struct strait_sums_hash *h, strait_pairwise_node node) {
    int first, end;
    strait_pairwise_leaves(h->spec.groups->n_groups, node, &first, &end);
    return first;
}

strait_err strait_sums_hash_node(struct strait_sums_hash *h, const strait_group_owners *owners,
                                 strait_pairwise_node node, int is_deferred) {
    strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES];
    const int leaf = first_leaf(h, node);
    const int n = list_parts(h, owners, owners->replica[leaf], nodes);
    for (int i = 0; i < n; i++) {
        if (nodes[i].level != node.level || nodes[i].index != node.index) continue;
        for (int chunk = 0; chunk < h->n_chunks; chunk++)
            STRAIT_TRY(hash_chunk(h, chunk, is_deferred, NULL,
                                  &h->parts[is_deferred][leaf][chunk % h->spec.n_replicas]));
    }
    return STRAIT_OK;
}

/* Those of the groups of a replica, in the order of sequences. */
static strait_err hash_losses(const struct strait_sums_hash *h, const strait_group_owners *owners,
                              int replica, strait_digest *digest) {
    const int each = h->spec.n_losses / h->spec.groups->n_microbatches;
    for (int i = 0; i < h->spec.n_losses; i++)
        if (owners->replica[strait_groups_of(h->spec.groups, i / each)] == replica)
            STRAIT_TRY(strait_digest_extend(digest, &h->spec.losses[i], sizeof *h->spec.losses));
    return STRAIT_OK;
}

static strait_err hash_given(const struct strait_sums_hash *h, const strait_group_owners *owners,
                             int giver, int owner, strait_digest *out) {
    strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES];
    const int n = list_parts(h, owners, giver, nodes);
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const strait_digest *part = &h->parts[kind][first_leaf(h, nodes[i])][owner];
            STRAIT_TRY(strait_digest_extend(out, part->bytes, sizeof part->bytes));
        }
    if (h->spec.losses == NULL || owner != 0 || giver == 0) return STRAIT_OK;
    return hash_losses(h, owners, giver, out);
}

strait_err strait_sums_hash_end(struct strait_sums_hash *h, const strait_group_owners *owners) {
    const int n = h->spec.n_replicas, self = h->spec.replica;
    memset(&h->work, 0, sizeof h->work);
    for (int giver = 0; giver < n; giver++)
        for (int owner = 0; owner < n; owner++)
            if (self < 0 || giver == self || owner == self)
                STRAIT_TRY(hash_given(h, owners, giver, owner, &h->work.given[giver][owner]));
    for (int chunk = 0; chunk < h->n_chunks; chunk++)
        STRAIT_TRY(hash_chunk(h, chunk, -1, NULL, &h->work.totals[chunk % n]));
    strait_sums_hash_reset(h);
    return STRAIT_OK;
}

const strait_sums_work *strait_sums_hash_work(const struct strait_sums_hash *h) {
    return &h->work;
}
