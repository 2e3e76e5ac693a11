/* The size of microbatches that a run file leaves open: recorded, kept, and smaller where memory is
 * short. */
#include "config/microbatch.h"

#include "base/file.h"
#include "check.h"
#include "train/fit.h"
#include "train/outlook/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char text[] = "model: {width: 1024, layers: 8, heads: 8, context: 1024, vocab: 64}\n"
                           "train: {batch_tokens: 65536}\n"
                           "stages: {count: 8}\n"
                           "link: {transport: inproc, codec: {name: none}}\n"
                           "device: {kind: cuda, precision: bf16}\n";
static strait_run run;

static void load(const char *set) {
    CHECK_OK(strait_run_init_text("r.yaml", text, sizeof text - 1, &set, set != NULL, &run));
}

/* Writes a folder that holds a run whose record has these lines. */
static void write_record(char folder[STRAIT_PATH_MAX], const char *record) {
    char path[STRAIT_PATH_MAX];
    (void)snprintf(folder, STRAIT_PATH_MAX, "/tmp/strait-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    CHECK_OK(strait_file_path(path, "%s/run.yaml", folder));
    CHECK_OK(strait_file_replace(path, record, strlen(record)));
    CHECK_OK(strait_file_path(path, "%s/metrics.jsonl", folder));
    CHECK_OK(strait_file_replace(path, "", 0));
}

static int64_t resumed(const char *record) {
    const strait_choose_params params = {.flops_per_s = 1e12};
    char folder[STRAIT_PATH_MAX], note[STRAIT_CHOICE_TEXT];
    write_record(folder, record);
    CHECK_OK(strait_choose_in(&run, folder, &params, note));
    CHECK_OK(strait_file_remove_folder(folder));
    return run.stages.microbatch;
}

static void resumed_runs_keep_their_microbatches(void **state) {
    (void)state;
    char record[sizeof text + 64];
    (void)snprintf(record, sizeof record, "%s", text);
    char *count = strstr(record, "count: 8}");
    load(NULL);
    assert_int_equal(strait_run_choose_microbatch(&run), 16);
    assert_int_equal(resumed(record), 2); // of a version that did not name the size
    (void)snprintf(count, sizeof record - (size_t)(count - record), "count: 8, microbatch: 8}%s",
                   strstr(text, "count: 8}") + 9);
    load(NULL);
    assert_int_equal(resumed(record), 8);
    load("stages.microbatch=4");
    assert_int_equal(resumed(record), 4); // as the user says
    load("device.kind=cpu");
    assert_int_equal(resumed(record), 0); // the rule of CPUs has not changed
}

/* A machine with memory for this many sequences. */
static strait_err measure(void *user, const strait_run *tried, double *lacks, double *needs) {
    *needs = (double)tried->stages.microbatch;
    *lacks = *needs - *(double *)user;
    return STRAIT_OK;
}

static int64_t fitted(double space) {
    load(NULL);
    run.stages.microbatch = strait_run_choose_microbatch(&run);
    CHECK_OK(strait_fit_microbatch(&run, measure, &space));
    return run.stages.microbatch;
}

static void microbatches_shrink_until_they_fit(void **state) {
    (void)state;
    assert_int_equal(fitted(100), 16);
    assert_int_equal(fitted(16), 16);
    assert_int_equal(fitted(15), 8);
    assert_int_equal(fitted(3), 2);
    assert_int_equal(fitted(0.5), 16); // nothing fits: the check that follows says what would
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_runs_keep_their_microbatches),
        cmocka_unit_test(microbatches_shrink_until_they_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
