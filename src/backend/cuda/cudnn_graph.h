/* cudnn_graph.h - graphs of cuDNN's backend interface, without its headers.
 *
 * cuDNN is found at run time and may be absent, and its headers may be absent where the program is
 * built. This file therefore declares the part of its C interface that we use; its numbers are
 * stable within a major version. Calls that build a graph do nothing after one has failed, so that
 * callers check only the last one. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every function we use, by the name the library exports: result, name, parameters. */
#define STRAIT_CUDNN(X)                                                                   \
    X(size_t, cudnnGetVersion, (void))                                                    \
    X(const char *, cudnnGetErrorString, (int status))                                    \
    X(void, cudnnGetLastErrorString, (char *out, size_t bytes))                           \
    X(int, cudnnCreate, (void **handle))                                                  \
    X(int, cudnnDestroy, (void *handle))                                                  \
    X(int, cudnnSetStream, (void *handle, void *stream))                                  \
    X(int, cudnnBackendCreateDescriptor, (int kind, void **out))                          \
    X(int, cudnnBackendDestroyDescriptor, (void *descriptor))                             \
    X(int, cudnnBackendFinalize, (void *descriptor))                                      \
    X(int, cudnnBackendSetAttribute,                                                      \
      (void *descriptor, int name, int type, int64_t n, const void *values))              \
    X(int, cudnnBackendGetAttribute,                                                      \
      (void *descriptor, int name, int type, int64_t capacity, int64_t *n, void *values)) \
    X(int, cudnnBackendExecute, (void *handle, void *plan, void *pack))

struct strait_cudnn_table {
#define X(result, name, parameters) result(*name) parameters; // NOLINT(bugprone-macro-parentheses)
    STRAIT_CUDNN(X)
#undef X
};

typedef enum strait_cudnn_type { // of a tensor's values
    STRAIT_CUDNN_F32 = 0,
    STRAIT_CUDNN_I32 = 4,
    STRAIT_CUDNN_BF16 = 9,
    STRAIT_CUDNN_BOOL = 11
} strait_cudnn_type;

typedef enum strait_cudnn_pointwise {
    STRAIT_CUDNN_ADD = 0,
    STRAIT_CUDNN_MUL = 1,
    STRAIT_CUDNN_DIV = 6,
    STRAIT_CUDNN_SUB = 9,
    STRAIT_CUDNN_EXP = 13,
    STRAIT_CUDNN_LOG = 15,
    STRAIT_CUDNN_GREATER_EQUAL = 303,
    STRAIT_CUDNN_INDEX = 501, // the position on an axis
    STRAIT_CUDNN_SELECT = 601 // by a third tensor: the first where it is true, else the second
} strait_cudnn_pointwise;

typedef enum strait_cudnn_reduction {
    STRAIT_CUDNN_SUM = 0,
    STRAIT_CUDNN_MAX = 3
} strait_cudnn_reduction;

enum {
    STRAIT_CUDNN_TEXT = 256,
    STRAIT_CUDNN_MADE = 96, // most descriptors of one graph
    STRAIT_CUDNN_OPS = 24,
    STRAIT_CUDNN_REAL = 8, // most tensors that a run binds
    STRAIT_CUDNN_PROPOSALS = 8
};

/* A tensor of four axes: sequence, head, row, column. All strides 0 mean contiguous. */
typedef struct strait_cudnn_shape {
    int64_t n[4], stride[4];
} strait_cudnn_shape;

struct strait_cudnn_graph {
    const struct strait_cudnn_table *table;
    void *handle;
    void *made[STRAIT_CUDNN_MADE]; // all descriptors of the graph, which owns them
    int n_made;
    void *ops[STRAIT_CUDNN_OPS];
    int n_ops;
    int64_t last_uid;
    int status;                   // of the first call that failed
    char text[STRAIT_CUDNN_TEXT]; // and its reason
};

/* cuDNN's text for the call that just failed: the name of its status and its last message. */
void strait_cudnn_status_text(const struct strait_cudnn_table *table, int status,
                              char out[STRAIT_CUDNN_TEXT]);

/* Starts an empty graph; uids up to `n_real` belong to real tensors. free is safe after any call.
 */
void strait_cudnn_graph_init(struct strait_cudnn_graph *g, const struct strait_cudnn_table *table,
                             void *handle, int64_t n_real);
void strait_cudnn_graph_free(struct strait_cudnn_graph *g);

/* Tensors: real ones, whose uid each run binds to an address; a single number, read from host
 * memory; and virtual ones, which are never stored. Owned by the graph; NULL after a failure. */
void *strait_cudnn_real(struct strait_cudnn_graph *g, int64_t uid, strait_cudnn_type type,
                        strait_cudnn_shape shape);
void *strait_cudnn_number(struct strait_cudnn_graph *g, int64_t uid);
void *strait_cudnn_virtual(struct strait_cudnn_graph *g, strait_cudnn_type type,
                           strait_cudnn_shape shape);

/* Operations, in f32. b and t are NULL where a mode takes one tensor or two. */
void strait_cudnn_pointwise_op(struct strait_cudnn_graph *g, strait_cudnn_pointwise mode, void *y,
                               void *x, void *b, void *t);
void strait_cudnn_index_op(struct strait_cudnn_graph *g, int64_t axis, void *y, void *x);
void strait_cudnn_reduce_op(struct strait_cudnn_graph *g, strait_cudnn_reduction mode, void *y,
                            void *x);
void strait_cudnn_matmul_op(struct strait_cudnn_graph *g, void *y, void *a, void *b);

/* The first of cuDNN's proposals for the graph that yields a plan with at most `capacity` bytes of
 * workspace. The caller owns the plan, which outlives the graph. Returns 0, or the status that the
 * graph keeps together with its text. */
int strait_cudnn_graph_plan(struct strait_cudnn_graph *g, int64_t capacity, void **plan,
                            int64_t *workspace);

/* The addresses of one run: of each real tensor and each number. */
typedef struct strait_cudnn_binding {
    int64_t uids[STRAIT_CUDNN_REAL];
    const void *addresses[STRAIT_CUDNN_REAL];
    int64_t n;
    void *workspace;
} strait_cudnn_binding;

/* Queues a plan on the handle's stream. Returns cuDNN's status. */
int strait_cudnn_run(const struct strait_cudnn_table *table, void *handle, void *plan,
                     const strait_cudnn_binding *b);
