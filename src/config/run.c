#include "config/run.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/file.h"
#include "codec/codec.h"
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FILE_MAX = 1 << 20
};

#define WRONG(...) STRAIT_FAIL(STRAIT_ECONFIG, __VA_ARGS__)

static long long ll(int64_t n) {
    return n;
}

/* "runs/big.yaml" is the run "big". */
static strait_err name_after(const char *path, strait_run *run) {
    const char *slash = strrchr(path, '/');
    const char *stem = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(stem, '.');
    const size_t length = dot != NULL && dot != stem ? (size_t)(dot - stem) : strlen(stem);
    if (length >= sizeof run->name)
        return WRONG("name: the file's name is longer than %zu bytes; set name to a shorter one",
                     sizeof run->name - 1);
    memcpy(run->name, stem, length);
    run->name[length] = '\0';
    return STRAIT_OK;
}

static strait_err check_name(const strait_run *run) {
    if (strchr(run->name, '/') != NULL || run->name[0] == '.' || run->name[0] == '\0')
        return WRONG("name: \"%s\" cannot name a folder: expected letters without / or leading dot",
                     run->name);
    return STRAIT_OK;
}

static strait_err resolve_model(strait_run *run) {
    if (run->model.head_dim == 0) {
        if (run->model.width % run->model.heads != 0)
            return WRONG("model.heads: %lld does not divide model.width %lld; change one or set "
                         "model.head_dim",
                         ll(run->model.heads), ll(run->model.width));
        run->model.head_dim = run->model.width / run->model.heads;
    }
    if (run->model.kv_heads == 0) run->model.kv_heads = run->model.heads;
    if (run->model.ffn == 0)
        run->model.ffn = run->model.activation == STRAIT_RUN_RELU2
                             ? 4 * run->model.width
                             : (8 * run->model.width + 47) / 48 * 16;
    if (run->model.attention_scale == 0)
        run->model.attention_scale = 1 / sqrt((double)run->model.head_dim);
    return STRAIT_OK;
}

static strait_err check_model(const strait_run *run) {
    const int64_t multiple = run->model.rope == STRAIT_RUN_ROPE_HALF ? 4 : 2;
    if (run->model.head_dim % multiple != 0)
        return WRONG("model.head_dim: %lld is not a multiple of %lld, which model.rope needs",
                     ll(run->model.head_dim), ll(multiple));
    if (run->model.heads % run->model.kv_heads != 0)
        return WRONG("model.kv_heads: %lld does not divide model.heads %lld",
                     ll(run->model.kv_heads), ll(run->model.heads));
    if (run->model.has_qk_gain && !run->model.has_qk_norm)
        return WRONG("model.qk_gain: needs model.qk_norm");
    return STRAIT_OK;
}

/* What -1 leaves to another key. */
static strait_err derive(const char *key, double *value, double other) {
    if (*value < 0 && *value != -1) return WRONG("%s: %g is neither -1 nor 0 or more", key, *value);
    if (*value < 0) *value = other;
    return STRAIT_OK;
}

/* What the optimizer proposes for a role whose learning rate the run file leaves out. */
static double default_rate(const strait_run *run, strait_role role) {
    return strait_optimizer_default_rate(strait_optimizers[run->train.optimizer], role,
                                         run->train.learning_rate,
                                         run->train.embedding_learning_rate);
}

static strait_err resolve_train(strait_run *run) {
    const double rate = run->train.learning_rate;
    if (run->train.embedding_learning_rate == 0)
        run->train.embedding_learning_rate = default_rate(run, STRAIT_ROLE_EMBEDDING);
    if (run->train.head_learning_rate == 0)
        run->train.head_learning_rate = default_rate(run, STRAIT_ROLE_HEAD);
    if (run->train.gain_learning_rate == 0)
        run->train.gain_learning_rate = default_rate(run, STRAIT_ROLE_GAIN);
    if (run->train.conv_learning_rate == 0)
        run->train.conv_learning_rate = run->train.gain_learning_rate;
    STRAIT_TRY(derive("train.mixing_learning_rate", &run->train.mixing_learning_rate,
                      run->train.gain_learning_rate));
    if (run->train.residual_out_learning_rate == 0) run->train.residual_out_learning_rate = rate;
    if (run->train.boundary_learning_rate == 0) run->train.boundary_learning_rate = rate;
    STRAIT_TRY(derive("train.encoder_basis_learning_rate", &run->train.encoder_basis_learning_rate,
                      run->train.boundary_learning_rate));
    if (run->train.value_learning_rate == 0)
        run->train.value_learning_rate = default_rate(run, STRAIT_ROLE_VALUES);
    STRAIT_TRY(derive("train.anchor_learning_rate", &run->train.anchor_learning_rate,
                      run->train.embedding_learning_rate));
    STRAIT_TRY(derive("train.embedding_weight_decay", &run->train.embedding_weight_decay,
                      run->train.weight_decay));
    if (run->train.warmup < 0)
        run->train.warmup = run->train.steps / 20 < 1000 ? run->train.steps / 20 : 1000;
    return STRAIT_OK;
}

static strait_err check_schedule(const strait_run *run) {
    if (run->train.decay_steps > 0 && run->train.schedule != STRAIT_RUN_CONSTANT)
        return WRONG("train.decay_steps: only train.schedule constant has them");
    if (run->train.warmup + run->train.decay_steps > run->train.steps)
        return WRONG("train.warmup %lld and train.decay_steps %lld do not fit into train.steps "
                     "%lld",
                     ll(run->train.warmup), ll(run->train.decay_steps), ll(run->train.steps));
    return STRAIT_OK;
}

static strait_err check_batch(const strait_run *run) {
    const int64_t context = run->model.context;
    const int64_t piece = run->stages.microbatch > 0 ? run->stages.microbatch * context : context;
    const int64_t batch = run->train.batch_tokens;
    if (batch % context != 0)
        return WRONG("train.batch_tokens: %lld is not a multiple of model.context %lld; try %lld",
                     ll(batch), ll(context), ll((batch / context + 1) * context));
    if (batch % piece != 0)
        return WRONG("stages.microbatch: %lld sequences of model.context %lld do not divide "
                     "train.batch_tokens %lld",
                     ll(run->stages.microbatch), ll(context), ll(batch));
    if (run->data.valid_tokens > 0 && run->data.valid_tokens <= context)
        return WRONG("data.valid_tokens: %lld is not more than model.context %lld",
                     ll(run->data.valid_tokens), ll(context));
    return STRAIT_OK;
}

/* Names that only one part of the program knows, also where this run would not ask it: a codec
 * without boundaries, a device of another machine. */
static strait_err check_parts(const strait_run *run) {
    const strait_err err = strait_backend_check_name(run->device.kind);
    if (err != STRAIT_OK) strait_err_prefix("device.kind");
    STRAIT_TRY(err);
    return strait_codec_check_name(run->link.codec.name, run->link.codec.variant);
}

static strait_err resolve_and_check(const char *path, strait_run *run) {
    if (run->name[0] == '\0') STRAIT_TRY(name_after(path, run));
    STRAIT_TRY(check_name(run));
    STRAIT_TRY(resolve_model(run));
    STRAIT_TRY(check_model(run));
    STRAIT_TRY(resolve_train(run));
    STRAIT_TRY(check_schedule(run));
    STRAIT_TRY(check_parts(run));
    return check_batch(run);
}

/* The codec's own variant where the file names none but it chooses defaults of other keys; else
 * NULL.
 */
static const char *silent_variant(const strait_run *run) {
    const strait_options *table = strait_run_options();
    const char *own = strait_codec_default_variant(run->link.codec.name);
    for (int i = 0; run->link.codec.variant[0] == '\0' && i < table->n_presets; i++)
        if (strcmp(table->presets[i].key, "link.codec.variant") == 0 &&
            strcmp(table->presets[i].choice, own) == 0)
            return own;
    return NULL;
}

/* Such a variant is set as if the user had, so that it brings the same defaults as one that is
 * named, and the run that is saved says which it was. */
static strait_err load_options(const strait_options_source *source, strait_run *run) {
    STRAIT_TRY(strait_options_load(strait_run_options(), source, run));
    const char *variant = silent_variant(run);
    if (variant == NULL) return STRAIT_OK;
    char set[STRAIT_RUN_TEXT];
    (void)snprintf(set, sizeof set, "link.codec.variant=%s", variant);
    void *memory = NULL;
    STRAIT_TRY(strait_alloc((size_t)source->n_sets + 1, sizeof(char *), "options", &memory));
    const char **sets = memory;
    for (int i = 0; i < source->n_sets; i++)
        sets[i] = source->sets[i];
    sets[source->n_sets] = set;
    strait_options_source whole = *source;
    whole.sets = sets;
    whole.n_sets++;
    const strait_err err = strait_options_load(strait_run_options(), &whole, run);
    strait_alloc_free(memory);
    return err;
}

/* On the heap: a run is several kilobytes, and *out must stay as it was on error. */
static strait_err load(const strait_options_source *source, strait_run *out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &memory));
    strait_run *run = memory;
    strait_err err = load_options(source, run);
    if (err == STRAIT_OK) {
        err = resolve_and_check(source->name, run);
        if (err != STRAIT_OK) strait_err_prefix("%s", source->name);
    }
    if (err == STRAIT_OK) *out = *run;
    strait_alloc_free(run);
    return err;
}

strait_err strait_run_parse(const char *name, const char *text, size_t bytes,
                            const char *const *sets, int n_sets, strait_run *out) {
    const strait_options_source source = {
        .name = name, .text = text, .bytes = bytes, .sets = sets, .n_sets = n_sets};
    return load(&source, out);
}

/* The absolute folder that `path` lies in, when the current one is `here`. */
static strait_err folder_of(const char *path, const char *here, char out[STRAIT_PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return strait_file_path(out, "%s", here);
    const int length = (int)(slash - path);
    if (path[0] == '/') return strait_file_path(out, "%.*s", length, path);
    return strait_file_path(out, "%s/%.*s", here, length, path);
}

strait_err strait_run_load(const char *path, const char *const *sets, int n_sets, strait_run *out) {
    char folder[STRAIT_PATH_MAX];
    char here[STRAIT_PATH_MAX];
    if (getcwd(here, sizeof here) == NULL) return WRONG("the current folder is gone");
    STRAIT_TRY(folder_of(path, here, folder));
    char *text = NULL;
    size_t bytes = 0;
    strait_err err = strait_file_read(path, FILE_MAX, &text, &bytes);
    if (err == STRAIT_ENOMEM) return err;
    if (err != STRAIT_OK) return STRAIT_ECONFIG; // a run file that cannot be read is a wrong one
    const strait_options_source source = {path, text, bytes, folder, sets, n_sets, here};
    err = load(&source, out);
    strait_alloc_free(text);
    return err;
}

strait_err strait_run_save(const strait_run *run, const char *path) {
    const size_t bytes = strait_options_render(strait_run_options(), run, NULL, 0);
    void *text = NULL;
    STRAIT_TRY(strait_alloc(bytes + 1, 1, path, &text));
    (void)strait_options_render(strait_run_options(), run, text, bytes + 1);
    const strait_err err = strait_file_replace(path, text, bytes);
    strait_alloc_free(text);
    return err;
}
