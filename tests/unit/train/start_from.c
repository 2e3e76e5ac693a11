/* A run in a subspace that starts from another model's weights (train.init_from): what it takes as
 * it is stored must be stored as the run stores it. */
#include "train/start_from.h"

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "config/description.h"
#include "train/session.h"

#include <stdlib.h>

enum {
    FILES = 8,
    TENSORS = 128
};

static scratch folder;
static strait_run run;

static int never_stops(void *user) {
    (void)user;
    return 0;
}

static void ignore(void *user, const char *text) {
    (void)user;
    (void)text;
}

/* Two stages whose codec keeps the weights in a subspace. */
static void make_run(void) {
    static const char text[] =
        "model: {width: 24, layers: 2, heads: 3, kv_heads: 3, ffn: 40, context: 16}\n"
        "train: {steps: 1, batch_tokens: 128, optimizer: adamw-rows, save_every: 1}\n"
        "stages: {count: 2, microbatch: 4}\n"
        "device: {threads: 1}\n"
        "link: {transport: inproc, codec: {name: subspace, bits: 32, keep: 8}}\n";
    folder = scratch_open();
    tiny_run(&folder, &run);
    const strait_run tiny = run;
    CHECK_OK(strait_run_init_text("subspace.yaml", text, sizeof text - 1, NULL, 0, &run));
    memcpy(run.data.train, tiny.data.train, sizeof run.data.train);
    memcpy(run.data.valid, tiny.data.valid, sizeof run.data.valid);
}

/* The tensors of one file, those of two dimensions in halves where `is_half`. Frees nothing. */
static int list_tensors(const struct strait_safetensors *file, int is_half,
                        strait_safetensors_item *items, void **memory, int *n_memory) {
    const int n = strait_safetensors_count(file);
    assert_in_range(n, 1, TENSORS);
    for (int i = 0; i < n; i++) {
        const strait_safetensor *t = strait_safetensors_at(file, i);
        const int is_vector = t->n_dims < 2, is_int = strcmp(t->dtype, "I32") == 0;
        items[i] = (strait_safetensors_item){t->name,
                                             {(void *)(uintptr_t)t->data,
                                              is_int ? STRAIT_I32 : STRAIT_F32,
                                              is_vector ? 1 : t->dims[0], t->dims[t->n_dims - 1]},
                                             is_vector};
        if (!is_half || is_int || is_vector) continue;
        uint16_t *half = calloc(t->bytes / 4, sizeof *half);
        assert_non_null(half);
        for (size_t k = 0; k < t->bytes / 4; k++)
            memcpy(&half[k], t->data + 4 * k + 2, 2); // bf16
        items[i].tensor.data = memory[(*n_memory)++] = half;
        items[i].tensor.dtype = STRAIT_BF16;
    }
    return n;
}

/* Copies the newest checkpoint of a run to another folder; in halves: its weights, or its state. */
static void copy_checkpoint(const char *from, const char *to, int has_half_weights,
                            int has_half_state) {
    static strait_safetensors_item items[FILES][TENSORS];
    static strait_description description;
    static void *memory[FILES * TENSORS];
    strait_checkpoint_stage_file files[FILES];
    struct strait_checkpoint *source = NULL;
    const struct strait_safetensors *file = NULL;
    const char *name = NULL;
    strait_run_plan plan;
    int n = 0, n_memory = 0;
    CHECK_OK(strait_checkpoint_open(from, STRAIT_CHECKPOINT_NEWEST, &source));
    CHECK_OK(strait_describe_read(source, &plan));
    strait_describe(&plan, &description);
    for (; n < FILES && (file = strait_checkpoint_file(source, n, &name)) != NULL; n++) {
        const int is_state = strstr(name, ".state.") != NULL;
        files[n] = (strait_checkpoint_stage_file){
            .stage = name[strlen("stage-")] - '0', .is_state = is_state, .items = items[n]};
        files[n].n_items = list_tensors(file, is_state ? has_half_state : has_half_weights,
                                        items[n], memory, &n_memory);
    }
    CHECK_OK(strait_checkpoint_prepare(to));
    CHECK_OK(strait_checkpoint_save(
        to, &(strait_checkpoint_plan){.step = 1,
                                      .tokenizer = strait_checkpoint_tokenizer(source),
                                      .model = description.pairs,
                                      .n_model = description.n,
                                      .files = files,
                                      .n_files = n,
                                      .keep = 1}));
    strait_checkpoint_close(&source);
    while (n_memory > 0)
        free(memory[--n_memory]);
}

static strait_err start(const char *source) {
    (void)snprintf(run.train.init_from, sizeof run.train.init_from, "%.300s", source);
    return strait_start_write(&run, scratch_at(&folder, "new"), ignore, NULL);
}

/* A bf16 tensor of the same shape has half the bytes: taken as it is, as many bytes behind it would
 * be read. */
static void takes_only_what_is_stored_alike(void **state) {
    (void)state;
    char source[256];
    make_run();
    (void)snprintf(source, sizeof source, "%s", scratch_at(&folder, "source"));
    CHECK_OK(strait_session_run(&(strait_session_spec){
        .run = &run, .folder = source, .events = {.must_stop = never_stops}}));
    for (int halves = 0; halves < 3; halves++) {
        char copy[300];
        (void)snprintf(copy, sizeof copy, "%s-%d", source, halves);
        copy_checkpoint(source, copy, halves == 1, halves == 2);
        if (halves == 1)
            CHECK_FAILS(start(copy), STRAIT_ENOTSUP, "is kept in the subspace");
        else
            CHECK_OK(start(copy)); // state begins anew, a basis that differs included
    }
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_only_what_is_stored_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
