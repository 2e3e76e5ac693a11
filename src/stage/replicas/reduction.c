#include "base/alloc.h"
#include "stage/replicas/reduction_state.h"

#include <string.h>

/* ---- life ---- */

/* A stage with few values has smaller chunks, so that every replica owns one: otherwise all would
 * send to the first. Chunks of rounded values keep their size: what their owner sums without
 * rounding depends on it. */
int64_t strait_reduction_chunk_size(int bits, int n_replicas, int64_t n_values) {
    const int64_t share = (n_values + n_replicas - 1) / n_replicas;
    return bits == 32 && share < STRAIT_REDUCTION_CHUNK && share > 0 ? share
                                                                     : STRAIT_REDUCTION_CHUNK;
}

static strait_err open_into(struct strait_reduction *r) {
    const strait_reduction_spec *spec = &r->spec;
    STRAIT_TRY(strait_alloc((size_t)spec->n_params + 1, sizeof *r->offsets, "reduction",
                            (void **)&r->offsets));
    for (int i = 0; i < spec->n_params; i++)
        r->offsets[i + 1] = r->offsets[i] + spec->params[i].value.rows * spec->params[i].value.cols;
    const int64_t n_values = r->offsets[spec->n_params];
    r->chunk_size = strait_reduction_chunk_size(spec->bits, spec->n_replicas, n_values);
    r->n_chunks = (int)((n_values + r->chunk_size - 1) / r->chunk_size);
    if (r->n_chunks > UINT16_MAX) // a frame has 16 bits for the number of a chunk
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "stages.replicas: stage %d has %lld parameters, more than the %d "
                           "million that replicas can sum; use more stages",
                           spec->stage, (long long)n_values,
                           (int)((int64_t)UINT16_MAX * STRAIT_REDUCTION_CHUNK / 1000000));
    const size_t n = (size_t)r->n_chunks;
    STRAIT_TRY(strait_alloc(n, 1, "reduction", (void **)&r->is_summed));
    STRAIT_TRY(strait_alloc(n, sizeof *r->results, "reduction", (void **)&r->results));
    STRAIT_TRY(strait_alloc(n / (size_t)spec->n_replicas + 1, sizeof *r->chunks, "reduction",
                            (void **)&r->chunks));
    if (spec->bits < 32) {
        const size_t owned = n / (size_t)spec->n_replicas + 1;
        STRAIT_TRY(strait_alloc((size_t)n_values, sizeof(float), "residuals of gradients",
                                (void **)&r->residual));
        STRAIT_TRY(strait_alloc(owned * STRAIT_REDUCTION_CHUNK, sizeof(float),
                                "residuals of gradients", (void **)&r->result_residual));
        STRAIT_TRY(
            strait_alloc(STRAIT_REDUCTION_CHUNK, sizeof(float), "reduction", (void **)&r->scratch));
    }
    if (r->backend->ops->is_host) return STRAIT_OK;
    return r->backend->ops->alloc_host(r->backend, (size_t)n_values * sizeof *r->copy,
                                       (void **)&r->copy);
}

strait_err strait_reduction_open(const strait_reduction_spec *spec, struct strait_backend *backend,
                                 struct strait_reduction **out) {
    struct strait_reduction *r = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *r, "reduction", (void **)&r));
    r->spec = *spec;
    r->backend = backend;
    r->n_leaves = spec->sums != NULL ? spec->groups->n_groups : spec->n_replicas;
    const strait_err err = open_into(r);
    if (err != STRAIT_OK) {
        strait_reduction_close(&r);
        return err;
    }
    *out = r;
    return STRAIT_OK;
}

void strait_reduction_reset(struct strait_reduction *r, int64_t step) {
    for (int c = r->spec.replica; r->chunks != NULL && c < r->n_chunks; c += r->spec.n_replicas) {
        struct chunk *chunk = &r->chunks[c / r->spec.n_replicas];
        for (int i = 0; i < STRAIT_PAIRWISE_LEAVES; i++)
            strait_msg_close(&chunk->waiting[i]);
        *chunk = (struct chunk){0};
    }
    strait_msg_close(&r->encoded);
    strait_msg_close(&r->held);
    if (r->hash != NULL) strait_sums_hash_reset(r->hash);
    if (r->is_summed != NULL) memset(r->is_summed, 0, (size_t)r->n_chunks);
    r->step = step;
    r->is_begun = r->n_summed = r->n_parts = r->has_sent_losses = r->is_foreign = 0;
    r->n_results = r->next_result = r->next_peer = 0;
    for (int i = 0; i < STRAIT_GROUPS_MAX; i++)
        strait_msg_close(&r->losses[i]);
}

void strait_reduction_close(struct strait_reduction **reduction) {
    struct strait_reduction *r = *reduction;
    if (r == NULL) return;
    strait_reduction_reset(r, 0);
    if (r->copy != NULL) r->backend->ops->release_host(r->backend, r->copy);
    strait_alloc_free(r->residual);
    strait_alloc_free(r->result_residual);
    strait_alloc_free(r->scratch);
    strait_alloc_free(r->offsets);
    strait_alloc_free(r->is_summed);
    strait_alloc_free(r->results);
    strait_alloc_free(r->chunks);
    strait_alloc_free(r);
    *reduction = NULL;
}

void strait_reduction_connect(struct strait_reduction *r, struct strait_mesh *mesh,
                              const int *peers) {
    r->mesh = mesh;
    for (int i = 0; i < r->spec.n_replicas; i++)
        r->peers[i] = peers[i];
}

void strait_reduction_hash(struct strait_reduction *r, struct strait_sums_hash *hash) {
    r->hash = hash;
}

int strait_reduction_replica(const struct strait_reduction *r, int peer) {
    for (int i = 0; i < r->spec.n_replicas; i++)
        if (i != r->spec.replica && r->mesh != NULL && r->peers[i] == peer) return i;
    return -1;
}

/* What came before this replica knew who owns which groups. */
static void check_arrived(struct strait_reduction *r) {
    for (int c = r->spec.replica; c < r->n_chunks; c += r->spec.n_replicas) {
        const struct chunk *chunk = &r->chunks[c / r->spec.n_replicas];
        for (int i = 0; i < r->n_leaves; i++)
            if ((chunk->leaves >> i & 1) != 0 && !is_leaf_of(r, i, chunk->from[i]))
                r->is_foreign = 1;
    }
}

void strait_reduction_begin(struct strait_reduction *r, int64_t step,
                            const strait_group_owners *owners) {
    unsigned char is_mine[STRAIT_PAIRWISE_LEAVES];
    strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES];
    if (step != r->step) strait_reduction_reset(r, step);
    r->is_begun = 1;
    r->owners = *owners;
    for (int i = 0; i < r->n_leaves; i++)
        is_mine[i] = (unsigned char)is_leaf_of(r, i, r->spec.replica);
    check_arrived(r);
    r->n_parts = strait_pairwise_parts(r->n_leaves, is_mine, nodes);
    for (int i = 0; i < r->n_parts; i++)
        r->parts[i] = (struct part){.node = nodes[i]};
}

/* ---- what this replica computed ---- */

void strait_reduction_ready(struct strait_reduction *r, strait_pairwise_node node,
                            int is_deferred) {
    for (int i = 0; i < r->n_parts; i++)
        if (r->parts[i].node.level == node.level && r->parts[i].node.index == node.index)
            r->parts[i].is_ready[is_deferred] = 1;
}

strait_err strait_reduction_complete(struct strait_reduction *r, struct strait_stream *stream) {
    const struct strait_backend_ops *ops = r->backend->ops;
    if (r->is_foreign)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "stage %d, replica %d, at step %lld: received a sum of groups from a "
                           "replica that does not own them",
                           r->spec.stage, r->spec.replica, (long long)r->step);
    for (int i = 0; r->copy != NULL && i < r->spec.n_params; i++)
        STRAIT_TRY(ops->download(stream, r->copy + r->offsets[i], r->spec.params[i].grad.data,
                                 strait_tensor_bytes(r->spec.params[i].grad)));
    STRAIT_TRY(ops->wait(stream));
    for (int i = 0; i < r->n_parts; i++)
        r->parts[i].is_ready[0] = r->parts[i].is_ready[1] = 1;
    return STRAIT_OK;
}

static strait_err open_message(struct strait_reduction *r, int holds, size_t bytes,
                               struct strait_msg **out) {
    STRAIT_TRY(strait_msg_open(strait_mesh_pool(r->mesh), STRAIT_MSG_REDUCE, bytes, out));
    (*out)->priority = STRAIT_PRIORITY_ACTIVATION;
    (*out)->flags = (uint8_t)holds;
    (*out)->boundary = (uint16_t)r->spec.stage;
    (*out)->step = (uint32_t)r->step;
    return STRAIT_OK;
}

/* ---- sending ---- */

/* STRAIT_EAGAIN: the queue is full; the message is kept and sent first the next time. */
static strait_err post(struct strait_reduction *r, int replica, struct strait_msg **msg) {
    const strait_err err = strait_mesh_send(r->mesh, r->peers[replica], msg);
    if (err == STRAIT_EAGAIN) {
        r->held = *msg;
        r->held_for = replica;
        *msg = NULL;
    }
    r->n_posted += err == STRAIT_OK;
    strait_msg_close(msg);
    return err;
}

static strait_err post_held(struct strait_reduction *r) {
    struct strait_msg *msg = r->held;
    r->held = NULL;
    return msg != NULL ? post(r, r->held_for, &msg) : STRAIT_OK;
}

/* A chunk of our own does not cross a link, and loses nothing. */
static strait_err send_part(struct strait_reduction *r, struct part *part) {
    const int chunk = part->next, owner = chunk_owner(r, chunk);
    const int bits = owner == r->spec.replica ? 32 : r->spec.bits;
    const int64_t n = chunk_values(r, chunk);
    struct strait_msg *msg = NULL;
    STRAIT_TRY(open_message(r, HOLDS_PART, strait_quantized_bytes(bits, n), &msg));
    msg->microbatch = (uint16_t)chunk;
    msg->basis = (uint16_t)(part->node.level << 8 | part->node.index);
    strait_reduction_copy(r, part->node, chunk, bits == 32 ? chunk_body(msg) : r->scratch, 0);
    if (bits < 32)
        strait_quantize(bits, r->scratch, r->residual + chunk_first(r, chunk), n, msg->body);
    part->next++;
    STRAIT_TRY(strait_reduction_hash_part(r, part->node, chunk, msg));
    if (owner != r->spec.replica) return post(r, owner, &msg);
    strait_reduction_add(r, chunk, part->node, r->spec.replica, msg);
    return STRAIT_OK;
}

/* What the others will read is what this replica uses itself, so that all stay equal. */
static strait_err encode_result(struct strait_reduction *r, int chunk, struct strait_msg *sum) {
    const int64_t n = chunk_values(r, chunk);
    const int bits = r->spec.bits;
    STRAIT_TRY(open_message(r, HOLDS_SUM, strait_quantized_bytes(bits, n), &r->encoded));
    if (bits == 32) {
        memcpy(r->encoded->body, sum->body, r->encoded->size);
        return STRAIT_OK;
    }
    float *residual = r->result_residual +
                      (int64_t)(chunk / r->spec.n_replicas) * STRAIT_REDUCTION_CHUNK;
    strait_quantize(bits, chunk_body(sum), residual, n, r->encoded->body);
    strait_dequantize(bits, r->encoded->body, n, chunk_body(sum));
    strait_reduction_copy(r, (strait_pairwise_node){0}, chunk, chunk_body(sum), 1);
    strait_reduction_note_summed(r, chunk);
    return STRAIT_OK;
}

static strait_err send_result(struct strait_reduction *r) {
    const int chunk = r->results[r->next_result];
    struct chunk *owned = &r->chunks[chunk / r->spec.n_replicas];
    if (r->encoded == NULL) STRAIT_TRY(encode_result(r, chunk, owned->waiting[0]));
    while (r->next_peer < r->spec.n_replicas) {
        const int peer = r->next_peer++;
        struct strait_msg *msg = NULL;
        if (peer == r->spec.replica) continue;
        STRAIT_TRY(open_message(r, HOLDS_SUM, r->encoded->size, &msg));
        msg->microbatch = (uint16_t)chunk;
        memcpy(msg->body, r->encoded->body, msg->size);
        STRAIT_TRY(post(r, peer, &msg));
    }
    strait_msg_close(&r->encoded);
    strait_msg_close(&owned->waiting[0]);
    *owned = (struct chunk){0};
    r->next_result++;
    r->next_peer = 0;
    return STRAIT_OK;
}

static strait_err send_losses(struct strait_reduction *r) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(open_message(r, HOLDS_LOSSES, (size_t)r->spec.n_losses * sizeof(double), &msg));
    memcpy(msg->body, r->spec.losses, msg->size);
    r->has_sent_losses = 1;
    return post(r, 0, &msg);
}

static int is_ready(const struct part *part) {
    return part->is_ready[0] && part->is_ready[1];
}

static int must_send_losses(const struct strait_reduction *r) {
    return r->spec.losses != NULL && r->spec.replica != 0 && !r->has_sent_losses;
}

/* Losses are complete when the last part is. */
static strait_err send_all(struct strait_reduction *r) {
    int n_ready = 0;
    STRAIT_TRY(post_held(r));
    for (int i = 0; i < r->n_parts; i++) {
        n_ready += is_ready(&r->parts[i]);
        while (is_ready(&r->parts[i]) && r->parts[i].next < r->n_chunks)
            STRAIT_TRY(send_part(r, &r->parts[i]));
    }
    if (must_send_losses(r) && n_ready == r->n_parts && r->n_parts > 0) STRAIT_TRY(send_losses(r));
    while (r->next_result < r->n_results)
        STRAIT_TRY(send_result(r));
    return STRAIT_OK;
}

strait_err strait_reduction_send(struct strait_reduction *r, int *is_blocked) {
    const strait_err err = r->is_begun ? send_all(r) : STRAIT_OK;
    *is_blocked = err == STRAIT_EAGAIN;
    return err == STRAIT_EAGAIN ? STRAIT_OK : err;
}

int strait_reduction_blocked(const struct strait_reduction *r) {
    return r->held != NULL ? r->held_for : -1;
}

int64_t strait_reduction_posted(const struct strait_reduction *r) {
    return r->n_posted;
}

/* ---- the end of a step ---- */

int strait_reduction_is_done(const struct strait_reduction *r) {
    for (int i = 0; i < r->spec.n_replicas; i++)
        if (strait_reduction_awaits_losses(r, i)) return 0;
    return r->held == NULL && r->n_summed == r->n_chunks && r->next_result == r->n_results &&
           !must_send_losses(r);
}

/* Each replica sends all losses, of which those of its groups count. */
static void read_losses(struct strait_reduction *r) {
    const int each = r->spec.n_losses / r->spec.groups->n_microbatches;
    for (int i = 0; r->spec.replica == 0 && i < r->spec.n_losses; i++) {
        const int from = r->owners.replica[strait_groups_of(r->spec.groups, i / each)];
        if (from != 0)
            memcpy(&r->spec.losses[i], r->losses[from]->body + (size_t)i * sizeof(double),
                   sizeof(double));
    }
}

strait_err strait_reduction_finish(struct strait_reduction *r, struct strait_stream *stream) {
    for (int i = 0; r->copy != NULL && i < r->spec.n_params; i++)
        STRAIT_TRY(r->backend->ops->upload(stream, r->spec.params[i].grad.data,
                                           r->copy + r->offsets[i],
                                           strait_tensor_bytes(r->spec.params[i].grad)));
    if (r->spec.losses != NULL) read_losses(r);
    if (r->hash != NULL) STRAIT_TRY(strait_sums_hash_end(r->hash, &r->owners));
    strait_reduction_reset(r, r->step + 1);
    return STRAIT_OK;
}

double strait_reduction_sent_bytes(const strait_run_plan *plan, int stage, int64_t n_values) {
    const strait_groups *groups = &plan->groups;
    const int n_replicas = plan->replicas[stage];
    int most = 1;
    strait_group_owners owners;
    strait_pairwise_node nodes[STRAIT_PAIRWISE_LEAVES];
    unsigned char is_mine[STRAIT_PAIRWISE_LEAVES];
    if (n_replicas <= 1) return 0.0;
    strait_groups_share(groups, n_replicas, NULL, &owners);
    for (int replica = 0; plan->sums_pairwise && replica < n_replicas; replica++) {
        for (int i = 0; i < groups->n_groups; i++)
            is_mine[i] = owners.replica[i] == replica;
        const int n = strait_pairwise_parts(groups->n_groups, is_mine, nodes);
        if (n > most) most = n;
    }
    return (double)(n_replicas - 1) / n_replicas * (most + 1) *
           (double)strait_quantized_bytes(plan->reduce_bits, n_values);
}

size_t strait_reduction_residual_bytes(const strait_run_plan *plan, int stage, int64_t n_values) {
    const int n_replicas = plan->replicas[stage];
    if (n_replicas <= 1 || plan->reduce_bits == 32) return 0;
    return (size_t)(n_values + n_values / n_replicas) * sizeof(float);
}
