/* merge.c BASE ADAPTER MERGED SCALE - prints the largest difference between the matrices of MERGED,
 * a safetensors file of transformers, and those of BASE with the adapters of a PEFT folder; and how
 * many have one. */
#include <strait/safetensors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct strait_safetensors *open_file(const char *path) {
    struct strait_safetensors *file = NULL;
    if (strait_safetensors_open(path, &file) == STRAIT_OK) return file;
    fprintf(stderr, "merge: %s\n", strait_err_detail());
    exit(3);
}

static double value_at(const strait_safetensor *t, int64_t i) {
    float value;
    memcpy(&value, t->data + (size_t)i * sizeof value, sizeof value);
    return (double)value;
}

static const strait_safetensor *side_of(const struct strait_safetensors *file, const char *name,
                                        char side) {
    char full[256];
    const size_t n = strlen(name) - strlen(".weight");
    (void)snprintf(full, sizeof full, "base_model.model.%.*s.lora_%c.weight", (int)n, name, side);
    return strait_safetensors_find(file, full);
}

/* The largest difference of one tensor. */
static double compare(const strait_safetensor *w, const strait_safetensor *a,
                      const strait_safetensor *b, const strait_safetensor *merged, double scale) {
    const int64_t rows = w->n_dims > 1 ? w->dims[0] : 1, cols = w->dims[w->n_dims - 1];
    double most = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = value_at(w, r * cols + c);
            for (int64_t k = 0; a != NULL && k < a->dims[0]; k++)
                sum += scale * value_at(b, r * a->dims[0] + k) * value_at(a, k * cols + c);
            const double difference = fabs(sum - value_at(merged, r * cols + c));
            if (!(difference <= most)) most = difference;
        }
    return most;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    struct strait_safetensors *base = open_file(argv[1]), *adapter = open_file(argv[2]);
    struct strait_safetensors *merged = open_file(argv[3]);
    double most = 0;
    int n = 0;
    for (int i = 0; i < strait_safetensors_count(base); i++) {
        const strait_safetensor *w = strait_safetensors_at(base, i);
        const strait_safetensor *a = side_of(adapter, w->name, 'A');
        const double difference = compare(w, a, side_of(adapter, w->name, 'B'),
                                          strait_safetensors_find(merged, w->name),
                                          strtod(argv[4], NULL));
        if (!(difference <= most)) most = difference;
        n += a != NULL;
    }
    printf("%g %d\n", most, n);
    strait_safetensors_close(&base);
    strait_safetensors_close(&adapter);
    strait_safetensors_close(&merged);
    return 0;
}
