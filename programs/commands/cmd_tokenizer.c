/* cmd_tokenizer.c - strait tokenizer: learn a tokenizer, look at one, try one. */
#include <strait/program.h>
#include <strait/tokenizer.h>

#include "commands.h"
#include "files.h"
#include "progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *tokenizer_path, *out, *pattern = "gpt2", *field;
/* Flags of all actions share one table, so an action ignores those of the others. */
static int64_t vocab, n_threads, limit_mb;
static int is_forced, has_stats, has_template;
static strait_flag_list specials;

static const strait_flag flags[] = {
    {"vocab", 0, STRAIT_FLAG_INT, &vocab, "N", "train: how many tokens"},
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "FILE", "train: the tokenizer.json to write"},
    {"pattern", 0, STRAIT_FLAG_TEXT, &pattern, "NAME",
     "train: how text is split into words: gpt2 (default) or llama3"},
    {"special", 0, STRAIT_FLAG_LIST, &specials, "TEXT",
     "train: a special token (default <|endoftext|>); repeat"},
    {"limit-mb", 0, STRAIT_FLAG_INT, &limit_mb, "N", "train: learn from the first N MB only"},
    {"threads", 0, STRAIT_FLAG_INT, &n_threads, "N", "train: threads (default: one per core)"},
    {"force", 'f', STRAIT_FLAG_SWITCH, &is_forced, NULL, "train: overwrite an existing file"},
    {"tokenizer", 't', STRAIT_FLAG_TEXT, &tokenizer_path, "FILE",
     "encode, decode, info: the tokenizer.json"},
    {"field", 0, STRAIT_FLAG_TEXT, &field, "KEY",
     "train, encode: the key of the text in JSON Lines"},
    {"template", 0, STRAIT_FLAG_SWITCH, &has_template, NULL,
     "encode: add the tokens that the file's template puts around a text"},
    {"stats", 0, STRAIT_FLAG_SWITCH, &has_stats, NULL,
     "encode: print a JSON line about speed to standard error"},
    {0},
};

/* A log gets one line per tenth of each phase, a terminal a line that is redrawn. */
typedef struct display {
    strait_progress progress;
    int last_tenth, was_learning;
} display;

/* The two phases of training have their own scale, so each starts at 0%. */
static void show(void *arg, const strait_tokenizer_progress *p) {
    display *d = arg;
    const double part = p->total > 0 ? (double)p->done / (double)p->total : 0.0;
    const int tenth = (int)(part * 10.0);
    if (p->is_learning != d->was_learning) d->last_tenth = 0;
    d->was_learning = p->is_learning;
    const int is_due = tenth > d->last_tenth;
    if (p->is_learning)
        strait_progress_show(&d->progress, is_due, 0, "learning  %3.0f%%  %lld of %lld tokens",
                             part * 100.0, (long long)p->done, (long long)p->total);
    else
        strait_progress_show(&d->progress, is_due, 0, "reading   %3.0f%%  %.1f MB of files",
                             part * 100.0, (double)p->done / 1e6);
    if (is_due) d->last_tenth = tenth;
}

/* Refuses to overwrite an input even with --force. */
static strait_err check_training(int n_args, const char **args) {
    if (vocab == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenizer train: --vocab N is missing; try 2048 for a "
                                           "megabyte of text, 32768 for a gigabyte");
    if (vocab < 257 || vocab > 1 << 20)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--vocab %lld: expected 257 to %d", (long long)vocab,
                           1 << 20);
    if (out == NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "tokenizer train: --out FILE is missing");
    if (n_args == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenizer train: no files given; - is standard input");
    STRAIT_TRY(strait_args_check_threads(n_threads));
    if (limit_mb < 0 || limit_mb > 1 << 30)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--limit-mb %lld: expected 1 or more",
                           (long long)limit_mb);
    STRAIT_TRY(strait_args_check_output("out", out));
    if (!is_forced && strait_files_exists(out))
        return STRAIT_FAIL(STRAIT_EEXISTS, "%s already exists: --force overwrites it", out);
    for (int i = 0; i < n_args; i++)
        if (strait_files_is_same(out, args[i]))
            return STRAIT_FAIL(STRAIT_ECONFIG, "--out %s is one of the texts: choose another", out);
    return STRAIT_OK;
}

/* The special token that ends a document is added by default, because tokenize requires one. */
static strait_err train(int n_args, const char **args) {
    STRAIT_TRY(check_training(n_args, args));
    if (specials.n == 0) specials = (strait_flag_list){{"<|endoftext|>"}, 1};
    display d = {.last_tenth = 0};
    strait_progress_init(&d.progress);
    const double start = strait_files_seconds();
    const strait_tokenizer_train_spec spec = {
        .text = {.paths = args, .n_paths = n_args, .field = field},
        .vocab = (int32_t)vocab,
        .pattern = pattern,
        .specials = specials.items,
        .n_specials = specials.n,
        .n_threads = (int)n_threads,
        .limit_bytes = limit_mb * 1000000,
        .progress = show,
        .arg = &d};
    int32_t n_tokens = 0;
    STRAIT_TRY(strait_tokenizer_train(&spec, out, &n_tokens));
    strait_progress_say(&d.progress, "%s: %d tokens, learned in %.1f s", out, n_tokens,
                        strait_files_seconds() - start);
    /* Small texts run out of pairs before the vocabulary is full. */
    if (n_tokens < vocab)
        strait_progress_say(
            &d.progress,
            "warning: no pair of tokens in the text occurs twice any more, so there "
            "are fewer than the %lld requested",
            (long long)vocab);
    return STRAIT_OK;
}

/* The tokenizer of --tokenizer. */
static strait_err open_chosen(const char *command, struct strait_tokenizer **tokenizer) {
    if (tokenizer_path == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenizer %s: --tokenizer FILE is missing", command);
    return strait_tokenizer_open(tokenizer_path, tokenizer);
}

/* Encodes documents and counts. Only encoding is timed, not reading and printing. */
typedef struct encoding {
    struct strait_encoder *encoder;
    size_t bytes, tokens;
    double seconds;
} encoding;

/* One line of ids per document, so that the output has as many lines as the input has documents. */
static strait_err encode_document(void *user, const void *text, size_t n) {
    encoding *e = user;
    const int32_t *ids = NULL;
    size_t n_ids = 0;
    const double start = strait_files_seconds();
    STRAIT_TRY(strait_encoder_encode(e->encoder, text, n, has_template ? STRAIT_ENCODE_TEMPLATE : 0,
                                     &ids, &n_ids));
    e->seconds += strait_files_seconds() - start;
    e->bytes += n;
    e->tokens += n_ids;
    for (size_t i = 0; i < n_ids; i++)
        printf(i + 1 < n_ids ? "%d " : "%d\n", ids[i]);
    return STRAIT_OK;
}

/* Without files standard input is read, so that the command can stand in a pipe. */
static strait_err encode(int n_args, const char **args) {
    static const char *input[] = {"-"};
    const strait_text_spec spec = {
        .paths = n_args > 0 ? args : input, .n_paths = n_args > 0 ? n_args : 1, .field = field};
    struct strait_tokenizer *tokenizer = NULL;
    encoding e = {.bytes = 0};
    strait_err err = open_chosen("encode", &tokenizer);
    if (err == STRAIT_OK) err = strait_encoder_open(tokenizer, &e.encoder);
    if (err == STRAIT_OK) err = strait_text_visit(&spec, encode_document, &e);
    if (err == STRAIT_OK && has_stats)
        fprintf(stderr,
                "{\"bytes\": %zu, \"tokens\": %zu, \"seconds\": %.6f, \"mb_per_s\": %.3f}\n",
                e.bytes, e.tokens, e.seconds, (double)e.bytes / 1e6 / (e.seconds + 1e-12));
    strait_encoder_close(&e.encoder);
    strait_tokenizer_close(&tokenizer);
    return err;
}

/* Ids are checked before the first is decoded, so that an error prints no text. */
static strait_err read_id(const struct strait_tokenizer *tokenizer, const char *word, int32_t *id) {
    char *end = NULL;
    errno = 0;
    const long value = strtol(word, &end, 10);
    if (errno != 0 || end == word || *end != '\0' || value < 0 ||
        value >= strait_tokenizer_vocab(tokenizer))
        return STRAIT_FAIL(STRAIT_ECONFIG, "\"%s\": expected an id from 0 to %d", word,
                           strait_tokenizer_vocab(tokenizer) - 1);
    *id = (int32_t)value;
    return STRAIT_OK;
}

/* Allocated with calloc, not by the library: its allocator is not part of the public interface. */
static strait_err decode_words(const struct strait_tokenizer *tokenizer, int n_args,
                               const char **args) {
    int32_t *ids = calloc((size_t)n_args, sizeof *ids);
    char *text = NULL;
    size_t n_bytes = 0;
    strait_err err = ids != NULL ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "no memory for the ids");
    for (int i = 0; err == STRAIT_OK && i < n_args; i++)
        err = read_id(tokenizer, args[i], &ids[i]);
    if (err == STRAIT_OK)
        err = strait_tokenizer_decode(tokenizer, ids, (size_t)n_args, &text, &n_bytes);
    if (err == STRAIT_OK) (void)fwrite(text, 1, n_bytes, stdout);
    strait_free(text);
    free(ids);
    return err;
}

/* Ids are words of the command line, not a file: the command is for trying a tokenizer. */
static strait_err decode(int n_args, const char **args) {
    struct strait_tokenizer *tokenizer = NULL;
    if (n_args == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenizer decode: no ids given; they follow the flags");
    STRAIT_TRY(open_chosen("decode", &tokenizer));
    const strait_err err = decode_words(tokenizer, n_args, args);
    strait_tokenizer_close(&tokenizer);
    return err;
}

/* The file may be given as a word or with --tokenizer, as for the other actions. */
static strait_err info(int n_args, const char **args) {
    struct strait_tokenizer *tokenizer = NULL;
    if (tokenizer_path == NULL && n_args > 0) {
        tokenizer_path = *args++;
        n_args--;
    }
    STRAIT_TRY(strait_args_expect_none("tokenizer info after its file", n_args, args));
    STRAIT_TRY(open_chosen("info", &tokenizer));
    printf("tokens       %d\nvocabulary   %d\nfingerprint  %s\nend of text  %d\nlong texts   %s\n",
           strait_tokenizer_count(tokenizer), strait_tokenizer_vocab(tokenizer),
           strait_tokenizer_fingerprint(tokenizer), strait_tokenizer_end(tokenizer),
           strait_tokenizer_can_split_lines(tokenizer) ? "cut after lines for several threads"
                                                       : "encoded whole");
    strait_tokenizer_close(&tokenizer);
    return STRAIT_OK;
}

/* train and info name a file as an argument, the others with --tokenizer. */
static const strait_action actions[] = {
    {"train", "--vocab N --out tokenizer.json FILES...", train},
    {"encode", "--tokenizer FILE [FILES...]", encode},
    {"decode", "--tokenizer FILE IDS...", decode},
    {"info", "FILE", info},
    {0},
};

const strait_command strait_cmd_tokenizer = {
    .name = "tokenizer",
    .summary = "train a tokenizer, or try one",
    .about =
        "train learns byte-level byte-pair encoding from text and writes a tokenizer.json that\n"
        "Hugging Face tokenizers read too. encode prints the ids of each document on a line;\n"
        "decode prints the text of ids.",
    .flags = flags,
    .actions = actions,
    .examples =
        (const strait_example[]){
            {"strait tokenizer train --vocab 2048 --out tokenizer.json book.txt",
             "Learns a tokenizer from text."},
            {"strait tokenizer encode --tokenizer tokenizer.json book.txt",
             "Prints the ids of a text."},
            {"strait tokenizer info tokenizer.json",
             "Describes a tokenizer, also one of Hugging Face."},
            {0}},
};
