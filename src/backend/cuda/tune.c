/* tune.c - the record of timed algorithms: one line per product, twelve numbers and the choice. */
#include "backend/cuda/tune.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD_MAX = 1 << 20, // bytes
    CHOICE_MAX = 63
};

/* Reads one line and advances *text past it. */
static int read_line(char **text, strait_cuda_tuned *out) {
    int64_t numbers[STRAIT_CUDA_TUNE_NUMBERS + 1];
    for (int i = 0; i <= STRAIT_CUDA_TUNE_NUMBERS; i++) {
        char *end = NULL;
        errno = 0;
        numbers[i] = strtoll(*text, &end, 10);
        if (end == *text || errno != 0 || numbers[i] < 0) return 0;
        *text = end;
    }
    if (**text != '\n' || numbers[STRAIT_CUDA_TUNE_NUMBERS] > CHOICE_MAX) return 0;
    (*text)++;
    memcpy(out->product, numbers, sizeof out->product);
    out->choice = numbers[STRAIT_CUDA_TUNE_NUMBERS];
    return 1;
}

/* A damaged line is an error rather than ignored: the file decides the bits of a run. */
static strait_err read_record(struct strait_cuda_tune *tune) {
    char *text = NULL;
    size_t bytes = 0;
    if (!strait_file_exists(tune->path)) return STRAIT_OK;
    STRAIT_TRY(strait_file_read(tune->path, RECORD_MAX, &text, &bytes));
    char *at = text;
    int line = 1, is_line = 1;
    for (; *at != '\0' && is_line && tune->n_known < STRAIT_CUDA_TUNE_PRODUCTS; line++) {
        is_line = read_line(&at, &tune->known[tune->n_known]);
        tune->n_known += is_line;
    }
    strait_alloc_free(text);
    if (is_line) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s:%d: expected %d numbers (a product and its algorithm): remove the file "
                       "to time products again",
                       tune->path, line - 1, STRAIT_CUDA_TUNE_NUMBERS + 1);
}

strait_err strait_cuda_tune_open(const char *path, struct strait_cuda_tune **out) {
    struct strait_cuda_tune *tune = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *tune, "tuning record", (void **)&tune));
    const int n = snprintf(tune->path, sizeof tune->path, "%s", path);
    strait_err err = STRAIT_OK;
    if (n < 0 || (size_t)n >= sizeof tune->path)
        err = STRAIT_FAIL(STRAIT_EINVAL, "STRAIT_CUDA_TUNE: path %s is too long", path);
    if (err == STRAIT_OK) err = read_record(tune);
    if (err != STRAIT_OK) {
        strait_cuda_tune_close(&tune);
        return err;
    }
    *out = tune;
    return STRAIT_OK;
}

/* Every line was written when it was noted. */
void strait_cuda_tune_close(struct strait_cuda_tune **tune) {
    strait_alloc_free(*tune);
    *tune = NULL;
}

/* Asked once per shape, so a linear search is enough. */
int strait_cuda_tune_find(const struct strait_cuda_tune *tune,
                          const int64_t product[STRAIT_CUDA_TUNE_NUMBERS]) {
    for (int i = 0; i < tune->n_known; i++)
        if (memcmp(tune->known[i].product, product, sizeof tune->known[i].product) == 0)
            return (int)tune->known[i].choice;
    return -1;
}

/* Appends and closes at once: a run that is killed later keeps its timings. */
static strait_err write_line(const struct strait_cuda_tune *tune, const strait_cuda_tuned *line) {
    FILE *file = fopen(tune->path, "a");
    if (file == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be written", tune->path);
    for (int i = 0; i < STRAIT_CUDA_TUNE_NUMBERS; i++)
        (void)fprintf(file, "%lld ", (long long)line->product[i]);
    (void)fprintf(file, "%lld\n", (long long)line->choice);
    return strait_file_finish(&file, tune->path);
}

/* A full record keeps what it has; further products use the first proposal. */
strait_err strait_cuda_tune_note(struct strait_cuda_tune *tune,
                                 const int64_t product[STRAIT_CUDA_TUNE_NUMBERS], int choice) {
    if (tune->n_known == STRAIT_CUDA_TUNE_PRODUCTS) return STRAIT_OK;
    strait_cuda_tuned *line = &tune->known[tune->n_known];
    memcpy(line->product, product, sizeof line->product);
    line->choice = choice;
    tune->n_known++;
    return write_line(tune, line);
}
