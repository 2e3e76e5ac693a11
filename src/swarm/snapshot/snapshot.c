#include "swarm/snapshot/snapshot.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "stage/runner_state.h"
#include "swarm/snapshot/header.h"

#include <string.h>

enum {
    PREFIX_BYTES = 8,                // magic and count
    TENSOR_BYTES = 1 + 1 + 1 + 8 + 8 // of a tensor in the header, besides its name
};

double strait_snapshot_memory_bytes(const strait_runner_memory *m) {
    /* Its own snapshots, and two copies for each of two neighbours. */
    const double snapshots = STRAIT_SWARM_SNAPSHOTS + 4.0;
    return (double)(m->weights + m->gradients + m->sums + m->optimizer + m->activations +
                    m->codecs + m->data + m->outer) +
           snapshots * (double)(m->weights + m->optimizer + m->outer);
}

void strait_snapshot_fini(struct strait_snapshot *snapshot) {
    strait_alloc_free(snapshot->data);
    *snapshot = (struct strait_snapshot){0};
}

int strait_snapshot_is_complete(const struct strait_snapshot *snapshot) {
    return snapshot->bytes > 0 && snapshot->filled == snapshot->bytes;
}

/* Makes space for `bytes`; the previous contents are lost. */
static strait_err reserve(struct strait_snapshot *snapshot, size_t bytes) {
    snapshot->filled = snapshot->bytes = 0;
    if (snapshot->capacity < bytes) {
        strait_snapshot_fini(snapshot);
        STRAIT_TRY(strait_alloc(bytes, 1, "snapshot of a stage", (void **)&snapshot->data));
        snapshot->capacity = bytes;
    }
    snapshot->bytes = bytes;
    return STRAIT_OK;
}

/* ---- taking and restoring ---- */

/* A walk over the tensors of a runner, or of a stage that this process does not run. The order is
 * always the same: the first walk counts bytes, the second writes the header and copies values. */
struct walk {
    struct strait_runner *runner; // NULL: walk over `stage` of `plan`
    const strait_run_plan *plan;
    int stage;
    strait_writer list;    // the header
    unsigned char *values; // NULL: write only the header
    size_t list_bytes, value_bytes;
    uint32_t n;                 // tensors
    int is_counting, must_load; // must_load: copy to the runner, not from it
};

static strait_err visit(void *user, struct strait_stream *stream, const char *name,
                        strait_tensor tensor, int is_state) {
    struct walk *walk = user;
    const size_t bytes = strait_tensor_bytes(tensor);
    if (walk->is_counting) {
        walk->list_bytes += TENSOR_BYTES + strlen(name);
        walk->value_bytes += bytes;
        walk->n++;
        return STRAIT_OK;
    }
    strait_writer_uint(&walk->list, strlen(name), 1);
    strait_writer_copy(&walk->list, name, strlen(name));
    strait_writer_uint(&walk->list, (uint64_t)tensor.dtype, 1);
    strait_writer_uint(&walk->list, (uint64_t)is_state, 1);
    strait_writer_uint(&walk->list, (uint64_t)tensor.rows, 8);
    strait_writer_uint(&walk->list, (uint64_t)tensor.cols, 8);
    if (walk->values == NULL) return STRAIT_OK;
    unsigned char *at = walk->values;
    walk->values += bytes;
    if (stream == NULL) { // in host memory
        memcpy(walk->must_load ? tensor.data : (void *)at, walk->must_load ? at : tensor.data,
               bytes);
        return STRAIT_OK;
    }
    const struct strait_backend_ops *ops = stream->backend->ops;
    return walk->must_load ? ops->upload(stream, tensor.data, at, bytes)
                           : ops->download(stream, at, tensor.data, bytes);
}

static strait_err visit_all(struct walk *walk) {
    return walk->runner != NULL
               ? strait_runner_state_each(walk->runner, visit, walk)
               : strait_runner_state_describe(walk->plan, walk->stage, visit, walk);
}

/* Counting first keeps header and values in one allocation of the right size. */
static strait_err measure(struct walk *walk) {
    walk->is_counting = 1;
    walk->list_bytes = PREFIX_BYTES;
    STRAIT_TRY(visit_all(walk));
    walk->is_counting = 0;
    return STRAIT_OK;
}

static strait_err copy_state(struct walk *walk, unsigned char *out) {
    walk->list.at = out;
    walk->list.left = walk->list_bytes;
    strait_writer_copy(&walk->list, strait_snapshot_magic, sizeof strait_snapshot_magic);
    strait_writer_uint(&walk->list, walk->n, 4);
    return visit_all(walk);
}

/* Copies from and to a device are asynchronous: the values are valid only after this. */
static strait_err wait_for_copies(struct strait_runner *runner) {
    return runner->backend->ops->wait(strait_stage_stream(runner->model));
}

strait_err strait_snapshot_capture(struct strait_runner *runner, int64_t step, uint32_t generation,
                                   struct strait_snapshot *snapshot) {
    struct walk walk = {.runner = runner};
    STRAIT_TRY(measure(&walk));
    STRAIT_TRY(reserve(snapshot, walk.list_bytes + walk.value_bytes));
    walk.values = snapshot->data + walk.list_bytes;
    STRAIT_TRY(copy_state(&walk, snapshot->data));
    STRAIT_TRY(wait_for_copies(runner));
    snapshot->stage = runner->stage;
    snapshot->step = step;
    snapshot->generation = generation;
    snapshot->filled = snapshot->bytes;
    return strait_snapshot_hash(snapshot);
}

strait_err strait_snapshot_hash(struct strait_snapshot *snapshot) {
    return strait_sha256(snapshot->data, snapshot->bytes, &snapshot->digest);
}

strait_err strait_snapshot_check_digest(struct strait_snapshot *snapshot,
                                        const strait_digest *expected) {
    STRAIT_TRY(strait_snapshot_hash(snapshot));
    if (strait_digest_equal(&snapshot->digest, expected)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "snapshot of stage %d at step %lld: its SHA-256 is not the one that the "
                       "stage's owner reported",
                       snapshot->stage, (long long)snapshot->step);
}

static strait_err write_header(struct walk *walk, struct strait_snapshot *header) {
    STRAIT_TRY(measure(walk));
    STRAIT_TRY(reserve(header, walk->list_bytes));
    STRAIT_TRY(copy_state(walk, header->data));
    header->filled = header->bytes;
    return STRAIT_OK;
}

strait_err strait_snapshot_header(struct strait_runner *runner, struct strait_snapshot *header,
                                  size_t *total_bytes) {
    struct walk walk = {.runner = runner};
    STRAIT_TRY(write_header(&walk, header));
    *total_bytes = walk.list_bytes + walk.value_bytes;
    return STRAIT_OK;
}

strait_err strait_snapshot_expected_header(const strait_run_plan *plan, int stage,
                                           struct strait_snapshot *header) {
    struct walk walk = {.plan = plan, .stage = stage};
    return write_header(&walk, header);
}

strait_err strait_snapshot_expected_bytes(const strait_run_plan *plan, int stage, size_t *bytes) {
    struct walk walk = {.plan = plan, .stage = stage};
    STRAIT_TRY(measure(&walk));
    *bytes = walk.list_bytes + walk.value_bytes;
    return STRAIT_OK;
}

/* Checks that the sizes in the header add up to exactly the bytes of the snapshot. */
static strait_err check_sizes(const struct strait_snapshot *snapshot, strait_snapshot_sizes *out) {
    if (!strait_snapshot_is_complete(snapshot)) return strait_snapshot_header_fail();
    STRAIT_TRY(
        strait_snapshot_header_measure(snapshot->data, snapshot->bytes, snapshot->bytes, out));
    return out->list_bytes + out->value_bytes == snapshot->bytes ? STRAIT_OK
                                                                 : strait_snapshot_header_fail();
}

/* Sizes first: names alone do not show that values are missing or left over. */
static strait_err match_header(const struct strait_snapshot *snapshot,
                               const struct strait_snapshot *header) {
    strait_snapshot_sizes sizes = {0};
    strait_err err = check_sizes(snapshot, &sizes);
    if (err == STRAIT_OK)
        err = strait_snapshot_header_match(snapshot->data, snapshot->bytes, header->data,
                                           header->bytes);
    if (err != STRAIT_OK)
        strait_err_prefix("snapshot of stage %d at step %lld", snapshot->stage,
                          (long long)snapshot->step);
    return err;
}

strait_err strait_snapshot_match(const struct strait_snapshot *snapshot,
                                 const strait_run_plan *plan) {
    struct strait_snapshot header = {0};
    if (snapshot->stage < 0 || snapshot->stage >= plan->n_stages)
        return STRAIT_FAIL(STRAIT_EDATA, "a snapshot of stage %d, but the run has %d stages",
                           snapshot->stage, plan->n_stages);
    strait_err err = strait_snapshot_expected_header(plan, snapshot->stage, &header);
    if (err == STRAIT_OK) err = match_header(snapshot, &header);
    strait_snapshot_fini(&header);
    return err;
}

strait_err strait_snapshot_restore(const struct strait_snapshot *snapshot,
                                   struct strait_runner *runner) {
    struct strait_snapshot header = {0};
    struct walk walk = {.runner = runner, .must_load = 1};
    strait_err err = write_header(&walk, &header);
    if (err == STRAIT_OK) err = match_header(snapshot, &header);
    if (err == STRAIT_OK) {
        runner->has_initial_weights = 0; // no longer the initial weights, even if the copy fails
        walk.values = snapshot->data + header.bytes;
        err = copy_state(&walk, header.data);
    }
    if (err == STRAIT_OK) err = wait_for_copies(runner);
    if (err == STRAIT_OK) err = strait_runner_state_taken(runner);
    strait_snapshot_fini(&header);
    return err;
}

/* A value is infinite or NaN if all bits of its exponent are set. The bits are tested because the
 * values in a snapshot are not aligned. */
static int is_finite(const strait_snapshot_tensor *tensor, const unsigned char *at) {
    const size_t width = strait_dtype_bytes(tensor->dtype);
    int n_bad = 0;
    if (tensor->dtype != STRAIT_F32 && tensor->dtype != STRAIT_BF16) return 1;
    for (size_t i = width; i <= tensor->bytes; i += width) // the exponent is in the last two bytes
        n_bad |= (strait_get_u16(at + i - 2) & 0x7f80) == 0x7f80;
    return n_bad == 0;
}

strait_err strait_snapshot_check_finite(const struct strait_snapshot *snapshot) {
    strait_snapshot_sizes sizes = {0};
    int n = 0;
    STRAIT_TRY(check_sizes(snapshot, &sizes));
    strait_reader r = {snapshot->data, sizes.list_bytes, 0};
    const unsigned char *at = snapshot->data + sizes.list_bytes;
    STRAIT_TRY(strait_snapshot_header_read_count(&r, &n));
    for (int i = 0; i < n; i++) {
        strait_snapshot_tensor tensor;
        STRAIT_TRY(strait_snapshot_header_read_tensor(&r, &tensor));
        if (!is_finite(&tensor, at))
            return STRAIT_FAIL(STRAIT_ENONFINITE,
                               "snapshot of stage %d at step %lld: %s has non-finite values",
                               snapshot->stage, (long long)snapshot->step, tensor.name);
        at += tensor.bytes;
    }
    return STRAIT_OK;
}

/* Writes the weights or the optimizer state of a snapshot as one file of a checkpoint. One-row
 * weights are vectors there, as in checkpoints of local runs. */
static strait_err write_part(const struct strait_snapshot *snapshot, int is_state, int n,
                             size_t offset, const char *folder, int64_t step) {
    strait_safetensors_item *items = NULL;
    strait_snapshot_tensor *tensors = NULL;
    strait_reader r = {snapshot->data, snapshot->bytes, 0};
    strait_checkpoint_stage_file part = {.stage = snapshot->stage, .is_state = is_state};
    strait_err err = strait_alloc((size_t)n, sizeof *items, "header of tensors", (void **)&items);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)n, sizeof *tensors, "header of names", (void **)&tensors);
    if (err == STRAIT_OK) err = strait_snapshot_header_read_count(&r, &n);
    for (int i = 0; err == STRAIT_OK && i < n; i++) {
        strait_snapshot_tensor *tensor = &tensors[i];
        err = strait_snapshot_header_read_tensor(&r, tensor);
        if (err != STRAIT_OK) break;
        if (tensor->is_state == is_state)
            items[part.n_items++] = (strait_safetensors_item){
                tensor->name,
                {snapshot->data + offset, tensor->dtype, tensor->rows, tensor->cols},
                !is_state && tensor->rows == 1};
        offset += tensor->bytes;
    }
    part.items = items;
    if (err == STRAIT_OK) err = strait_checkpoint_write(folder, step, &part);
    strait_alloc_free(items);
    strait_alloc_free(tensors);
    return err;
}

strait_err strait_snapshot_write(const struct strait_snapshot *snapshot, const char *folder,
                                 int64_t step) {
    strait_snapshot_sizes sizes = {0};
    STRAIT_TRY(check_sizes(snapshot, &sizes));
    STRAIT_TRY(write_part(snapshot, 0, sizes.n, sizes.list_bytes, folder, step));
    return write_part(snapshot, 1, sizes.n, sizes.list_bytes, folder, step);
}

/* ---- pieces ---- */

strait_err strait_snapshot_add_piece(struct strait_snapshot *snapshot, const strait_piece *piece,
                                     size_t bytes) {
    const int is_first = piece->offset == 0;
    if (piece->total != bytes)
        return STRAIT_FAIL(STRAIT_EPROTO, "a snapshot of %llu bytes, expected %zu",
                           (unsigned long long)piece->total, bytes);
    /* The first piece replaces whatever was there: the sender started over. */
    if (is_first) {
        STRAIT_TRY(reserve(snapshot, (size_t)piece->total));
        snapshot->stage = piece->stage;
        snapshot->step = piece->step;
        snapshot->generation = piece->generation;
    }
    if (snapshot->bytes != piece->total || snapshot->filled != piece->offset ||
        snapshot->step != piece->step || snapshot->stage != piece->stage)
        return STRAIT_FAIL(STRAIT_EPROTO, "a piece of a snapshot arrived out of order");
    memcpy(snapshot->data + snapshot->filled, piece->data, piece->bytes);
    snapshot->filled += piece->bytes;
    return STRAIT_OK;
}

/* Pieces are small, so that activations and gradients can be sent between them. */
void strait_snapshot_next_piece(const struct strait_snapshot *snapshot, size_t *at,
                                strait_piece *piece) {
    const size_t left = snapshot->bytes - *at;
    *piece = (strait_piece){.stage = snapshot->stage,
                            .step = snapshot->step,
                            .generation = snapshot->generation,
                            .offset = *at,
                            .total = snapshot->bytes,
                            .data = snapshot->data + *at,
                            .bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES};
    *at += piece->bytes;
}
