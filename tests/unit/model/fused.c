/* fused.c - norms, convolutions, rotations and token tables in fewer kernels: the same model. */
#include "tiny.h"

static struct strait_stage *open_stage(const strait_stage_spec *spec,
                                       struct strait_backend *backend) {
    struct strait_stage *stage = NULL;
    CHECK_OK(strait_stage_open(spec, backend, &stage));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_refresh(stage));
    CHECK_OK(strait_stage_zero_gradients(stage));
    return stage;
}

/* Loss and gradients of both ways through a step, which differ by rounding alone. */
static void check_ways(strait_shape shape, int recomputes) {
    struct strait_backend *backend = tiny_backend(0);
    shape.width = 24;
    strait_stage_spec spec = tiny_spec(shape, 2, 9);
    spec.recomputes = recomputes;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_stage *apart = open_stage(&spec, backend);
    spec.shape.fuses_conv = strait_shape_can_fuse_conv(&shape);
    assert_true(spec.shape.fuses_conv);
    spec.shape.lists_tokens = 1;
    struct strait_stage *fused = open_stage(&spec, backend);
    CHECK_NEAR(tiny_loss(fused, &batch, 1), tiny_loss(apart, &batch, 1), 1e-5);
    int n = 0;
    const strait_param *a = strait_stage_params(apart, &n), *b = strait_stage_params(fused, &n);
    for (int i = 0; i < n; i++) {
        const float *want = a[i].grad.data, *got = b[i].grad.data;
        double squares = 0, apart_by = 0;
        for (int64_t v = 0; v < a[i].grad.rows * a[i].grad.cols; v++) {
            squares += (double)want[v] * (double)want[v];
            apart_by += ((double)got[v] - (double)want[v]) * ((double)got[v] - (double)want[v]);
        }
        if (!(apart_by <= 1e-8 * squares))
            fail_msg("%s: norm %g, apart by %g", a[i].name, sqrt(squares), sqrt(apart_by));
    }
    strait_stage_close(&apart);
    strait_stage_close(&fused);
    strait_backend_close(&backend);
}

static void computes_the_same_model(void **state) {
    (void)state;
    check_ways(tiny_local(tiny_llama(), 2), 0);
    check_ways(tiny_local(tiny_yardstick(), 1), 0);
    check_ways(tiny_local(tiny_yardstick(), 1), 1);
    check_ways(tiny_local(tiny_yardstick(), 2), 0); // with a convolution before the norm per head
}

static void takes_less_memory(void **state) {
    (void)state;
    strait_shape shape = tiny_local(tiny_llama(), 2);
    shape.width = 24;
    strait_stage_spec spec = tiny_spec(shape, 2, 9);
    strait_stage_memory apart, fused;
    CHECK_OK(strait_stage_plan(&spec, &apart));
    spec.shape.fuses_conv = 1;
    CHECK_OK(strait_stage_plan(&spec, &fused));
    CHECK(fused.activations < apart.activations);
}

static void other_widths_are_left_alone(void **state) {
    (void)state;
    strait_shape shape = tiny_local(tiny_llama(), 2); // of width 15
    assert_false(strait_shape_can_fuse_conv(&shape));
    shape.width = 2056;
    assert_false(strait_shape_can_fuse_conv(&shape));
    shape.width = 2048;
    assert_true(strait_shape_can_fuse_conv(&shape));
    shape.conv = 0;
    assert_false(strait_shape_can_fuse_conv(&shape));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_the_same_model),
        cmocka_unit_test(takes_less_memory),
        cmocka_unit_test(other_widths_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
