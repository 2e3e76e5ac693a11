/* peft.c - the adapters of a run as a folder that the Python library PEFT loads:
 * adapter_config.json and adapter_model.safetensors, with the names of the model that transformers
 * has. */
#include "base/alloc.h"
#include "base/json.h"
#include "config/description.h"
#include "convert/export_list.h"
#include "convert/files.h"
#include "convert/hf_names.h"
#include "model/parts/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES = STRAIT_HF_NAME + 48
};

struct peft {
    char out[STRAIT_PATH_MAX];
    char folder[STRAIT_PATH_MAX]; // where files are written until all are complete
    int lock;                     // of that folder
    char run[STRAIT_PATH_MAX];
    strait_convert_notes notes;
    struct strait_checkpoint *checkpoint;
    strait_run_plan plan;
    strait_hf_tensor *tensors; // of the model without adapters
    int n_tensors;
    strait_safetensors_item *items;
    char (*names)[NAME_BYTES];          // of theirs; items borrow them
    char (*sources)[STRAIT_PARAM_NAME]; // of ours
    int n_items;
    float *values; // of the largest tensor
};

/* "model.layers.0.self_attn.q_proj.weight" becomes
 * "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". */
static void add_side(struct peft *p, const strait_hf_tensor *t, int is_b) {
    const int rank = p->plan.shape.lora_rank, i = p->n_items++;
    const int n = (int)(strlen(t->parts[0].name) - strlen(".weight"));
    (void)snprintf(p->names[i], NAME_BYTES, "base_model.model.%.*s.lora_%c.weight", n,
                   t->parts[0].name, is_b ? 'B' : 'A');
    (void)snprintf(p->sources[i], STRAIT_PARAM_NAME, "%.48s.lora_%c", t->name, is_b ? 'b' : 'a');
    p->items[i] = (strait_safetensors_item){
        p->names[i], {NULL, STRAIT_F32, is_b ? t->rows : rank, is_b ? rank : t->cols}, 0};
}

static strait_err list_items(struct peft *p) {
    STRAIT_TRY(strait_hf_names_list(&p->plan.shape, &p->tensors, &p->n_tensors));
    const size_t most = 2 * (size_t)p->n_tensors;
    int64_t largest = 0;
    STRAIT_TRY(strait_alloc(most, sizeof *p->items, "list of tensors", (void **)&p->items));
    STRAIT_TRY(strait_alloc(most, sizeof *p->names, "list of tensors", (void **)&p->names));
    STRAIT_TRY(strait_alloc(most, sizeof *p->sources, "list of tensors", (void **)&p->sources));
    for (int i = 0; i < p->n_tensors; i++) {
        if (strait_lora_target_of(&p->plan.shape, p->tensors[i].name) < 0) continue;
        add_side(p, &p->tensors[i], 0);
        add_side(p, &p->tensors[i], 1);
    }
    for (int i = 0; i < p->n_items; i++) {
        const int64_t size = p->items[i].tensor.rows * p->items[i].tensor.cols;
        if (size > largest) largest = size;
    }
    return strait_alloc_unset((size_t)largest, sizeof *p->values, "values of a tensor",
                              (void **)&p->values);
}

static strait_err load_item(void *user, int i, const void **out) {
    struct peft *p = user;
    strait_tensor tensor = p->items[i].tensor;
    tensor.data = p->values;
    STRAIT_TRY(strait_checkpoint_read(p->checkpoint, p->sources[i], tensor));
    *out = p->values;
    return STRAIT_OK;
}

/* The model that was adapted, if the run says so: PEFT looks for it there. */
static void base_of(const struct peft *p, char out[STRAIT_RUN_PATH]) {
    char path[STRAIT_PATH_MAX];
    strait_run *run = NULL;
    out[0] = '\0';
    if (strait_alloc(1, sizeof *run, "run", (void **)&run) == STRAIT_OK &&
        strait_file_path(path, "%s/run.yaml", p->run) == STRAIT_OK &&
        strait_run_init_file(path, NULL, 0, run) == STRAIT_OK)
        (void)snprintf(out, STRAIT_RUN_PATH, "%s", run->train.init_from);
    strait_alloc_free(run);
}

static strait_err write_config(const struct peft *p) {
    const strait_shape *s = &p->plan.shape;
    char path[STRAIT_PATH_MAX], base[STRAIT_RUN_PATH];
    json_t *targets = json_array();
    base_of(p, base);
    for (int i = 0; i < STRAIT_LORA_TARGETS; i++)
        if ((s->lora_targets >> i & 1) != 0)
            (void)json_array_append_new(targets, json_string(strait_lora_targets[i].hf_name));
    /* PEFT has whole numbers there, and most runs do. */
    const double alpha = (double)s->lora_alpha;
    json_t *number = floor(alpha) < alpha ? json_real(alpha) : json_integer((json_int_t)alpha);
    json_t *config = json_pack("{s:s, s:s, s:s, s:i, s:o, s:f, s:s, s:b, s:b, s:b, s:o}",
                               "peft_type", "LORA", "task_type", "CAUSAL_LM",
                               "base_model_name_or_path", base, "r", s->lora_rank, "lora_alpha",
                               number, "lora_dropout", 0.0, "bias", "none", "fan_in_fan_out", 0,
                               "inference_mode", 1, "use_rslora", 0, "target_modules", targets);
    if (config == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "adapter_config.json");
    strait_err err = strait_file_path(path, "%s/adapter_config.json", p->folder);
    if (err == STRAIT_OK) err = strait_json_replace(path, config);
    json_decref(config);
    return err;
}

static strait_err write_folder(struct peft *p) {
    char path[STRAIT_PATH_MAX];
    const strait_safetensors_pair metadata[] = {{"format", "pt"}};
    const strait_safetensors_content content = {.items = p->items,
                                                .n_items = p->n_items,
                                                .metadata = metadata,
                                                .n_metadata = 1,
                                                .load = load_item,
                                                .user = p};
    STRAIT_TRY(strait_convert_begin(p->out, p->folder, &p->lock));
    STRAIT_TRY(write_config(p));
    STRAIT_TRY(strait_file_path(path, "%s/adapter_model.safetensors", p->folder));
    STRAIT_TRY(strait_safetensors_write(path, &content));
    STRAIT_TRY(strait_convert_copy(p->run, p->folder, "tokenizer.json"));
    for (int i = 0; strait_convert_companions[i] != NULL; i++)
        STRAIT_TRY(strait_convert_copy(p->run, p->folder, strait_convert_companions[i]));
    STRAIT_TRY(strait_file_sync_folder(p->folder));
    return strait_convert_finish(p->folder, p->out, &p->lock);
}

static strait_err convert(struct peft *p, const char *run) {
    STRAIT_TRY(strait_checkpoint_open(run, STRAIT_CHECKPOINT_NEWEST_VALID, &p->checkpoint));
    const char *skipped = strait_checkpoint_skipped(p->checkpoint);
    if (skipped != NULL) strait_convert_say(&p->notes, "%s", skipped);
    STRAIT_TRY(strait_describe_read(p->checkpoint, &p->plan));
    STRAIT_TRY(strait_convert_run_of(p->checkpoint, p->run));
    if (p->plan.shape.lora_rank == 0)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "%s has no adapters: train it with train.lora, or export "
                           "it with --to hf",
                           p->run);
    if (strait_export_class(&p->plan) == STRAIT_HF_STRAIT)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "no class of transformers has the parts of this model, so that PEFT "
                           "cannot adapt it: --to hf exports it with its adapters merged");
    STRAIT_TRY(list_items(p));
    STRAIT_TRY(write_folder(p));
    strait_convert_say(&p->notes, "%s: %d tensors of adapters of rank %d, step %lld", p->out,
                       p->n_items, p->plan.shape.lora_rank,
                       (long long)strait_checkpoint_step(p->checkpoint));
    return STRAIT_OK;
}

strait_err strait_export_peft(const char *run, const char *out, strait_convert_note note,
                              void *user) {
    struct peft *p = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *p, "export", (void **)&p));
    p->notes = (strait_convert_notes){.note = note, .user = user};
    strait_err err = strait_convert_target(out, "folder", p->out);
    if (err == STRAIT_OK) err = convert(p, run);
    if (err != STRAIT_OK && p->folder[0] != '\0') strait_convert_discard(p->folder);
    strait_file_unlock(&p->lock);
    strait_checkpoint_close(&p->checkpoint);
    strait_alloc_free(p->tensors);
    strait_alloc_free(p->items);
    strait_alloc_free(p->names);
    strait_alloc_free(p->sources);
    strait_alloc_free(p->values);
    strait_alloc_free(p);
    return err;
}
