/* cudnn_graph.h - graphs of cuDNN's backend interface, without its headers.
 *
 * cuDNN is found at run time and may be absent, and its headers may be absent where the program is
 * built: what is used of its C interface, which keeps its numbers within a major version, is
 * declared here. A graph is built by calls that do nothing once one of them has failed, so that
 * only the end is asked. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every function that is used, by the name its library exports: result, name, parameters. */
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
    STRAIT_CUDNN_SELECT = 601 // by a third tensor: the first where it holds, else the second
} strait_cudnn_pointwise;

typedef enum strait_cudnn_reduction {
    STRAIT_CUDNN_SUM = 0,
    STRAIT_CUDNN_MAX = 3
} strait_cudnn_reduction;

enum {
    STRAIT_CUDNN_WORDS = 256,
    STRAIT_CUDNN_MADE = 96, // descriptors of one graph
    STRAIT_CUDNN_OPS = 24,
    STRAIT_CUDNN_REAL = 8, // tensors that a run is given
    STRAIT_CUDNN_PROPOSALS = 8
};

/* A tensor of four axes: sequence, head, row, column. Strides of 0 are those of packed rows. */
typedef struct strait_cudnn_shape {
    int64_t n[4], stride[4];
} strait_cudnn_shape;

struct strait_cudnn_graph {
    const struct strait_cudnn_table *table;
    void *handle;
    void *made[STRAIT_CUDNN_MADE]; // all that a graph consists of
    int n_made;
    void *ops[STRAIT_CUDNN_OPS];
    int n_ops;
    int64_t last_uid;
    int status; // of the first call that failed
    char words[STRAIT_CUDNN_WORDS];
};

/* What cuDNN says of the call that just failed: its status says what, its last message why. */
void strait_cudnn_words(const struct strait_cudnn_table *table, int status,
                        char out[STRAIT_CUDNN_WORDS]);

/* An empty graph; uids up to `n_real` belong to real tensors. free is safe after any call. */
void strait_cudnn_graph_init(struct strait_cudnn_graph *g, const struct strait_cudnn_table *table,
                             void *handle, int64_t n_real);
void strait_cudnn_graph_free(struct strait_cudnn_graph *g);

/* Tensors: in memory, under a uid that a run gives an address for; one number that a run reads from
 * host memory; and one that never lies anywhere. Owned by the graph; NULL after a failure. */
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

/* The first of cuDNN's proposals for the graph that becomes a plan and needs at most `room` bytes
 * of workspace. The plan outlives the graph: whoever asks destroys it. Not 0, with the graph's
 * status and words, when there is none. */
int strait_cudnn_graph_plan(struct strait_cudnn_graph *g, int64_t capacity, void **plan,
                            int64_t *workspace);

/* What a run reads and writes: the address of each real tensor, and of each number. */
typedef struct strait_cudnn_binding {
    int64_t uids[STRAIT_CUDNN_REAL];
    const void *addresses[STRAIT_CUDNN_REAL];
    int64_t n;
    void *workspace;
} strait_cudnn_binding;

/* Queues a plan on the handle's stream: cuDNN's status. */
int strait_cudnn_run(const struct strait_cudnn_table *table, void *handle, void *plan,
                     const strait_cudnn_binding *b);
