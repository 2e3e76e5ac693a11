#include "study/vision/tape.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    NODES_MAX = 256,
    NAME_MAX_BYTES = 32
};

typedef enum operation {
    INPUT,
    PARAM,
    MATMUL,
    ADD,
    RELU,
    NORM,
    GATHER,
    ATTENTION,
    MEAN,
} operation;

typedef struct node {
    operation op;
    int in[3];
    int64_t rows, columns;
    int64_t group; // of attention: tokens; of mean: rows that are averaged
    float *values; // then gradients, then what the backward pass needs
    float *gradients, *saved;
    int *index; // of gather
    char name[NAME_MAX_BYTES];
} node;

struct strait_tape {
    node nodes[NODES_MAX];
    int n;
    strait_err err;
};

strait_err strait_tape_open(struct strait_tape **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_tape), "graph", &memory));
    *out = memory;
    return STRAIT_OK;
}

void strait_tape_close(struct strait_tape **tape) {
    struct strait_tape *t = *tape;
    for (int i = 0; t != NULL && i < t->n; i++) {
        strait_alloc_free(t->nodes[i].values);
        strait_alloc_free(t->nodes[i].index);
    }
    strait_alloc_free(t);
    *tape = NULL;
}

static int fail(struct strait_tape *t, const char *what) {
    if (t->err == STRAIT_OK) t->err = STRAIT_FAIL(STRAIT_EINVAL, "graph: %s", what);
    return 0;
}

/* Appends a node with memory for its values, its gradients and n_saved further numbers. */
static int append(struct strait_tape *t, node added, size_t n_saved) {
    const size_t n = (size_t)added.rows * (size_t)added.columns;
    void *memory = NULL;
    if (t->err != STRAIT_OK) return 0;
    if (t->n == NODES_MAX) return fail(t, "too many nodes");
    t->err = strait_alloc(2 * n + n_saved, sizeof(float), "graph", &memory);
    if (t->err != STRAIT_OK) return 0;
    added.values = memory;
    added.gradients = added.values + n;
    added.saved = added.gradients + n;
    t->nodes[t->n] = added;
    return t->n++;
}

int strait_tape_input(struct strait_tape *tape, int rows, int columns) {
    return append(tape, (node){.op = INPUT, .rows = rows, .columns = columns}, 0);
}

int strait_tape_param(struct strait_tape *tape, const char *name, int rows, int columns) {
    node added = {.op = PARAM, .rows = rows, .columns = columns};
    (void)snprintf(added.name, sizeof added.name, "%s", name);
    return append(tape, added, 0);
}

int strait_tape_matmul(struct strait_tape *tape, int a, int b) {
    const node *x = &tape->nodes[a];
    const node *y = &tape->nodes[b];
    if (x->columns != y->rows) return fail(tape, "a product of matrices that do not fit");
    return append(tape, (node){.op = MATMUL, .in = {a, b}, .rows = x->rows, .columns = y->columns},
                  0);
}

int strait_tape_add(struct strait_tape *tape, int a, int b) {
    const node *x = &tape->nodes[a];
    const node *y = &tape->nodes[b];
    if (x->columns != y->columns || x->rows != y->rows)
        return fail(tape, "a sum of matrices that do not fit");
    return append(tape, (node){.op = ADD, .in = {a, b}, .rows = x->rows, .columns = x->columns}, 0);
}

int strait_tape_relu(struct strait_tape *tape, int a) {
    const node *x = &tape->nodes[a];
    return append(tape, (node){.op = RELU, .in = {a}, .rows = x->rows, .columns = x->columns}, 0);
}

int strait_tape_norm(struct strait_tape *tape, int a) {
    const node *x = &tape->nodes[a];
    return append(tape, (node){.op = NORM, .in = {a}, .rows = x->rows, .columns = x->columns},
                  (size_t)x->rows);
}

int strait_tape_gather(struct strait_tape *tape, int a, int rows, int columns, const int *index) {
    void *copy = NULL;
    const int64_t n = tape->nodes[a].rows * tape->nodes[a].columns;
    for (int i = 0; i < rows * columns; i++)
        if (index[i] < -1 || index[i] >= n) return fail(tape, "an index outside its matrix");
    const int at = append(tape, (node){.op = GATHER, .in = {a}, .rows = rows, .columns = columns},
                          0);
    if (tape->err != STRAIT_OK) return 0;
    tape->err = strait_alloc((size_t)rows * (size_t)columns, sizeof(int), "graph", &copy);
    if (tape->err != STRAIT_OK) return 0;
    memcpy(copy, index, (size_t)rows * (size_t)columns * sizeof(int));
    tape->nodes[at].index = copy;
    return at;
}

int strait_tape_attention(struct strait_tape *tape, const int qkv[3], int tokens) {
    const node *q = &tape->nodes[qkv[0]];
    if (tokens < 1 || q->rows % tokens != 0) return fail(tape, "attention over a part of a sample");
    const node added = {.op = ATTENTION,
                        .in = {qkv[0], qkv[1], qkv[2]},
                        .rows = q->rows,
                        .columns = q->columns,
                        .group = tokens};
    return append(tape, added, (size_t)q->rows * (size_t)tokens);
}

int strait_tape_mean(struct strait_tape *tape, int a, int group) {
    const node *x = &tape->nodes[a];
    if (group < 1 || x->rows % group != 0) return fail(tape, "a mean over a part of a sample");
    return append(
        tape,
        (node){
            .op = MEAN, .in = {a}, .rows = x->rows / group, .columns = x->columns, .group = group},
        0);
}

strait_err strait_tape_check(const struct strait_tape *tape) {
    return tape->err;
}

float *strait_tape_values(struct strait_tape *tape, int number) {
    return tape->nodes[number].values;
}

float *strait_tape_gradients(struct strait_tape *tape, int number) {
    return tape->nodes[number].gradients;
}

int strait_tape_rows(const struct strait_tape *tape, int number) {
    return (int)tape->nodes[number].rows;
}

int strait_tape_columns(const struct strait_tape *tape, int number) {
    return (int)tape->nodes[number].columns;
}

int strait_tape_param_at(const struct strait_tape *tape, int i) {
    for (int k = 0; k < tape->n; k++)
        if (tape->nodes[k].op == PARAM && i-- == 0) return k;
    return -1;
}

const char *strait_tape_name(const struct strait_tape *tape, int number) {
    return tape->nodes[number].name;
}

/* c += a b; rows of b are read in order, so that compilers vectorise the inner loop. */
static void multiply(const node *a, const node *b, float *c) {
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++) {
            const float x = a->values[i * a->columns + k];
            const float *row = b->values + k * b->columns;
            float *to = c + i * b->columns;
            for (int64_t j = 0; j < b->columns; j++)
                to[j] += x * row[j];
        }
}

/* Adds the gradients of both factors. */
static void multiply_back(const node *a, const node *b, const float *d) {
    const int64_t n = b->columns;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++) {
            const float *row = b->values + k * n;
            float *to = b->gradients + k * n;
            const float x = a->values[i * a->columns + k];
            float sum = 0.0F;
            for (int64_t j = 0; j < n; j++) {
                sum += d[i * n + j] * row[j];
                to[j] += x * d[i * n + j];
            }
            a->gradients[i * a->columns + k] += sum;
        }
}

static void normalise(const node *x, const node *y) {
    for (int64_t i = 0; i < x->rows; i++) {
        float sum = 0.0F;
        for (int64_t j = 0; j < x->columns; j++)
            sum += x->values[i * x->columns + j] * x->values[i * x->columns + j];
        const float scale = 1.0F / sqrtf(sum / (float)x->columns + 1e-6F);
        y->saved[i] = scale;
        for (int64_t j = 0; j < x->columns; j++)
            y->values[i * x->columns + j] = scale * x->values[i * x->columns + j];
    }
}

static void normalise_back(const node *x, const node *y) {
    for (int64_t i = 0; i < x->rows; i++) {
        const float *d = y->gradients + i * x->columns;
        const float *v = y->values + i * x->columns;
        float dot = 0.0F;
        for (int64_t j = 0; j < x->columns; j++)
            dot += d[j] * v[j];
        dot /= (float)x->columns;
        for (int64_t j = 0; j < x->columns; j++)
            x->gradients[i * x->columns + j] += y->saved[i] * (d[j] - dot * v[j]);
    }
}

static float dot_rows(const float *a, const float *b, int64_t n) {
    float sum = 0.0F;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void softmax(float *row, int64_t n) {
    float most = row[0];
    float sum = 0.0F;
    for (int64_t j = 1; j < n; j++)
        most = fmaxf(most, row[j]);
    for (int64_t j = 0; j < n; j++) {
        row[j] = expf(row[j] - most);
        sum += row[j];
    }
    for (int64_t j = 0; j < n; j++)
        row[j] /= sum;
}

static void attend(const struct strait_tape *t, const node *y) {
    const node *q = &t->nodes[y->in[0]];
    const node *k = &t->nodes[y->in[1]];
    const node *v = &t->nodes[y->in[2]];
    const int64_t c = y->columns;
    const float scale = 1.0F / sqrtf((float)c);
    for (int64_t i = 0; i < y->rows; i++) {
        const int64_t first = i - i % y->group;
        float *p = y->saved + i * y->group;
        for (int64_t j = 0; j < y->group; j++)
            p[j] = scale * dot_rows(q->values + i * c, k->values + (first + j) * c, c);
        softmax(p, y->group);
        for (int64_t j = 0; j < y->group; j++)
            for (int64_t m = 0; m < c; m++)
                y->values[i * c + m] += p[j] * v->values[(first + j) * c + m];
    }
}

static void attend_back(const struct strait_tape *t, const node *y) {
    const node *q = &t->nodes[y->in[0]];
    const node *k = &t->nodes[y->in[1]];
    const node *v = &t->nodes[y->in[2]];
    const int64_t c = y->columns;
    const float scale = 1.0F / sqrtf((float)c);
    for (int64_t i = 0; i < y->rows; i++) {
        const int64_t first = i - i % y->group;
        const float *p = y->saved + i * y->group;
        const float *d = y->gradients + i * c;
        const float sum = dot_rows(d, y->values + i * c, c); // of p times its gradient
        for (int64_t j = 0; j < y->group; j++) {
            const int64_t at = (first + j) * c;
            const float ds = scale * p[j] * (dot_rows(d, v->values + at, c) - sum);
            for (int64_t m = 0; m < c; m++) {
                v->gradients[at + m] += p[j] * d[m];
                q->gradients[i * c + m] += ds * k->values[at + m];
                k->gradients[at + m] += ds * q->values[i * c + m];
            }
        }
    }
}

static void forward_node(const struct strait_tape *t, const node *y) {
    const node *a = &t->nodes[y->in[0]];
    const node *b = &t->nodes[y->in[1]];
    const int64_t n = y->rows * y->columns;
    if (y->op != INPUT && y->op != PARAM) memset(y->values, 0, (size_t)n * sizeof(float));
    switch (y->op) {
    case INPUT:
    case PARAM: break;
    case MATMUL: multiply(a, b, y->values); break;
    case NORM: normalise(a, y); break;
    case ATTENTION: attend(t, y); break;
    case ADD:
        for (int64_t i = 0; i < n; i++)
            y->values[i] = a->values[i] + b->values[i];
        break;
    case RELU:
        for (int64_t i = 0; i < n; i++)
            y->values[i] = fmaxf(0.0F, a->values[i]);
        break;
    case GATHER:
        for (int64_t i = 0; i < n; i++)
            if (y->index[i] >= 0) y->values[i] = a->values[y->index[i]];
        break;
    case MEAN:
        for (int64_t i = 0; i < n * y->group; i++)
            y->values[i / y->columns / y->group * y->columns + i % y->columns] += a->values[i] /
                                                                                  (float)y->group;
        break;
    }
}

static void backward_node(const struct strait_tape *t, const node *y) {
    const node *a = &t->nodes[y->in[0]];
    const node *b = &t->nodes[y->in[1]];
    const int64_t n = y->rows * y->columns;
    switch (y->op) {
    case INPUT:
    case PARAM: break;
    case MATMUL: multiply_back(a, b, y->gradients); break;
    case NORM: normalise_back(a, y); break;
    case ATTENTION: attend_back(t, y); break;
    case ADD:
        for (int64_t i = 0; i < n; i++) {
            a->gradients[i] += y->gradients[i];
            b->gradients[i] += y->gradients[i];
        }
        break;
    case RELU:
        for (int64_t i = 0; i < n; i++)
            if (a->values[i] > 0.0F) a->gradients[i] += y->gradients[i];
        break;
    case GATHER:
        for (int64_t i = 0; i < n; i++)
            if (y->index[i] >= 0) a->gradients[y->index[i]] += y->gradients[i];
        break;
    case MEAN:
        for (int64_t i = 0; i < n * y->group; i++)
            a->gradients[i] +=
                y->gradients[i / y->columns / y->group * y->columns + i % y->columns] /
                (float)y->group;
        break;
    }
}

double strait_tape_forward(struct strait_tape *tape, const int *labels) {
    const node *last = &tape->nodes[tape->n - 1];
    double sum = 0.0;
    for (int64_t i = 0; i < tape->n; i++)
        forward_node(tape, &tape->nodes[i]);
    for (int64_t i = 0; i < last->rows; i++) {
        const float *row = last->values + i * last->columns;
        float most = row[0]; // a maximum in double makes gcc 12 for Arm end with an internal error
        double total = 0.0;
        for (int64_t j = 1; j < last->columns; j++)
            most = fmaxf(most, row[j]);
        for (int64_t j = 0; j < last->columns; j++)
            total += exp((double)row[j] - (double)most);
        sum += log(total) + (double)most - row[labels[i]];
    }
    return sum / (double)last->rows;
}

void strait_tape_backward(struct strait_tape *tape, const int *labels) {
    const node *last = &tape->nodes[tape->n - 1];
    for (int64_t i = 0; i < tape->n; i++)
        memset(tape->nodes[i].gradients, 0,
               (size_t)tape->nodes[i].rows * (size_t)tape->nodes[i].columns * sizeof(float));
    for (int64_t i = 0; i < last->rows; i++) {
        float *d = last->gradients + i * last->columns;
        memcpy(d, last->values + i * last->columns, (size_t)last->columns * sizeof(float));
        softmax(d, last->columns);
        d[labels[i]] -= 1.0F;
        for (int64_t j = 0; j < last->columns; j++)
            d[j] /= (float)last->rows;
    }
    for (int64_t i = tape->n - 1; i >= 0; i--)
        backward_node(tape, &tape->nodes[i]);
}
