/* run.h - the description of a run as plain data, for the modules that carry it out.
 *
 * The public <strait/run.h> shows a run as a handle with keys; here it is a struct whose fields are
 * generated from run_options.def: the option train.steps is run->train.steps. A loaded run is
 * resolved: where a file may give 0 or -1 for "derive it", the field has the derived value, except
 * model.vocab, stages.microbatch, stages.window and device.threads, which need data, measurements
 * or the machine, and the options of link.codec, which the codec completes. */
#pragma once

#include <strait/corpus.h>
#include <strait/run.h>

#include "base/options/options.h"
#include "codec/codec.h"
#include "model/shape.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "plan/groups.h"
#include "plan/place.h"

/* Bytes of text fields, with the final zero. */
enum {
    STRAIT_RUN_NAME = 64,
    STRAIT_RUN_WORD = 16,
    STRAIT_RUN_TEXT = 128,
    STRAIT_RUN_PATH = 1024
};

enum {
    STRAIT_RUN_REPLICAS = 64, // most replicas of a stage
    STRAIT_RUN_MEMBERS = 512  // most replicas of all stages together
};

enum {
    STRAIT_OUTER_FRAGMENTS = 64 // most parts that weights are averaged in
};

/* What replicas that train on their own average besides their weights. */
typedef enum strait_outer_state {
    STRAIT_OUTER_NONE,
    STRAIT_OUTER_MOMENTS,       // the state of the optimizer
    STRAIT_OUTER_MOMENTUM_ONLY, // Muon's momentum; AdamW's moments stay local
} strait_outer_state;

typedef enum strait_run_family {
    STRAIT_RUN_LLAMA,
    STRAIT_RUN_YARDSTICK,
} strait_run_family;

typedef enum strait_run_pipeline {
    STRAIT_RUN_PIPELINE_AUTO, // 1f1b-split, or 1f1b-window where activations are recomputed
    STRAIT_RUN_FILL_DRAIN,
    STRAIT_RUN_1F1B,
    STRAIT_RUN_1F1B_WINDOW,
    STRAIT_RUN_1F1B_SPLIT,
} strait_run_pipeline;

typedef enum strait_run_transport {
    STRAIT_RUN_TLS,    // stages are processes, joined by TLS over TCP
    STRAIT_RUN_INPROC, // stages are threads of one process
} strait_run_transport;

typedef enum strait_run_precision {
    STRAIT_RUN_PRECISION_AUTO, // bf16 on a GPU that has it, else fp32
    STRAIT_RUN_FP32,
    STRAIT_RUN_BF16,
    STRAIT_RUN_FP8, // bf16, but the matrices of blocks are multiplied in 8 bits
} strait_run_precision;

// NOLINTBEGIN(bugprone-macro-parentheses): rows become declarations, not expressions

/* The number of options: every row of the table adds one. */
enum {
    STRAIT_RUN_OPTIONS = 0
#define ROOT(...)   +1
#define OPTION(...) +1
#include "config/run_options.def"
};

/* For each kind of option: the type of its field, and what follows the field's name. */
#define STRAIT_TYPE_INT(min, max)       int64_t
#define STRAIT_TYPE_REAL(min, max)      double
#define STRAIT_TYPE_BOOL                int
#define STRAIT_TYPE_TEXT(bytes)         char
#define STRAIT_TYPE_TEXTS(bytes)        char
#define STRAIT_TYPE_PATH                char
#define STRAIT_TYPE_PATHS               char
#define STRAIT_TYPE_CHOICE(type, names) type
#define STRAIT_TYPE_INTS(min, max)      strait_option_ints
#define STRAIT_TYPE_DURATION(min, max)  double
#define STRAIT_TYPE_RATE(min, max)      double
#define STRAIT_DIM_INT(min, max)
#define STRAIT_DIM_REAL(min, max)
#define STRAIT_DIM_BOOL
#define STRAIT_DIM_TEXT(bytes)  [bytes]
#define STRAIT_DIM_TEXTS(bytes) [bytes]
#define STRAIT_DIM_PATH         [STRAIT_RUN_PATH]
#define STRAIT_DIM_PATHS        [STRAIT_RUN_PATH]
#define STRAIT_DIM_CHOICE(type, names)
#define STRAIT_DIM_INTS(min, max)
#define STRAIT_DIM_DURATION(min, max)
#define STRAIT_DIM_RATE(min, max)

typedef struct strait_run {
#define SECTION(name) struct {
#define END(name) \
    }             \
    name;
#define ROOT(key, kind, initial, help)            STRAIT_TYPE_##kind key STRAIT_DIM_##kind;
#define OPTION(section, key, kind, initial, help) STRAIT_TYPE_##kind key STRAIT_DIM_##kind;
#include "config/run_options.def"
    /* By the order of the table: whether the user set the option, in the file or by an override.
     * strait_run_save writes only those as set. */
    unsigned char is_given[STRAIT_RUN_OPTIONS];
    /* Keys of the file that belong to another codec than an override chose, for a note. */
    char dropped[STRAIT_OPTIONS_DROPPED];
} strait_run;

// NOLINTEND(bugprone-macro-parentheses)

/* The table of all options. */
const strait_options *strait_run_options(void);

/* Whether the user, or the record of a run, sets this option. The key must exist. */
int strait_run_is_given(const strait_run *run, const char *key);

/* As strait_run_load and strait_run_parse, into memory of the caller; *out is untouched on error.
 */
strait_err strait_run_init_file(const char *path, const char *const *sets, int n_sets,
                                strait_run *out);
strait_err strait_run_init_text(const char *name, const char *text, size_t bytes,
                                const char *const *sets, int n_sets, strait_run *out);

/* What the user and the presets set, and defaults elsewhere: nothing is derived from other options,
 * and options are not checked against each other. */
strait_err strait_run_init_options(const char *name, const char *const *sets, int n_sets,
                                   strait_run *out);

/* Derives what the user left out and checks that the options fit together. `path` gives a run
 * without a name its name. */
strait_err strait_run_resolve(const char *path, strait_run *run);

/* strait_run_set for several keys at once: "train.steps=5". */
strait_err strait_run_change(strait_run *run, const char *const *sets, int n_sets);

/* Reads rates such as "80mbit,10mbit" into `out`, at most STRAIT_RUN_MEMBERS of them, and their
 * number. STRAIT_ECONFIG names `key`. */
strait_err strait_run_read_rates(const char *key, const char *text, double out[STRAIT_RUN_MEMBERS],
                                 int *n);

/* Replicas of all stages together. */
int strait_run_members(const strait_run *run);

/* "stage 1", or "stage 1, replica 0" where it has several. Members are the replicas of all stages,
 * in order. */
void strait_run_member_name(const strait_run *run, int member, char *out, size_t size);

/* The text that strait_run_save writes; the caller frees it with strait_alloc_free. */
strait_err strait_run_render(const strait_run *run, char **out_text, size_t *out_bytes);
