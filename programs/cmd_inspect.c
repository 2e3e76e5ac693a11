/* cmd_inspect.c - strait inspect PATH...: what is this run, checkpoint, shard, tokenizer or file?
 */
#include "base/alloc.h"
#include "base/file.h"
#include "commands.h"
#include "config/description.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "metrics/metrics.h"
#include "progress.h"
#include "store/checkpoint.h"

#include <stdio.h>
#include <string.h>

enum {
    TENSORS_SHOWN = 24,
    POINTS_SHOWN = 12,
    JSON_MAX = 1 << 28
};

static int shows_all, verifies;

static const strait_flag flags[] = {
    {"all", 'a', STRAIT_FLAG_SWITCH, &shows_all, NULL, "list every tensor and every loss"},
    {"verify", 0, STRAIT_FLAG_SWITCH, &verifies, NULL, "read shards whole: hashes and every id"},
    {0},
};

static void print_tensors(const struct strait_safetensors *file) {
    const int n = strait_safetensors_count(file);
    double values = 0.0;
    for (int i = 0; i < n; i++) {
        const strait_safetensor *t = strait_safetensors_at(file, i);
        double count = 1.0;
        for (int d = 0; d < t->n_dims; d++)
            count *= (double)t->dims[d];
        values += count;
        if (!shows_all && i >= TENSORS_SHOWN) continue;
        printf("    %-40s %-5s", t->name, t->dtype);
        for (int d = 0; d < t->n_dims; d++)
            printf("%s%lld", d == 0 ? " " : " x ", (long long)t->dims[d]);
        printf("\n");
    }
    if (!shows_all && n > TENSORS_SHOWN)
        printf("    and %d more (--all lists them)\n", n - TENSORS_SHOWN);
    printf("    %d tensors, %.3fM values\n", n, values / 1e6);
}

static strait_err inspect_safetensors(const char *path) {
    struct strait_safetensors *file = NULL;
    STRAIT_TRY(strait_safetensors_open(path, &file));
    printf("%s: safetensors\n", path);
    print_tensors(file);
    strait_safetensors_close(&file);
    return STRAIT_OK;
}

static strait_err print_model(const strait_run_plan *plan) {
    static strait_description words; // large
    int64_t parameters = 0;
    STRAIT_TRY(strait_run_plan_params(plan, &parameters));
    strait_describe(plan, &words);
    printf("  model");
    for (int i = 0; i < words.n; i++)
        printf(" %s=%s", words.pairs[i].key, words.pairs[i].value);
    printf("\n  parameters %.3fM\n", (double)parameters / 1e6);
    return STRAIT_OK;
}

static strait_err inspect_checkpoint(const char *path) {
    struct strait_checkpoint *checkpoint = NULL;
    strait_run_plan plan;
    STRAIT_TRY(strait_checkpoint_open(path, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    printf("%s: checkpoint after step %lld, whole\n", strait_checkpoint_path(checkpoint),
           (long long)strait_checkpoint_step(checkpoint));
    const char *print = strait_checkpoint_tokenizer(checkpoint);
    printf("  tokenizer %s\n", print[0] != '\0' ? print : "unknown");
    strait_err err = strait_describe_read(checkpoint, &plan);
    if (err == STRAIT_OK) err = print_model(&plan);
    const char *name = NULL;
    const struct strait_safetensors *file;
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, &name)) != NULL; i++) {
        printf("  %s\n", name);
        print_tensors(file);
    }
    strait_checkpoint_close(&checkpoint);
    return err;
}

/* The first and last losses, and some between. */
static void print_losses(const strait_metrics_point *points, int n, int is_valid) {
    int n_kind = 0;
    for (int i = 0; i < n; i++)
        n_kind += points[i].is_valid_loss == is_valid;
    if (n_kind == 0) return;
    printf("  %s loss:", is_valid ? "validation" : "training");
    int seen = 0;
    int shown = 0;
    for (int i = 0; i < n; i++) {
        if (points[i].is_valid_loss != is_valid) continue;
        const int is_due = shows_all || seen == n_kind - 1 ||
                           (int64_t)seen * POINTS_SHOWN >= (int64_t)shown * n_kind;
        seen++;
        if (!is_due) continue;
        shown++;
        printf(" %lld:%.4f", (long long)points[i].step, points[i].loss);
    }
    printf("\n");
}

/* Each by its step; which are damaged, and how the last of those is, as the error. */
static strait_err print_checkpoints(const char *path) {
    int64_t *steps = NULL;
    int n = 0;
    strait_err err = STRAIT_OK;
    STRAIT_TRY(strait_checkpoint_list(path, &steps, &n));
    printf("  checkpoints:%s", n == 0 ? " none" : "");
    for (int i = 0; i < n; i++) {
        char folder[STRAIT_PATH_MAX];
        struct strait_checkpoint *checkpoint = NULL;
        strait_err one = strait_file_path(folder, "%s/checkpoints/%08lld", path,
                                          (long long)steps[i]);
        if (one == STRAIT_OK)
            one = strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint);
        strait_checkpoint_close(&checkpoint);
        printf(" %lld%s", (long long)steps[i], one == STRAIT_OK ? "" : " (damaged)");
        if (one != STRAIT_OK) err = one;
    }
    printf("\n");
    strait_alloc_free(steps);
    return err;
}

/* A run that has just begun may have no more than its run file. */
static int is_run(const char *path) {
    static const char *const signs[] = {"run.yaml", "metrics.jsonl", "checkpoints"};
    char file[STRAIT_PATH_MAX];
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strait_file_path(file, "%s/%s", path, signs[i]) == STRAIT_OK &&
            strait_file_exists(file))
            return 1;
    return 0;
}

static strait_err inspect_run(const char *path) {
    char file[STRAIT_PATH_MAX];
    if (!is_run(path))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: holds neither a run nor a checkpoint; a run's folder is runs/NAME",
                           path);
    strait_metrics_point *points = NULL;
    int n = 0;
    STRAIT_TRY(strait_file_path(file, "%s/metrics.jsonl", path));
    if (strait_file_exists(file)) STRAIT_TRY(strait_metrics_read(file, &points, &n));
    printf("%s: run\n", path);
    print_losses(points, n, 0);
    print_losses(points, n, 1);
    strait_alloc_free(points);
    return print_checkpoints(path);
}

static int ends_with(const char *text, const char *ending) {
    const size_t n = strlen(text);
    const size_t m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

static strait_err inspect_corpus(const char *path) {
    struct strait_corpus *corpus = NULL;
    STRAIT_TRY(strait_corpus_open(path, &corpus));
    printf("%s: %lld tokens in %d shard%s\n", path, (long long)corpus->n_tokens, corpus->n_shards,
           strait_progress_plural(corpus->n_shards));
    printf("  vocabulary %lld\n  tokenizer %s\n", (long long)corpus->vocab,
           corpus->tokenizer[0] != '\0' ? corpus->tokenizer : "unknown");
    for (int i = 0; i < corpus->n_shards; i++)
        printf("  %s: %lld tokens of %d bytes\n", corpus->paths[i],
               (long long)corpus->shards[i].n_tokens, corpus->shards[i].id_bytes);
    const strait_err err = verifies ? strait_corpus_verify(corpus) : STRAIT_OK;
    if (err == STRAIT_OK && verifies)
        printf(ends_with(path, ".bin")
                   ? "  every id verified; its hash is in the manifest beside it\n"
                   : "  verified\n");
    strait_corpus_close(&corpus);
    return err;
}

static strait_err inspect_tokenizer(const char *path) {
    struct strait_tokenizer *tokenizer = NULL;
    STRAIT_TRY(strait_tokenizer_open(path, &tokenizer));
    printf("%s: tokenizer, %d tokens\n  fingerprint %s\n  end of text %d\n", path,
           (int)strait_tokenizer_vocab(tokenizer), strait_tokenizer_fingerprint(tokenizer),
           (int)strait_tokenizer_end(tokenizer));
    strait_tokenizer_close(&tokenizer);
    return STRAIT_OK;
}

/* A .json is a manifest of shards, which says so, or a tokenizer. */
static strait_err inspect_json(const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_read(path, JSON_MAX, &text, &bytes));
    const int is_corpus = strstr(text, "\"strait-corpus\"") != NULL;
    strait_alloc_free(text);
    return is_corpus ? inspect_corpus(path) : inspect_tokenizer(path);
}

static strait_err inspect(const char *path) {
    char manifest[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(manifest, "%s/manifest.json", path));
    if (!strait_file_exists(path))
        return STRAIT_FAIL(STRAIT_EIO, "%s: there is no such file or folder", path);
    if (strait_file_is_folder(path))
        return strait_file_exists(manifest) ? inspect_checkpoint(path) : inspect_run(path);
    if (ends_with(path, ".safetensors")) return inspect_safetensors(path);
    if (ends_with(path, ".bin")) return inspect_corpus(path);
    if (ends_with(path, ".json")) return inspect_json(path);
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "%s: inspect knows run and checkpoint folders, .bin, .json, .safetensors",
                       path);
}

static strait_err run_inspect(int n_words, const char **words) {
    if (n_words < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG, "inspect wants a run, checkpoint, shard or tokenizer");
    for (int i = 0; i < n_words; i++)
        STRAIT_TRY(inspect(words[i]));
    return STRAIT_OK;
}

const strait_command strait_cmd_inspect = {
    .name = "inspect",
    .usage = "PATH... [flags]",
    .summary = "look into runs, checkpoints, shards and tokenizers",
    .about = "Says what a run folder, a checkpoint folder, a .bin shard, a shard manifest, a\n"
             "tokenizer.json or a .safetensors file holds, and whether it is whole.",
    .flags = flags,
    .run = run_inspect,
};
