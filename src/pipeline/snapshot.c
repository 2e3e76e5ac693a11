#include "pipeline/snapshot.h"

#include "base/alloc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every field of a shape that makes weights fit or misfit, by the name a run file gives it. */
enum field_kind {
    FIELD_INT,
    FIELD_INT64,
    FIELD_REAL
};
typedef struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
} field;

static const field fields[] = {
    {"vocab", FIELD_INT64, offsetof(strait_shape, vocab)},
    {"context", FIELD_INT64, offsetof(strait_shape, context)},
    {"layers", FIELD_INT, offsetof(strait_shape, layers)},
    {"width", FIELD_INT, offsetof(strait_shape, width)},
    {"heads", FIELD_INT, offsetof(strait_shape, heads)},
    {"kv_heads", FIELD_INT, offsetof(strait_shape, kv_heads)},
    {"head_dim", FIELD_INT, offsetof(strait_shape, head_dim)},
    {"ffn", FIELD_INT, offsetof(strait_shape, ffn)},
    {"activation", FIELD_INT, offsetof(strait_shape, activation)},
    {"rope", FIELD_INT, offsetof(strait_shape, rope)},
    {"rope_theta", FIELD_REAL, offsetof(strait_shape, rope_theta)},
    {"qk_norm", FIELD_INT, offsetof(strait_shape, has_qk_norm)},
    {"qk_gain", FIELD_INT, offsetof(strait_shape, has_qk_gain)},
    {"attention_scale", FIELD_REAL, offsetof(strait_shape, attention_scale)},
    {"softcap", FIELD_REAL, offsetof(strait_shape, softcap)},
    {"tied", FIELD_INT, offsetof(strait_shape, is_tied)},
    {"norm_epsilon", FIELD_REAL, offsetof(strait_shape, norm_epsilon)},
};
enum {
    N_FIELDS = sizeof fields / sizeof *fields
};
_Static_assert((int)N_FIELDS <= (int)STRAIT_SNAPSHOT_PAIRS, "every field has its pair");
_Static_assert(sizeof(strait_activation) == sizeof(int), "choices are read as int");

void strait_snapshot_describe(const strait_shape *shape, strait_snapshot_shape *out) {
    for (int i = 0; i < N_FIELDS; i++) {
        const void *at = (const char *)shape + fields[i].offset;
        char *text = out->texts[i];
        switch (fields[i].kind) {
        case FIELD_INT: (void)snprintf(text, STRAIT_SNAPSHOT_TEXT, "%d", *(const int *)at); break;
        case FIELD_INT64:
            (void)snprintf(text, STRAIT_SNAPSHOT_TEXT, "%lld", (long long)*(const int64_t *)at);
            break;
        case FIELD_REAL:
            (void)snprintf(text, STRAIT_SNAPSHOT_TEXT, "%.9g", (double)*(const float *)at);
            break;
        }
        out->pairs[i] = (strait_safetensors_pair){fields[i].key, text};
    }
    out->n = N_FIELDS;
}

static strait_err parse_field(const field *f, const char *text, const char *path,
                              strait_shape *shape) {
    void *at = (char *)shape + f->offset;
    char *end = NULL;
    errno = 0;
    const double number = text == NULL ? 0.0 : strtod(text, &end);
    if (text == NULL || errno != 0 || end == text || *end != '\0')
        return STRAIT_FAIL(STRAIT_EDATA, "%s: its manifest has no usable model.%s", path, f->key);
    if (f->kind != FIELD_REAL && !(number >= 0.0 && number <= 2147483647.0))
        return STRAIT_FAIL(STRAIT_EDATA, "%s: its manifest's model.%s is out of bounds", path,
                           f->key);
    switch (f->kind) {
    case FIELD_INT: *(int *)at = (int)number; break;
    case FIELD_INT64: *(int64_t *)at = (int64_t)number; break;
    case FIELD_REAL: *(float *)at = (float)number; break;
    }
    return STRAIT_OK;
}

strait_err strait_snapshot_shape_of(const struct strait_checkpoint *checkpoint, strait_shape *out) {
    strait_shape shape = {0};
    for (int i = 0; i < N_FIELDS; i++)
        STRAIT_TRY(parse_field(&fields[i], strait_checkpoint_model(checkpoint, fields[i].key),
                               strait_checkpoint_path(checkpoint), &shape));
    STRAIT_TRY(strait_shape_check(&shape));
    *out = shape;
    return STRAIT_OK;
}

strait_err strait_snapshot_check(const struct strait_checkpoint *checkpoint,
                                 const strait_shape *shape, const char *tokenizer) {
    strait_snapshot_shape ours;
    strait_snapshot_describe(shape, &ours);
    for (int i = 0; i < ours.n; i++) {
        const char *theirs = strait_checkpoint_model(checkpoint, ours.pairs[i].key);
        if (theirs != NULL && strcmp(theirs, ours.pairs[i].value) == 0) continue;
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s was saved with model.%s %s, the run has %s: use the run file it was "
                           "trained with, or another folder",
                           strait_checkpoint_path(checkpoint), ours.pairs[i].key,
                           theirs == NULL ? "unknown" : theirs, ours.pairs[i].value);
    }
    const char *print = strait_checkpoint_tokenizer(checkpoint);
    if (print[0] != '\0' && tokenizer[0] != '\0' && strcmp(print, tokenizer) != 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s was trained with the tokenizer %s, the data were made with %s",
                           strait_checkpoint_path(checkpoint), print, tokenizer);
    return STRAIT_OK;
}

/* Lists of what goes into the two files of a stage. Tensors of a device that is not the host are
 * copied into `copies`. */
struct listing {
    strait_safetensors_item *items;
    char (*names)[STRAIT_PARAM_NAME + 2];
    void **copies;
    int n, n_room;
};

static void listing_fini(struct listing *list) {
    for (int i = 0; list->copies != NULL && i < list->n; i++)
        strait_alloc_free(list->copies[i]);
    strait_alloc_free(list->items);
    strait_alloc_free(list->names);
    strait_alloc_free(list->copies);
}

static strait_err listing_init(struct listing *list, int n_room) {
    const size_t room = (size_t)n_room;
    list->n_room = n_room;
    STRAIT_TRY(strait_alloc(room, sizeof *list->items, "list of tensors", (void **)&list->items));
    STRAIT_TRY(strait_alloc(room, sizeof *list->names, "list of names", (void **)&list->names));
    return strait_alloc(room, sizeof *list->copies, "list of copies", (void **)&list->copies);
}

static strait_err listing_add(struct listing *list, struct strait_stream *stream, const char *name,
                              strait_tensor tensor, int is_vector) {
    const struct strait_backend_ops *ops = stream->backend->ops;
    const int i = list->n++;
    if (!ops->is_host) {
        const size_t bytes = strait_tensor_bytes(tensor);
        STRAIT_TRY(strait_alloc(1, bytes, name, &list->copies[i]));
        STRAIT_TRY(ops->download(stream, list->copies[i], tensor.data, bytes));
        tensor.data = list->copies[i];
    }
    (void)snprintf(list->names[i], sizeof list->names[i], "%s", name);
    list->items[i] = (strait_safetensors_item){list->names[i], tensor, is_vector};
    return STRAIT_OK;
}

static strait_err list_weights(struct strait_worker *w, struct listing *list) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    STRAIT_TRY(listing_init(list, w->n_params));
    for (int i = 0; i < w->n_params; i++)
        STRAIT_TRY(listing_add(list, stream, w->params[i].name, w->params[i].value,
                               w->params[i].value.rows == 1));
    return STRAIT_OK;
}

/* Calls `with` for every tensor that a worker needs besides its weights: the optimizer's moments
 * and what its codecs remember. */
typedef strait_err (*tensor_fn)(void *user, struct strait_stream *stream, const char *name,
                                strait_tensor tensor);

static strait_err each_codec_state(struct strait_boundary *boundary, struct strait_stream *stream,
                                   tensor_fn with, void *user) {
    const struct strait_codec *codec = boundary != NULL ? strait_boundary_codec(boundary) : NULL;
    for (int i = 0; codec != NULL && i < codec->n_states; i++)
        STRAIT_TRY(with(user, stream, codec->states[i].name, codec->states[i].tensor));
    return STRAIT_OK;
}

static strait_err each_state(struct strait_worker *w, tensor_fn with, void *user) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    for (int i = 0; i < strait_optimizer_states(w->optimizer); i++) {
        strait_optim_state state;
        STRAIT_TRY(strait_optimizer_state(w->optimizer, i, &state));
        STRAIT_TRY(with(user, stream, state.name, state.tensor));
    }
    STRAIT_TRY(each_codec_state(w->tail, stream, with, user));
    return each_codec_state(w->head, stream, with, user);
}

static strait_err list_one(void *user, struct strait_stream *stream, const char *name,
                           strait_tensor tensor) {
    return listing_add(user, stream, name, tensor, 0);
}

static strait_err list_states(struct strait_worker *w, struct listing *list) {
    STRAIT_TRY(listing_init(list, strait_optimizer_states(w->optimizer) + 2 * STRAIT_CODEC_STATES));
    return each_state(w, list_one, list);
}

strait_err strait_snapshot_write(struct strait_worker *w, const char *folder, int64_t step) {
    struct listing weights = {0};
    struct listing states = {0};
    struct strait_stream *stream = strait_stage_stream(w->model);
    strait_err err = list_weights(w, &weights);
    if (err == STRAIT_OK) err = list_states(w, &states);
    if (err == STRAIT_OK) err = w->backend->ops->wait(stream);
    const strait_checkpoint_part parts[] = {{w->stage, 0, weights.items, weights.n},
                                            {w->stage, 1, states.items, states.n}};
    for (int i = 0; i < 2 && err == STRAIT_OK; i++)
        err = strait_checkpoint_write(folder, step, &parts[i]);
    listing_fini(&weights);
    listing_fini(&states);
    return err;
}

static strait_err load_one(void *user, struct strait_stream *stream, const char *name,
                           strait_tensor tensor) {
    const struct strait_checkpoint *checkpoint = user;
    const struct strait_backend_ops *ops = stream->backend->ops;
    if (ops->is_host) return strait_checkpoint_read(checkpoint, name, tensor);
    strait_tensor copy = tensor;
    const size_t bytes = strait_tensor_bytes(tensor);
    STRAIT_TRY(strait_alloc(1, bytes, name, &copy.data));
    strait_err err = strait_checkpoint_read(checkpoint, name, copy);
    if (err == STRAIT_OK) err = ops->upload(stream, tensor.data, copy.data, bytes);
    if (err == STRAIT_OK) err = ops->wait(stream);
    strait_alloc_free(copy.data);
    return err;
}

strait_err strait_snapshot_read(struct strait_checkpoint *checkpoint, struct strait_worker *w) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    for (int i = 0; i < w->n_params; i++)
        STRAIT_TRY(load_one(checkpoint, stream, w->params[i].name, w->params[i].value));
    STRAIT_TRY(each_state(w, load_one, checkpoint));
    if (w->tail != NULL) STRAIT_TRY(strait_codec_restored(strait_boundary_codec(w->tail), stream));
    if (w->head != NULL) STRAIT_TRY(strait_codec_restored(strait_boundary_codec(w->head), stream));
    return STRAIT_OK;
}

strait_err strait_snapshot_read_model(struct strait_checkpoint *checkpoint,
                                      struct strait_stage *model) {
    struct strait_stream *stream = strait_stage_stream(model);
    int n = 0;
    const strait_param *params = strait_stage_params(model, &n);
    for (int i = 0; i < n; i++)
        STRAIT_TRY(load_one(checkpoint, stream, params[i].name, params[i].value));
    return STRAIT_OK;
}
