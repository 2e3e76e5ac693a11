/* The trainer: training lowers the loss, saving and loading is exact, and errors are reported. */
#include <strait/trainer.h>

#include "../config/tiny_fixture.h"
#include "base/alloc.h"
#include "optim/optimizer.h"

#include <malloc.h>

static struct strait_trainer *open_trainer(const strait_run *of) {
    struct strait_trainer *trainer = NULL;
    CHECK_OK(strait_trainer_open(of, &trainer));
    return trainer;
}

static void run_steps(struct strait_trainer *trainer, int n, double *losses) {
    for (int i = 0; i < n; i++) {
        strait_trainer_report report;
        CHECK_OK(strait_trainer_step(trainer, &report));
        assert_int_equal(report.is_skipped, 0);
        assert_true(report.grad_norm > 0.0);
        losses[i] = report.loss;
    }
}

static void training_lowers_the_loss(void **state) {
    (void)state;
    double losses[60];
    double before = 0.0;
    double after = 0.0;
    strait_run longer = run;
    longer.train.steps = 60;
    struct strait_trainer *trainer = open_trainer(&longer);
    CHECK_OK(strait_trainer_validate(trainer, &before));
    CHECK_NEAR(before, log(TINY_VOCAB), 0.05); // untrained: the loss of a uniform distribution
    run_steps(trainer, 60, losses);
    CHECK_OK(strait_trainer_validate(trainer, &after));
    assert_true(after < 0.5 * before);
    assert_int_equal(strait_trainer_step_count(trainer), 60);
    strait_trainer_close(&trainer);
}

static void load_continues_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; strait_optimizer_names[i] != NULL; i++) {
        double straight[10];
        double resumed[10];
        const char *skipped = NULL;
        strait_run one = run;
        one.train.optimizer = i;
        struct strait_trainer *trainer = open_trainer(&one);
        run_steps(trainer, 5, straight);
        CHECK_OK(strait_trainer_save(trainer, folder.path));
        run_steps(trainer, 5, straight + 5);
        strait_trainer_close(&trainer);
        one.device.threads = 1; // the number of threads must not matter
        trainer = open_trainer(&one);
        CHECK_OK(strait_trainer_load(trainer, folder.path, &skipped));
        assert_null(skipped);
        assert_int_equal(strait_trainer_step_count(trainer), 5);
        run_steps(trainer, 5, resumed + 5);
        assert_memory_equal(straight + 5, resumed + 5, 5 * sizeof(double));
        strait_trainer_close(&trainer);
    }
}

/* A trainer goes back to a checkpoint of its own, one step before: the steps are computed again. */
static void load_repeats_steps_of_the_same_trainer(void **state) {
    (void)state;
    double first[6];
    double again[6];
    const char *skipped = NULL;
    struct strait_trainer *trainer = open_trainer(&run);
    run_steps(trainer, 6, first); // more than any other test of this folder
    CHECK_OK(strait_trainer_save(trainer, folder.path));
    run_steps(trainer, 1, first);
    CHECK_OK(strait_trainer_load(trainer, folder.path, &skipped));
    run_steps(trainer, 4, again);
    strait_trainer_close(&trainer);
    trainer = open_trainer(&run);
    CHECK_OK(strait_trainer_load(trainer, folder.path, &skipped));
    run_steps(trainer, 4, first);
    assert_memory_equal(first, again, 4 * sizeof(double));
    strait_trainer_close(&trainer);
}

static void microbatches_and_recomputation_agree(void **state) {
    (void)state;
    double whole[6];
    double split[6];
    double recomputed[6];
    strait_run one = run;
    one.stages.microbatch = 8;
    struct strait_trainer *trainer = open_trainer(&one);
    run_steps(trainer, 6, whole);
    strait_trainer_close(&trainer);
    one.stages.microbatch = 2;
    trainer = open_trainer(&one);
    run_steps(trainer, 6, split);
    strait_trainer_close(&trainer);
    one.train.recompute = 1;
    trainer = open_trainer(&one);
    run_steps(trainer, 6, recomputed);
    strait_trainer_close(&trainer);
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(whole[i], split[i], 1e-5);
    assert_memory_equal(split, recomputed, sizeof split); // the same sums in the same order
}

/* mallinfo2 also sees allocations of other libraries, which our allocator does not count. */
static void a_step_allocates_nothing(void **state) {
    (void)state;
    double losses[4];
    strait_run one = run;
    one.device.threads = 1;
    struct strait_trainer *trainer = open_trainer(&one);
    run_steps(trainer, 2, losses);
    const int64_t n_before = strait_alloc_count();
    const struct mallinfo2 heap = mallinfo2();
    run_steps(trainer, 2, losses);
    const struct mallinfo2 later = mallinfo2();
    assert_int_equal(strait_alloc_count(), n_before);
    assert_int_equal(later.uordblks + later.hblkhd, heap.uordblks + heap.hblkhd);
    strait_trainer_close(&trainer);
}

static void rejects_other_shapes_and_missing_data(void **state) {
    (void)state;
    double losses[1];
    const char *skipped = NULL;
    struct strait_trainer *trainer = open_trainer(&run);
    run_steps(trainer, 1, losses);
    CHECK_OK(strait_trainer_save(trainer, folder.path));
    strait_trainer_close(&trainer);
    strait_run other = run;
    other.model.ffn = 48;
    trainer = open_trainer(&other);
    CHECK_FAILS(strait_trainer_load(trainer, folder.path, &skipped), STRAIT_EDATA, "model.ffn 40");
    strait_trainer_close(&trainer);
    other = run;
    other.data.train[0] = '\0';
    CHECK_FAILS(strait_trainer_open(&other, &trainer), STRAIT_ECONFIG, "data.train");
    other = run;
    other.model.vocab = 50; // smaller than the shards' 61
    CHECK_FAILS(strait_trainer_open(&other, &trainer), STRAIT_EDATA, "vocabulary");
    other = run;
    (void)snprintf(other.device.kind, sizeof other.device.kind, "abacus");
    CHECK_FAILS(strait_trainer_open(&other, &trainer), STRAIT_ECONFIG, "abacus");
    assert_null(trainer);
}

static void skips_non_finite_steps_then_fails(void **state) {
    (void)state;
    strait_run diverging = run;
    diverging.train.learning_rate = 100.0;
    diverging.train.embedding_learning_rate = diverging.train.head_learning_rate =
        diverging.train.gain_learning_rate = 1e30;
    diverging.train.clip = 0.0;
    diverging.train.warmup = 0;
    struct strait_trainer *trainer = open_trainer(&diverging);
    strait_err err = STRAIT_OK;
    int n_skipped = 0;
    for (int i = 0; i < 60 && err == STRAIT_OK; i++) {
        strait_trainer_report report;
        err = strait_trainer_step(trainer, &report);
        if (err == STRAIT_OK) n_skipped += report.is_skipped;
    }
    assert_int_equal(err, STRAIT_ENONFINITE);
    assert_true(n_skipped > 0);
    assert_non_null(strstr(strait_err_detail(), "train.learning_rate"));
    strait_trainer_close(&trainer);
}

static void plan_matches_the_opened_trainer(void **state) {
    (void)state;
    strait_trainer_info planned;
    strait_trainer_info real;
    CHECK_OK(strait_trainer_plan(&run, &planned));
    struct strait_trainer *trainer = open_trainer(&run);
    strait_trainer_describe(trainer, &real);
    assert_int_equal(planned.memory.total, real.memory.total);
    assert_int_equal(planned.parameters, real.parameters);
    assert_int_equal(real.n_microbatches, 2);
    assert_int_equal(real.valid_tokens, 31 * 16);
    assert_true(strlen(real.device) > 0);
    strait_trainer_close(&trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(load_continues_bit_for_bit),
        cmocka_unit_test(load_repeats_steps_of_the_same_trainer),
        cmocka_unit_test(microbatches_and_recomputation_agree),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(rejects_other_shapes_and_missing_data),
        cmocka_unit_test(skips_non_finite_steps_then_fails),
        cmocka_unit_test(plan_matches_the_opened_trainer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
