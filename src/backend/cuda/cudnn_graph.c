/* cudnn_graph.c - builds graphs of cuDNN's backend interface and finds plans for them. The numbers
 * below are those of cuDNN's headers, stable within a major version. */
#include "backend/cuda/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

enum { // kinds of descriptors
    POINTWISE = 0,
    ENGINE_CONFIG = 3,
    HEURISTIC = 4,
    PLAN = 5,
    OP_POINTWISE = 13,
    OP_GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
    MATMUL = 18,
    OP_MATMUL = 19,
    REDUCTION = 21,
    OP_REDUCTION = 22
};

enum { // attributes
    POINTWISE_MODE = 0,
    POINTWISE_PRECISION = 1,
    POINTWISE_AXIS = 9,
    HEURISTIC_MODE = 200,
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    OP_POINTWISE_HOW = 750,
    OP_POINTWISE_X = 751,
    OP_POINTWISE_B = 752,
    OP_POINTWISE_Y = 753,
    OP_POINTWISE_T = 758,
    GRAPH_HANDLE = 800,
    GRAPH_OPS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_DIMENSIONS = 902,
    TENSOR_STRIDES = 903,
    TENSOR_UID = 906,
    TENSOR_VIRTUAL = 907,
    TENSOR_BY_VALUE = 908,
    PACK_UIDS = 1000,
    PACK_ADDRESSES = 1001,
    PACK_WORKSPACE = 1003,
    MATMUL_PRECISION = 1500,
    OP_MATMUL_A = 1520,
    OP_MATMUL_B = 1521,
    OP_MATMUL_Y = 1522,
    OP_MATMUL_HOW = 1523,
    REDUCTION_MODE = 1600,
    REDUCTION_PRECISION = 1601,
    OP_REDUCTION_X = 1610,
    OP_REDUCTION_Y = 1611,
    OP_REDUCTION_HOW = 1612
};

enum { // types of attributes
    TYPE_HANDLE = 0,
    TYPE_DATA_TYPE = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_ADDRESS = 6,
    TYPE_HEURISTIC = 8,
    TYPE_POINTWISE = 14,
    TYPE_DESCRIPTOR = 15,
    TYPE_REDUCTION = 18
};

enum {
    AXES = 4,
    ALIGNMENT = 16,    // bytes, of every tensor
    HEURISTIC_A = 3,   // cuDNN's own choice, best first
    FULL = 2006,       // more descriptors than a graph can hold: cuDNN's "size insufficient"
    NO_PROPOSAL = 3000 // cuDNN's "not supported"
};

static const int in_f32 = STRAIT_CUDNN_F32;

void strait_cudnn_graph_init(struct strait_cudnn_graph *g, const struct strait_cudnn_table *table,
                             void *handle, int64_t n_real) {
    memset(g, 0, sizeof *g);
    g->table = table;
    g->handle = handle;
    g->last_uid = n_real;
}

/* In reverse order, because later descriptors refer to earlier ones. */
void strait_cudnn_graph_free(struct strait_cudnn_graph *g) {
    while (g->n_made > 0)
        (void)g->table->cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
}

/* Only the first line of cuDNN's last message: the rest repeats the call stack. */
void strait_cudnn_status_text(const struct strait_cudnn_table *table, int status,
                              char out[STRAIT_CUDNN_TEXT]) {
    char why[STRAIT_CUDNN_TEXT] = "";
    table->cudnnGetLastErrorString(why, sizeof why);
    why[strcspn(why, "\n")] = '\0';
    (void)snprintf(out, STRAIT_CUDNN_TEXT, "%.60s%s%.180s", table->cudnnGetErrorString(status),
                   why[0] != '\0' ? ": " : "", why);
}

/* Keeps the first failure and its text. */
static void note(struct strait_cudnn_graph *g, int status) {
    if (g->status != 0 || status == 0) return;
    g->status = status;
    strait_cudnn_status_text(g->table, status, g->text);
}

/* Creates a descriptor that the graph owns; NULL after any failure. */
static void *make(struct strait_cudnn_graph *g, int kind) {
    void *made = NULL;
    if (g->n_made == STRAIT_CUDNN_MADE) note(g, FULL);
    if (g->status != 0) return NULL;
    note(g, g->table->cudnnBackendCreateDescriptor(kind, &made));
    if (g->status != 0) return NULL;
    g->made[g->n_made++] = made;
    return made;
}

/* After the first failure calls do nothing, so that building a graph needs no checks in between. */
static void set(struct strait_cudnn_graph *g, void *d, int name, int type, int64_t n,
                const void *values) {
    if (g->status == 0) note(g, g->table->cudnnBackendSetAttribute(d, name, type, n, values));
}

static void set_part(struct strait_cudnn_graph *g, void *d, int name, void *part) {
    set(g, d, name, TYPE_DESCRIPTOR, 1, &part);
}

/* Descriptors must be finalised before others may refer to them. */
static void finish(struct strait_cudnn_graph *g, void *d) {
    if (g->status == 0) note(g, g->table->cudnnBackendFinalize(d));
}

/* Strides that are not given are those of a dense tensor. */
static void *tensor(struct strait_cudnn_graph *g, int64_t uid, strait_cudnn_type type,
                    strait_cudnn_shape shape) {
    void *t = make(g, TENSOR);
    const int64_t alignment = ALIGNMENT;
    const int value_type = (int)type;
    int64_t stride = 1;
    for (int i = AXES - 1; i >= 0; stride *= shape.n[i--])
        if (shape.stride[i] == 0) shape.stride[i] = stride;
    set(g, t, TENSOR_TYPE, TYPE_DATA_TYPE, 1, &value_type);
    set(g, t, TENSOR_DIMENSIONS, TYPE_INT64, AXES, shape.n);
    set(g, t, TENSOR_STRIDES, TYPE_INT64, AXES, shape.stride);
    set(g, t, TENSOR_UID, TYPE_INT64, 1, &uid);
    set(g, t, TENSOR_ALIGNMENT, TYPE_INT64, 1, &alignment);
    return t;
}

void *strait_cudnn_real(struct strait_cudnn_graph *g, int64_t uid, strait_cudnn_type type,
                        strait_cudnn_shape shape) {
    void *t = tensor(g, uid, type, shape);
    finish(g, t);
    return t;
}

/* A number passed by value with each run, not an address on the device. */
void *strait_cudnn_number(struct strait_cudnn_graph *g, int64_t uid) {
    const bool yes = true;
    void *t = tensor(g, uid, STRAIT_CUDNN_F32, (strait_cudnn_shape){.n = {1, 1, 1, 1}});
    set(g, t, TENSOR_BY_VALUE, TYPE_BOOLEAN, 1, &yes);
    finish(g, t);
    return t;
}

/* Virtual tensors exist only inside the fused kernel and have no memory. */
void *strait_cudnn_virtual(struct strait_cudnn_graph *g, strait_cudnn_type type,
                           strait_cudnn_shape shape) {
    const bool yes = true;
    void *t = tensor(g, ++g->last_uid, type, shape);
    set(g, t, TENSOR_VIRTUAL, TYPE_BOOLEAN, 1, &yes);
    finish(g, t);
    return t;
}

/* The descriptor of a pointwise operation; only STRAIT_CUDNN_INDEX has an axis. */
static void *pointwise_params(struct strait_cudnn_graph *g, strait_cudnn_pointwise mode,
                              const int64_t *axis) {
    void *params = make(g, POINTWISE);
    const int mode_value = (int)mode;
    const int precision = mode == STRAIT_CUDNN_GREATER_EQUAL ? STRAIT_CUDNN_BOOL : in_f32;
    set(g, params, POINTWISE_MODE, TYPE_POINTWISE, 1, &mode_value);
    set(g, params, POINTWISE_PRECISION, TYPE_DATA_TYPE, 1, &precision);
    if (axis != NULL) set(g, params, POINTWISE_AXIS, TYPE_INT64, 1, axis);
    finish(g, params);
    return params;
}

/* Adds an operation with its operands; NULL operands are left out. */
static void operate(struct strait_cudnn_graph *g, int kind, const int *names, void *const *parts,
                    int n) {
    void *op = make(g, kind);
    for (int i = 0; i < n; i++)
        if (parts[i] != NULL) set_part(g, op, names[i], parts[i]);
    finish(g, op);
    if (g->n_ops == STRAIT_CUDNN_OPS) note(g, FULL);
    if (g->status == 0) g->ops[g->n_ops++] = op;
}

/* The order of the attributes is that of the operands below. */
static void pointwise(struct strait_cudnn_graph *g, void *const parts[5]) {
    static const int parts_of[] = {OP_POINTWISE_HOW, OP_POINTWISE_Y, OP_POINTWISE_X, OP_POINTWISE_B,
                                   OP_POINTWISE_T};
    operate(g, OP_POINTWISE, parts_of, parts, 5);
}

void strait_cudnn_pointwise_op(struct strait_cudnn_graph *g, strait_cudnn_pointwise mode, void *y,
                               void *x, void *b, void *t) {
    pointwise(g, (void *const[]){pointwise_params(g, mode, NULL), y, x, b, t});
}

void strait_cudnn_index_op(struct strait_cudnn_graph *g, int64_t axis, void *y, void *x) {
    void *params = pointwise_params(g, STRAIT_CUDNN_INDEX, &axis);
    pointwise(g, (void *const[]){params, y, x, NULL, NULL});
}

void strait_cudnn_reduce_op(struct strait_cudnn_graph *g, strait_cudnn_reduction mode, void *y,
                            void *x) {
    static const int parts_of[] = {OP_REDUCTION_HOW, OP_REDUCTION_Y, OP_REDUCTION_X};
    void *params = make(g, REDUCTION);
    const int mode_value = (int)mode;
    set(g, params, REDUCTION_MODE, TYPE_REDUCTION, 1, &mode_value);
    set(g, params, REDUCTION_PRECISION, TYPE_DATA_TYPE, 1, &in_f32);
    finish(g, params);
    operate(g, OP_REDUCTION, parts_of, (void *const[]){params, y, x}, 3);
}

/* Sums are in f32 whatever the type of the factors. */
void strait_cudnn_matmul_op(struct strait_cudnn_graph *g, void *y, void *a, void *b) {
    static const int parts_of[] = {OP_MATMUL_HOW, OP_MATMUL_Y, OP_MATMUL_A, OP_MATMUL_B};
    void *params = make(g, MATMUL);
    set(g, params, MATMUL_PRECISION, TYPE_DATA_TYPE, 1, &in_f32);
    finish(g, params);
    operate(g, OP_MATMUL, parts_of, (void *const[]){params, y, a, b}, 4);
}

/* Fills `configs`, which the graph owns, with cuDNN's proposals and returns their number. */
static int propose(struct strait_cudnn_graph *g, void *configs[STRAIT_CUDNN_PROPOSALS]) {
    const int mode = HEURISTIC_A;
    int64_t n = 0;
    void *whole = make(g, OP_GRAPH);
    set(g, whole, GRAPH_HANDLE, TYPE_HANDLE, 1, &g->handle);
    set(g, whole, GRAPH_OPS, TYPE_DESCRIPTOR, g->n_ops, g->ops);
    finish(g, whole);
    void *heuristic = make(g, HEURISTIC);
    set_part(g, heuristic, HEURISTIC_GRAPH, whole);
    set(g, heuristic, HEURISTIC_MODE, TYPE_HEURISTIC, 1, &mode);
    finish(g, heuristic);
    for (int i = 0; i < STRAIT_CUDNN_PROPOSALS; i++)
        configs[i] = make(g, ENGINE_CONFIG);
    if (g->status == 0)
        note(g, g->table->cudnnBackendGetAttribute(heuristic, HEURISTIC_RESULTS, TYPE_DESCRIPTOR,
                                                   STRAIT_CUDNN_PROPOSALS, &n, configs));
    if (g->status == 0 && n == 0) note(g, NO_PROPOSAL);
    return g->status == 0 ? (int)n : 0;
}

/* Creates the plan of one proposal and reads its workspace. Returns cuDNN's status. */
static int realize(const struct strait_cudnn_graph *g, void *config, void **plan,
                   int64_t *workspace) {
    const struct strait_cudnn_table *t = g->table;
    int64_t n = 0;
    *plan = NULL;
    int status = t->cudnnBackendCreateDescriptor(PLAN, plan);
    if (status == 0)
        status = t->cudnnBackendSetAttribute(*plan, PLAN_HANDLE, TYPE_HANDLE, 1, &g->handle);
    if (status == 0)
        status = t->cudnnBackendSetAttribute(*plan, PLAN_CONFIG, TYPE_DESCRIPTOR, 1, &config);
    if (status == 0) status = t->cudnnBackendFinalize(*plan);
    if (status == 0)
        status = t->cudnnBackendGetAttribute(*plan, PLAN_WORKSPACE, TYPE_INT64, 1, &n, workspace);
    return status;
}

/* Proposals come best first; the first one that fits the workspace is used. */
int strait_cudnn_graph_plan(struct strait_cudnn_graph *g, int64_t capacity, void **plan,
                            int64_t *workspace) {
    void *configs[STRAIT_CUDNN_PROPOSALS] = {0};
    const int n = propose(g, configs);
    *plan = NULL;
    for (int i = 0; i < n; i++) {
        const int status = realize(g, configs[i], plan, workspace);
        if (status == 0 && *workspace <= capacity) {
            g->status = 0;
            return 0;
        }
        note(g, status != 0 ? status : FULL);
        if (*plan != NULL) (void)g->table->cudnnBackendDestroyDescriptor(*plan);
        *plan = NULL;
    }
    return g->status;
}

/* Addresses are bound for each run, so one plan serves all layers. */
int strait_cudnn_run(const struct strait_cudnn_table *table, void *handle, void *plan,
                     const strait_cudnn_binding *b) {
    void *pack = NULL;
    int status = table->cudnnBackendCreateDescriptor(PACK, &pack);
    if (status != 0) return status;
    status = table->cudnnBackendSetAttribute(pack, PACK_ADDRESSES, TYPE_ADDRESS, b->n,
                                             b->addresses);
    if (status == 0)
        status = table->cudnnBackendSetAttribute(pack, PACK_UIDS, TYPE_INT64, b->n, b->uids);
    if (status == 0)
        status = table->cudnnBackendSetAttribute(pack, PACK_WORKSPACE, TYPE_ADDRESS, 1,
                                                 &b->workspace);
    if (status == 0) status = table->cudnnBackendFinalize(pack);
    if (status == 0) status = table->cudnnBackendExecute(handle, plan, pack);
    (void)table->cudnnBackendDestroyDescriptor(pack);
    return status;
}
