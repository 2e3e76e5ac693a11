#include "stage/runner_state.h"

#include "base/alloc.h"
#include "config/dry_run.h"
#include "stage/outer/outer_tensors.h"

#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES = STRAIT_OUTER_NAME
};

/* The tensors that go into one file of a stage. Tensors on a device other than the host are copied
 * into `copies`, which the list owns. */
struct listing {
    strait_safetensors_item *items; // refer to `names` and to `copies` or the runner's tensors
    char (*names)[NAME_BYTES];
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

/* Adds a tensor. On a device the copy is only queued: wait for the stream before reading it. A
 * stream of NULL means that the tensor is in host memory. */
static strait_err listing_add(struct listing *list, struct strait_stream *stream, const char *name,
                              strait_tensor tensor, int is_vector) {
    const struct strait_backend_ops *ops = stream != NULL ? stream->backend->ops : NULL;
    const int i = list->n++;
    if (ops != NULL && !ops->is_host) {
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
    for (int i = 0; i < runner->n_params; i++) {
        const strait_tensor anchor = runner->outer != NULL
                                         ? strait_outer_get(runner->outer, STRAIT_OUTER_ANCHOR, i,
                                                            0)
                                         : (strait_tensor){0};
        const int is_averaged = anchor.data != NULL;
        STRAIT_TRY(listing_add(list, is_averaged ? NULL : stream, runner->params[i].name,
                               is_averaged ? anchor : runner->params[i].value,
                               runner->params[i].value.rows == 1));
    }
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
    const struct strait_late *late;   // NULL: updates are not late, or a dry run
    const struct strait_outer *outer; // NULL: there is no outer step, or a dry run
    strait_outer_spec outer_spec;     // no weights: there is no outer step
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
                          .late = runner->late,
                          .outer = runner->outer,
                          .outer_spec = strait_runner_outer_spec(&runner->plan, runner->stage,
                                                                 runner->params, runner->n_params,
                                                                 runner->optimizer)};
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

/* ---- what the replicas of an outer step have each for itself ---- */

static strait_err list_outer(struct strait_runner *runner, int is_partial, struct listing *list) {
    char name[NAME_BYTES];
    int is_marked = 0;
    for (int i = 0; i < runner->n_params; i++) {
        const strait_param *param = &runner->params[i];
        strait_tensor mark = strait_outer_get(runner->outer, STRAIT_OUTER_ANCHOR, i, 0);
        if (mark.data == NULL) continue;
        mark.rows = mark.cols = 1; // any value: only the name matters
        if (!is_partial && !is_marked && strait_outer_is_begun(runner->outer))
            STRAIT_TRY(listing_add(list, NULL, STRAIT_OUTER_IN_FLIGHT, mark, 1));
        is_marked = 1;
        strait_outer_name(runner->replica, STRAIT_OUTER_ANCHOR, param->name, name);
        STRAIT_TRY(listing_add(list, strait_stage_stream(runner->model), name, param->value, 0));
        for (int kind = STRAIT_OUTER_MOMENTUM; kind < STRAIT_OUTER_TENSORS; kind++) {
            const strait_tensor t = strait_outer_get(runner->outer, (strait_outer_tensor)kind, i,
                                                     0);
            if (t.data == NULL || (kind == STRAIT_OUTER_MOMENTUM && is_partial)) continue;
            strait_outer_name(runner->replica, (strait_outer_tensor)kind, param->name, name);
            STRAIT_TRY(listing_add(list, NULL, name, t, 0));
        }
    }
    return STRAIT_OK;
}

/* Names of a replica's state begin with its number, so that one checkpoint holds several. */
struct state_names {
    struct listing *list;
    struct strait_checkpoint *checkpoint;
    int replica, is_partial;
};

static strait_err list_one(void *user, struct strait_stream *stream, const char *name,
                           strait_tensor tensor) {
    const struct state_names *s = user;
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof full, "replica.%d.%s", s->replica, name);
    return listing_add(s->list, stream, s->is_partial ? full : name, tensor, 0);
}

static strait_err list_states(struct strait_runner *runner, int is_partial, struct listing *list) {
    const struct owner h = owner_of(runner);
    struct state_names names = {.list = list, .replica = runner->replica, .is_partial = is_partial};
    const int n_outer = runner->outer != NULL ? STRAIT_OUTER_TENSORS * runner->n_params + 1 : 0;
    STRAIT_TRY(listing_init(list, strait_optimizer_n_states(runner->optimizer) +
                                      2 * STRAIT_CODEC_STATES + n_outer +
                                      strait_late_n_states(runner->late)));
    STRAIT_TRY(each_state(&h, list_one, &names));
    STRAIT_TRY(each_late(&h, list_one, &names));
    return runner->outer != NULL ? list_outer(runner, is_partial, list) : STRAIT_OK;
}

strait_err strait_runner_state_write(struct strait_runner *runner, const char *folder, int64_t step,
                                     int is_partial) {
    struct listing weights = {0};
    struct listing states = {0};
    struct strait_stream *stream = strait_stage_stream(runner->model);
    strait_err err = is_partial ? STRAIT_OK : list_weights(runner, &weights);
    if (err == STRAIT_OK) err = list_states(runner, is_partial, &states);
    /* One wait for all copies, so that they overlap. */
    if (err == STRAIT_OK) err = runner->backend->ops->wait(stream);
    const strait_checkpoint_stage_file files[] = {
        {.stage = runner->stage, .items = weights.items, .n_items = weights.n},
        {.stage = runner->stage,
         .is_state = 1,
         .replica = is_partial ? runner->replica : 0,
         .items = states.items,
         .n_items = states.n}};
    for (int i = is_partial; i < 2 && err == STRAIT_OK; i++)
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

/* The replica's own where the checkpoint has it. Replicas that train together have none. */
static strait_err load_state(void *user, struct strait_stream *stream, const char *name,
                             strait_tensor tensor) {
    const struct state_names *s = user;
    char full[NAME_BYTES];
    (void)snprintf(full, sizeof full, "replica.%d.%s", s->replica, name);
    return load_one(s->checkpoint, stream, strait_checkpoint_has(s->checkpoint, full) ? full : name,
                    tensor);
}

/* Tensors are found by name, so their order in the file does not matter. */
static strait_err load_params(struct strait_checkpoint *checkpoint, struct strait_stream *stream,
                              const strait_param *params, int n) {
    for (int i = 0; i < n; i++)
        STRAIT_TRY(load_one(checkpoint, stream, params[i].name, params[i].value));
    return STRAIT_OK;
}

/* Whether late weights were saved: layers whose updates were not late have none, and before the
 * first step they are the weights, which an import may have replaced. */
static int has_late(const struct strait_checkpoint *checkpoint, const struct strait_late *late) {
    strait_late_state state;
    for (int i = 0; i < strait_late_n_states(late); i++) {
        strait_late_get_state(late, i, &state);
        if (!strait_checkpoint_has(checkpoint, state.name)) return 0;
    }
    return late != NULL && strait_checkpoint_step(checkpoint) > 0;
}

/* Reads what the checkpoint has; the weights were read before, as the averaged ones. */
static strait_err read_outer(struct strait_checkpoint *checkpoint, struct strait_runner *runner) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    char name[NAME_BYTES];
    int has_residual = 0;
    STRAIT_TRY(strait_outer_restart(runner->outer, stream));
    for (int i = 0; i < runner->n_params; i++) {
        const strait_param *param = &runner->params[i];
        strait_outer_name(runner->replica, STRAIT_OUTER_ANCHOR, param->name, name);
        if (strait_checkpoint_has(checkpoint, name))
            STRAIT_TRY(load_one(checkpoint, stream, name, param->value));
        for (int kind = STRAIT_OUTER_MOMENTUM; kind < STRAIT_OUTER_TENSORS; kind++) {
            const strait_tensor t = strait_outer_get(runner->outer, (strait_outer_tensor)kind, i,
                                                     1);
            strait_outer_name(runner->replica, (strait_outer_tensor)kind, param->name, name);
            const int is_saved = t.data != NULL && strait_checkpoint_has(checkpoint, name);
            has_residual |= is_saved && kind == STRAIT_OUTER_RESIDUAL;
            if (is_saved)
                STRAIT_TRY(strait_checkpoint_read(checkpoint, name, t));
            else if (t.data != NULL && kind == STRAIT_OUTER_SENT) // a difference of nothing
                memcpy(t.data, strait_outer_get(runner->outer, STRAIT_OUTER_ANCHOR, i, 1).data,
                       strait_tensor_bytes(t));
        }
    }
    strait_outer_note_read(runner->outer, has_residual);
    return STRAIT_OK;
}

strait_err strait_runner_state_read(struct strait_checkpoint *checkpoint,
                                    struct strait_runner *runner) {
    const struct owner h = owner_of(runner);
    const int is_late = has_late(checkpoint, runner->late);
    runner->has_initial_weights = 0; // also if reading fails halfway
    STRAIT_TRY(load_params(checkpoint, h.stream, h.params, h.n_params));
    struct state_names names = {.checkpoint = checkpoint,
                                .replica = runner->outer != NULL ? runner->replica : -1};
    STRAIT_TRY(each_state(&h, load_state, &names));
    if (is_late) STRAIT_TRY(each_late(&h, load_one, checkpoint));
    if (runner->outer != NULL) STRAIT_TRY(read_outer(checkpoint, runner));
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

/* With an outer step the weights are the averaged ones, as in a checkpoint. */
static strait_err each_tensor(const struct owner *h, strait_runner_state_visit *visit, void *user) {
    struct state_visit states = {visit, user};
    for (int i = 0; i < h->n_params; i++) {
        const strait_tensor anchor = h->outer != NULL
                                         ? strait_outer_get(h->outer, STRAIT_OUTER_ANCHOR, i, 0)
                                         : (strait_tensor){0};
        const int is_averaged = anchor.data != NULL;
        STRAIT_TRY(visit(user, is_averaged ? NULL : h->stream, h->params[i].name,
                         is_averaged ? anchor : h->params[i].value, 0));
    }
    STRAIT_TRY(each_state(h, visit_state, &states));
    return strait_outer_each(&h->outer_spec, h->outer, h->stream, visit_state, &states);
}

strait_err strait_runner_state_each(struct strait_runner *runner, strait_runner_state_visit *visit,
                                    void *user) {
    const struct owner h = owner_of(runner);
    return each_tensor(&h, visit, user);
}

static strait_err digest_one(void *user, struct strait_stream *stream, const char *name,
                             strait_tensor tensor, int is_state) {
    const struct strait_backend_ops *ops = stream != NULL ? stream->backend->ops : NULL;
    const size_t bytes = strait_tensor_bytes(tensor);
    void *copy = NULL;
    (void)is_state;
    if (ops == NULL || ops->is_host) return strait_digest_extend(user, tensor.data, bytes);
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
                            .sender = dry_run.sender,
                            .outer_spec = strait_runner_outer_spec(
                                plan, stage, dry_run.params, dry_run.n_params, dry_run.optimizer)};
    const strait_err err = each_tensor(&h, visit, user);
    strait_dry_run_fini(&dry_run);
    return err;
}

strait_err strait_runner_state_taken(struct strait_runner *runner) {
    if (runner->outer != NULL) strait_outer_note_read(runner->outer, 1);
    return strait_runner_state_restored(runner);
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
