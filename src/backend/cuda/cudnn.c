/* cudnn.c - opens cuDNN, plans attention once per shape, and runs it. */
#include "backend/cuda/cudnn.h"

#include "backend/cuda/library.h"
#include "base/alloc.h"

#include <math.h>

enum {
    LSE_THREADS = 256,
    LSE_ALIGN = 256,         // bytes
    MOST_WORKSPACE = 1 << 20 // bytes; known plans need 256
};

static const char *const names[] = {
#define X(result, name, parameters) #name,
    STRAIT_CUDNN(X)
#undef X
};
_Static_assert(sizeof names == sizeof(struct strait_cudnn_table), "one pointer per name");

/* Creates the plan of a key. The graph is only needed for that. */
static strait_err create_plan(struct strait_cudnn *dnn, const strait_cudnn_key *key,
                              struct strait_cudnn_plan *out) {
    struct strait_cudnn_graph graph;
    const int64_t *at = key->at;
    const size_t version = dnn->table.cudnnGetVersion();
    strait_cudnn_graph_init(&graph, &dnn->table, dnn->handle, STRAIT_CUDNN_LAST_UID);
    strait_cudnn_attention_graph(&graph, key);
    const int status = strait_cudnn_graph_plan(&graph, MOST_WORKSPACE, &out->plan, &out->workspace);
    strait_cudnn_graph_free(&graph);
    out->key = *key;
    if (status == 0) return STRAIT_OK;
    return STRAIT_FAIL(
        STRAIT_ENOTSUP,
        "cuDNN %zu.%zu.%zu rejects attention of %lld x %lld tokens with %lld heads of "
        "%lld and %lld key heads (%s): set STRAIT_ATTENTION to group, for the kernels "
        "of this program",
        version / 10000, version / 100 % 100, version % 100, (long long)at[STRAIT_CUDNN_SEQUENCES],
        (long long)at[STRAIT_CUDNN_TOKENS], (long long)at[STRAIT_CUDNN_QUERY_HEADS],
        (long long)at[STRAIT_CUDNN_HEAD_DIM], (long long)at[STRAIT_CUDNN_KEY_HEADS], graph.text);
}

/* A run has a handful of shapes, so a linear search is enough. */
static const struct strait_cudnn_plan *find(const struct strait_cudnn *dnn,
                                            const strait_cudnn_key *key) {
    for (int i = 0; i < STRAIT_CUDNN_PLANS; i++)
        if (dnn->plans[i].plan != NULL && memcmp(&dnn->plans[i].key, key, sizeof *key) == 0)
            return &dnn->plans[i];
    return NULL;
}

/* The plan of a key, created if needed. A plan that is replaced may still be running, so the stream
 * is waited for before it is destroyed. */
static strait_err plan_of(struct strait_stream *s, struct strait_cudnn *dnn,
                          const strait_cudnn_key *key, const struct strait_cudnn_plan **out) {
    *out = find(dnn, key);
    if (*out != NULL) return STRAIT_OK;
    struct strait_cudnn_plan created = {0},
                             *slot = &dnn->plans[dnn->n_created % STRAIT_CUDNN_PLANS];
    STRAIT_TRY(create_plan(dnn, key, &created));
    const strait_err err = slot->plan != NULL ? s->backend->ops->wait(s) : STRAIT_OK;
    if (slot->plan != NULL) (void)dnn->table.cudnnBackendDestroyDescriptor(slot->plan);
    *slot = created;
    dnn->n_created++;
    *out = slot;
    return err;
}

/* A small plan is created at once: a library that loads may still not support this device. */
static strait_err start(struct strait_cudnn *dnn) {
    static const strait_cudnn_key small = {{1, 1, 1, 64, 128, 1}};
    char path[STRAIT_CUDA_PATH], text[STRAIT_CUDNN_TEXT];
    void *library = NULL;
    STRAIT_TRY(strait_cuda_library_open("libcudnn.so.9", path, &library));
    const strait_err err = strait_cuda_library_table(library, names, sizeof names / sizeof names[0],
                                                     &dnn->table);
    if (err != STRAIT_OK) {
        strait_err_prefix("%s is too old", path);
        return err;
    }
    const int status = dnn->table.cudnnCreate(&dnn->handle);
    if (status != 0) {
        strait_cudnn_status_text(&dnn->table, status, text);
        return STRAIT_FAIL(STRAIT_ENOTSUP, "%s does not start: %s", path, text);
    }
    dnn->n_created = 1;
    return create_plan(dnn, &small, &dnn->plans[0]);
}

/* Failure is not fatal: attention then uses kernels of this program. */
strait_err strait_cudnn_open(struct strait_cudnn **out) {
    STRAIT_TRY(strait_alloc(1, sizeof **out, "plans of attention", (void **)out));
    const strait_err err = start(*out);
    if (err != STRAIT_OK) strait_cudnn_close(out);
    return err;
}

/* The library itself stays loaded, like every library of CUDA. */
void strait_cudnn_close(struct strait_cudnn **dnn) {
    struct strait_cudnn *d = *dnn;
    if (d == NULL) return;
    for (int i = 0; i < STRAIT_CUDNN_PLANS; i++)
        if (d->plans[i].plan != NULL)
            (void)d->table.cudnnBackendDestroyDescriptor(d->plans[i].plan);
    if (d->handle != NULL) (void)d->table.cudnnDestroy(d->handle);
    strait_alloc_free(d);
    *dnn = NULL;
}

/* Binds the address of a tensor, or of a host number, to its uid. */
static void bind(strait_cudnn_binding *b, int64_t uid, const void *address) {
    b->uids[b->n] = uid;
    b->addresses[b->n++] = address;
}

/* Computes y, and lse laid out [sequence][head][token]. */
static strait_err run(struct strait_stream *s, struct strait_cudnn *dnn,
                      const struct strait_cudnn_plan *plan, const struct strait_attention_args *a,
                      strait_cudnn_binding *b) {
    static const float lowest = -INFINITY;
    const uint16_t *q = a->qkv, *k = q + (int64_t)a->n_query * a->head_dim;
    CUstream stream = NULL;
    char text[STRAIT_CUDNN_TEXT];
    bind(b, STRAIT_CUDNN_Q, q);
    bind(b, STRAIT_CUDNN_K, k);
    bind(b, STRAIT_CUDNN_V, k + (int64_t)a->n_key * a->head_dim);
    bind(b, STRAIT_CUDNN_Y, a->y);
    bind(b, STRAIT_CUDNN_SCALE, &a->scale);
    bind(b, STRAIT_CUDNN_LOWEST, &lowest);
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    int status = dnn->table.cudnnSetStream(dnn->handle, stream);
    if (status == 0) status = strait_cudnn_run(&dnn->table, dnn->handle, plan->plan, b);
    if (status == 0) return STRAIT_OK;
    strait_cudnn_status_text(&dnn->table, status, text);
    return STRAIT_FAIL(STRAIT_EDEVICE, "device cuda:%d: attention by cuDNN: %s",
                       s->backend->ordinal, text);
}

/* cuDNN orders lse by head and the rest of the program by token, so a small kernel transposes it.
 */
strait_err strait_cudnn_attention(struct strait_stream *s, const struct strait_attention_args *a) {
    struct strait_cudnn *dnn = strait_cuda_of(s->backend)->cudnn;
    const strait_cudnn_key key = {
        {a->n_rows / a->seq_len, a->n_query, a->n_key, a->head_dim, a->seq_len, a->lse != NULL}};
    const int64_t n = a->n_rows * a->n_query;
    const struct strait_cudnn_plan *plan = NULL;
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_use(s->backend));
    STRAIT_TRY(plan_of(s, dnn, &key, &plan));
    const size_t before = (size_t)strait_cuda_pieces(plan->workspace, LSE_ALIGN) * LSE_ALIGN;
    STRAIT_TRY(strait_cuda_scratch(s, before + (size_t)n * sizeof(float), &scratch));
    strait_cudnn_binding b = {.workspace = scratch};
    const float *by_head = (const float *)((char *)scratch + before);
    if (a->lse != NULL) bind(&b, STRAIT_CUDNN_LSE, by_head);
    STRAIT_TRY(run(s, dnn, plan, a, &b));
    if (a->lse == NULL) return STRAIT_OK;
    struct strait_attention_args lse = *a;
    return strait_cuda_launch(
        s, "attention_lse",
        (strait_cuda_grid){.x = strait_cuda_pieces(n, LSE_THREADS), .threads = LSE_THREADS},
        STRAIT_CUDA_ARGS(lse, by_head));
}
