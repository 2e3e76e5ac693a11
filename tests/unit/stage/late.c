/* Weights of late updates: which version a step reads, and what an update writes. */
#include "stage/late/late.h"

#include "../model/tiny.h"

#include <string.h>

static struct strait_backend *backend;
static struct strait_stage *model;
static struct strait_late *late;
static strait_param *list; // as a runner has it: with the addresses of w
static int n_params;

static void open_late(strait_dtype precision, float extrapolation) {
    strait_stage_spec spec = {.shape = tiny_llama(),
                              .layers = {0, 3},
                              .n_sequences = 1,
                              .seq_len = 12,
                              .n_slots = 1,
                              .is_training = 1};
    spec.shape.precision = precision;
    backend = tiny_backend(0);
    CHECK_OK(strait_stage_open(&spec, backend, &model));
    CHECK_OK(strait_stage_init(model, 3));
    const strait_param *params = strait_stage_params(model, &n_params);
    CHECK_OK(strait_alloc((size_t)n_params, sizeof *list, "list", (void **)&list));
    memcpy(list, params, (size_t)n_params * sizeof *list);
    const strait_late_spec late_spec = {.params = list,
                                        .n_params = n_params,
                                        .model = model,
                                        .extrapolation = extrapolation,
                                        .keeps_gradients = 1};
    strait_late_memory memory;
    CHECK_OK(strait_late_plan(&late_spec, &memory));
    CHECK(memory.weights > 0 && memory.gradients > 0);
    CHECK_OK(strait_late_open(&late_spec, backend, &late));
    CHECK_OK(strait_late_start(late, strait_stage_stream(model)));
}

static void close_late(void) {
    strait_late_close(&late);
    strait_stage_close(&model);
    strait_alloc_free(list);
    strait_backend_close(&backend);
}

/* Stands for an optimizer: adds a number to every weight. */
static void update(int64_t step, float change) {
    struct strait_stream *s = strait_stage_stream(model);
    CHECK_OK(strait_late_begin_update(late, s, step));
    for (int i = 0; i < n_params; i++)
        for (int64_t k = 0; k < list[i].value.rows * list[i].value.cols; k++)
            ((float *)list[i].value.data)[k] += change;
    CHECK_OK(strait_late_end_update(late, s, step));
}

/* What layers read in `step` is w plus this, for every parameter. */
static void check_reads(int64_t step, float offset, float tolerance) {
    int n = 0;
    const strait_param *params = strait_stage_params(model, &n);
    CHECK_OK(strait_late_select(late, strait_stage_stream(model), step));
    for (int i = 0; i < n; i++) {
        const strait_tensor read = params[i].compute;
        for (int64_t k = 0; k < read.rows * read.cols; k++) {
            uint32_t bits = 0;
            float value = 0;
            if (read.dtype == STRAIT_BF16)
                bits = (uint32_t)((const uint16_t *)read.data)[k] << 16;
            else
                memcpy(&bits, (const float *)read.data + k, sizeof bits);
            memcpy(&value, &bits, sizeof value);
            CHECK_NEAR(value, ((const float *)list[i].value.data)[k] + offset, tolerance);
        }
    }
    CHECK_OK(strait_late_select(late, strait_stage_stream(model), STRAIT_LATE_CURRENT));
    for (int i = 0; i < n; i++)
        CHECK(params[i].value.data == list[i].value.data &&
              params[i].compute.data == list[i].compute.data);
}

static void run_updates(strait_dtype precision, float tolerance) {
    open_late(precision, 1);
    check_reads(0, 0, tolerance);
    check_reads(1, 0, tolerance);
    update(0, 0.5f);                  // w(1) = w(0) + 0.5
    check_reads(1, -0.5f, tolerance); // lacks the update of step 0
    check_reads(2, 0.5f, tolerance);  // w(1), moved on by its last update
    update(1, 0.25f);
    check_reads(2, 0.25f, tolerance); // lacks 0.25 and guessed 0.5
    check_reads(3, 0.25f, tolerance);
    update(2, 0); // skipped
    check_reads(3, 0.25f, tolerance);
    check_reads(4, 0, tolerance);
    close_late();
}

static void step_reads_weights_without_the_last_update(void **state) {
    (void)state;
    run_updates(STRAIT_F32, 1e-6f);
}

static void rounded_copies_have_versions_too(void **state) {
    (void)state;
    run_updates(STRAIT_BF16, 0.02f);
}

static void extrapolation_is_a_choice(void **state) {
    (void)state;
    open_late(STRAIT_F32, 0);
    update(0, 0.5f);
    check_reads(2, 0, 1e-6f);
    close_late();
    open_late(STRAIT_F32, 0.5f);
    update(0, 0.5f);
    check_reads(2, 0.25f, 1e-6f);
    close_late();
}

static void keeps_gradients_apart(void **state) {
    (void)state;
    open_late(STRAIT_F32, 1);
    struct strait_stream *s = strait_stage_stream(model);
    for (int i = 0; i < n_params; i++)
        CHECK_OK(backend->kernels->fill(s, list[i].grad, (float)i));
    CHECK_OK(strait_late_keep_gradients(late, s));
    for (int i = 0; i < n_params; i++)
        CHECK_OK(backend->kernels->fill(s, list[i].grad, -1));
    const strait_param *kept = strait_late_params(late);
    for (int i = 0; i < n_params; i++)
        CHECK(((const float *)kept[i].grad.data)[0] == (float)i &&
              kept[i].value.data == list[i].value.data);
    close_late();
}

static void states_have_stable_names(void **state) {
    (void)state;
    open_late(STRAIT_F32, 1);
    strait_late_state even, odd;
    CHECK(strait_late_n_states(NULL) == 0 && strait_late_n_states(late) == 2 * n_params);
    strait_late_get_state(late, 0, &even);
    strait_late_get_state(late, 1, &odd);
    assert_string_equal(even.name, "embed.table.e");
    assert_string_equal(odd.name, "embed.table.o");
    CHECK(even.tensor.data != odd.tensor.data);
    close_late();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_reads_weights_without_the_last_update),
        cmocka_unit_test(rounded_copies_have_versions_too),
        cmocka_unit_test(extrapolation_is_a_choice),
        cmocka_unit_test(keeps_gradients_apart),
        cmocka_unit_test(states_have_stable_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
