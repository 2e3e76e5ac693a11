/* export_card.c - README.md of an exported folder: what was trained, on what, and how. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/export_files.h"
#include "metrics/metrics.h"

#include <math.h>
#include <stdio.h>

enum {
    RUN_BYTES = 1 << 20
};

/* What metrics.jsonl says up to the step of the checkpoint. */
struct losses {
    int64_t step;
    double train, valid; // the last ones; NaN: none
    double bytes_forward, bytes_backward;
    double tokens; // trained on
};

/* The number under a key of a line of metrics; NaN if it is not there. */
static double value_of(const strait_metrics_line *line, const char *key) {
    json_t *object = NULL;
    if (strait_json_parse(line->text, line->bytes, &object) != STRAIT_OK) return NAN;
    const json_t *value = json_object_get(object, key);
    const double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(object);
    return number;
}

static strait_err note_line(void *user, const strait_metrics_line *line) {
    struct losses *losses = user;
    if (line->err != STRAIT_OK || line->point.step > losses->step) return STRAIT_OK;
    if (line->point.is_valid_loss) {
        losses->valid = line->point.loss;
        return STRAIT_OK;
    }
    losses->train = line->point.loss;
    losses->bytes_forward = value_of(line, "forward_bytes_per_token");
    losses->bytes_backward = value_of(line, "backward_bytes_per_token");
    losses->tokens = value_of(line, "tokens");
    return STRAIT_OK;
}

static struct losses read_losses(const strait_export_about *about) {
    struct losses losses = {.step = strait_checkpoint_step(about->checkpoint),
                            .train = NAN,
                            .valid = NAN,
                            .bytes_forward = NAN,
                            .bytes_backward = NAN,
                            .tokens = NAN};
    char path[STRAIT_PATH_MAX];
    /* A card without losses is better than no export: imported models have no metrics. */
    if (strait_file_path(path, "%s/metrics.jsonl", about->run) == STRAIT_OK &&
        strait_file_exists(path))
        (void)strait_metrics_walk(path, note_line, &losses);
    return losses;
}

static void put_row(FILE *out, const char *what, double value) {
    if (!isnan(value)) (void)fprintf(out, "| %s | %.6g |\n", what, value);
}

/* How to load it. */
static void put_use(FILE *out, const strait_export_about *about) {
    const int is_own = about->class == STRAIT_HF_STRAIT;
    (void)fprintf(out,
                  "```python\nfrom transformers import AutoModelForCausalLM\n\n"
                  "model = AutoModelForCausalLM.from_pretrained(DIR%s)\n```\n\n",
                  is_own ? ", trust_remote_code=True" : "");
    if (is_own)
        (void)fputs("No class of transformers has all parts of this model: `modeling_strait.py` "
                    "computes it.\n\n",
                    out);
}

/* On what, and from what. An export of a folder without a run file has none of it. */
static void put_sources(FILE *out, const char *run_folder) {
    char path[STRAIT_PATH_MAX];
    strait_run *run = NULL;
    if (strait_alloc(1, sizeof *run, "run", (void **)&run) == STRAIT_OK &&
        strait_file_path(path, "%s/run.yaml", run_folder) == STRAIT_OK &&
        strait_run_init_file(path, NULL, 0, run) == STRAIT_OK) {
        if (run->data.train[0] != '\0')
            (void)fprintf(out, "| training data | %s |\n", run->data.train);
        if (run->train.init_from[0] != '\0')
            (void)fprintf(out, "| began with the weights of | %s |\n", run->train.init_from);
    }
    strait_alloc_free(run);
}

static strait_err put_run_file(FILE *out, const char *run) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", run));
    if (!strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(strait_file_read(path, RUN_BYTES, &text, &bytes));
    (void)fprintf(out, "## Run file\n\n```yaml\n%s```\n", text);
    strait_alloc_free(text);
    return STRAIT_OK;
}

/* Adapters are merged into the weights that they belong to. */
static strait_err count_parameters(const strait_run_plan *plan, int64_t *out) {
    strait_run_plan merged = *plan;
    merged.shape.lora_rank = 0;
    return strait_run_plan_params(&merged, out);
}

static strait_err put_card(FILE *out, const strait_export_about *about) {
    const struct losses losses = read_losses(about);
    const strait_run_plan *plan = about->plan;
    int64_t parameters = 0;
    STRAIT_TRY(count_parameters(plan, &parameters));
    (void)fputs("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- strait\n"
                "---\n\n",
                out);
    (void)fprintf(out, "# %s of %lld parameters\n\n%s by Strait.\n\n",
                  strait_hf_class_architecture(about->class), (long long)parameters,
                  losses.step > 0 ? "Trained and exported" : "Exported");
    put_use(out, about);
    (void)fprintf(out, "| | |\n| --- | --- |\n| steps | %lld |\n| pipeline stages | %d |\n",
                  (long long)losses.step, plan->n_stages);
    put_sources(out, about->run);
    put_row(out, "tokens trained on", losses.tokens);
    if (plan->n_stages > 1)
        (void)fprintf(out, "| codec of the boundaries | %s %s |\n", plan->codec.name,
                      plan->codec.variant);
    put_row(out, "training loss of the last step", losses.train);
    put_row(out, "validation loss", losses.valid);
    if (plan->n_stages > 1) {
        put_row(out, "bytes per token and boundary, forward", losses.bytes_forward);
        put_row(out, "bytes per token and boundary, backward", losses.bytes_backward);
    }
    (void)fputs("\n", out);
    return put_run_file(out, about->run);
}

strait_err strait_export_card(const strait_export_about *about, const char *out) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/README.md", out));
    FILE *file = fopen(path, "we");
    if (file == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create", path);
    const strait_err err = put_card(file, about);
    const strait_err end = strait_file_finish(&file, path);
    return err != STRAIT_OK ? err : end;
}
