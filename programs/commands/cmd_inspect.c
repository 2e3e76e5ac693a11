/* cmd_inspect.c - strait inspect PATH...: describe a run, checkpoint, shard, tokenizer or file. */
#include <strait/checkpoint.h>
#include <strait/corpus.h>
#include <strait/metrics.h>
#include <strait/program.h>
#include <strait/tokenizer.h>

#include "commands.h"
#include "files.h"
#include "progress.h"

#include <stdio.h>
#include <string.h>

/* Enough to see the structure of a model or the course of a loss on one screen. */
enum {
    TENSORS_SHOWN = 24,
    POINTS_SHOWN = 12
};

static int shows_all, verifies;

static const strait_flag flags[] = {
    {"all", 'a', STRAIT_FLAG_SWITCH, &shows_all, NULL, "list every tensor and every loss"},
    {"verify", 0, STRAIT_FLAG_SWITCH, &verifies, NULL,
     "read shards completely and check hashes and every id"},
    {0},
};

/* Counts the values of all tensors, also of those that are not listed. */
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

/* Also for files that other programs wrote. */
static strait_err inspect_safetensors(const char *path) {
    struct strait_safetensors *file = NULL;
    STRAIT_TRY(strait_safetensors_open(path, &file));
    printf("%s: safetensors\n", path);
    print_tensors(file);
    strait_safetensors_close(&file);
    return STRAIT_OK;
}

/* Called for every property of the model; all go on one line. */
static void print_property(void *user, const char *key, const char *value) {
    (void)user;
    printf(" %s=%s", key, value);
}

/* A model that this version does not know is still listed, with its tensors; the error is returned
 * at the end. */
static strait_err print_checkpoint(const struct strait_checkpoint *checkpoint) {
    const char *fingerprint = strait_checkpoint_tokenizer(checkpoint);
    const struct strait_safetensors *file;
    const char *name = NULL;
    int64_t parameters = 0;
    printf("%s: checkpoint after step %lld, undamaged\n", strait_checkpoint_path(checkpoint),
           (long long)strait_checkpoint_step(checkpoint));
    printf("  tokenizer %s\n  model", fingerprint[0] != '\0' ? fingerprint : "unknown");
    const strait_err err = strait_checkpoint_describe(checkpoint, print_property, NULL,
                                                      &parameters);
    if (err != STRAIT_OK)
        printf(" unknown\n");
    else
        printf("\n  parameters %.3fM\n", (double)parameters / 1e6);
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, &name)) != NULL; i++) {
        printf("  %s\n", name);
        print_tensors(file);
    }
    return err;
}

/* Opening verifies every hash: "undamaged" is checked, not assumed. */
static strait_err inspect_checkpoint(const char *path) {
    struct strait_checkpoint *checkpoint = NULL;
    STRAIT_TRY(strait_checkpoint_open(path, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    const strait_err err = print_checkpoint(checkpoint);
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

/* Who took part in which averages (train.outer): "4 [0,1,2], 8 to 160 [0,2]". */
static void print_averages(const strait_metrics_point *points, int n) {
    int n_shown = 0;
    for (int i = 0; i < n; i++) {
        const strait_metrics_point *first = &points[i], *last = first;
        const char *separator = "";
        if (first->averaged == 0) continue;
        for (; i < n && (points[i].averaged == 0 || points[i].averaged == first->averaged); i++)
            if (points[i].averaged != 0) last = &points[i];
        i--; // the loop advances
        if (!shows_all && n_shown == POINTS_SHOWN) {
            printf(", and more (--all lists them)");
            break;
        }
        printf("%s %lld", n_shown++ == 0 ? "  averaged:" : ",", (long long)first->step);
        if (last != first) printf(" to %lld", (long long)last->step);
        for (int k = 0; k < 64; k++) {
            if ((first->averaged >> k & 1) == 0) continue;
            printf("%s%d", separator[0] == '\0' ? " [" : separator, k);
            separator = ",";
        }
        printf("]");
    }
    if (n_shown > 0) printf("\n");
}

/* Prints the step of each checkpoint and whether it is damaged. Returns the error of the last
 * damaged one, so that the exit code shows it. */
static strait_err print_checkpoints(const char *path) {
    int64_t *steps = NULL;
    int n = 0;
    strait_err err = STRAIT_OK;
    STRAIT_TRY(strait_checkpoint_list(path, &steps, &n));
    printf("  checkpoints:%s", n == 0 ? " none" : "");
    for (int i = 0; i < n; i++) {
        char folder[STRAIT_FILES_PATH];
        struct strait_checkpoint *checkpoint = NULL;
        strait_err one = strait_files_path(folder, "%s/checkpoints/%08lld", path,
                                           (long long)steps[i]);
        if (one == STRAIT_OK)
            one = strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint);
        strait_checkpoint_close(&checkpoint);
        printf(" %lld%s", (long long)steps[i], one == STRAIT_OK ? "" : " (damaged)");
        if (one != STRAIT_OK) err = one;
    }
    printf("\n");
    strait_free(steps);
    return err;
}

/* A run that has just begun may have nothing but its run file. */
static int is_run(const char *path) {
    static const char *const signs[] = {"run.yaml", "metrics.jsonl", "checkpoints"};
    char file[STRAIT_FILES_PATH];
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strait_files_path(file, "%s/%s", path, signs[i]) == STRAIT_OK &&
            strait_files_exists(file))
            return 1;
    return 0;
}

/* Works while the run is being trained: it only reads. */
static strait_err inspect_run(const char *path) {
    char file[STRAIT_FILES_PATH];
    if (!is_run(path))
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "%s: neither a run nor a checkpoint; the folder of a run is runs/NAME by default",
            path);
    strait_metrics_point *points = NULL;
    int n = 0;
    STRAIT_TRY(strait_files_path(file, "%s/metrics.jsonl", path));
    if (strait_files_exists(file)) STRAIT_TRY(strait_metrics_read(file, &points, &n));
    printf("%s: run\n", path);
    print_losses(points, n, 0);
    print_losses(points, n, 1);
    print_averages(points, n);
    strait_free(points);
    return print_checkpoints(path);
}

/* Files are told apart by their names, because their contents may be damaged. */
static int ends_with(const char *text, const char *ending) {
    const size_t n = strlen(text);
    const size_t m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* A shard alone has no hash; a manifest has those of all its shards. */
static strait_err verify_corpus(const struct strait_corpus *corpus) {
    strait_corpus_shard_info first;
    if (!verifies) return STRAIT_OK;
    STRAIT_TRY(strait_corpus_verify(corpus));
    strait_corpus_describe_shard(corpus, 0, &first);
    printf(first.hash[0] == '\0' ? "  every id verified; no manifest beside it has its hash\n"
                                 : "  verified\n");
    return STRAIT_OK;
}

/* Opening checks headers and lengths; hashes and ids only with --verify, which reads everything. */
static strait_err inspect_corpus(const char *path) {
    struct strait_corpus *corpus = NULL;
    strait_corpus_info info;
    STRAIT_TRY(strait_corpus_open(path, &corpus));
    strait_corpus_describe(corpus, &info);
    printf("%s: %lld tokens in %d shard%s\n", path, (long long)info.n_tokens, info.n_shards,
           strait_progress_plural(info.n_shards));
    if (info.n_documents > 0) printf("  %lld documents\n", (long long)info.n_documents);
    printf("  vocabulary %lld\n  tokenizer %s\n", (long long)info.vocab,
           info.tokenizer[0] != '\0' ? info.tokenizer : "unknown");
    for (int i = 0; i < info.n_shards; i++) {
        strait_corpus_shard_info shard;
        strait_corpus_describe_shard(corpus, i, &shard);
        printf("  %s: %lld tokens of %d bytes\n", shard.path, (long long)shard.n_tokens,
               shard.id_bytes);
    }
    const strait_err err = verify_corpus(corpus);
    strait_corpus_close(&corpus);
    return err;
}

/* Opening reads every token, so a damaged file is found here. */
static strait_err inspect_tokenizer(const char *path) {
    struct strait_tokenizer *tokenizer = NULL;
    STRAIT_TRY(strait_tokenizer_open(path, &tokenizer));
    printf("%s: tokenizer, %d tokens\n  fingerprint %s\n  end of text %d\n", path,
           (int)strait_tokenizer_vocab(tokenizer), strait_tokenizer_fingerprint(tokenizer),
           (int)strait_tokenizer_end(tokenizer));
    strait_tokenizer_close(&tokenizer);
    return STRAIT_OK;
}

/* A .json file is a manifest of shards, which states its format, or a tokenizer. */
static strait_err inspect_json(const char *path) {
    return strait_files_mentions(path, "\"strait-corpus\"") ? inspect_corpus(path)
                                                            : inspect_tokenizer(path);
}

/* Folders are told apart by their files, files by their names. */
static strait_err inspect(const char *path) {
    char manifest[STRAIT_FILES_PATH];
    STRAIT_TRY(strait_files_path(manifest, "%s/manifest.json", path));
    if (!strait_files_exists(path))
        return STRAIT_FAIL(STRAIT_EIO, "%s: no such file or folder", path);
    if (strait_files_is_folder(path))
        return strait_files_exists(manifest) ? inspect_checkpoint(path) : inspect_run(path);
    if (ends_with(path, ".safetensors")) return inspect_safetensors(path);
    if (ends_with(path, ".bin")) return inspect_corpus(path);
    if (ends_with(path, ".json")) return inspect_json(path);
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "%s: not a run or checkpoint folder, .bin, .json or .safetensors file",
                       path);
}

/* Stops at the first error, so that the exit code belongs to the last path that was printed. */
static strait_err run_inspect(int n_args, const char **args) {
    if (n_args < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "inspect needs the path of a run, checkpoint, shard or tokenizer");
    for (int i = 0; i < n_args; i++)
        STRAIT_TRY(inspect(args[i]));
    return STRAIT_OK;
}

const strait_command strait_cmd_inspect = {
    .name = "inspect",
    .usage = "PATH... [flags]",
    .summary = "describe runs, checkpoints, shards and tokenizers",
    .about = "Describes a run folder, a checkpoint folder, a .bin shard, a shard manifest, a\n"
             "tokenizer.json or a .safetensors file, and checks whether it is complete.",
    .flags = flags,
    .run = run_inspect,
    .examples = (const strait_example[]){{"strait inspect runs/tiny",
                                          "Describes a run and its checkpoints."},
                                         {"strait inspect corpus/train.bin --verify",
                                          "Also compares every byte with the manifest's hash."},
                                         {0}},
};
