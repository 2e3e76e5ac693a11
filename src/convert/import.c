/* import.c - from a Hugging Face folder to a run's folder with one checkpoint. */
#include <strait/convert.h>

#include "base/alloc.h"
#include "base/digest/hash.h"
#include "base/file.h"
#include "config/description.h"
#include "convert/files.h"
#include "convert/hf_read.h"
#include "data/tokenizer/tokenizer.h"
#include "store/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CONTEXT_MAX = 1048576 // bound of model.context
};

struct import {
    const char *from, *run;
    strait_convert_notes notes;
    struct strait_hf_model model;
    strait_run_plan plan;        // only what a description needs
    float *values;               // of one tensor
    char hash[STRAIT_HASH_TEXT]; // of the file that was written
    char fingerprint[80];        // of the tokenizer; empty: none
};

/* Beyond its window a Mistral attends to less than everything: ours would compute another function
 * from there on. */
static strait_err choose_context(struct import *im, int64_t wanted) {
    strait_shape *shape = &im->model.config.shape;
    const int64_t window = im->model.config.sliding_window;
    if (wanted > shape->context)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "a context of %lld tokens is more than the %lld of config.json",
                           (long long)wanted, (long long)shape->context);
    if (wanted > 0) shape->context = wanted;
    if (shape->context > CONTEXT_MAX) shape->context = CONTEXT_MAX;
    if (window > 0 && window < shape->context)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s/config.json: attention sees %lld tokens (\"sliding_window\"), fewer "
                           "than the context of %lld: import it with --context %lld",
                           im->from, (long long)window, (long long)shape->context,
                           (long long)window);
    return STRAIT_OK;
}

/* Called by the writer of the checkpoint for one tensor after the other. */
static strait_err load_tensor(void *user, int i, const void **out) {
    struct import *im = user;
    STRAIT_TRY(strait_hf_model_read(&im->model, i, im->values));
    *out = im->values;
    return STRAIT_OK;
}

/* Not strait_checkpoint_save, whose error speaks of earlier checkpoints. */
static strait_err save(const struct import *im, const strait_checkpoint_plan *plan) {
    STRAIT_TRY(strait_checkpoint_begin(im->run, plan->step));
    STRAIT_TRY(strait_checkpoint_write(im->run, plan->step, plan->files));
    return strait_checkpoint_commit(im->run, plan);
}

static strait_err write_weights(struct import *im) {
    const int n = im->model.n_tensors;
    strait_safetensors_item *items = NULL;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *items, "list of tensors", (void **)&items));
    for (int i = 0; i < n; i++) {
        const strait_hf_tensor *t = &im->model.tensors[i];
        items[i] = (strait_safetensors_item){
            t->name, {NULL, STRAIT_F32, t->rows, t->cols}, .is_vector = t->rows == 1};
    }
    const strait_checkpoint_stage_file file = {
        .items = items, .n_items = n, .load = load_tensor, .user = im, .hash = im->hash};
    strait_description *description = NULL;
    strait_err err = strait_alloc(1, sizeof *description, "description", (void **)&description);
    if (err == STRAIT_OK) {
        strait_describe(&im->plan, description);
        const strait_checkpoint_plan plan = {.tokenizer = im->fingerprint,
                                             .model = description->pairs,
                                             .n_model = description->n,
                                             .files = &file,
                                             .n_files = 1,
                                             .keep = 1};
        err = save(im, &plan);
    }
    strait_alloc_free(description);
    strait_alloc_free(items);
    return err;
}

/* A tokenizer of a kind that Strait cannot read is no reason to refuse the weights. */
static strait_err take_tokenizer(struct import *im) {
    char path[STRAIT_PATH_MAX];
    struct strait_tokenizer *tokenizer = NULL;
    STRAIT_TRY(strait_file_path(path, "%s/tokenizer.json", im->from));
    if (!strait_file_exists(path)) {
        strait_convert_say(&im->notes,
                           "%s has no tokenizer.json: name a tokenizer to evaluate text", im->from);
        return STRAIT_OK;
    }
    const strait_err err = strait_tokenizer_open(path, &tokenizer);
    if (err != STRAIT_OK) {
        strait_convert_say(&im->notes, "the tokenizer is left out: %s", strait_err_detail());
        return STRAIT_OK;
    }
    const int32_t vocab = strait_tokenizer_vocab(tokenizer);
    const int fits = vocab <= im->model.config.shape.vocab;
    if (fits)
        (void)snprintf(im->fingerprint, sizeof im->fingerprint, "%s",
                       strait_tokenizer_fingerprint(tokenizer));
    else
        strait_convert_say(&im->notes,
                           "the tokenizer is left out: it has %d tokens, the model %lld",
                           (int)vocab, (long long)im->model.config.shape.vocab);
    strait_tokenizer_close(&tokenizer);
    return fits ? strait_convert_copy(im->from, im->run, "tokenizer.json") : STRAIT_OK;
}

/* What an export puts back beside the tokenizer. */
static strait_err copy_companions(const struct import *im) {
    for (int i = 0; strait_convert_companions[i] != NULL; i++)
        STRAIT_TRY(strait_convert_copy(im->from, im->run, strait_convert_companions[i]));
    return STRAIT_OK;
}

/* The options of the model, as the start of a run file. */
static strait_err write_run_file(const struct import *im) {
    const strait_shape *s = &im->plan.shape;
    char path[STRAIT_PATH_MAX], text[2048];
    static const char *const scalings[] = {"none", "linear", "llama3"};
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", im->run));
    const int n = snprintf(
        text, sizeof text,
        "# The model of this folder. To train it further, add data and set train.init_from.\n"
        "model:\n  width: %d\n  layers: %d\n  heads: %d\n  kv_heads: %d\n  head_dim: %d\n"
        "  ffn: %d\n  vocab: %lld\n  context: %lld\n  qk_norm: %s\n  qk_gain: %s\n"
        "  qkv_bias: %s\n  rope_theta: %.9g\n  rope_scaling: %s\n  rope_factor: %.9g\n"
        "  rope_low: %.9g\n  rope_high: %.9g\n  rope_original: %lld\n  tied: %s\n"
        "  norm_epsilon: %.9g\n",
        s->width, s->layers, s->heads, s->kv_heads, s->head_dim, s->ffn, (long long)s->vocab,
        (long long)s->context, s->has_qk_norm ? "true" : "false", s->has_qk_gain ? "true" : "false",
        s->has_qkv_bias ? "true" : "false", (double)s->rope_theta, scalings[s->rope_scaling],
        (double)s->rope_factor, (double)s->rope_low, (double)s->rope_high,
        (long long)s->rope_original, s->is_tied ? "true" : "false", (double)s->norm_epsilon);
    return strait_file_write(path, text, (size_t)n);
}

static strait_err convert(struct import *im, int64_t context) {
    STRAIT_TRY(strait_hf_model_open(im->from, &im->model));
    STRAIT_TRY(choose_context(im, context));
    const strait_shape *shape = &im->model.config.shape;
    im->plan.shape = *shape;
    im->plan.n_stages = 1;
    im->plan.stage_layers[0] = (strait_layer_range){0, shape->layers};
    STRAIT_TRY(strait_alloc_unset((size_t)strait_hf_model_largest(&im->model), sizeof *im->values,
                                  "values of a tensor", (void **)&im->values));
    STRAIT_TRY(strait_file_make_folders(im->run));
    STRAIT_TRY(take_tokenizer(im));
    STRAIT_TRY(copy_companions(im));
    STRAIT_TRY(write_run_file(im));
    STRAIT_TRY(write_weights(im));
    strait_convert_say(&im->notes, "%s: %d tensors of a %s model, %lld parameters, context %lld",
                       im->run, im->model.n_tensors,
                       strait_hf_class_model_type(im->model.config.class),
                       (long long)strait_shape_params(shape), (long long)shape->context);
    return STRAIT_OK;
}

strait_err strait_import_hf(const char *folder, const char *run, const strait_import_params *params,
                            strait_convert_note note, void *user) {
    struct import im = {.from = folder, .run = run, .notes = {note, user}};
    if (strait_file_exists(run))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s exists: name a folder that does not", run);
    const strait_err err = convert(&im, params != NULL ? params->context : 0);
    if (err != STRAIT_OK) strait_convert_discard(run);
    strait_alloc_free(im.values);
    strait_hf_model_close(&im.model);
    return err;
}
