/* cmd_tokenize.c - strait tokenize: text to token shards. */
#include <strait/corpus.h>

#include "commands.h"
#include "files.h"
#include "progress.h"
#include "signals.h"

#include <stdio.h>
#include <string.h>

static const char *tokenizer_path, *out, *field, *format = "auto", *chat_template;
static int64_t n_threads, shard_tokens;
static int has_no_end, is_forced;

static const strait_flag flags[] = {
    {"tokenizer", 't', STRAIT_FLAG_TEXT, &tokenizer_path, "FILE", "the tokenizer.json to use"},
    {"out", 'o', STRAIT_FLAG_TEXT, &out, "NAME.bin",
     "the shard to write; its manifest is NAME.json"},
    {"field", 0, STRAIT_FLAG_TEXT, &field, "KEY",
     "the key of the text in JSON Lines (default text)"},
    {"format", 0, STRAIT_FLAG_TEXT, &format, "KIND",
     "text, jsonl, chat or auto (default): jsonl with --field, else by the file's name; chat: "
     "fine-tuning data, JSON Lines with prompt and completion, or with messages"},
    {"template", 0, STRAIT_FLAG_TEXT, &chat_template, "TEXT",
     "a message of a chat as text, such as '{role}: {content}'; default: ChatML's where the "
     "tokenizer has <|im_start|>, else that with a line feed"},
    {"threads", 0, STRAIT_FLAG_INT, &n_threads, "N", "threads (default: one per core)"},
    {"shard-tokens", 0, STRAIT_FLAG_INT, &shard_tokens, "N",
     "split into NAME-00000.bin and so on, N tokens each"},
    {"no-eot", 0, STRAIT_FLAG_SWITCH, &has_no_end, NULL,
     "no end-of-text token after each document"},
    {"force", 'f', STRAIT_FLAG_SWITCH, &is_forced, NULL,
     "replace an existing corpus, once the new one is complete"},
    {0},
};

/* Progress is printed per tenth of the input where there is no terminal to redraw. */
typedef struct display {
    strait_progress progress;
    double start;
    int last_tenth;
} display;

/* The size of standard input is unknown: it has no bar. */
static void draw_bar(double part, char text[40]) {
    char bar[21] = "";
    for (int i = 0; i < 20; i++)
        bar[i] = i < (int)(part * 20.0) ? '#' : '.';
    (void)snprintf(text, 40, " %s %3.0f%%", bar, part * 100.0);
}

/* On a terminal the line is redrawn; a log gets one line per tenth. */
static void show_counts(display *d, const strait_tokenize_counts *counts, int is_final) {
    const double seconds = strait_files_seconds() - d->start + 1e-9;
    const double part = is_final ? 1.0 : (double)counts->bytes_read / (double)counts->bytes_total;
    const int tenth = counts->bytes_total > 0 ? (int)(part * 10.0) : 0;
    char bar[40] = "";
    if (counts->bytes_total > 0) draw_bar(part, bar);
    strait_progress_show(&d->progress, tenth > d->last_tenth, is_final,
                         "tokenize%s  %.1f MB  %lld tokens  %.1f MB/s", bar,
                         (double)counts->bytes / 1e6, (long long)counts->tokens,
                         (double)counts->bytes / 1e6 / seconds);
    if (tenth > d->last_tenth) d->last_tenth = tenth;
}

/* What is read is not yet written: only the end is 100%. */
static void show(void *arg, const strait_tokenize_counts *counts) {
    if (counts->bytes_read < counts->bytes_total || counts->bytes_total == 0)
        show_counts(arg, counts, 0);
}

/* Asked from the threads that read, so that Ctrl-C also interrupts a pipe that blocks. */
static int must_stop(void *arg) {
    (void)arg;
    return strait_signals_count() > 0;
}

/* The names are in the order of strait_text_format. */
static strait_err choose_format(strait_text_format *chosen) {
    static const char *const names[] = {"auto", "text", "jsonl", "chat"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(format, names[i]) != 0) continue;
        *chosen = (strait_text_format)i;
        return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_ECONFIG, "--format %s: expected auto, text, jsonl or chat", format);
}

/* Everything that can be checked without reading the text, which may take hours. */
static strait_err check_flags(int n_args) {
    if (tokenizer_path == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenize: --tokenizer FILE is missing");
    if (out == NULL) return STRAIT_FAIL(STRAIT_ECONFIG, "tokenize: --out NAME.bin is missing");
    STRAIT_TRY(strait_args_check_output("out", out));
    if (n_args == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "tokenize: no files given; - is standard input");
    STRAIT_TRY(strait_args_check_threads(n_threads));
    if (shard_tokens < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--shard-tokens %lld: expected 1 or more",
                           (long long)shard_tokens);
    return STRAIT_OK;
}

/* Dropped characters are a warning: the tokenizer may be meant for another language. */
static void say_counts(display *d, const strait_tokenize_counts *counts) {
    const double seconds = strait_files_seconds() - d->start;
    strait_progress_say(&d->progress,
                        "%s: %lld tokens of %lld document%s, %.2f bytes each, in %lld shard%s; "
                        "%.1f s, %.1f MB/s",
                        out, (long long)counts->tokens, (long long)counts->documents,
                        strait_progress_plural(counts->documents),
                        (double)counts->bytes / (double)counts->tokens, (long long)counts->shards,
                        strait_progress_plural(counts->shards), seconds,
                        (double)counts->bytes / 1e6 / seconds);
    if (counts->trained > 0)
        strait_progress_say(&d->progress, "%lld of the tokens are trained on, %.1f per document",
                            (long long)counts->trained,
                            (double)counts->trained / (double)counts->documents);
    if (counts->dropped > 0)
        strait_progress_say(&d->progress,
                            "warning: %lld characters have no token in %s and were dropped",
                            (long long)counts->dropped, tokenizer_path);
}

/* Documents are separated by an end-of-text token unless the user says otherwise: a model that
 * never sees one never stops. */
static strait_err tokenize(const struct strait_tokenizer *tokenizer, int n_args,
                           const char **args) {
    display d = {.last_tenth = 0};
    strait_progress_init(&d.progress);
    d.start = strait_files_seconds();
    strait_tokenize_spec spec = {
        .tokenizer = tokenizer,
        .text = {.paths = args, .n_paths = n_args, .field = field, .stop = {must_stop, NULL}},
        .out = out,
        .shard_tokens = shard_tokens,
        .n_threads = (int)n_threads,
        .end = has_no_end ? -1 : strait_tokenizer_end(tokenizer),
        .keeps_old = !is_forced,
        .tokenizer_path = tokenizer_path,
        .progress = show,
        .arg = &d};
    STRAIT_TRY(choose_format(&spec.text.format));
    if (chat_template != NULL && spec.text.format != STRAIT_TEXT_CHAT)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--template is for --format chat");
    spec.text.chat_template = chat_template;
    if (!has_no_end && spec.end < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s has no end-of-text token: --no-eot tokenizes without one",
                           tokenizer_path);
    /* From here on Ctrl-C removes the unfinished output. */
    strait_tokenize_counts counts = {0};
    strait_signals_listen(1);
    const strait_err err = strait_tokenize_run(&spec, &counts);
    if (err == STRAIT_EEXISTS) return strait_args_hint(err, "--force replaces an existing corpus");
    STRAIT_TRY(err);
    show_counts(&d, &counts, 1);
    say_counts(&d, &counts);
    return STRAIT_OK;
}

/* The tokenizer is opened after the flags are checked, since a large one takes a second to load. */
static strait_err run(int n_args, const char **args) {
    STRAIT_TRY(check_flags(n_args));
    struct strait_tokenizer *tokenizer = NULL;
    STRAIT_TRY(strait_tokenizer_open(tokenizer_path, &tokenizer));
    const strait_err err = tokenize(tokenizer, n_args, args);
    strait_tokenizer_close(&tokenizer);
    return err;
}

const strait_command strait_cmd_tokenize = {
    .name = "tokenize",
    .usage = "--tokenizer tokenizer.json --out NAME.bin FILES...",
    .summary = "turn text into token shards",
    .about =
        "Reads plain text (a file is a document) and JSON Lines (a line is a document),\n"
        "compressed by gzip, xz or zstd or not, and writes a token shard and its manifest. With\n"
        "--format chat a line is a prompt and its completion, or a list of messages; only\n"
        "completions and messages of the assistant are trained on, and every document has a\n"
        "sequence of its own. \"-\"\n"
        "is standard input. Output is written to NAME.bin.tmp and moved into place when it is\n"
        "complete; Ctrl-C removes it.",
    .flags = flags,
    .run = run,
    .examples =
        (const strait_example[]){
            {"strait tokenize --tokenizer tokenizer.json --out train.bin book.txt",
             "Writes the tokens of a text."},
            {"strait tokenize -t tok.json -o web.bin --field content web.jsonl.zst",
             "Reads the text under a key of compressed JSON Lines."},
            {"strait tokenize -t tok.json -o chats.bin --format chat chats.jsonl",
             "Prepares fine-tuning data."},
            {0}},
};
