#include "store/checkpoint.h"

#include "base/alloc.h"
#include "check.h"
#include "scratch.h"

#include <stdio.h>

static const strait_safetensors_pair model[] = {{"width", "2"}, {"layers", "3"}};

/* Saves two stages whose values all follow from the step. */
static strait_err save(const char *run, int64_t step, int keep) {
    float first[4], second[2], moment[4];
    for (int i = 0; i < 4; i++) {
        first[i] = (float)step + (float)i;
        moment[i] = -first[i];
        if (i < 2) second[i] = 100 * first[i];
    }
    const strait_safetensors_item weights[] = {{"embed", {first, STRAIT_F32, 2, 2}, 0}};
    const strait_safetensors_item state[] = {{"embed.m", {moment, STRAIT_F32, 2, 2}, 0}};
    const strait_safetensors_item later[] = {{"gain", {second, STRAIT_F32, 1, 2}, 1}};
    const strait_checkpoint_stage_file files[] = {{.items = weights, .n_items = 1},
                                                  {.is_state = 1, .items = state, .n_items = 1},
                                                  {.stage = 1, .items = later, .n_items = 1}};
    const strait_checkpoint_plan plan = {.step = step,
                                         .tokenizer = "abc",
                                         .model = model,
                                         .n_model = 2,
                                         .files = files,
                                         .n_files = 3,
                                         .keep = keep};
    return strait_checkpoint_save(run, &plan);
}

/* Writes `text` over the start of a file of a checkpoint. */
static void spoil(const scratch *dir, const char *name, const char *text) {
    FILE *file = fopen(scratch_at(dir, name), "r+b");
    CHECK(file != NULL);
    (void)fseek(file, -(long)strlen(text), SEEK_END);
    CHECK(fwrite(text, 1, strlen(text), file) == strlen(text));
    CHECK(fclose(file) == 0);
}

static int64_t newest(const char *run, strait_checkpoint_choice choice) {
    struct strait_checkpoint *c = NULL;
    if (strait_checkpoint_open(run, choice, &c) != STRAIT_OK) return -1;
    const int64_t step = strait_checkpoint_step(c);
    strait_checkpoint_close(&c);
    return step;
}

static void test_restores_what_was_saved(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(strait_checkpoint_prepare(dir.path));
    CHECK_OK(save(dir.path, 7, 3));
    CHECK_OK(save(dir.path, 11, 3));
    struct strait_checkpoint *c = NULL;
    CHECK_OK(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST, &c));
    assert_int_equal(strait_checkpoint_step(c), 11);
    assert_string_equal(strait_checkpoint_tokenizer(c), "abc");
    assert_string_equal(strait_checkpoint_model(c, "layers"), "3");
    CHECK(strait_checkpoint_model(c, "heads") == NULL);
    CHECK(strait_checkpoint_skipped(c) == NULL);
    assert_string_equal(strait_checkpoint_path(c), scratch_at(&dir, "checkpoints/00000011"));
    float x[4] = {0};
    CHECK_OK(strait_checkpoint_read(c, "embed", (strait_tensor){x, STRAIT_F32, 2, 2}));
    CHECK(x[0] == 11 && x[3] == 14);
    CHECK_OK(strait_checkpoint_read(c, "embed.m", (strait_tensor){x, STRAIT_F32, 2, 2}));
    CHECK(x[0] == -11 && x[3] == -14);
    CHECK_OK(strait_checkpoint_read(c, "gain", (strait_tensor){x, STRAIT_F32, 1, 2}));
    CHECK(x[0] == 1100 && x[1] == 1200);
    CHECK_FAILS(strait_checkpoint_read(c, "embed", (strait_tensor){x, STRAIT_F32, 4, 1}),
                STRAIT_EDATA,
                "stage-0.safetensors: tensor \"embed\": expected F32 [4 x 1], found F32 [2 x 2]");
    CHECK_FAILS(strait_checkpoint_read(c, "head", (strait_tensor){x, STRAIT_F32, 2, 2}),
                STRAIT_EDATA, "00000011: tensor \"head\" is missing");
    const char *name = NULL;
    CHECK(strait_checkpoint_file(c, 1, &name) != NULL);
    assert_string_equal(name, "stage-0.state.safetensors");
    CHECK(strait_checkpoint_file(c, 3, NULL) == NULL);
    strait_checkpoint_close(&c);
    strait_checkpoint_close(&c);
    scratch_close(&dir);
}

static void test_opens_the_folder_of_one_checkpoint(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 7, 3));
    CHECK_OK(save(dir.path, 11, 3));
    assert_int_equal(newest(scratch_at(&dir, "checkpoints/00000007"), STRAIT_CHECKPOINT_NEWEST), 7);
    scratch_close(&dir);
}

static void test_keeps_the_newest(void **state) {
    (void)state;
    scratch dir = scratch_open();
    for (int64_t step = 10; step <= 50; step += 10)
        CHECK_OK(save(dir.path, step, 2));
    int64_t *steps = NULL;
    int n = 0;
    CHECK_OK(strait_checkpoint_list(dir.path, &steps, &n));
    assert_int_equal(n, 2);
    CHECK(steps[0] == 40 && steps[1] == 50);
    strait_alloc_free(steps);
    /* Going back to an earlier step removes nothing of what came later. */
    CHECK_OK(save(dir.path, 30, 1));
    CHECK_OK(strait_checkpoint_list(dir.path, &steps, &n));
    assert_int_equal(n, 3);
    strait_alloc_free(steps);
    scratch_close(&dir);
}

/* What others put into a checkpoint, or beside it, keeps no run from saving or from going on. */
static void test_ignores_other_files(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 10, 2));
    CHECK_OK(save(dir.path, 20, 2));
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "checkpoints/00000010/@index")));
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "checkpoints/00000020/@index")));
    CHECK_OK(save(dir.path, 20, 2));
    CHECK_OK(save(dir.path, 30, 2));
    CHECK_OK(strait_file_write(scratch_at(&dir, "checkpoints/upload.tmp"), "", 0));
    CHECK_OK(strait_checkpoint_prepare(dir.path));
    int64_t *steps = NULL;
    int n = 0;
    CHECK_OK(strait_checkpoint_list(dir.path, &steps, &n));
    CHECK(n == 2 && steps[0] == 20 && steps[1] == 30);
    strait_alloc_free(steps);
    scratch_close(&dir);
}

static void test_replaces_checkpoint_of_the_same_step(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 5, 2));
    spoil(&dir, "checkpoints/00000005/stage-0.safetensors", "xx");
    CHECK_OK(save(dir.path, 5, 2));
    assert_int_equal(newest(dir.path, STRAIT_CHECKPOINT_NEWEST), 5);
    CHECK(!strait_file_exists(scratch_at(&dir, "checkpoints/00000005.old.tmp")));
    scratch_close(&dir);
}

static void test_reports_damaged_checkpoints(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 1, 9));
    CHECK_OK(save(dir.path, 2, 9));
    CHECK_OK(save(dir.path, 3, 9));
    spoil(&dir, "checkpoints/00000003/stage-1.safetensors", "damage");
    CHECK_OK(
        strait_file_write(scratch_at(&dir, "checkpoints/00000002/stage-0.safetensors"), "", 0));
    struct strait_checkpoint *c = NULL;
    CHECK_FAILS(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST, &c), STRAIT_EDATA,
                "checkpoints/00000003: stage-1.safetensors has changed since it was written");
    CHECK(c == NULL);
    CHECK_OK(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST_VALID, &c));
    assert_int_equal(strait_checkpoint_step(c), 1);
    const char *skipped = strait_checkpoint_skipped(c);
    CHECK(strstr(skipped, "00000003: stage-1.safetensors has changed") != NULL);
    CHECK(strncmp(skipped, "using step 1, the newest undamaged checkpoint: ", 47) == 0);
    CHECK(strstr(skipped, "; ") != NULL);
    CHECK(strstr(skipped, "00000002: stage-0.safetensors has 0 bytes instead of") != NULL);
    strait_checkpoint_close(&c);
    (void)unlink(scratch_at(&dir, "checkpoints/00000001/stage-0.state.safetensors"));
    CHECK_FAILS(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST_VALID, &c), STRAIT_EDATA,
                "is damaged: ");
    (void)unlink(scratch_at(&dir, "checkpoints/00000003/manifest.json"));
    CHECK_FAILS(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST, &c), STRAIT_EDATA,
                "00000003: has no manifest.json");
    scratch_close(&dir);
}

static strait_err open_with(const scratch *dir, const char *manifest) {
    CHECK_OK(strait_file_write(scratch_at(dir, "checkpoints/00000004/manifest.json"), manifest,
                               strlen(manifest)));
    struct strait_checkpoint *c = NULL;
    const strait_err err = strait_checkpoint_open(dir->path, STRAIT_CHECKPOINT_NEWEST, &c);
    strait_checkpoint_close(&c);
    return err;
}

#define HEAD             "\"step\":4,\"tokenizer\":\"\",\"model\":{},\"files\":"
#define FILE_ENTRY(name) "[{\"name\":\"" name "\",\"hash\":\"00\",\"bytes\":1}]"

static void test_refuses_broken_manifests(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 4, 1));
    CHECK_OK(open_with(&dir, "{\"format\":1," HEAD "[]}"));
    CHECK_FAILS(open_with(&dir, "{"), STRAIT_EDATA, "00000004/manifest.json: line 1");
    CHECK_FAILS(open_with(&dir, "{}"), STRAIT_EDATA, "manifest.json: \"step\" is missing");
    CHECK_FAILS(open_with(&dir, "{\"step\":4,\"format\":2}"), STRAIT_EDATA,
                "manifest.json: format 2 is not supported; this version reads format 1");
    CHECK_FAILS(open_with(&dir, "{\"step\":5,\"format\":1}"), STRAIT_EDATA,
                "\"step\" 5 is not the step in the folder's name");
    CHECK_FAILS(open_with(&dir, "{\"format\":1," HEAD "[3]}"), STRAIT_EDATA, "\"name\" is missing");
    CHECK_FAILS(open_with(&dir, "{\"format\":1," HEAD FILE_ENTRY("../../run.yaml") "}"),
                STRAIT_EDATA, "\"../../run.yaml\" is not a file of this folder");
    CHECK_FAILS(open_with(&dir, "{\"format\":1," HEAD FILE_ENTRY("stage-9") "}"), STRAIT_EDATA,
                "00000004: stage-9 is missing or cannot be read");
    scratch_close(&dir);
}

static void test_removes_leftovers_of_a_killed_save(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 1, 9));
    CHECK_OK(save(dir.path, 2, 9));
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "checkpoints/00000003.tmp")));
    CHECK_OK(strait_file_write(scratch_at(&dir, "checkpoints/00000003.tmp/stage-0.safetensors"),
                               "half", 4));
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "checkpoints/00000001.old.tmp")));
    CHECK(rename(scratch_at(&dir, "checkpoints/00000002"),
                 scratch_at(&dir, "checkpoints/00000002.old.tmp")) == 0);
    CHECK_OK(strait_file_make_folders(scratch_at(&dir, "checkpoints/notes")));
    CHECK_OK(strait_checkpoint_prepare(dir.path));
    CHECK(!strait_file_exists(scratch_at(&dir, "checkpoints/00000003.tmp")));
    CHECK(!strait_file_exists(scratch_at(&dir, "checkpoints/00000001.old.tmp")));
    CHECK(strait_file_exists(scratch_at(&dir, "checkpoints/notes")));
    assert_int_equal(newest(dir.path, STRAIT_CHECKPOINT_NEWEST), 2);
    scratch_close(&dir);
}

static void test_reports_a_missing_checkpoint(void **state) {
    (void)state;
    scratch dir = scratch_open();
    struct strait_checkpoint *c = NULL;
    CHECK_FAILS(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST_VALID, &c), STRAIT_EDATA,
                "contains no checkpoint");
    CHECK_OK(strait_file_write(scratch_at(&dir, "checkpoints"), "", 0));
    CHECK_FAILS(strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST_VALID, &c), STRAIT_EIO,
                "checkpoints: cannot be listed");
    scratch_close(&dir);
}

static void test_survives_any_failing_allocation(void **state) {
    (void)state;
    scratch dir = scratch_open();
    CHECK_OK(save(dir.path, 1, 1));
    int n_failed = 0;
    for (int n = 1;; n++, n_failed++) {
        struct strait_checkpoint *c = NULL;
        strait_alloc_fail_at(n);
        strait_err err = save(dir.path, 2, 1);
        if (err == STRAIT_OK) err = strait_checkpoint_open(dir.path, STRAIT_CHECKPOINT_NEWEST, &c);
        strait_alloc_fail_at(0);
        strait_checkpoint_close(&c);
        if (err == STRAIT_OK) break;
        assert_int_equal(err, STRAIT_ENOMEM);
        CHECK(newest(dir.path, STRAIT_CHECKPOINT_NEWEST) >= 1);
    }
    CHECK(n_failed >= 5);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restores_what_was_saved),
        cmocka_unit_test(test_opens_the_folder_of_one_checkpoint),
        cmocka_unit_test(test_keeps_the_newest),
        cmocka_unit_test(test_ignores_other_files),
        cmocka_unit_test(test_replaces_checkpoint_of_the_same_step),
        cmocka_unit_test(test_reports_damaged_checkpoints),
        cmocka_unit_test(test_refuses_broken_manifests),
        cmocka_unit_test(test_removes_leftovers_of_a_killed_save),
        cmocka_unit_test(test_reports_a_missing_checkpoint),
        cmocka_unit_test(test_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
