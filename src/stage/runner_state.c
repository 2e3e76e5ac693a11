#include "stage/runner_state.h"

#include "base/alloc.h"
#include "config/dry_run.h"

#include <stdio.h>

/* The tensors that go into one file of a stage. Tensors on a device other than the host are copied
 * into `copies`, which the list owns. */
struct listing {
    strait_safetensors_item *items; // refer to `names` and to `copies` or the runner's tensors
    char (*names)[STRAIT_PARAM_NAME + 2];
    void **copies;
    int n, capacity;
};

static void listing_fini(struct listing *list) {
    for (int i = 0; list->copies != NULL && i < list->n; i++)
        strait_alloc_free(list->copies[i]);
    strait_alloc_free(list->items);
    strait_alloc_free(list->names);
    strait_alloc_free(list->copies);
}

static strait_err listing_init(struct listing *list, int capacity) {
    const size_t n = (size_t)capacity;
    list->capacity = capacity;
    STRAIT_TRY(strait_alloc(n, sizeof *list->items, "list of tensors", (void **)&list->items));
    STRAIT_TRY(strait_alloc(n, sizeof *list->names, "list of names", (void **)&list->names));
    return strait_alloc(n, sizeof *list->copies, "list of copies", (void **)&list->copies);
}

/* Adds a tensor. On a device the copy is only queued: wait for the stream before reading it. */
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

/* Vectors are stored with one dimension, as other tools that read safetensors expect. */
static strait_err list_weights(struct strait_runner *runner, struct listing *list) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    STRAIT_TRY(listing_init(list, runner->n_params));
    for (int i = 0; i < runner->n_params; i++)
        STRAIT_TRY(listing_add(list, stream, runner->params[i].name, runner->params[i].value,
                               runner->params[i].value.rows == 1));
    return STRAIT_OK;
}

/* Called for every tensor besides the weights: the optimizer's moments and the codecs' state. */
typedef strait_err (*tensor_fn)(void *user, struct strait_stream *stream, const char *name,
                                strait_tensor tensor);

/* The owner of the tensors: a runner, or a dry run, which has neither stream nor memory. One type
 * for both guarantees that they list the same tensors in the same order. */
struct owner {
    struct strait_stream *stream;
    const strait_param *params;
    int n_params;
    const struct strait_optimizer *optimizer;
    const struct strait_codec *receiver, *sender;
    const struct strait_late *late; // NULL: updates are not late, or a dry run
};

static const struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

/* The runner's list of parameters already has those of its codecs; only their state is separate. */
static struct owner owner_of(const struct strait_runner *runner) {
    return (struct owner){.stream = strait_stage_stream(runner->model),
                          .params = runner->params,
                          .n_params = runner->n_params,
                          .optimizer = runner->optimizer,
                          .receiver = codec_of(runner->receiver),
                          .sender = codec_of(runner->sender),
                          .late = runner->late};
}

static strait_err each_codec_state(const struct strait_codec *codec, struct strait_stream *stream,
                                   tensor_fn visit, void *user) {
    for (int i = 0; codec != NULL && i < codec->n_states; i++)
        STRAIT_TRY(visit(user, stream, codec->states[i].name, codec->states[i].tensor));
    return STRAIT_OK;
}

static strait_err each_late(const struct owner *h, tensor_fn visit, void *user) {
    for (int i = 0; i < strait_late_n_states(h->late); i++) {
        strait_late_state state;
        strait_late_get_state(h->late, i, &state);
        STRAIT_TRY(visit(user, h->stream, state.name, state.tensor));
    }
    return STRAIT_OK;
}

/* The order is part of the snapshot format: optimizer, receiver, sender. */
static strait_err each_state(const struct owner *h, tensor_fn visit, void *user) {
    for (int i = 0; i < strait_optimizer_n_states(h->optimizer); i++) {
        strait_optim_state state;
        STRAIT_TRY(strait_optimizer_state(h->optimizer, i, &state));
        STRAIT_TRY(visit(user, h->stream, state.name, state.tensor));
    }
    STRAIT_TRY(each_codec_state(h->receiver, h->stream, visit, user));
    return each_codec_state(h->sender, h->stream, visit, user);
}

static strait_err list_one(void *user, struct strait_stream *stream, const char *name,
                           strait_tensor tensor) {
    return listing_add(user, stream, name, tensor, 0);
}

static strait_err list_states(struct strait_runner *runner, struct listing *list) {
    const struct owner h = owner_of(runner);
    STRAIT_TRY(listing_init(list, strait_optimizer_n_states(runner->optimizer) +
                                      2 * STRAIT_CODEC_STATES +
                                      strait_late_n_states(runner->late)));
    STRAIT_TRY(each_state(&h, list_one, list));
    return each_late(&h, list_one, list);
}

strait_err strait_runner_state_write(struct strait_runner *runner, const char *folder,
                                     int64_t step) {
    struct listing weights = {0};
    struct listing states = {0};
    struct strait_stream *stream = strait_stage_stream(runner->model);
    strait_err err = list_weights(runner, &weights);
    if (err == STRAIT_OK) err = list_states(runner, &states);
    /* One wait for all copies, so that they overlap. */
    if (err == STRAIT_OK) err = runner->backend->ops->wait(stream);
    const strait_checkpoint_stage_file files[] = {
        {.stage = runner->stage, .items = weights.items, .n_items = weights.n},
        {.stage = runner->stage, .is_state = 1, .items = states.items, .n_items = states.n}};
    for (int i = 0; i < 2 && err == STRAIT_OK; i++)
        err = strait_checkpoint_write(folder, step, &files[i]);
    listing_fini(&weights);
    listing_fini(&states);
    return err;
}

/* Reads one tensor of the checkpoint. A device needs a copy on the host, freed before the next one:
 * a restore takes no more host memory than its largest tensor. */
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

/* Tensors are found by name, so their order in the file does not matter. */
static strait_err load_params(struct strait_checkpoint *checkpoint, struct strait_stream *stream,
                              const strait_param *params, int n) {
    for (int i = 0; i < n; i++)
        STRAIT_TRY(load_one(checkpoint, stream, params[i].name, params[i].value));
    return STRAIT_OK;
}

/* Whether late weights were saved: a run whose updates were not late has none, and before the first
 * step they are the weights, which an import may have replaced. */
static int has_late(const struct strait_checkpoint *checkpoint, const struct strait_late *late) {
    const struct strait_safetensors *file;
    strait_late_state first;
    if (late == NULL || strait_checkpoint_step(checkpoint) == 0) return 0;
    strait_late_get_state(late, 0, &first);
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, NULL)) != NULL; i++)
        if (strait_safetensors_find(file, first.name) != NULL) return 1;
    return 0;
}

strait_err strait_runner_state_read(struct strait_checkpoint *checkpoint,
                                    struct strait_runner *runner) {
    const struct owner h = owner_of(runner);
    const int is_late = has_late(checkpoint, runner->late);
    runner->has_initial_weights = 0; // also if reading fails halfway
    STRAIT_TRY(load_params(checkpoint, h.stream, h.params, h.n_params));
    STRAIT_TRY(each_state(&h, load_one, checkpoint));
    if (is_late) STRAIT_TRY(each_late(&h, load_one, checkpoint));
    STRAIT_TRY(strait_runner_state_restored(runner));
    return strait_runner_start_late(runner, strait_checkpoint_step(checkpoint), is_late);
}

/* Adapts a public visitor to tensor_fn. */
struct state_visit {
    strait_runner_state_visit *visit;
    void *user;
};

/* Everything besides the weights is marked as state. */
static strait_err visit_state(void *user, struct strait_stream *stream, const char *name,
                              strait_tensor tensor) {
    const struct state_visit *v = user;
    return v->visit(v->user, stream, name, tensor, 1);
}

static strait_err each_tensor(const struct owner *h, strait_runner_state_visit *visit, void *user) {
    struct state_visit states = {visit, user};
    for (int i = 0; i < h->n_params; i++)
        STRAIT_TRY(visit(user, h->stream, h->params[i].name, h->params[i].value, 0));
    return each_state(h, visit_state, &states);
}

strait_err strait_runner_state_each(struct strait_runner *runner, strait_runner_state_visit *visit,
                                    void *user) {
    const struct owner h = owner_of(runner);
    return each_tensor(&h, visit, user);
}

static strait_err digest_one(void *user, struct strait_stream *stream, const char *name,
                             strait_tensor tensor, int is_state) {
    const struct strait_backend_ops *ops = stream->backend->ops;
    const size_t bytes = strait_tensor_bytes(tensor);
    void *copy = NULL;
    (void)is_state;
    if (ops->is_host) return strait_digest_extend(user, tensor.data, bytes);
    STRAIT_TRY(strait_alloc(1, bytes, name, &copy));
    strait_err err = ops->download(stream, copy, tensor.data, bytes);
    if (err == STRAIT_OK) err = ops->wait(stream);
    if (err == STRAIT_OK) err = strait_digest_extend(user, copy, bytes);
    strait_alloc_free(copy);
    return err;
}

strait_err strait_runner_state_digest(struct strait_runner *runner, strait_digest *out) {
    *out = (strait_digest){{0}};
    return strait_runner_state_each(runner, digest_one, out);
}

strait_err strait_runner_state_describe(const strait_run_plan *plan, int stage,
                                        strait_runner_state_visit *visit, void *user) {
    struct strait_dry_run dry_run;
    STRAIT_TRY(strait_dry_run_init(&dry_run, plan, stage));
    const struct owner h = {.params = dry_run.params,
                            .n_params = dry_run.n_params,
                            .optimizer = dry_run.optimizer,
                            .receiver = dry_run.receiver,
                            .sender = dry_run.sender};
    const strait_err err = each_tensor(&h, visit, user);
    strait_dry_run_fini(&dry_run);
    return err;
}

strait_err strait_runner_state_restored(struct strait_runner *runner) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->receiver != NULL)
        STRAIT_TRY(strait_codec_restored(strait_boundary_codec(runner->receiver), stream));
    if (runner->sender != NULL)
        STRAIT_TRY(strait_codec_restored(strait_boundary_codec(runner->sender), stream));
    return strait_stage_refresh(runner->model); // last: it may read the basis of the codec
}

strait_err strait_runner_state_read_stage(struct strait_checkpoint *checkpoint,
                                          struct strait_stage *stage) {
    int n = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    return load_params(checkpoint, strait_stage_stream(stage), params, n);
}

/* A codec used for inference belongs to no runner, but its tensors have the same names. */
strait_err strait_runner_state_read_codec(struct strait_checkpoint *checkpoint,
                                          struct strait_codec *codec,
                                          struct strait_stream *stream) {
    STRAIT_TRY(load_params(checkpoint, stream, codec->params, codec->n_params));
    for (int i = 0; i < codec->n_states; i++)
        STRAIT_TRY(load_one(checkpoint, stream, codec->states[i].name, codec->states[i].tensor));
    return strait_codec_restored(codec, stream);
}
