#include "base/alloc.h"
#include "stage/outer/outer_state.h"
#include "stage/replicas/quantize.h"
#include "stage/replicas/value_set.h"

#include <string.h>

#define THREADED (1 << 20) // values from which on threads are worth it

/* ---- values ---- */

static int64_t values_of(strait_tensor t) {
    return t.rows * t.cols;
}

/* The i-th state of the optimizer; 0: it is not averaged. A first moment that is rounded would be
 * divided by the second, which stays exact and may be far smaller: only momentum that nothing
 * divides is averaged in few bits. */
static int is_averaged_state(const strait_outer_spec *spec, int i, strait_optim_state *out) {
    if (strait_optimizer_state(spec->optimizer, i, out) != STRAIT_OK) return 0;
    return spec->params.average_state == STRAIT_OUTER_MOMENTS || (out->is_linear && out->is_only);
}

static int n_states_of(const strait_outer_spec *spec) {
    return spec->params.average_state != STRAIT_OUTER_NONE
               ? strait_optimizer_n_states(spec->optimizer)
               : 0;
}

int strait_outer_averages(const strait_outer_spec *spec, int weight) {
    return !spec->weights[weight].is_idle &&
           (spec->optimizer == NULL || strait_optimizer_learns(spec->optimizer, weight));
}

/* Whether a weight is in the part of attention: its matrices, and not its gains and tables. Their
 * momentum stays with the rest: to average it more often gained nothing. */
static int is_attention(const strait_outer_spec *spec, const strait_param *param) {
    return spec->params.schedule.attention_every > 0 &&
           strstr(param->name, ".attention.") != NULL &&
           (param->role == STRAIT_ROLE_MATRIX || param->role == STRAIT_ROLE_RESIDUAL_OUT);
}

struct strait_outer_count strait_outer_count(const strait_outer_spec *spec) {
    struct strait_outer_count n = {0};
    for (int i = 0; i < spec->n_weights; i++) {
        const strait_param *param = &spec->weights[i];
        if (!strait_outer_averages(spec, i)) continue;
        n.weights += values_of(param->value);
        if (is_attention(spec, param)) n.attention += values_of(param->value);
    }
    for (int i = 0; i < n_states_of(spec); i++) {
        strait_optim_state state;
        if (is_averaged_state(spec, i, &state)) n.states += values_of(state.tensor);
    }
    return n;
}

/* Fragment f has the values from its bound to that of f + 1. Bounds are at whole blocks of the
 * quantiser, so that fragments do not change what blocks there are. */
static int64_t bound(int64_t n, int fragments, int f) {
    const int64_t at = n * f / fragments;
    return f == fragments ? n : at - at % STRAIT_QUANTIZE_BLOCK;
}

/* In whole pieces. */
int64_t strait_outer_chunk_size(int64_t n_values, int n_members) {
    const int64_t each = (n_values + n_members - 1) / n_members;
    const int64_t size = (each + STRAIT_OUTER_PIECE - 1) / STRAIT_OUTER_PIECE * STRAIT_OUTER_PIECE;
    return size < STRAIT_OUTER_CHUNK ? size : STRAIT_OUTER_CHUNK;
}

/* Where the values of a part are among all weights, or among all values of state. */
static struct strait_outer_range range_of(const struct strait_outer *o, int is_state, int part) {
    const int fragments = o->spec.params.schedule.fragments;
    const int64_t n = is_state ? o->n_states : o->n_weights;
    const int64_t rest = is_state ? n : n - o->n_attention;
    if (part == fragments) return (struct strait_outer_range){rest, n};
    return (struct strait_outer_range){bound(rest, fragments, part),
                                       bound(rest, fragments, part + 1)};
}

/* The most chunks of a part, for any number of members. */
static int64_t chunks_in(const struct strait_outer *o, int is_state, int part) {
    const struct strait_outer_range r = range_of(o, is_state, part);
    const int64_t values = r.end - r.first;
    const int64_t size = values > 0 ? strait_outer_chunk_size(values, o->spec.n_replicas) : 1;
    return (values + size - 1) / size;
}

static void add_segment(struct strait_outer *o, strait_tensor tensor, int64_t first, int weight) {
    if (weight >= 0) o->segment_of[weight] = o->n_segments;
    o->segments[o->n_segments++] = (struct segment){tensor, first, weight};
}

/* Lists the weights that are, or are not, in the part of attention; returns where the next begins.
 */
static int64_t list_weights(struct strait_outer *o, int of_attention, int64_t first) {
    const strait_outer_spec *spec = &o->spec;
    for (int i = 0; i < spec->n_weights; i++) {
        const strait_param *param = &spec->weights[i];
        if (!strait_outer_averages(spec, i) || is_attention(spec, param) != of_attention) continue;
        add_segment(o, param->value, first, i);
        first += values_of(param->value);
    }
    return first;
}

static strait_err list_segments(struct strait_outer *o) {
    const strait_outer_spec *spec = &o->spec;
    const int n_states = n_states_of(spec);
    STRAIT_TRY(strait_alloc((size_t)(spec->n_weights + n_states), sizeof *o->segments,
                            "averaged weights", (void **)&o->segments));
    STRAIT_TRY(strait_alloc((size_t)spec->n_weights, sizeof *o->segment_of, "averaged weights",
                            (void **)&o->segment_of));
    for (int i = 0; i < spec->n_weights; i++)
        o->segment_of[i] = -1;
    int64_t first = list_weights(o, 1, list_weights(o, 0, 0));
    for (int i = 0; i < n_states; i++) {
        strait_optim_state state;
        if (!is_averaged_state(spec, i, &state)) continue;
        add_segment(o, state.tensor, first, -1);
        first += values_of(state.tensor);
    }
    return STRAIT_OK;
}

strait_err strait_outer_copy(struct strait_outer *o, struct strait_stream *stream, int64_t first,
                             int64_t end, float *host, int is_upload) {
    const struct strait_backend_ops *ops = o->backend->ops;
    for (int i = 0; i < o->n_segments; i++) {
        const struct segment *s = &o->segments[i];
        const int64_t from = s->first > first ? s->first : first;
        const int64_t last = s->first + values_of(s->tensor);
        const int64_t to = last < end ? last : end;
        if (from >= to) continue;
        float *there = (float *)s->tensor.data + (from - s->first);
        float *here = host + (from - first);
        const size_t bytes = (size_t)(to - from) * sizeof(float);
        STRAIT_TRY(is_upload ? ops->upload(stream, there, here, bytes)
                             : ops->download(stream, here, there, bytes));
    }
    return STRAIT_OK;
}

/* ---- life ---- */

/* An allocation of nothing would fail: a stage without adapters (train.lora) learns nothing. */
static strait_err alloc_values(int64_t n, float **out) {
    return strait_alloc((size_t)n + 1, sizeof **out, "averaged weights", (void **)out);
}

static int64_t largest_fragment(const struct strait_outer *o) {
    int64_t most = 0;
    for (int f = 0; f < o->spec.params.schedule.fragments; f++) {
        const struct strait_outer_range r = range_of(o, 0, f);
        if (r.end - r.first > most) most = r.end - r.first;
    }
    return most;
}

static strait_err open_chunks(struct strait_outer *o) {
    const int n_parts = strait_outer_n_parts(&o->spec.params.schedule);
    for (int part = 0; part < n_parts; part++) {
        const int64_t n = chunks_in(o, 0, part) + chunks_in(o, 1, part);
        if (n > UINT16_MAX) // a frame has 16 bits for the number of a chunk
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "train.outer: a fragment of stage %d has %lld chunks, more than %d; "
                               "use more train.outer.fragments or stages",
                               o->spec.stage, (long long)n, UINT16_MAX);
        if (n > o->capacity) o->capacity = (int)n;
    }
    o->capacity++; // an allocation of nothing would fail
    STRAIT_TRY(strait_alloc((size_t)o->capacity, sizeof *o->chunks, "averaged weights",
                            (void **)&o->chunks));
    return strait_alloc((size_t)o->capacity, sizeof *o->ready, "averaged weights",
                        (void **)&o->ready);
}

static strait_err open_into(struct strait_outer *o) {
    const struct strait_backend_ops *ops = o->backend->ops;
    if (o->spec.n_replicas == 1) STRAIT_TRY(strait_msg_pool_open(&o->alone));
    STRAIT_TRY(list_segments(o));
    STRAIT_TRY(open_chunks(o));
    STRAIT_TRY(alloc_values(o->n_weights, &o->anchor));
    STRAIT_TRY(alloc_values(o->n_weights, &o->momentum));
    if (o->spec.n_replicas > 1) {
        STRAIT_TRY(alloc_values(o->n_weights, &o->residual));
        if (o->spec.params.bits < 32) STRAIT_TRY(alloc_values(o->n_weights, &o->result_residual));
    }
    STRAIT_TRY(ops->alloc_host(o->backend, (size_t)(o->n_weights + o->n_states + 1) * sizeof(float),
                               (void **)&o->sent));
    o->mark = o->sent + o->n_weights + o->n_states;
    *o->mark = 0.0f;
    if (o->spec.params.schedule.overlap > 0)
        STRAIT_TRY(ops->alloc_host(o->backend, (size_t)(largest_fragment(o) + 1) * sizeof(float),
                                   (void **)&o->now));
    return o->n_weights >= THREADED ? strait_pool_open(o->spec.n_threads, &o->pool) : STRAIT_OK;
}

strait_err strait_outer_open(const strait_outer_spec *spec, struct strait_backend *backend,
                             struct strait_outer **out) {
    struct strait_outer *o = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *o, "averaged weights", (void **)&o));
    o->spec = *spec;
    o->backend = backend;
    for (int i = 0; i < STRAIT_RUN_REPLICAS; i++)
        o->peers[i] = -1;
    const struct strait_outer_count n = strait_outer_count(spec);
    o->n_weights = n.weights;
    o->n_states = n.states;
    o->n_attention = n.attention;
    const strait_err err = open_into(o);
    if (err != STRAIT_OK) {
        strait_outer_close(&o);
        return err;
    }
    *out = o;
    return STRAIT_OK;
}

void strait_outer_close(struct strait_outer **outer) {
    struct strait_outer *o = *outer;
    if (o == NULL) return;
    strait_outer_drop(o);
    strait_outer_drop_early(o);
    strait_msg_pool_close(&o->alone);
    strait_pool_close(&o->pool);
    if (o->sent != NULL) o->backend->ops->release_host(o->backend, o->sent);
    if (o->now != NULL) o->backend->ops->release_host(o->backend, o->now);
    strait_alloc_free(o->anchor);
    strait_alloc_free(o->momentum);
    strait_alloc_free(o->residual);
    strait_alloc_free(o->result_residual);
    strait_alloc_free(o->segments);
    strait_alloc_free(o->segment_of);
    strait_alloc_free(o->chunks);
    strait_alloc_free(o->ready);
    strait_alloc_free(o);
    *outer = NULL;
}

strait_err strait_outer_restart(struct strait_outer *o, struct strait_stream *stream) {
    const size_t bytes = (size_t)o->n_weights * sizeof(float);
    strait_outer_drop(o);
    strait_outer_drop_early(o);
    o->exchange = (strait_outer_exchange){0};
    memset(o->momentum, 0, bytes);
    if (o->residual != NULL) memset(o->residual, 0, bytes);
    if (o->result_residual != NULL) memset(o->result_residual, 0, bytes);
    o->has_residual = 0;
    memset(o->is_averaged, 1, sizeof o->is_averaged); // all begin with the run
    STRAIT_TRY(strait_outer_copy(o, stream, 0, o->n_weights, o->anchor, 0));
    STRAIT_TRY(o->backend->ops->wait(stream));
    memcpy(o->sent, o->anchor, bytes); // a difference of nothing
    return STRAIT_OK;
}

void strait_outer_run(struct strait_outer *o, int n, strait_pool_task task) {
    if (o->pool != NULL) {
        strait_pool_run(o->pool, n, task, o);
        return;
    }
    for (int i = 0; i < n; i++)
        task(o, i);
}

/* ---- an exchange ---- */

struct strait_outer_range strait_outer_range(const struct strait_outer *o, int is_state) {
    const struct strait_outer_range r = range_of(o, is_state, o->exchange.fragment);
    const int64_t before = is_state ? o->n_weights : 0;
    return (struct strait_outer_range){before + r.first, before + r.end};
}

static void add_chunks(struct strait_outer *o, int is_state) {
    const struct strait_outer_range r = strait_outer_range(o, is_state);
    const int n_members = strait_outer_count_bits(o->exchange.members);
    const int64_t size = r.first < r.end ? strait_outer_chunk_size(r.end - r.first, n_members) : 1;
    for (int64_t at = r.first; at < r.end; at += size) {
        const int64_t left = r.end - at;
        o->chunks[o->n_chunks++] = (struct chunk){
            .first = at, .n = left < size ? left : size, .is_state = is_state};
    }
}

void strait_outer_list_chunks(struct strait_outer *o) {
    o->n_chunks = o->n_results = 0;
    add_chunks(o, 0);
    add_chunks(o, 1);
}

static strait_err check_exchange(const struct strait_outer *o, const strait_outer_exchange *e) {
    const uint64_t all = o->spec.n_replicas == 64 ? UINT64_MAX
                                                  : (UINT64_C(1) << o->spec.n_replicas) - 1;
    const int n_parts = strait_outer_n_parts(&o->spec.params.schedule);
    if (e->fragment < 0 || e->fragment >= n_parts || e->attempt < 0 || e->attempt > UINT8_MAX ||
        e->members == 0 || (e->alive & ~all) != 0 || (e->members & ~e->alive) != 0 ||
        !strait_outer_has(e->alive, o->spec.replica))
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "stage %d, replica %d: no exchange of fragment %d of %d, attempt %d, "
                           "with members %llx of %llx is possible",
                           o->spec.stage, o->spec.replica, e->fragment, n_parts, e->attempt,
                           (unsigned long long)e->members, (unsigned long long)e->alive);
    return STRAIT_OK;
}

strait_err strait_outer_begin(struct strait_outer *o, struct strait_stream *stream,
                              const strait_outer_exchange *exchange) {
    STRAIT_TRY(check_exchange(o, exchange));
    strait_outer_drop(o);
    o->exchange = *exchange;
    o->self = o->spec.replica;
    strait_outer_list_chunks(o);
    for (int is_state = 0; !exchange->is_resent && is_state < 2; is_state++) {
        const struct strait_outer_range r = strait_outer_range(o, is_state);
        STRAIT_TRY(strait_outer_copy(o, stream, r.first, r.end, o->sent + r.first, 0));
    }
    STRAIT_TRY(o->backend->ops->wait(stream));
    o->is_begun = 1;
    strait_outer_measure(o);
    return strait_outer_send_parts(o);
}

void strait_outer_difference(const struct strait_outer *o, const struct chunk *chunk, int64_t first,
                             int n, float *out) {
    if (chunk->is_state) {
        memcpy(out, o->sent + first, (size_t)n * sizeof *out);
        return;
    }
    strait_value_set_best()->subtract(o->anchor + first, o->sent + first, n, out);
    for (int i = 0; o->has_residual && i < n; i++)
        out[i] += o->residual[first + i];
}
