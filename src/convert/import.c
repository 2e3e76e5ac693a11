/* import.c - from a Hugging Face folder to a run's folder with one checkpoint. */
#include <strait/convert.h>

#include "base/alloc.h"
#include "base/digest/hash.h"
#include "base/file.h"
#include "config/description.h"
#include "convert/files.h"
#include "convert/floats.h"
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
    const char *from;
    char out[STRAIT_PATH_MAX]; // the run's folder
    char run[STRAIT_PATH_MAX]; // where it is written until it is complete
    int lock;                  // of that folder
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
    const strait_hf_tensor *t = &im->model.tensors[i];
    STRAIT_TRY(strait_convert_advance(&im->notes, t->rows * t->cols * (int64_t)sizeof(float)));
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
        im->notes.total += t->rows * t->cols * (int64_t)sizeof(float);
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
        STRAIT_TRY(strait_file_path(path, "%s/tokenizer.model", im->from));
        strait_convert_say(&im->notes, "%s has no tokenizer.json: %s", im->from,
                           strait_file_exists(path)
                               ? "transformers writes one from tokenizer.model "
                                 "(AutoTokenizer.from_pretrained(...).save_pretrained(...))"
                               : "text needs --tokenizer FILE");
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

static void put_real(FILE *out, const char *key, float value) {
    char text[32];
    strait_floats_text(value, text);
    (void)fprintf(out, "  %s: %s\n", key, text);
}

static void put_switch(FILE *out, const char *key, int is_on) {
    (void)fprintf(out, "  %s: %s\n", key, is_on ? "true" : "false");
}

static void put_shape(FILE *out, const strait_shape *s) {
    static const char *const scalings[] = {"none", "linear", "llama3"};
    (void)fprintf(out,
                  "model:\n  width: %d\n  layers: %d\n  heads: %d\n  kv_heads: %d\n  head_dim: %d\n"
                  "  ffn: %d\n  vocab: %lld\n  context: %lld\n",
                  s->width, s->layers, s->heads, s->kv_heads, s->head_dim, s->ffn,
                  (long long)s->vocab, (long long)s->context);
    put_switch(out, "qk_norm", s->has_qk_norm);
    put_switch(out, "qk_gain", s->has_qk_gain);
    put_switch(out, "qkv_bias", s->has_qkv_bias);
    put_real(out, "rope_theta", s->rope_theta);
    (void)fprintf(out, "  rope_scaling: %s\n", scalings[s->rope_scaling]);
    put_real(out, "rope_factor", s->rope_factor);
    put_real(out, "rope_low", s->rope_low);
    put_real(out, "rope_high", s->rope_high);
    (void)fprintf(out, "  rope_original: %lld\n", (long long)s->rope_original);
    put_switch(out, "tied", s->is_tied);
    put_real(out, "norm_epsilon", s->norm_epsilon);
}

/* The options of the model, as the start of a run file. */
static strait_err write_run_file(const struct import *im) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", im->run));
    FILE *out = fopen(path, "we");
    if (out == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create", path);
    (void)fputs("# The model of this folder. To train it further, add data.train and set "
                "train.init_from.\n",
                out);
    put_shape(out, &im->plan.shape);
    if (im->fingerprint[0] != '\0') (void)fputs("data:\n  tokenizer: tokenizer.json\n", out);
    return strait_file_finish(&out, path);
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
    STRAIT_TRY(strait_convert_begin(im->out, im->run, &im->lock));
    STRAIT_TRY(take_tokenizer(im));
    STRAIT_TRY(copy_companions(im));
    STRAIT_TRY(write_run_file(im));
    STRAIT_TRY(write_weights(im));
    STRAIT_TRY(strait_convert_finish(im->run, im->out, &im->lock));
    strait_convert_say(&im->notes, "%s: %d tensors of a %s model, %lld parameters, context %lld",
                       im->out, im->model.n_tensors,
                       strait_hf_class_model_type(im->model.config.class),
                       (long long)strait_shape_params(shape), (long long)shape->context);
    return STRAIT_OK;
}

strait_err strait_import_hf(const char *folder, const char *run, const strait_import_params *params,
                            strait_convert_note note, void *user) {
    struct import im = {.from = folder, .notes = {.note = note, .user = user}};
    if (params != NULL) im.notes.progress = params->progress;
    STRAIT_TRY(strait_convert_target(run, "folder", im.out));
    const strait_err err = convert(&im, params != NULL ? params->context : 0);
    if (err != STRAIT_OK && im.run[0] != '\0') strait_convert_discard(im.run);
    strait_file_unlock(&im.lock);
    strait_alloc_free(im.values);
    strait_hf_model_close(&im.model);
    return err;
}
