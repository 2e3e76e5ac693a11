/* The three models. Shapes: n images, t tokens or places, c channels; rows are tokens of images. */
#include "base/alloc.h"
#include "base/rng/rng.h"
#include "study/vision/vision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SIDE = STRAIT_VISION_SIDE,
    PATCH = 4,
    TOKENS = (SIDE / PATCH) * (SIDE / PATCH),
    WIDTH = 32,
    BLOCKS = 2,
    TAPS = 9 // of a convolution of 3 x 3
};

static const char *const names[] = {"vit", "mixer", "cnn", NULL};

const char *strait_vision_name(int i) {
    return names[i];
}

/* A parameter with its number in the name: "block.1.up". */
static int param(struct strait_tape *t, int block, const char *what, int rows, int columns) {
    char name[32];
    if (block < 0)
        (void)snprintf(name, sizeof name, "%s", what);
    else
        (void)snprintf(name, sizeof name, "block.%d.%s", block, what);
    return strait_tape_param(t, name, rows, columns);
}

/* Memory for an index of n values; NULL fails at the next node. */
static int *new_index(int n) {
    void *memory = NULL;
    return strait_alloc((size_t)n, sizeof(int), "index", &memory) == STRAIT_OK ? memory : NULL;
}

/* Images [n x 256] to patches [n t x 16]. */
static int patches(struct strait_tape *t, int images, int n) {
    int *index = new_index(n * TOKENS * PATCH * PATCH);
    int at = 0;
    for (int i = 0; index != NULL && i < n; i++)
        for (int token = 0; token < TOKENS; token++)
            for (int k = 0; k < PATCH * PATCH; k++) {
                const int y = token / (SIDE / PATCH) * PATCH + k / PATCH;
                const int x = token % (SIDE / PATCH) * PATCH + k % PATCH;
                index[at++] = i * SIDE * SIDE + y * SIDE + x;
            }
    const int out = index != NULL ? strait_tape_gather(t, images, n * TOKENS, PATCH * PATCH, index)
                                  : 0;
    strait_alloc_free(index);
    return out;
}

/* Repeats a matrix of one image for all images. */
static int repeat(struct strait_tape *t, int one, int n) {
    const int size = strait_tape_rows(t, one) * strait_tape_columns(t, one);
    int *index = new_index(n * size);
    for (int i = 0; index != NULL && i < n * size; i++)
        index[i] = i % size;
    const int out = index != NULL ? strait_tape_gather(t, one, n * strait_tape_rows(t, one),
                                                       strait_tape_columns(t, one), index)
                                  : 0;
    strait_alloc_free(index);
    return out;
}

/* Transposes the matrix [rows x columns] of every image. */
static int transpose(struct strait_tape *t, int a, int n) {
    const int rows = strait_tape_rows(t, a) / n;
    const int columns = strait_tape_columns(t, a);
    int *index = new_index(n * rows * columns);
    for (int i = 0; index != NULL && i < n * rows * columns; i++) {
        const int in = i % (rows * columns);
        index[i] = i - in + in % rows * columns + in / rows;
    }
    const int out = index != NULL ? strait_tape_gather(t, a, n * columns, rows, index) : 0;
    strait_alloc_free(index);
    return out;
}

/* The 3 x 3 neighbourhood of every second place of a square of side s: [n (s/2)^2 x 9 c]. */
static int neighbours(struct strait_tape *t, int a, int n, int side) {
    const int c = strait_tape_columns(t, a);
    const int half = side / 2;
    int *index = new_index(n * half * half * TAPS * c);
    for (int i = 0; index != NULL && i < n * half * half * TAPS * c; i++) {
        const int channel = i % c;
        const int tap = i / c % TAPS;
        const int place = i / c / TAPS;
        const int y = place / half % half * 2 + tap / 3 - 1;
        const int x = place % half * 2 + tap % 3 - 1;
        const int inside = y >= 0 && y < side && x >= 0 && x < side;
        const int image = place / (half * half);
        index[i] = inside ? ((image * side + y) * side + x) * c + channel : -1;
    }
    const int out = index != NULL ? strait_tape_gather(t, a, n * half * half, TAPS * c, index) : 0;
    strait_alloc_free(index);
    return out;
}

static int mlp(struct strait_tape *t, int x, int block, const char *up, const char *down,
               int hidden) {
    const int width = strait_tape_columns(t, x);
    const int h = strait_tape_matmul(t, strait_tape_norm(t, x), param(t, block, up, width, hidden));
    return strait_tape_matmul(t, strait_tape_relu(t, h), param(t, block, down, hidden, width));
}

static int embed(struct strait_tape *t, int n) {
    const int tokens = patches(t, 0, n);
    const int x = strait_tape_matmul(t, tokens, param(t, -1, "embed", PATCH * PATCH, WIDTH));
    return strait_tape_add(t, x, repeat(t, param(t, -1, "places", TOKENS, WIDTH), n));
}

static void build_vit(struct strait_tape *t, int n) {
    int x = embed(t, n);
    for (int b = 0; b < BLOCKS; b++) {
        const int h = strait_tape_norm(t, x);
        const int qkv[] = {strait_tape_matmul(t, h, param(t, b, "query", WIDTH, WIDTH)),
                           strait_tape_matmul(t, h, param(t, b, "key", WIDTH, WIDTH)),
                           strait_tape_matmul(t, h, param(t, b, "value", WIDTH, WIDTH))};
        const int a = strait_tape_attention(t, qkv, TOKENS);
        x = strait_tape_add(t, x, strait_tape_matmul(t, a, param(t, b, "out", WIDTH, WIDTH)));
        x = strait_tape_add(t, x, mlp(t, x, b, "up", "down", 4 * WIDTH));
    }
    const int pooled = strait_tape_mean(t, strait_tape_norm(t, x), TOKENS);
    (void)strait_tape_matmul(t, pooled, param(t, -1, "head", WIDTH, STRAIT_VISION_CLASSES));
}

static void build_mixer(struct strait_tape *t, int n) {
    int x = embed(t, n);
    for (int b = 0; b < BLOCKS; b++) {
        const int across = mlp(t, transpose(t, x, n), b, "token_up", "token_down", 2 * TOKENS);
        x = strait_tape_add(t, x, transpose(t, across, n));
        x = strait_tape_add(t, x, mlp(t, x, b, "up", "down", 4 * WIDTH));
    }
    const int pooled = strait_tape_mean(t, strait_tape_norm(t, x), TOKENS);
    (void)strait_tape_matmul(t, pooled, param(t, -1, "head", WIDTH, STRAIT_VISION_CLASSES));
}

/* Three convolutions, each halving the side and doubling the channels. */
static void build_cnn(struct strait_tape *t, int n) {
    int *index = new_index(n * SIDE * SIDE);
    for (int i = 0; index != NULL && i < n * SIDE * SIDE; i++)
        index[i] = i;
    int x = index != NULL ? strait_tape_gather(t, 0, n * SIDE * SIDE, 1, index) : 0;
    strait_alloc_free(index);
    int side = SIDE;
    for (int b = 0, c = 16; b < 3; b++, c *= 2, side /= 2) {
        const int around = neighbours(t, x, n, side);
        const int weights = param(t, b, "conv", strait_tape_columns(t, around), c);
        x = strait_tape_norm(t, strait_tape_relu(t, strait_tape_matmul(t, around, weights)));
    }
    const int pooled = strait_tape_mean(t, x, side * side);
    const int width = strait_tape_columns(t, pooled);
    (void)strait_tape_matmul(t, pooled, param(t, -1, "head", width, STRAIT_VISION_CLASSES));
}

/* Deviation 1 / sqrt(inputs), as everywhere. */
static void initialise(struct strait_tape *t, uint64_t seed) {
    for (int i = 0; strait_tape_param_at(t, i) >= 0; i++) {
        const int at = strait_tape_param_at(t, i);
        const size_t n = (size_t)strait_tape_rows(t, at) * (size_t)strait_tape_columns(t, at);
        const strait_rng rng = {seed, strait_rng_stream(strait_tape_name(t, at))};
        float *values = strait_tape_values(t, at);
        strait_rng_normals(rng, 0, values, n);
        for (size_t k = 0; k < n; k++)
            values[k] /= sqrtf((float)strait_tape_rows(t, at));
    }
}

strait_err strait_vision_build(const char *name, int n_images, uint64_t seed,
                               struct strait_tape **out) {
    static void (*const builders[])(struct strait_tape *, int) = {build_vit, build_mixer,
                                                                  build_cnn};
    int which = 0;
    while (names[which] != NULL && strcmp(names[which], name) != 0)
        which++;
    if (names[which] == NULL) return STRAIT_FAIL(STRAIT_EINVAL, "%s: no such model", name);
    struct strait_tape *t = NULL;
    STRAIT_TRY(strait_tape_open(&t));
    (void)strait_tape_input(t, n_images, SIDE * SIDE);
    builders[which](t, n_images);
    const strait_err err = strait_tape_check(t);
    if (err != STRAIT_OK) {
        strait_tape_close(&t);
        return err;
    }
    initialise(t, seed);
    *out = t;
    return STRAIT_OK;
}

/* The class has two parts: orientation, four of them, and wavelength, two. */
void strait_vision_draw(uint64_t seed, int64_t step, int n_images, float *images, int *labels) {
    const strait_rng rng = {seed, strait_rng_stream("study.vision")};
    const double pi = 3.14159265358979323846;
    for (int i = 0; i < n_images; i++) {
        const uint64_t at = (uint64_t)step * 1000000U + (uint64_t)i * 1000U;
        float *image = images + (ptrdiff_t)i * SIDE * SIDE;
        labels[i] = (int)(strait_rng_u64(rng, at) % STRAIT_VISION_CLASSES);
        const double angle = labels[i] % 4 * pi / 4.0;
        const double wave = labels[i] / 4 == 0 ? 5.0 : 8.0; // NOLINT(bugprone-integer-division)
        const double phase = 2.0 * pi * strait_rng_uniform(rng, at + 1);
        strait_rng_normals(rng, at + 8, image, (size_t)SIDE * SIDE);
        for (int k = 0; k < SIDE * SIDE; k++) {
            const double along = k % SIDE * cos(angle) + k / SIDE * sin(angle); // NOLINT: pixels
            image[k] = 0.5F * image[k] + (float)sin(2.0 * pi * along / wave + phase);
        }
    }
}
