#include "swarm/image.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "pipeline/snapshot.h"
#include "swarm/image_list.h"

#include <string.h>

enum {
    HEAD_BYTES = 8,
    ROW_BYTES = 1 + 1 + 1 + 8 + 8 // of a tensor in the list, besides its name
};

double strait_image_need(const strait_worker_memory *m) {
    const double images = STRAIT_SWARM_IMAGES + 4.0; // its own, and two of each neighbour
    return (double)(m->weights + m->gradients + m->optimizer + m->activations + m->codecs +
                    m->data) +
           images * (double)(m->weights + m->optimizer);
}

void strait_image_fini(struct strait_image *image) {
    strait_alloc_free(image->data);
    *image = (struct strait_image){0};
}

int strait_image_is_whole(const struct strait_image *image) {
    return image->bytes > 0 && image->filled == image->bytes;
}

/* Makes room; what is inside is lost. */
static strait_err reserve(struct strait_image *image, size_t bytes) {
    image->filled = image->bytes = 0;
    if (image->capacity < bytes) {
        strait_image_fini(image);
        STRAIT_TRY(strait_alloc(bytes, 1, "image of a stage", (void **)&image->data));
        image->capacity = bytes;
    }
    image->bytes = bytes;
    return STRAIT_OK;
}

/* ---- from and to a worker ---- */

/* Over the tensors of a worker, or of a stage that nobody serves here. Visits come in the order of
 * the list: first they count, then they copy. */
struct walk {
    struct strait_worker *worker; // NULL: of `stage` of `recipe`
    const strait_recipe *recipe;
    int stage;
    strait_writer list;
    unsigned char *values;
    size_t list_bytes, value_bytes;
    uint32_t n;
    int is_counting, must_load;
};

static strait_err visit(void *user, struct strait_stream *stream, const char *name,
                        strait_tensor tensor, int is_state) {
    struct walk *walk = user;
    const size_t bytes = strait_tensor_bytes(tensor);
    if (walk->is_counting) {
        walk->list_bytes += ROW_BYTES + strlen(name);
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
    const struct strait_backend_ops *ops = stream->backend->ops;
    return walk->must_load ? ops->upload(stream, tensor.data, at, bytes)
                           : ops->download(stream, at, tensor.data, bytes);
}

static strait_err go_over(struct walk *walk) {
    return walk->worker != NULL ? strait_snapshot_each(walk->worker, visit, walk)
                                : strait_snapshot_expect(walk->recipe, walk->stage, visit, walk);
}

static strait_err measure(struct walk *walk) {
    walk->is_counting = 1;
    walk->list_bytes = HEAD_BYTES;
    STRAIT_TRY(go_over(walk));
    walk->is_counting = 0;
    return STRAIT_OK;
}

static strait_err write_list(struct walk *walk, unsigned char *out) {
    walk->list.at = out;
    walk->list.left = walk->list_bytes;
    strait_writer_copy(&walk->list, strait_image_magic, sizeof strait_image_magic);
    strait_writer_uint(&walk->list, walk->n, 4);
    return go_over(walk);
}

static strait_err settle(struct strait_worker *worker) {
    return worker->backend->ops->wait(strait_stage_stream(worker->model));
}

strait_err strait_image_take(struct strait_worker *worker, int64_t step, uint32_t born,
                             struct strait_image *image) {
    struct walk walk = {.worker = worker};
    STRAIT_TRY(measure(&walk));
    STRAIT_TRY(reserve(image, walk.list_bytes + walk.value_bytes));
    walk.values = image->data + walk.list_bytes;
    STRAIT_TRY(write_list(&walk, image->data));
    STRAIT_TRY(settle(worker));
    image->stage = worker->stage;
    image->step = step;
    image->born = born;
    image->filled = image->bytes;
    return STRAIT_OK;
}

static strait_err list_only(struct walk *walk, struct strait_image *list) {
    STRAIT_TRY(measure(walk));
    STRAIT_TRY(reserve(list, walk->list_bytes));
    STRAIT_TRY(write_list(walk, list->data));
    list->filled = list->bytes;
    return STRAIT_OK;
}

strait_err strait_image_list(struct strait_worker *worker, struct strait_image *list,
                             size_t *whole_bytes) {
    struct walk walk = {.worker = worker};
    STRAIT_TRY(list_only(&walk, list));
    *whole_bytes = walk.list_bytes + walk.value_bytes;
    return STRAIT_OK;
}

strait_err strait_image_expect(const strait_recipe *recipe, int stage, struct strait_image *list) {
    struct walk walk = {.recipe = recipe, .stage = stage};
    return list_only(&walk, list);
}

/* What the list of a whole image adds up to: the image, and nothing else. */
static strait_err sum_whole(const struct strait_image *image, strait_image_sum *out) {
    if (!strait_image_is_whole(image)) return strait_image_list_wrong();
    STRAIT_TRY(strait_image_list_sum(image->data, image->bytes, image->bytes, out));
    return out->list_bytes + out->value_bytes == image->bytes ? STRAIT_OK
                                                              : strait_image_list_wrong();
}

static strait_err match_list(const struct strait_image *image, const struct strait_image *list) {
    strait_image_sum sum = {0};
    strait_err err = sum_whole(image, &sum);
    if (err == STRAIT_OK)
        err = strait_image_list_match(image->data, image->bytes, list->data, list->bytes);
    if (err != STRAIT_OK)
        strait_err_prefix("the image of stage %d at step %lld", image->stage,
                          (long long)image->step);
    return err;
}

strait_err strait_image_match(const struct strait_image *image, const strait_recipe *recipe) {
    struct strait_image list = {0};
    if (image->stage < 0 || image->stage >= recipe->n_stages)
        return STRAIT_FAIL(STRAIT_EDATA, "an image of stage %d, of %d stages", image->stage,
                           recipe->n_stages);
    strait_err err = strait_image_expect(recipe, image->stage, &list);
    if (err == STRAIT_OK) err = match_list(image, &list);
    strait_image_fini(&list);
    return err;
}

strait_err strait_image_put(const struct strait_image *image, struct strait_worker *worker) {
    struct strait_image list = {0};
    struct walk walk = {.worker = worker, .must_load = 1};
    strait_err err = list_only(&walk, &list);
    if (err == STRAIT_OK) err = match_list(image, &list);
    if (err == STRAIT_OK) {
        worker->is_untouched = 0;
        walk.values = image->data + list.bytes;
        err = write_list(&walk, list.data);
    }
    if (err == STRAIT_OK) err = settle(worker);
    if (err == STRAIT_OK) err = strait_snapshot_restored(worker);
    strait_image_fini(&list);
    return err;
}

/* Whether no exponent has all its bits set, as those of infinities and of what is no number. */
static int is_finite_row(const strait_image_row *row, const unsigned char *at) {
    const size_t width = strait_dtype_bytes(row->dtype);
    int n_bad = 0;
    if (row->dtype != STRAIT_F32 && row->dtype != STRAIT_BF16) return 1;
    for (size_t i = width; i <= row->bytes; i += width) // the exponent is in the last two bytes
        n_bad |= (strait_get_u16(at + i - 2) & 0x7f80) == 0x7f80;
    return n_bad == 0;
}

strait_err strait_image_check(const struct strait_image *image) {
    strait_image_sum sum = {0};
    int n = 0;
    STRAIT_TRY(sum_whole(image, &sum));
    strait_reader r = {image->data, sum.list_bytes, 0};
    const unsigned char *at = image->data + sum.list_bytes;
    STRAIT_TRY(strait_image_list_head(&r, &n));
    for (int i = 0; i < n; i++) {
        strait_image_row row;
        STRAIT_TRY(strait_image_list_row(&r, &row));
        if (!is_finite_row(&row, at))
            return STRAIT_FAIL(STRAIT_ENONFINITE,
                               "the image of stage %d at step %lld: %s has values that are no "
                               "finite numbers",
                               image->stage, (long long)image->step, row.name);
        at += row.bytes;
    }
    return STRAIT_OK;
}

/* The weights, or the state, of an image as one file of a checkpoint. */
static strait_err write_part(const struct strait_image *image, int is_state, int n, size_t offset,
                             const char *folder, int64_t step) {
    strait_safetensors_item *items = NULL;
    strait_image_row *rows = NULL;
    strait_reader r = {image->data, image->bytes, 0};
    strait_checkpoint_part part = {.stage = image->stage, .is_state = is_state};
    strait_err err = strait_alloc((size_t)n, sizeof *items, "list of tensors", (void **)&items);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)n, sizeof *rows, "list of names", (void **)&rows);
    if (err == STRAIT_OK) err = strait_image_list_head(&r, &n);
    for (int i = 0; err == STRAIT_OK && i < n; i++) {
        strait_image_row *row = &rows[i];
        err = strait_image_list_row(&r, row);
        if (err != STRAIT_OK) break;
        if (row->is_state == is_state)
            items[part.n_items++] = (strait_safetensors_item){
                row->name,
                {image->data + offset, row->dtype, row->rows, row->cols},
                !is_state && row->rows == 1};
        offset += row->bytes;
    }
    part.items = items;
    if (err == STRAIT_OK) err = strait_checkpoint_write(folder, step, &part);
    strait_alloc_free(items);
    strait_alloc_free(rows);
    return err;
}

strait_err strait_image_write(const struct strait_image *image, const char *folder, int64_t step) {
    strait_image_sum sum = {0};
    STRAIT_TRY(sum_whole(image, &sum));
    STRAIT_TRY(write_part(image, 0, sum.n, sum.list_bytes, folder, step));
    return write_part(image, 1, sum.n, sum.list_bytes, folder, step);
}

/* ---- pieces ---- */

strait_err strait_image_add(struct strait_image *image, const strait_piece *piece, size_t limit) {
    const int is_first = piece->offset == 0;
    if (piece->total > limit)
        return STRAIT_FAIL(STRAIT_EPROTO, "an image of %llu bytes, expected at most %zu",
                           (unsigned long long)piece->total, limit);
    if (is_first) {
        STRAIT_TRY(reserve(image, (size_t)piece->total));
        image->stage = piece->stage;
        image->step = piece->step;
        image->born = piece->born;
    }
    if (image->bytes != piece->total || image->filled != piece->offset ||
        image->step != piece->step || image->stage != piece->stage)
        return STRAIT_FAIL(STRAIT_EPROTO, "a piece of an image out of turn");
    memcpy(image->data + image->filled, piece->data, piece->bytes);
    image->filled += piece->bytes;
    return STRAIT_OK;
}

void strait_image_next(const struct strait_image *image, size_t *at, strait_piece *piece) {
    const size_t left = image->bytes - *at;
    *piece = (strait_piece){.stage = image->stage,
                            .step = image->step,
                            .born = image->born,
                            .offset = *at,
                            .total = image->bytes,
                            .data = image->data + *at,
                            .bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES};
    *at += piece->bytes;
}
