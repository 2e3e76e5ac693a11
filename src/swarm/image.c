#include "swarm/image.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "pipeline/snapshot.h"

#include <string.h>

enum {
    HEAD_BYTES = 8,
    ROW_BYTES = 1 + 1 + 1 + 8 + 8, // of a tensor in the list, besides its name
    TENSOR_NAME = STRAIT_PARAM_NAME + 2,
    TENSORS_MAX = 1 << 16
};

static const char magic[4] = {'S', 'I', 'm', 'g'};

/* A tensor of the list. */
struct row {
    char name[TENSOR_NAME];
    strait_dtype dtype;
    int is_state;
    int64_t rows, cols;
    size_t bytes;
};

double strait_image_need(const strait_worker_memory *m) {
    const double images = STRAIT_SWARM_IMAGES + 4.0; // its own, and two of each neighbour
    return (double)(m->weights + m->gradients + m->optimizer + m->activations + m->data) +
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

/* Visits come in the order of the list: first they count, then they copy. */
struct walk {
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

static strait_err measure(struct strait_worker *worker, struct walk *walk) {
    *walk = (struct walk){.is_counting = 1, .list_bytes = HEAD_BYTES};
    STRAIT_TRY(strait_snapshot_each(worker, visit, walk));
    walk->is_counting = 0;
    return STRAIT_OK;
}

static strait_err write_list(struct strait_worker *worker, struct walk *walk, unsigned char *out) {
    walk->list.at = out;
    walk->list.left = walk->list_bytes;
    strait_writer_copy(&walk->list, magic, sizeof magic);
    strait_writer_uint(&walk->list, walk->n, 4);
    return strait_snapshot_each(worker, visit, walk);
}

static strait_err settle(struct strait_worker *worker) {
    return worker->backend->ops->wait(strait_stage_stream(worker->model));
}

strait_err strait_image_take(struct strait_worker *worker, int64_t step, uint32_t born,
                             struct strait_image *image) {
    struct walk walk;
    STRAIT_TRY(measure(worker, &walk));
    STRAIT_TRY(reserve(image, walk.list_bytes + walk.value_bytes));
    walk.values = image->data + walk.list_bytes;
    STRAIT_TRY(write_list(worker, &walk, image->data));
    STRAIT_TRY(settle(worker));
    image->stage = worker->stage;
    image->step = step;
    image->born = born;
    image->filled = image->bytes;
    return STRAIT_OK;
}

strait_err strait_image_list(struct strait_worker *worker, struct strait_image *list,
                             size_t *whole_bytes) {
    struct walk walk;
    STRAIT_TRY(measure(worker, &walk));
    STRAIT_TRY(reserve(list, walk.list_bytes));
    *whole_bytes = walk.list_bytes + walk.value_bytes;
    STRAIT_TRY(write_list(worker, &walk, list->data));
    list->filled = list->bytes;
    return STRAIT_OK;
}

strait_err strait_image_put(const struct strait_image *image, struct strait_worker *worker) {
    struct strait_image list = {0};
    struct walk walk;
    size_t bytes = 0;
    worker->is_untouched = 0;
    strait_err err = strait_image_list(worker, &list, &bytes);
    if (err == STRAIT_OK &&
        (list.data == NULL || !strait_image_is_whole(image) || image->bytes != bytes ||
         memcmp(image->data, list.data, list.bytes) != 0))
        err = STRAIT_FAIL(STRAIT_EDATA, "the image of step %lld is not of stage %d as it is here",
                          (long long)image->step, worker->stage);
    if (err == STRAIT_OK) err = measure(worker, &walk);
    if (err == STRAIT_OK) {
        walk.values = image->data + list.bytes;
        walk.must_load = 1;
        err = write_list(worker, &walk, list.data);
    }
    if (err == STRAIT_OK) err = settle(worker);
    if (err == STRAIT_OK) err = strait_snapshot_restored(worker);
    strait_image_fini(&list);
    return err;
}

/* ---- lists of others ---- */

static strait_err wrong_list(void) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a peer sent a list of tensors that makes no sense");
}

static int is_name(const char *name) {
    for (; *name != '\0'; name++)
        if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\') return 0;
    return 1;
}

static strait_err read_row(strait_reader *r, struct row *out) {
    size_t n = (size_t)strait_reader_uint(r, 1);
    if (n == 0 || n >= sizeof out->name) return wrong_list();
    memset(out->name, 0, sizeof out->name);
    strait_reader_copy(r, out->name, n);
    const uint64_t dtype = strait_reader_uint(r, 1);
    out->is_state = strait_reader_uint(r, 1) != 0;
    const uint64_t rows = strait_reader_uint(r, 8);
    const uint64_t cols = strait_reader_uint(r, 8);
    if (r->is_short || dtype > STRAIT_I32 || rows == 0 || cols == 0 || rows > 1u << 30 ||
        cols > 1u << 30 || !is_name(out->name))
        return wrong_list();
    out->dtype = (strait_dtype)dtype;
    out->rows = (int64_t)rows;
    out->cols = (int64_t)cols;
    out->bytes = (size_t)(rows * cols) * strait_dtype_bytes(out->dtype);
    return STRAIT_OK;
}

/* Reads the head; `n` tensors follow. */
static strait_err read_head(strait_reader *r, int *n) {
    char found[sizeof magic];
    strait_reader_copy(r, found, sizeof found);
    const uint64_t count = strait_reader_uint(r, 4);
    if (r->is_short || memcmp(found, magic, sizeof magic) != 0 || count > TENSORS_MAX)
        return wrong_list();
    *n = (int)count;
    return STRAIT_OK;
}

/* Bytes of the list and of all values; at most `limit` together. */
static strait_err sum_list(const unsigned char *data, size_t bytes, size_t limit, int *n,
                           size_t *list_bytes, size_t *value_bytes) {
    strait_reader r = {data, bytes, 0};
    size_t values = 0;
    STRAIT_TRY(read_head(&r, n));
    for (int i = 0; i < *n; i++) {
        struct row row;
        STRAIT_TRY(read_row(&r, &row));
        if (row.bytes > limit || values > limit - row.bytes) return wrong_list();
        values += row.bytes;
    }
    *list_bytes = bytes - r.left;
    *value_bytes = values;
    return *list_bytes > limit - values ? wrong_list() : STRAIT_OK;
}

strait_err strait_image_fill(const struct strait_checkpoint *checkpoint, const unsigned char *list,
                             size_t bytes, size_t limit, struct strait_image *image) {
    size_t list_bytes = 0;
    size_t value_bytes = 0;
    int n = 0;
    STRAIT_TRY(sum_list(list, bytes, limit, &n, &list_bytes, &value_bytes));
    if (list_bytes != bytes) return wrong_list();
    STRAIT_TRY(reserve(image, bytes + value_bytes));
    memcpy(image->data, list, bytes);
    strait_reader r = {list, bytes, 0};
    unsigned char *at = image->data + bytes;
    STRAIT_TRY(read_head(&r, &n));
    for (int i = 0; i < n; i++) {
        struct row row;
        STRAIT_TRY(read_row(&r, &row));
        const strait_tensor into = {at, row.dtype, row.rows, row.cols};
        STRAIT_TRY(strait_checkpoint_read(checkpoint, row.name, into));
        at += row.bytes;
    }
    image->filled = image->bytes;
    return STRAIT_OK;
}

/* Whether no exponent has all its bits set, as those of infinities and of what is no number. */
static int is_finite_row(const struct row *row, const unsigned char *at) {
    const size_t width = strait_dtype_bytes(row->dtype);
    int n_bad = 0;
    if (row->dtype != STRAIT_F32 && row->dtype != STRAIT_BF16) return 1;
    for (size_t i = width; i <= row->bytes; i += width) // the exponent is in the last two bytes
        n_bad |= (strait_get_u16(at + i - 2) & 0x7f80) == 0x7f80;
    return n_bad == 0;
}

strait_err strait_image_check(const struct strait_image *image) {
    size_t list_bytes = 0;
    size_t value_bytes = 0;
    int n = 0;
    if (!strait_image_is_whole(image)) return wrong_list();
    STRAIT_TRY(sum_list(image->data, image->bytes, image->bytes, &n, &list_bytes, &value_bytes));
    if (list_bytes + value_bytes != image->bytes) return wrong_list();
    strait_reader r = {image->data, list_bytes, 0};
    const unsigned char *at = image->data + list_bytes;
    STRAIT_TRY(read_head(&r, &n));
    for (int i = 0; i < n; i++) {
        struct row row;
        STRAIT_TRY(read_row(&r, &row));
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
    struct row *rows = NULL;
    strait_reader r = {image->data, image->bytes, 0};
    strait_checkpoint_part part = {.stage = image->stage, .is_state = is_state};
    strait_err err = strait_alloc((size_t)n, sizeof *items, "list of tensors", (void **)&items);
    if (err == STRAIT_OK)
        err = strait_alloc((size_t)n, sizeof *rows, "list of names", (void **)&rows);
    if (err == STRAIT_OK) err = read_head(&r, &n);
    for (int i = 0; err == STRAIT_OK && i < n; i++) {
        struct row *row = &rows[i];
        err = read_row(&r, row);
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
    size_t list_bytes = 0;
    size_t value_bytes = 0;
    int n = 0;
    if (!strait_image_is_whole(image)) return wrong_list();
    STRAIT_TRY(sum_list(image->data, image->bytes, image->bytes, &n, &list_bytes, &value_bytes));
    if (list_bytes + value_bytes != image->bytes) return wrong_list();
    STRAIT_TRY(write_part(image, 0, n, list_bytes, folder, step));
    return write_part(image, 1, n, list_bytes, folder, step);
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
