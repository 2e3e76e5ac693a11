/* vision.h - small image classifiers that are not decoders, trained on synthetic images, to see
 * whether the stable rank of their matrices falls as it does in language models.
 *
 * The images are gratings of 16 x 16 values: the class is the orientation and the wavelength, the
 * phase is random, and noise is added. Nothing is downloaded. */
#pragma once

#include "study/results.h"
#include "study/vision/tape.h"

enum {
    STRAIT_VISION_SIDE = 16,
    STRAIT_VISION_CLASSES = 8
};

/* "vit", "mixer", "cnn"; NULL: past the last. */
const char *strait_vision_name(int i);

/* Builds a model for batches of n images: node 0 is the input [n x 256], the last node the logits.
 * Parameters are initialised from the seed. STRAIT_EINVAL: the name is unknown. The caller closes
 * *out. */
strait_err strait_vision_build(const char *name, int n_images, uint64_t seed,
                               struct strait_tape **out);

/* Writes batch number `step`: n images and their labels. */
void strait_vision_draw(uint64_t seed, int64_t step, int n_images, float *images, int *labels);

typedef struct strait_vision_spec {
    const char *name;
    int64_t steps, every; // every: steps between measurements of the ranks
    int n_images;         // per step
    uint64_t seed;
    double learning_rate; // of AdamW
    int (*must_stop)(void *user);
    void *user; // of must_stop
} strait_vision_spec;

/* Trains a model and returns a record: name, losses of the first and the last steps, seconds,
 * parameters, and "stable_rank" of its matrices. STRAIT_EINTERRUPTED: must_stop asked for it.
 * Blocks for seconds. The caller releases *out. */
strait_err strait_vision_train(const strait_vision_spec *spec, json_t **out);

/* The records of all models as an array: those that the results have, the others trained now for
 * this many steps and appended. must_stop as above. The caller releases *out. */
strait_err strait_vision_results(struct strait_results *results, int64_t steps,
                                 int (*must_stop)(void *user), void *user, json_t **out);
