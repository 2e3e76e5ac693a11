#include "study/results.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs of the same key on other test texts, by the digests of these; of some only the loss. */
static const char other_tests[] = "other_tests";

enum {
    FILE_MAX = 256 << 20
};

struct strait_results {
    char path[STRAIT_PATH_MAX];
    json_t *by_key;
};

static int has_failed(const json_t *record) {
    return json_object_get(record, "error") != NULL;
}

const char *strait_results_text(const json_t *record) {
    const char *digest = json_string_value(json_object_get(record, "test_text"));
    return digest != NULL ? digest : "";
}

double strait_results_test_loss(const json_t *record, const char *text) {
    const json_t *loss = NULL;
    if (strcmp(strait_results_text(record), text) == 0) loss = json_object_get(record, "test_loss");
    if (loss == NULL) loss = json_object_get(json_object_get(record, other_tests), text);
    if (json_is_object(loss)) loss = json_object_get(loss, "test_loss");
    return json_is_number(loss) ? json_number_value(loss) : (double)NAN;
}

const json_t *strait_results_on(const json_t *record, const char *text) {
    const json_t *other = json_object_get(json_object_get(record, other_tests), text);
    return strcmp(strait_results_text(record), text) != 0 && json_is_object(other) ? other : record;
}

/* A run that was trained again, for another test text or without one, keeps its earlier records. */
static strait_err keep_tests(json_t *old, json_t *record) {
    json_t *kept = json_object_get(record, other_tests);
    json_t *earlier = json_object_get(old, other_tests);
    const json_t *loss = json_object_get(old, "test_loss");
    const char *text = strait_results_text(old);
    int failed = 0;
    if (loss == NULL && earlier == NULL) return STRAIT_OK;
    if (kept == NULL) {
        kept = json_object();
        failed |= json_object_set_new(record, other_tests, kept) != 0;
    }
    if (loss != NULL && !json_is_object(json_object_get(kept, text))) {
        json_t *copy = json_copy(old);
        if (copy != NULL) (void)json_object_del(copy, other_tests);
        failed |= json_object_set_new(kept, text, copy) != 0;
    }
    if (earlier != NULL) failed |= json_object_update_missing(kept, earlier) != 0;
    return failed ? STRAIT_FAIL(STRAIT_ENOMEM, "results of a study") : STRAIT_OK;
}

/* A failure does not replace a result: the run succeeded once, with the same options. */
static strait_err remember(json_t *by_key, json_t *record) {
    const char *key = NULL;
    STRAIT_TRY(strait_json_string(record, "key", &key));
    if (has_failed(record)) return STRAIT_OK;
    json_t *old = json_object_get(by_key, key);
    if (old != NULL && old != record) STRAIT_TRY(keep_tests(old, record));
    if (json_object_set(by_key, key, record) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "results of a study");
    return STRAIT_OK;
}

/* Reads every whole line. The last one may lack its newline, because a kill cut it. */
static strait_err read_lines(const char *path, const char *text, json_t *by_key) {
    int number = 1;
    for (const char *at = text; *at != '\0'; number++) {
        const char *end = strchr(at, '\n');
        json_t *record = NULL;
        if (end == NULL) return STRAIT_OK;
        strait_err err = end == at ? STRAIT_OK : strait_json_parse(at, (size_t)(end - at), &record);
        if (err == STRAIT_OK && record != NULL) err = remember(by_key, record);
        json_decref(record);
        if (err != STRAIT_OK) strait_err_prefix("%s:%d", path, number);
        STRAIT_TRY(err);
        at = end + 1;
    }
    return STRAIT_OK;
}

static strait_err read_file(const char *path, json_t *by_key) {
    char *text = NULL;
    STRAIT_TRY(strait_file_read(path, FILE_MAX, &text, NULL));
    const strait_err err = read_lines(path, text, by_key);
    strait_alloc_free(text);
    return err;
}

strait_err strait_results_open(const char *path, struct strait_results **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_results), "results", &memory));
    struct strait_results *r = memory;
    strait_err err = strait_file_path(r->path, "%s", path);
    r->by_key = json_object();
    if (err == STRAIT_OK && strait_file_exists(path)) err = read_file(path, r->by_key);
    if (err == STRAIT_OK)
        *out = r;
    else
        strait_results_close(&r);
    return err;
}

void strait_results_close(struct strait_results **results) {
    if (*results != NULL) json_decref((*results)->by_key);
    strait_alloc_free(*results);
    *results = NULL;
}

int strait_results_count(const struct strait_results *results) {
    return (int)json_object_size(results->by_key);
}

const json_t *strait_results_find(const struct strait_results *results, const char *key) {
    return json_object_get(results->by_key, key);
}

/* Removes a line without its end, which a kill left: a later line would make it a damaged one. */
static int drop_partial_line(int fd) {
    off_t size = lseek(fd, 0, SEEK_END);
    const off_t whole = size;
    char last = '\n';
    while (size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n')
        size--;
    return size == whole ? 0 : ftruncate(fd, size);
}

/* One write of the whole line, then a sync: a kill leaves at most one truncated line, the last. */
static strait_err append(const char *path, const char *line, size_t bytes) {
    const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, strerror(errno)); // NOLINT
    int failed = drop_partial_line(fd) != 0;
    failed = failed || write(fd, line, bytes) != (ssize_t)bytes || fsync(fd) != 0;
    const int code = errno;
    (void)close(fd);
    if (!failed) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EIO, "%s: %s", path, strerror(code)); // NOLINT: one thread
}

strait_err strait_results_add(struct strait_results *results, json_t *record) {
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "a result of a study");
    const size_t bytes = strlen(text);
    text[bytes] = '\n'; // in place of the final zero, which write does not need
    strait_err err = append(results->path, text, bytes + 1);
    free(text);
    if (err == STRAIT_OK) err = remember(results->by_key, record);
    return err;
}

/* Whether a record tells nothing that `known` does not: its figures, and its test loss. */
static int tells_nothing(const json_t *known, const json_t *record) {
    const char *text = strait_results_text(record);
    return known != NULL && (!isfinite(strait_results_test_loss(record, text)) ||
                             isfinite(strait_results_test_loss(known, text)));
}

strait_err strait_results_merge(struct strait_results *results, const char *path, int is_dry,
                                int *n_new) {
    json_t *other = json_object();
    strait_err err = read_file(path, other);
    const char *key = NULL;
    json_t *record = NULL;
    *n_new = 0;
    json_object_foreach(other, key, record) {
        if (err != STRAIT_OK || tells_nothing(strait_results_find(results, key), record)) continue;
        err = is_dry ? remember(results->by_key, record) : strait_results_add(results, record);
        if (err == STRAIT_OK) (*n_new)++;
    }
    json_decref(other);
    return err;
}
