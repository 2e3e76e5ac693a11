/* run.h - the description of a run: model, data, training, device. Plain data.
 *
 * A run file is YAML; docs/run-file.md lists its keys, `strait options` prints them. What the file
 * leaves out has a default; model.family, train.optimizer and link.codec.variant choose defaults
 * for other keys. */
#pragma once

#include <strait/error.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_RUN_NAME = 64,
    STRAIT_RUN_WORD = 16,
    STRAIT_RUN_TEXT = 128,
    STRAIT_RUN_PATH = 1024
};

typedef enum strait_run_family {
    STRAIT_RUN_LLAMA,
    STRAIT_RUN_YARDSTICK,
} strait_run_family;

typedef enum strait_run_activation {
    STRAIT_RUN_SWIGLU,
    STRAIT_RUN_RELU2,
} strait_run_activation;

typedef enum strait_run_rope {
    STRAIT_RUN_ROPE_FULL,
    STRAIT_RUN_ROPE_HALF,
} strait_run_rope;

typedef enum strait_run_init {
    STRAIT_RUN_INIT_LLAMA,
    STRAIT_RUN_INIT_YARDSTICK,
} strait_run_init;

typedef enum strait_run_schedule {
    STRAIT_RUN_LINEAR,
    STRAIT_RUN_COSINE,
    STRAIT_RUN_CONSTANT, // until the last decay_steps
} strait_run_schedule;

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

typedef enum strait_run_rounding {
    STRAIT_RUN_ROUND_AUTO,
    STRAIT_RUN_ROUND_NEAREST,
    STRAIT_RUN_ROUND_STOCHASTIC,
} strait_run_rounding;

enum {
    STRAIT_RUN_STAGES = 64
};

/* As base/options.h has lists of numbers. */
typedef struct strait_run_counts {
    int64_t items[STRAIT_RUN_STAGES];
    int n;
} strait_run_counts;

/* Loaded runs are resolved: what the file may give as 0 for "derive it" has its value here, except
 * where noted. */
typedef enum strait_run_precision {
    STRAIT_RUN_PRECISION_AUTO, // bf16 on a gpu, fp32 on a cpu
    STRAIT_RUN_FP32,
    STRAIT_RUN_BF16,
} strait_run_precision;

typedef struct strait_run {
    char name[STRAIT_RUN_NAME];
    struct {
        strait_run_family family;
        int64_t width, layers, heads, kv_heads, head_dim, ffn;
        int64_t vocab; // 0: take it from the tokenizer or the shards
        int64_t context;
        strait_run_activation activation;
        int has_qk_norm, has_qk_gain;
        strait_run_rope rope;
        double rope_theta;
        double attention_scale;
        double softcap; // 0: none
        int is_tied;
        double norm_epsilon;
        strait_run_init init;
        int64_t conv; // taps; 0: none
        int has_qkv_conv, has_anchors, has_value_tables;
        int64_t local_every; // blocks
    } model;
    struct {
        char train[STRAIT_RUN_PATH]; // paths are absolute, or empty where the file has none
        char valid[STRAIT_RUN_PATH];
        char tokenizer[STRAIT_RUN_PATH];
        int64_t valid_tokens; // 0: all
    } data;
    struct {
        int64_t steps, batch_tokens;
        int optimizer; // index of its name in the choices of train.optimizer; 0: adamw
        double learning_rate, embedding_learning_rate, head_learning_rate, gain_learning_rate;
        double conv_learning_rate, mixing_learning_rate, encoder_basis_learning_rate;
        double residual_out_learning_rate, boundary_learning_rate, value_learning_rate,
            anchor_learning_rate;
        int64_t anchor_steps;
        double weight_decay,
            embedding_weight_decay; // the second for embedding and head; gains have none
        double beta1, beta2, epsilon;
        double momentum, momentum_start;
        int64_t momentum_warmup; // steps
        double clip;             // 0: never
        int64_t warmup;          // steps
        strait_run_schedule schedule;
        int64_t decay_steps;        // with STRAIT_RUN_CONSTANT
        double final_learning_rate; // as a fraction of the rate
        int64_t seed;
        int is_recomputed;
        int64_t valid_every, save_every; // 0: only at the end
        int64_t keep_checkpoints;
        int64_t log_every;
    } train;
    struct {
        int64_t count;
        strait_run_counts split; // layers of each stage; empty: balanced
        int64_t microbatch;      // sequences; 0: the trainer chooses
        strait_run_pipeline schedule;
        int64_t window; // microbatches in flight; 0: from measured times and delays
        /* "{stage}" in these becomes the number of the stage. */
        char launch[STRAIT_RUN_TEXT];  // words before a stage's command; empty: none
        char address[STRAIT_RUN_TEXT]; // where a stage listens
        char coordinator[STRAIT_RUN_TEXT];
    } stages;
    struct {
        strait_run_transport transport;
        struct {
            char name[STRAIT_RUN_WORD];
            char variant[STRAIT_RUN_WORD]; // empty: the codec's own default, as 0 is below
            int64_t keep, bits, grad_bits, hidden, anchors, rank, tile;
            int64_t context, encoder; // of strait's variant context
            double encoder_basis;     // the same
            int has_gains;            // the same
            strait_run_rounding rounding;
            int has_feedback;
            int64_t confine_every;
            double leak_limit;
            int64_t grassmann_every;
            double grassmann_rate;
        } codec;
        struct {
            double rate;          // bits a second, each way; 0: as fast as it goes
            double delay, jitter; // seconds, one way
            double loss;          // share of packets
            double drop_after;    // seconds; 0: never
        } emulate;
        struct {
            double rate;  // bits a second; 0: no meter
            double delay; // seconds, one way
        } meter;
        int64_t streams; // TCP streams of a link; 0: 1 where BBR is allowed, else 4
        double deadline; // seconds without a sign of progress before a run is given up
    } link;
    struct {
        char kind[STRAIT_RUN_NAME];
        int64_t ordinal;
        int64_t threads; // 0: one for each core
        strait_run_precision precision;
    } device;
} strait_run;

/* Reads a run file and then the overrides, "train.learning_rate=0.1". Relative paths in the file
 * start at its folder, those in overrides at the current folder. STRAIT_ECONFIG names the file,
 * line and column, or the override, or the keys that do not fit together; *out is then untouched.
 */
strait_err strait_run_load(const char *path, const char *const *sets, int n_sets, strait_run *out);

/* The same from memory; `name` stands for the file in errors and relative paths stay relative. */
strait_err strait_run_parse(const char *name, const char *text, size_t bytes,
                            const char *const *sets, int n_sets, strait_run *out);

/* Writes the run as a run file that loads to the same values, in one move. */
strait_err strait_run_save(const strait_run *run, const char *path);

#ifdef __cplusplus
}
#endif
