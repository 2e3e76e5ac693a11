/* The attention graph, plans and runs for cuDNN, checked with a fake library that records calls. */
#include "backend/cuda/cudnn_attention.h"
#include "check.h"

#include <stdlib.h>

enum {
    NOT_SUPPORTED = 3000,
    KIND_PLAN = 5,
    KIND_PACK = 16,
    KIND_TENSOR = 17,
    HEURISTIC_RESULTS = 202,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    GRAPH_OPS = 801,
    TENSORS = 96,
    LEAST_SPACE = 256
};

/* A descriptor, with the attributes that the tests check. */
struct note {
    int kind, is_finished, is_virtual, is_number, type;
    int64_t dims[4], strides[4], uid;
    int proposal; // of a configuration, and of the plan created from it
};

static struct {
    int live, calls, fails_at; // fails_at: the call that fails, from 1; 0 for none
    struct note tensors[TENSORS];
    int n_tensors;
    int64_t n_ops;
    int n_proposals, n_refused; // n_refused: plans that fail before one succeeds
    int64_t space[4];           // workspace of each proposal
    int64_t n_given, uids[STRAIT_CUDNN_REAL];
    void *addresses[STRAIT_CUDNN_REAL], *workspace;
    int runs;
} fake;

static int called(void) {
    return ++fake.calls == fake.fails_at ? NOT_SUPPORTED : 0;
}

static size_t version(void) {
    return 91900;
}

static const char *error_string(int status) {
    return status == NOT_SUPPORTED ? "NOT_SUPPORTED" : "OTHER";
}

static void last_error(char *out, size_t bytes) {
    (void)snprintf(out, bytes, "because of the moon\nand more");
}

static int create(int kind, void **out) {
    if (called() != 0) return NOT_SUPPORTED;
    struct note *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->kind = kind;
    *out = made;
    fake.live++;
    return 0;
}

static int destroy(void *descriptor) {
    assert_non_null(descriptor);
    free(descriptor);
    fake.live--;
    return 0;
}

static int finish(void *descriptor) {
    struct note *d = descriptor;
    if (called() != 0) return NOT_SUPPORTED;
    CHECK(!d->is_finished);
    d->is_finished = 1;
    if (d->kind == KIND_PLAN && d->proposal < fake.n_refused) return NOT_SUPPORTED;
    if (d->kind == KIND_TENSOR) fake.tensors[fake.n_tensors++] = *d;
    return 0;
}

static void keep(struct note *d, int name, int64_t n, const void *values) {
    const size_t bytes = (size_t)n * sizeof(int64_t);
    if (name == GRAPH_OPS) fake.n_ops = n;
    if (name == 901) memcpy(&d->type, values, sizeof d->type);
    if (name == 902) memcpy(d->dims, values, bytes);
    if (name == 903) memcpy(d->strides, values, bytes);
    if (name == 906) memcpy(&d->uid, values, bytes);
    if (name == 907) d->is_virtual = *(const bool *)values;
    if (name == 908) d->is_number = *(const bool *)values;
    if (name == 1000) memcpy(fake.uids, values, bytes);
    if (name == 1001) memcpy(fake.addresses, values, bytes);
    if (name == 1001) fake.n_given = n;
    if (name == 1003) memcpy(&fake.workspace, values, bytes);
}

static int set(void *descriptor, int name, int type, int64_t n, const void *values) {
    struct note *d = descriptor, *const *parts = values;
    if (called() != 0) return NOT_SUPPORTED;
    CHECK(!d->is_finished && n > 0);
    for (int64_t i = 0; type == 15 && i < n; i++)
        CHECK(parts[i] != NULL && parts[i]->is_finished); // as cuDNN requires
    if (name == PLAN_CONFIG) d->proposal = parts[0]->proposal;
    keep(d, name, n, values);
    return 0;
}

static int get(void *descriptor, int name, int type, int64_t capacity, int64_t *n, void *values) {
    const struct note *d = descriptor;
    (void)type;
    if (called() != 0) return NOT_SUPPORTED;
    if (name == HEURISTIC_RESULTS) {
        CHECK(capacity >= fake.n_proposals);
        for (int i = 0; i < fake.n_proposals; i++) {
            struct note *config = ((struct note **)values)[i];
            config->proposal = i;
            config->is_finished = 1;
        }
        *n = fake.n_proposals;
    } else {
        assert_int_equal(name, PLAN_WORKSPACE);
        *(int64_t *)values = fake.space[d->proposal];
        *n = 1;
    }
    return 0;
}

static int execute(void *handle, void *plan, void *pack) {
    if (called() != 0) return NOT_SUPPORTED;
    CHECK(handle == &fake && ((struct note *)plan)->kind == KIND_PLAN);
    CHECK(((struct note *)pack)->kind == KIND_PACK && ((struct note *)pack)->is_finished);
    fake.runs++;
    return 0;
}

static const struct strait_cudnn_table table = {.cudnnGetVersion = version,
                                                .cudnnGetErrorString = error_string,
                                                .cudnnGetLastErrorString = last_error,
                                                .cudnnBackendCreateDescriptor = create,
                                                .cudnnBackendDestroyDescriptor = destroy,
                                                .cudnnBackendFinalize = finish,
                                                .cudnnBackendSetAttribute = set,
                                                .cudnnBackendGetAttribute = get,
                                                .cudnnBackendExecute = execute};

/* Three sequences of 70 tokens, 6 query heads of 64 and 2 key heads. */
static const strait_cudnn_key shape = {{3, 6, 2, 64, 70, 1}};

static void reset(int n_proposals) {
    memset(&fake, 0, sizeof fake);
    fake.n_proposals = n_proposals;
    for (int i = 0; i < 4; i++)
        fake.space[i] = LEAST_SPACE;
}

/* Builds the graph, plans it and frees the graph; the caller owns the plan. */
static int plan_it(const strait_cudnn_key *key, struct strait_cudnn_graph *g, void **plan) {
    int64_t space = -1;
    strait_cudnn_graph_init(g, &table, &fake, STRAIT_CUDNN_LAST_UID);
    strait_cudnn_attention_graph(g, key);
    const int status = strait_cudnn_graph_plan(g, 1000, plan, &space);
    strait_cudnn_graph_free(g);
    if (status == 0) assert_int_equal(space, LEAST_SPACE);
    return status;
}

static const struct note *tensor(int64_t uid) {
    for (int i = 0; i < fake.n_tensors; i++)
        if (fake.tensors[i].uid == uid) return &fake.tensors[i];
    return NULL;
}

static void check_tensor(int64_t uid, strait_cudnn_type type, const int64_t dims[4],
                         const int64_t strides[4]) {
    const struct note *t = tensor(uid);
    assert_non_null(t);
    CHECK(!t->is_virtual && !t->is_number);
    assert_int_equal(t->type, type);
    assert_memory_equal(t->dims, dims, sizeof t->dims);
    assert_memory_equal(t->strides, strides, sizeof t->strides);
}

static void reads_heads_in_place(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    const int64_t f = 70, y_pitch = 384, pitch = 640;
    reset(1);
    assert_int_equal(plan_it(&shape, &g, &plan), 0);
    check_tensor(STRAIT_CUDNN_Q, STRAIT_CUDNN_BF16, (int64_t[]){3, 6, f, 64},
                 (int64_t[]){f * pitch, 64, pitch, 1});
    check_tensor(STRAIT_CUDNN_K, STRAIT_CUDNN_BF16, (int64_t[]){3, 2, 64, f},
                 (int64_t[]){f * pitch, 64, 1, pitch});
    check_tensor(STRAIT_CUDNN_V, STRAIT_CUDNN_BF16, (int64_t[]){3, 2, f, 64},
                 (int64_t[]){f * pitch, 64, pitch, 1});
    check_tensor(STRAIT_CUDNN_Y, STRAIT_CUDNN_BF16, (int64_t[]){3, 6, f, 64},
                 (int64_t[]){f * y_pitch, 64, y_pitch, 1});
    check_tensor(STRAIT_CUDNN_LSE, STRAIT_CUDNN_F32, (int64_t[]){3, 6, f, 1},
                 (int64_t[]){6 * f, f, 1, 1});
    CHECK(tensor(STRAIT_CUDNN_SCALE)->is_number && tensor(STRAIT_CUDNN_LOWEST)->is_number);
    assert_int_equal(fake.n_ops, 14);
    assert_int_equal(fake.live, 1); // the plan
    assert_int_equal(destroy(plan), 0);
}

/* No tensor of seq_len squared is stored, and all uids differ. */
static void stores_no_other_tensor(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    reset(1);
    assert_int_equal(plan_it(&shape, &g, &plan), 0);
    for (int i = 0; i < fake.n_tensors; i++) {
        assert_int_equal(fake.tensors[i].is_virtual, fake.tensors[i].uid > STRAIT_CUDNN_LAST_UID);
        CHECK(tensor(fake.tensors[i].uid) == &fake.tensors[i]);
    }
    assert_int_equal(destroy(plan), 0);
    reset(1);
    strait_cudnn_key without = shape;
    without.at[STRAIT_CUDNN_HAS_LSE] = 0;
    assert_int_equal(plan_it(&without, &g, &plan), 0);
    assert_null(tensor(STRAIT_CUDNN_LSE));
    assert_int_equal(fake.n_ops, 14);
    assert_int_equal(destroy(plan), 0);
}

/* Whichever call fails, the library's text is reported and no descriptor leaks. */
static void reports_every_failure(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    reset(1);
    assert_int_equal(plan_it(&shape, &g, &plan), 0);
    assert_int_equal(destroy(plan), 0);
    const int calls = fake.calls;
    CHECK(calls > 100);
    for (int i = 1; i <= calls; i++) {
        reset(1);
        fake.fails_at = i;
        assert_int_equal(plan_it(&shape, &g, &plan), NOT_SUPPORTED);
        assert_null(plan);
        assert_string_equal(g.text, "NOT_SUPPORTED: because of the moon");
        assert_int_equal(fake.live, 0);
    }
}

static void takes_first_proposal_that_fits(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    reset(4);
    fake.n_refused = 1;
    fake.space[1] = 1001;
    assert_int_equal(plan_it(&shape, &g, &plan), 0);
    assert_int_equal(((struct note *)plan)->proposal, 2);
    assert_int_equal(fake.live, 1);
    assert_int_equal(destroy(plan), 0);
}

static void fails_without_a_proposal(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    reset(0);
    CHECK(plan_it(&shape, &g, &plan) != 0);
    reset(2);
    fake.space[0] = fake.space[1] = 1001;
    CHECK(plan_it(&shape, &g, &plan) != 0);
    CHECK(plan == NULL && g.text[0] != '\0');
    assert_int_equal(fake.live, 0);
}

static void binds_addresses_of_a_run(void **state) {
    (void)state;
    struct strait_cudnn_graph g;
    void *plan = NULL;
    float scale = 1;
    strait_cudnn_binding b = {.uids = {STRAIT_CUDNN_SCALE, STRAIT_CUDNN_Y},
                              .addresses = {&scale, &b},
                              .n = 2,
                              .workspace = &g};
    reset(1);
    assert_int_equal(plan_it(&shape, &g, &plan), 0);
    const int before = fake.calls;
    assert_int_equal(strait_cudnn_run(&table, &fake, plan, &b), 0);
    assert_int_equal(fake.runs, 1);
    CHECK(fake.n_given == 2 && fake.uids[1] == STRAIT_CUDNN_Y && fake.addresses[0] == &scale);
    CHECK(fake.addresses[1] == &b && fake.workspace == &g);
    const int calls = fake.calls - before;
    for (int i = 1; i <= calls; i++) {
        fake.fails_at = fake.calls + i;
        assert_int_equal(strait_cudnn_run(&table, &fake, plan, &b), NOT_SUPPORTED);
        assert_int_equal(fake.live, 1);
    }
    assert_int_equal(fake.runs, 1);
    assert_int_equal(destroy(plan), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_heads_in_place),
        cmocka_unit_test(stores_no_other_tensor),
        cmocka_unit_test(reports_every_failure),
        cmocka_unit_test(takes_first_proposal_that_fits),
        cmocka_unit_test(fails_without_a_proposal),
        cmocka_unit_test(binds_addresses_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
