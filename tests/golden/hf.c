/* hf.c - folders that transformers wrote (tests/golden/hf, tools/convert/make-hf-golden.py): the
 * imported model computes the same logits, and the exported one has the same tensors, byte for
 * byte. */
#include <strait/convert.h>

#include "convert/hf_folder.h"
#include "infer/trained_model.h"
#include "reader.h"
#include "scratch.h"

#include <math.h>

static const double tolerance = 1e-3;

typedef struct model {
    const char *name, *dtype;
} model;

static const model models[] = {{"llama2", "f32"},   {"llama3", "bf16"}, {"linear", "f16"},
                               {"mistral", "bf16"}, {"qwen2", "f32"},   {"qwen3", "f32"}};

static const char *folder_of(const model *m) {
    static char path[128];
    (void)snprintf(path, sizeof path, "tests/golden/hf/%s", m->name);
    return path;
}

/* Feeds the tokens one by one and compares the logits after each. */
static void check_logits(const char *run, const model *m) {
    struct strait_safetensors *expected = NULL;
    struct strait_trained_model *trained = NULL;
    char path[STRAIT_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/expected.safetensors", folder_of(m));
    CHECK_OK(strait_safetensors_open(path, &expected));
    const strait_tensor tokens = golden_tensor(expected, "tokens");
    const strait_tensor logits = golden_tensor(expected, "logits");
    CHECK_OK(strait_trained_model_open(
        run, NULL, (strait_backend_spec){.name = "cpu", .n_threads = 2}, 0, &trained));
    assert_int_equal(trained->plan.shape.vocab, logits.cols);
    double worst = 0;
    for (int64_t i = 0; i < tokens.cols; i++) {
        const float *ours = NULL, *theirs = (const float *)logits.data + i * logits.cols;
        CHECK_OK(
            strait_staged_model_feed(trained->stages, ((const int32_t *)tokens.data)[i], &ours));
        for (int64_t v = 0; v < logits.cols; v++) {
            const double d = fabs((double)ours[v] - (double)theirs[v]);
            worst = d > worst || isnan(d) ? d : worst;
        }
    }
    print_message("%s: logits differ by at most %.2g\n", m->name, worst);
    assert_true(worst <= tolerance);
    strait_trained_model_close(&trained);
    strait_safetensors_close(&expected);
}

/* Every tensor of one folder is in the other, with the same type, shape and bytes. */
static void check_within(const struct strait_hf_folder *a, const struct strait_hf_folder *b) {
    const strait_safetensor *t = NULL;
    for (int i = 0; (t = strait_hf_folder_at(a, i)) != NULL; i++) {
        const strait_safetensor *other = strait_hf_folder_find(b, t->name);
        if (other == NULL) fail_msg("tensor %s is missing", t->name);
        assert_string_equal(t->dtype, other->dtype);
        assert_int_equal(t->n_dims, other->n_dims);
        assert_int_equal(t->bytes, other->bytes);
        assert_memory_equal(t->dims, other->dims, (size_t)t->n_dims * sizeof *t->dims);
        assert_memory_equal(t->data, other->data, t->bytes);
    }
}

static void check_same_tensors(const char *first, const char *second) {
    struct strait_hf_folder *a = NULL, *b = NULL;
    CHECK_OK(strait_hf_folder_open(first, &a));
    CHECK_OK(strait_hf_folder_open(second, &b));
    check_within(a, b);
    check_within(b, a);
    strait_hf_folder_close(&a);
    strait_hf_folder_close(&b);
}

static void imported_models_compute_the_same_logits(void **state) {
    (void)state;
    scratch dir = scratch_open();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *run = scratch_at(&dir, models[i].name);
        CHECK_OK(strait_import_hf(folder_of(&models[i]), run, NULL, NULL, NULL));
        check_logits(run, &models[i]);
    }
    scratch_close(&dir);
}

/* In one file and in shards; and what was exported imports again. */
static void reexported_models_have_the_same_bytes(void **state) {
    (void)state;
    scratch dir = scratch_open();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char run[STRAIT_PATH_MAX], out[STRAIT_PATH_MAX], again[STRAIT_PATH_MAX];
        CHECK_OK(strait_file_path(run, "%s/%s", dir.path, models[i].name));
        CHECK_OK(strait_file_path(out, "%s-out", run));
        CHECK_OK(strait_file_path(again, "%s-again", run));
        const strait_export_params params = {.dtype = models[i].dtype,
                                             .shard_bytes = i % 2 == 0 ? 0 : 30000};
        CHECK_OK(strait_import_hf(folder_of(&models[i]), run, NULL, NULL, NULL));
        CHECK_OK(strait_export_hf(run, out, &params, NULL, NULL));
        check_same_tensors(folder_of(&models[i]), out);
        CHECK_OK(strait_import_hf(out, again, NULL, NULL, NULL));
        check_logits(again, &models[i]);
    }
    scratch_close(&dir);
}

struct watch {
    int64_t last, total;
    int n, stop_at;
};

static int count(void *user, int64_t done, int64_t total) {
    struct watch *w = user;
    assert_true(done >= w->last && done < total && (w->n == 0 || total == w->total));
    w->last = done;
    w->total = total;
    return ++w->n == w->stop_at;
}

/* Nothing is left of a conversion that was ended, nor of one that was killed before. */
static void conversions_report_progress_and_can_be_ended(void **state) {
    (void)state;
    scratch dir = scratch_open();
    char run[STRAIT_PATH_MAX], tmp[STRAIT_PATH_MAX], out[STRAIT_PATH_MAX];
    CHECK_OK(strait_file_path(run, "%s/run", dir.path));
    CHECK_OK(strait_file_path(tmp, "%s/run.tmp/checkpoints/00000000", dir.path));
    CHECK_OK(strait_file_path(out, "%s/out", dir.path));
    CHECK_OK(strait_file_make_folders(tmp)); // as a killed import leaves it
    CHECK_OK(strait_file_path(tmp, "%s/run.tmp/.lock", dir.path));
    CHECK_OK(strait_file_write(tmp, "", 0));
    struct watch seen = {.stop_at = 4};
    strait_import_params import = {.progress = count};
    strait_export_params export = {.progress = count};
    CHECK_FAILS(strait_import_hf("tests/golden/hf/qwen2", run, &import, NULL, &seen),
                STRAIT_EINTERRUPTED, "interrupted");
    assert_int_equal(seen.n, 4);
    assert_false(strait_file_exists(run) || strait_file_exists(scratch_at(&dir, "run.tmp")));
    seen = (struct watch){0};
    CHECK_OK(strait_import_hf("tests/golden/hf/qwen2", run, &import, NULL, &seen));
    assert_int_equal(seen.n, 23);
    assert_int_equal(seen.total, 4 * 34080);
    seen = (struct watch){.stop_at = 20};
    CHECK_FAILS(strait_export_hf(run, out, &export, NULL, &seen), STRAIT_EINTERRUPTED, "");
    CHECK_FAILS(strait_export_gguf(run, out, &export, NULL, &(struct watch){.stop_at = 2}),
                STRAIT_EINTERRUPTED, "");
    assert_false(strait_file_exists(out) || strait_file_exists(scratch_at(&dir, "out.tmp")));
    seen = (struct watch){0};
    CHECK_OK(strait_export_hf(run, out, &export, NULL, &seen));
    assert_int_equal(seen.total, 4 * 34080);
    scratch_close(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_report_progress_and_can_be_ended),
        cmocka_unit_test(imported_models_compute_the_same_logits),
        cmocka_unit_test(reexported_models_have_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
