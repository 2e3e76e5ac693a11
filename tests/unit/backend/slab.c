/* Tensors planned into one allocation. */
#include "backend/slab.h"

#include "base/alloc.h"
#include "check.h"

static struct strait_backend *open_cpu(void) {
    struct strait_backend *be = NULL;
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &be));
    return be;
}

static void tensors_are_disjoint_and_zeroed(void **state) {
    (void)state;
    struct strait_backend *be = open_cpu();
    struct strait_slab slab = {0};
    strait_tensor parts[100];
    for (int i = 0; i < 100; i++)
        CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 3, i + 1, &parts[i]));
    assert_null(parts[0].data); // not committed yet
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_slab_commit(&slab, be));
    assert_int_equal(strait_alloc_count(), before + 1);
    for (int i = 0; i < 100; i++) {
        float *values = parts[i].data;
        assert_int_equal(((char *)values - (char *)parts[0].data) % 256, 0);
        for (int v = 0; v < 3 * (i + 1); v++) {
            CHECK_NEAR(values[v], 0, 0); // parts do not overlap
            values[v] = 1;
        }
        CHECK((char *)(values + 3 * (ptrdiff_t)(i + 1)) <= (char *)slab.memory + slab.bytes);
    }
    strait_slab_fini(&slab);
    assert_null(slab.memory);
    strait_backend_close(&be);
}

static void adjacent_tensors_form_one_matrix(void **state) {
    (void)state;
    struct strait_backend *be = open_cpu();
    struct strait_slab slab = {0};
    strait_tensor first, second;
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 3, 5, &first));
    CHECK_OK(strait_slab_add_adjacent(&slab, STRAIT_F32, 2, 5, &second));
    CHECK_OK(strait_slab_commit(&slab, be));
    assert_ptr_equal(second.data, (float *)first.data + 15);
    assert_int_equal(slab.bytes, 25 * sizeof(float));
    strait_slab_fini(&slab);
    strait_backend_close(&be);
}

static void overlaid_tensors_share_memory(void **state) {
    (void)state;
    struct strait_backend *be = open_cpu();
    struct strait_slab slab = {0};
    strait_tensor before, small, large, behind, after;
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 1, 3, &before));
    const size_t mark = slab.next;
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 1, 100, &large));
    strait_slab_overlay(&slab, mark);
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 1, 5, &small));
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 1, 7, &behind));
    assert_int_equal(slab.bytes, 256 + 400);
    strait_slab_close_overlay(&slab);
    CHECK_OK(strait_slab_add(&slab, STRAIT_F32, 1, 1, &after));
    assert_int_equal(slab.bytes, 768 + 4);
    CHECK_OK(strait_slab_commit(&slab, be));
    char *const start = before.data;
    assert_ptr_equal(large.data, start + 256);
    assert_ptr_equal(small.data, large.data);
    assert_ptr_equal(behind.data, start + 512);
    assert_ptr_equal(after.data, start + 768);
    strait_slab_fini(&slab);
    strait_backend_close(&be);
}

static void failures_leak_nothing(void **state) {
    (void)state;
    struct strait_backend *be = open_cpu();
    for (int n = 1; n <= 3; n++) { // allocations: parts, offsets, the memory itself
        struct strait_slab slab = {0};
        strait_tensor part;
        strait_alloc_fail_at(n);
        strait_err err = strait_slab_add(&slab, STRAIT_F32, 3, 5, &part);
        if (err == STRAIT_OK) err = strait_slab_commit(&slab, be);
        strait_alloc_fail_at(0);
        assert_int_equal(err, STRAIT_ENOMEM);
        strait_slab_fini(&slab);
    }
    struct strait_slab empty = {0};
    strait_slab_fini(&empty);
    strait_backend_close(&be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_disjoint_and_zeroed),
        cmocka_unit_test(adjacent_tensors_form_one_matrix),
        cmocka_unit_test(overlaid_tensors_share_memory),
        cmocka_unit_test(failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
