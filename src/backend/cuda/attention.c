/* attention.c - chooses attention kernels and lays out their grids. */
#include "backend/cuda/attention.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLAIN_THREADS = STRAIT_ATTENTION_PLAIN_TILE * STRAIT_ATTENTION_PLAIN_TILE,
    MET_ROWS = 64, // rows of the other side that a block processes at a time, double-buffered
    DELTA_HEADS = PLAIN_THREADS / STRAIT_ATTENTION_DELTA_LANES,
    COLUMN_THREADS = STRAIT_ATTENTION_ONCE_COLUMN_THREADS,
    CACHED_BYTES = 24 << 20, // what blocks read again and again: half of sm_90's L2 cache
    SECTION_LEAST = 16,      // heads: with fewer, long blocks would be among the last to start
    ONCE_LEAST_64 = 8192,    // context from which KIND_ONCE was measured to be faster, by heads
    ONCE_LEAST_128 = 1024,
    ONCE_MOST = 32768 // context up to which its integers round less than d_score in bf16
};

/* From the slowest, which takes every shape, to the fastest. */
typedef enum attention_kind {
    KIND_PLAIN, // any device, type and head width
    KIND_TILED, // bf16 heads of 64 and 128, from sm_80 on
    KIND_GROUP, // the same, on sm_90 only
    KIND_ONCE,  // the same; backward only, with 4 bytes of scratch for every value of queries
    KIND_CUDNN  // the same, from sm_80 on; forward only
} attention_kind;

static const char *const kind_names[] = {"plain", "tiled", "group", "once", "cudnn"};

/* One pass of the fast kernels: a block keeps `own_rows` rows of `n_own` tensors in shared memory
 * and loops over the rows of the other side. */
typedef struct fast_pass {
    const char *kernel;
    int own_rows, n_own;
    unsigned threads;
    int stage_bytes; // shared memory per stage beyond its two tiles
} fast_pass;

/* Indexed by KIND_TILED or KIND_GROUP, then by heads of 64 or 128. */
typedef fast_pass fast_passes[2][2];

static const fast_passes forward_fast = {
    {{"attention_tiled_64", 128, 1, 128, 0}, {"attention_tiled_128", 128, 1, 128, 0}},
    {{"attention_group_64", 128, 1, 256, 0}, {"attention_group_128", 192, 1, 384, 0}}};
static const fast_passes query_back_fast = {{{"attention_tiled_query_back_64", 128, 2, 128, 0},
                                             {"attention_tiled_query_back_128", 64, 2, 128, 0}},
                                            {{"attention_group_query_back_64", 128, 2, 256, 0},
                                             {"attention_group_query_back_128", 128, 2, 256, 0}}};
static const fast_passes key_back_fast = {
    {{"attention_tiled_key_back_64", 128, 2, 128, STRAIT_ATTENTION_COLUMNS},
     {"attention_tiled_key_back_128", 64, 2, 128, STRAIT_ATTENTION_COLUMNS}},
    {{"attention_group_key_back_64", 64, 2, 128, STRAIT_ATTENTION_COLUMNS},
     {"attention_group_key_back_128", 128, 2, 256, STRAIT_ATTENTION_COLUMNS}}};

static strait_err refuse_wide(strait_heads heads) {
    if (heads.head_dim <= STRAIT_ATTENTION_HEAD_MAX) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "attention on cuda: heads are %d wide, at most %d are supported",
                       heads.head_dim, STRAIT_ATTENTION_HEAD_MAX);
}

static struct strait_attention_args args_of(strait_tensor y, strait_tensor lse, strait_tensor qkv,
                                            strait_heads heads) {
    assert(qkv.cols == (int64_t)(heads.n_query + 2 * heads.n_key) * heads.head_dim);
    assert(y.cols == (int64_t)heads.n_query * heads.head_dim && y.dtype == qkv.dtype);
    assert(qkv.rows % heads.seq_len == 0 && heads.n_query % heads.n_key == 0);
    return (struct strait_attention_args){.qkv = qkv.data,
                                          .y = y.data,
                                          .lse = lse.data,
                                          .n_rows = qkv.rows,
                                          .n_query = heads.n_query,
                                          .n_key = heads.n_key,
                                          .head_dim = heads.head_dim,
                                          .seq_len = (int32_t)heads.seq_len,
                                          .scale = heads.scale};
}

static const char *requested_kind(void) {
    const char *name = getenv("STRAIT_ATTENTION"); // NOLINT(concurrency-mt-unsafe) never changed
    return name != NULL ? name : "";
}

/* STRAIT_ATTENTION names the fastest kind that may be used, so that tests can select each. */
static strait_err allowed(attention_kind *out) {
    const char *name = requested_kind();
    int kind = KIND_CUDNN;
    while (*name != '\0' && kind >= 0 && strcmp(name, kind_names[kind]) != 0)
        kind--;
    if (kind < 0)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "STRAIT_ATTENTION is \"%s\": expected plain, tiled, group, once or cudnn; "
            "unset it for the fastest that the device supports",
            name);
    *out = (attention_kind)kind;
    return STRAIT_OK;
}

/* cuDNN is used wherever STRAIT_ATTENTION asks for it; without that only on sm_90, where it was
 * measured to beat our kernels. */
strait_err strait_cuda_attention_open(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    const int capability = cuda->major * 10 + cuda->minor, is_named = *requested_kind() != '\0';
    attention_kind limit = KIND_PLAIN;
    STRAIT_TRY(allowed(&limit));
    if (limit != KIND_CUDNN || be->precision != STRAIT_BF16) return STRAIT_OK;
    if (is_named ? capability < 80 : capability != 90) return STRAIT_OK;
    const strait_err err = strait_cudnn_open(&cuda->cudnn);
    if (err == STRAIT_OK || (err == STRAIT_ENOTSUP && !is_named)) return STRAIT_OK;
    if (is_named) strait_err_prefix("STRAIT_ATTENTION is \"cudnn\"");
    return err;
}

void strait_cuda_attention_close(struct strait_cuda *cuda) {
    strait_cudnn_close(&cuda->cudnn);
}

/* The fastest allowed kind that the device supports for values of this type. */
static strait_err fastest(const struct strait_cuda *cuda, strait_dtype dtype, int is_forward,
                          attention_kind *out) {
    const int capability = cuda->major * 10 + cuda->minor;
    attention_kind limit = KIND_PLAIN, best = KIND_PLAIN;
    STRAIT_TRY(allowed(&limit));
    if (dtype == STRAIT_BF16 && capability >= 80) best = capability == 90 ? KIND_GROUP : KIND_TILED;
    if (dtype == STRAIT_BF16 && is_forward && cuda->cudnn != NULL) best = KIND_CUDNN;
    *out = best < limit ? best : limit;
    return STRAIT_OK;
}

/* The fast kinds read 16 bytes at a time; ours also take the maximum before scaling, which needs a
 * positive scale. cuDNN plans each shape, which takes longer than it saves where `is_ours`. */
static strait_err choose(const struct strait_stream *s, const struct strait_attention_args *a,
                         strait_dtype dtype, int is_ours, attention_kind *out) {
    const uintptr_t addresses = (uintptr_t)a->qkv | (uintptr_t)a->y | (uintptr_t)a->d_y |
                                (uintptr_t)a->d_qkv;
    STRAIT_TRY(fastest(strait_cuda_of(s->backend), dtype, !is_ours, out));
    if ((a->head_dim != 64 && a->head_dim != 128) || !(a->scale > 0) || addresses % 16 != 0)
        *out = KIND_PLAIN;
    return STRAIT_OK;
}

/* The backward pass: cuDNN's does not promise the same bits. STRAIT_ATTENTION=once is for every
 * shape. */
static strait_err choose_back(const struct strait_stream *s, const struct strait_attention_args *a,
                              strait_dtype dtype, attention_kind *out) {
    const int least = a->head_dim == 128 ? ONCE_LEAST_128 : ONCE_LEAST_64;
    const int suits = a->seq_len >= least && a->seq_len <= ONCE_MOST;
    attention_kind limit = KIND_PLAIN;
    STRAIT_TRY(allowed(&limit));
    STRAIT_TRY(choose(s, a, dtype, 1, out));
    if (*out == KIND_GROUP && (limit == KIND_ONCE || (limit > KIND_ONCE && suits)))
        *out = KIND_ONCE;
    return STRAIT_OK;
}

const char *strait_cuda_attention_kind(const struct strait_backend *be) {
    attention_kind kind = KIND_PLAIN; // STRAIT_ATTENTION was checked in init
    (void)fastest(strait_cuda_of(be), be->precision, 0, &kind);
    if (strait_cuda_of(be)->cudnn == NULL) return kind_names[kind];
    return kind == KIND_GROUP ? "cudnn+group" : "cudnn+tiled";
}

/* One block per tile of rows of each of n_heads heads of each sequence. */
static strait_cuda_grid grid_of(const struct strait_attention_args *a, int n_heads, int tile) {
    return (strait_cuda_grid){.x = a->n_rows / a->seq_len * n_heads,
                              .y = strait_cuda_pieces(a->seq_len, tile)};
}

/* How many heads of sequences blocks work on at a time, so that what they read again and again
 * stays in the L2 cache: keys and values, and queries and d_y of every query head. All of them
 * where few would fit. */
static int32_t section_of(const struct strait_attention_args *a, int n_heads) {
    const int64_t tensors = 2 + 2 * (int64_t)(a->n_query / n_heads);
    const int64_t bytes = tensors * a->seq_len * a->head_dim * 2;
    const int64_t n = CACHED_BYTES / bytes, all = a->n_rows / a->seq_len * n_heads;
    return (int32_t)(n >= SECTION_LEAST ? n : all);
}

static strait_err launch_fast(struct strait_stream *s, const fast_passes passes,
                              attention_kind kind, struct strait_attention_args *a, int n_heads) {
    const fast_pass p = passes[kind - KIND_TILED][a->head_dim == 128];
    const int row_bytes = 2 * a->head_dim;
    strait_cuda_grid grid = grid_of(a, n_heads, p.own_rows);
    a->section = section_of(a, n_heads);
    grid.threads = p.threads;
    grid.shared = (unsigned)(p.n_own * p.own_rows * row_bytes +
                             2 * (2 * MET_ROWS * row_bytes + p.stage_bytes));
    return strait_cuda_launch(s, p.kernel, grid, STRAIT_CUDA_ARGS(*a));
}

static strait_err launch_plain(struct strait_stream *s, const char *kernel,
                               struct strait_attention_args *a, int n_heads) {
    strait_cuda_grid grid = grid_of(a, n_heads, STRAIT_ATTENTION_PLAIN_TILE);
    grid.threads = PLAIN_THREADS;
    return strait_cuda_launch(s, kernel, grid, STRAIT_CUDA_ARGS(*a));
}

static strait_err attention(struct strait_stream *s, strait_tensor y, strait_tensor lse,
                            strait_tensor qkv, strait_heads heads) {
    STRAIT_TRY(refuse_wide(heads));
    struct strait_attention_args a = args_of(y, lse, qkv, heads);
    attention_kind kind;
    STRAIT_TRY(choose(s, &a, qkv.dtype, heads.is_ragged, &kind));
    if (kind == KIND_CUDNN) return strait_cudnn_attention(s, &a);
    if (kind != KIND_PLAIN) return launch_fast(s, forward_fast, kind, &a, a.n_query);
    return launch_plain(s, STRAIT_CUDA_OF(qkv.dtype, "attention_plain"), &a, a.n_query);
}

/* delta [N x n_query] = sum of d_y * y over a head, in scratch. */
static strait_err launch_delta(struct strait_stream *s, struct strait_attention_args *a,
                               strait_dtype dtype) {
    const int64_t n = a->n_rows * a->n_query;
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)n * sizeof(float), &scratch));
    a->delta = scratch;
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(dtype, "attention_delta"),
        (strait_cuda_grid){.x = strait_cuda_pieces(n, DELTA_HEADS), .threads = PLAIN_THREADS},
        STRAIT_CUDA_ARGS(*a));
}

static struct strait_attention_args back_args_of(strait_tensor d_qkv, strait_tensor d_y,
                                                 strait_tensor y, strait_tensor qkv,
                                                 strait_tensor lse, strait_heads heads) {
    assert(strait_cuda_same_shape(d_qkv, qkv) && strait_cuda_same_shape(d_y, y));
    assert(d_qkv.dtype == qkv.dtype && d_y.dtype == qkv.dtype && lse.data != NULL);
    struct strait_attention_args a = args_of(y, lse, qkv, heads);
    a.d_y = d_y.data;
    a.d_qkv = d_qkv.data;
    return a;
}

/* Scratch of the kernels that compute scores once: columns of queries, the largest keys and values,
 * and the sums of d_q, which begin as zeros as the largest do. */
static strait_err reserve_once(struct strait_stream *s, struct strait_attention_args *a) {
    const int64_t align = 64, sequences = a->n_rows / a->seq_len, heads = sequences * a->n_query;
    const int64_t columns = strait_cuda_pieces(a->n_rows * a->n_query, align) * align;
    const int64_t most = strait_cuda_pieces(2 * sequences * a->n_key, align) * align;
    const int64_t tiles = strait_cuda_pieces(a->seq_len, STRAIT_ATTENTION_ONCE_KEYS);
    const int64_t sums = heads * tiles * STRAIT_ATTENTION_ONCE_KEYS * a->head_dim;
    const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
    const size_t words = (size_t)(3 * columns + most + sums);
    CUstream stream = NULL;
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, words * sizeof(float), &scratch));
    a->delta = scratch;
    a->power = a->delta + columns;
    a->length = a->power + columns;
    a->most = (uint32_t *)(a->length + columns);
    a->sums = (int *)(a->most + most);
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    const CUdeviceptr zeros = (CUdeviceptr)(uintptr_t)a->most;
    return strait_cuda_check(s->backend,
                             driver->cuMemsetD32Async(zeros, 0, (size_t)(most + sums), stream),
                             "attention: clearing sums");
}

/* What comes before, the pass over keys and queries, and what makes d_q of its sums. */
static strait_err launch_once(struct strait_stream *s, struct strait_attention_args *a) {
    const int is_wide = a->head_dim == 128;
    STRAIT_TRY(reserve_once(s, a));
    const int64_t lanes = a->n_rows * a->n_query * (a->head_dim / 8);
    strait_cuda_grid grid = {.x = strait_cuda_pieces(lanes, COLUMN_THREADS),
                             .threads = COLUMN_THREADS};
    STRAIT_TRY(
        strait_cuda_launch(s, is_wide ? "attention_once_columns_128" : "attention_once_columns_64",
                           grid, STRAIT_CUDA_ARGS(*a)));
    grid = grid_of(a, a->n_key, STRAIT_ATTENTION_ONCE_KEYS);
    grid.threads = COLUMN_THREADS;
    STRAIT_TRY(strait_cuda_launch(s, is_wide ? "attention_once_most_128" : "attention_once_most_64",
                                  grid, STRAIT_CUDA_ARGS(*a)));
    a->section = section_of(a, a->n_key);
    grid.threads = STRAIT_ATTENTION_ONCE_THREADS;
    grid.shared = STRAIT_ATTENTION_ONCE_SHARED;
    STRAIT_TRY(strait_cuda_launch(s, is_wide ? "attention_once_128" : "attention_once_64", grid,
                                  STRAIT_CUDA_ARGS(*a)));
    grid = grid_of(a, a->n_query, MET_ROWS);
    grid.threads = 2 * (unsigned)a->head_dim;
    return strait_cuda_launch(s,
                              is_wide ? "attention_once_queries_128" : "attention_once_queries_64",
                              grid, STRAIT_CUDA_ARGS(*a));
}

static strait_err launch_back(struct strait_stream *s, struct strait_attention_args *a,
                              strait_dtype dtype, attention_kind kind) {
    if (kind == KIND_ONCE) return launch_once(s, a);
    STRAIT_TRY(launch_delta(s, a, dtype));
    if (kind != KIND_PLAIN) {
        STRAIT_TRY(launch_fast(s, key_back_fast, kind, a, a->n_key));
        return launch_fast(s, query_back_fast, kind, a, a->n_query);
    }
    STRAIT_TRY(launch_plain(s, STRAIT_CUDA_OF(dtype, "attention_plain_key_back"), a, a->n_key));
    return launch_plain(s, STRAIT_CUDA_OF(dtype, "attention_plain_query_back"), a, a->n_query);
}

static strait_err attention_back(struct strait_stream *s, strait_tensor d_qkv, strait_tensor d_y,
                                 strait_tensor y, strait_tensor qkv, strait_tensor lse,
                                 strait_heads heads) {
    struct strait_attention_args a = back_args_of(d_qkv, d_y, y, qkv, lse, heads);
    attention_kind kind;
    STRAIT_TRY(refuse_wide(heads));
    STRAIT_TRY(choose_back(s, &a, qkv.dtype, &kind));
    return launch_back(s, &a, qkv.dtype, kind);
}

/* Kernels of warp groups rotate what they write; after others the rotation is a pass of its own. */
static strait_err attention_rotate_back(struct strait_stream *s, strait_tensor d_qkv,
                                        strait_tensor d_y, strait_tensor y, strait_tensor qkv,
                                        strait_tensor lse, strait_rotate_params rotation) {
    struct strait_attention_args a = back_args_of(d_qkv, d_y, y, qkv, lse, rotation.heads);
    const strait_tensor absent = {0};
    attention_kind kind;
    assert(rotation.cos.cols == a.head_dim / 2 && rotation.cos.rows >= a.seq_len);
    STRAIT_TRY(refuse_wide(rotation.heads));
    STRAIT_TRY(choose_back(s, &a, qkv.dtype, &kind));
    if (kind == KIND_GROUP || kind == KIND_ONCE) {
        a.cos = rotation.cos.data;
        a.sin = rotation.sin.data;
        return launch_back(s, &a, qkv.dtype, kind);
    }
    STRAIT_TRY(launch_back(s, &a, qkv.dtype, kind));
    return s->backend->kernels->rotate_back(s, d_qkv, absent, d_qkv, absent, absent, rotation);
}

/* Stores all keys and values before any row attends: rows of one sequence may see each other. */
static strait_err attention_cached(struct strait_stream *s, strait_tensor y, strait_tensor keys,
                                   strait_tensor values, strait_tensor qkv, strait_cached_rows at,
                                   strait_heads heads) {
    assert(at.sequences.rows == qkv.rows && at.positions.rows == qkv.rows);
    assert(strait_cuda_same_shape(keys, values) && keys.dtype == qkv.dtype);
    STRAIT_TRY(refuse_wide(heads));
    struct strait_attention_cached_args a = {.qkv = qkv.data,
                                             .y = y.data,
                                             .keys = keys.data,
                                             .values = values.data,
                                             .sequences = at.sequences.data,
                                             .positions = at.positions.data,
                                             .n_query = heads.n_query,
                                             .n_key = heads.n_key,
                                             .head_dim = heads.head_dim,
                                             .seq_len = (int32_t)heads.seq_len,
                                             .scale = heads.scale};
    STRAIT_TRY(strait_cuda_launch(
        s, STRAIT_CUDA_OF(qkv.dtype, "attention_store"),
        (strait_cuda_grid){.x = qkv.rows, .threads = STRAIT_ATTENTION_STORE_THREADS},
        STRAIT_CUDA_ARGS(a)));
    return strait_cuda_launch(s, STRAIT_CUDA_OF(qkv.dtype, "attention_cached"),
                              (strait_cuda_grid){.x = heads.n_query,
                                                 .y = qkv.rows,
                                                 .threads = 32 * STRAIT_ATTENTION_CACHED_WARPS},
                              STRAIT_CUDA_ARGS(a));
}

void strait_cuda_attention(struct strait_kernel_set *set) {
    set->base.attention = attention;
    set->base.attention_back = attention_back;
    set->base.attention_rotate_back = attention_rotate_back;
    set->base.attention_cached = attention_cached;
}
