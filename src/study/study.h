/* study.h - a study: which runs are trained and compared, read from a study file.
 *
 *     name: codecs
 *     about: what each codec costs
 *     seeds: [1, 2, 3]
 *     control: dense                       # differences are against this variant
 *     run: {model: {width: 256}, train: {steps: 200}}      # options of every run
 *     sets: {additions: {model.conv: 4}}   # options with a name, for `use`
 *     variants:
 *       dense: {}
 *       strait: {use: [additions], link.codec.name: strait, control: dense}
 *     axes: {link.emulate.rate: [10mbit, 80mbit]}          # multiply the variants
 *     tune: {steps: 50, train.learning_rate: [0.01, 0.02]} # trials that choose options
 *     columns: [leak, memory_bytes]        # further figures of every run, in a second table
 *     series: [leak]                       # metrics to draw over the steps
 *     time_to_loss: {against: [dense], stages: 8, gflops: 1000} # planned over slow links
 *     more_seeds: {best: 5, seeds: [2, 3]} # further seeds for the best variants and the controls
 *     small: {run: {train.steps: 20}}      # changes of the file for --small; `full` likewise
 *
 * A variant multiplied by the axes gives rows; a row is trained once per seed. docs/studies.md
 * describes every key. */
#pragma once

#include "base/digest/hash.h"
#include "base/file.h"
#include "base/options/yaml_tree.h"
#include "study/strings.h"

#include <stdint.h>

enum {
    STRAIT_STUDY_NAME = 96,
    STRAIT_STUDY_SEEDS = 32,
    STRAIT_STUDY_ROWS = 512,
    STRAIT_STUDY_AGAINST = 6
};

typedef enum strait_study_size {
    STRAIT_STUDY_SMALL,
    STRAIT_STUDY_FULL,
} strait_study_size;

typedef struct strait_study_seeds {
    int64_t items[STRAIT_STUDY_SEEDS];
    int n;
} strait_study_seeds;

/* Trials of a row: every combination of the choices, for fewer steps. */
typedef struct strait_study_tune {
    int64_t steps;          // of a trial; 0: those of the run
    strait_strings choices; // "train.learning_rate=0.01 train.beta2=0.9": sets joined by spaces
} strait_study_tune;

typedef struct strait_study_row {
    char name[STRAIT_STUDY_NAME];
    char control[STRAIT_STUDY_NAME]; // empty: none
    int is_control;                  // another row is compared with it, or the file says so
    int has_one_seed;                // trained after all others, and never with further seeds
    char curve[STRAIT_STUDY_NAME];   // of the plot of loss against bytes or sizes; empty: none
    int is_retested;                 // trained again where its test loss is of another text
    strait_strings sets;             // options of its runs, "key=value", later ones win
    strait_study_tune tune;          // no choices: not tuned
} strait_study_row;

/* How the time to a loss is planned; nothing in `against`: it is not. */
typedef struct strait_study_time {
    strait_strings against; // variants that the others are compared with, their control first
    int stages;
    double gflops; // of the machine of each stage
} strait_study_time;

typedef struct strait_study {
    char name[STRAIT_STUDY_NAME];
    char *about;
    char *analysis;         // bandwidth, gap or stable-rank: a section; NULL: none
    strait_strings columns; // further figures of a run's record, for a second table
    strait_strings series;  // metrics of steps that are drawn over the steps
    strait_strings speed;   // options of all runs that are not part of their keys
    strait_study_time time;
    char test[STRAIT_PATH_MAX];       // token shards evaluated once after a run; empty: none
    char test_text[STRAIT_HASH_TEXT]; // their digest
    strait_study_seeds seeds;
    strait_study_seeds more; // further seeds
    int n_best;              // of the rows that get them, beside the controls
    strait_study_row *rows;
    int n_rows;
} strait_study;

/* How to read a study file. Everything is borrowed for the call. */
typedef struct strait_study_source {
    const char *name; // of the file, for errors
    const char *text;
    size_t bytes;
    const char *folder; // where relative paths of the file start
    strait_study_size size;
    const char *const *sets; // overrides of all runs; also "seeds=1,2", "tune.steps=20"
    int n_sets;
    const char *const *speed; // overrides that make no other runs: microbatches, windows, threads
    int n_speed;
    const char *data;        // folder with train.bin, valid.bin, tokenizer.json, test.bin; or NULL
    const char *const *only; // variants to keep; their controls are kept too
    int n_only;
    const char *const *retest; // variants to train again if their test loss is of another text
    int n_retest;
} strait_study_source;

/* Reads a study and expands its rows. STRAIT_ECONFIG names the file, line and column, or the
 * variant. The caller closes *out. */
strait_err strait_study_read(const strait_study_source *source, strait_study *out);
void strait_study_close(strait_study *study); // accepts a zeroed one

/* Whether the report has this section. */
int strait_study_has(const strait_study *study, const char *analysis);

/* The index of a row, or -1. */
int strait_study_find(const strait_study *study, const char *name);
