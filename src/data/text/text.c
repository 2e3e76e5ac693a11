#include "data/text/text.h"

#include "base/alloc.h"
#include "base/json.h"
#include "data/text/chat.h"
#include "data/text/input.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_BYTES = 1 << 18,
    DOCUMENT_MAX = 1 << 30 // bytes of a document or line that must be in memory as a whole
};

struct strait_text {
    strait_text_spec spec;
    size_t piece_bytes; // 0: plain documents are not split
    int next_path;
    const char *path;           // of `input`
    struct strait_input *input; // NULL: between files
    int is_lines;               // the current file is JSON Lines
    int64_t line;               // its current line, from 1
    int64_t n_read_before;      // bytes of the files already closed
    int64_t n_total;            // bytes of all files; 0 if one is unknown
    strait_buffer ahead;        // read but not yet returned: ahead.data[used..n)
    size_t used;
    strait_chat chat; // of the current line, if the format is that; runs from next_run on are left
    size_t next_run;
};

static int64_t size_of(const char *path) {
    struct stat info;
    return strcmp(path, "-") != 0 && stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

static int is_missing(const char *path) {
    return strcmp(path, "-") != 0 && access(path, F_OK) != 0 && errno == ENOENT;
}

strait_err strait_text_open(const strait_text_spec *spec, size_t piece_bytes,
                            struct strait_text **out) {
    struct strait_text *text = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *text, "text", (void **)&text));
    text->spec = *spec;
    text->piece_bytes = piece_bytes;
    for (int i = 0; i < spec->n_paths; i++) {
        if (is_missing(spec->paths[i])) { // report it now, not after hours
            const strait_err err = STRAIT_FAIL(STRAIT_EIO, "%s: no such file", spec->paths[i]);
            strait_text_close(&text);
            return err;
        }
        const int64_t size = size_of(spec->paths[i]);
        text->n_total = i > 0 && (size == 0 || text->n_total == 0) ? 0 : text->n_total + size;
    }
    *out = text;
    return STRAIT_OK;
}

void strait_text_close(struct strait_text **text) {
    struct strait_text *t = *text;
    if (t == NULL) return;
    strait_input_close(&t->input);
    strait_alloc_free(t->ahead.data);
    strait_chat_fini(&t->chat);
    strait_alloc_free(t);
    *text = NULL;
}

int64_t strait_text_bytes_read(const struct strait_text *text) {
    return text->n_read_before + (text->input != NULL ? strait_input_bytes_read(text->input) : 0);
}

int64_t strait_text_bytes_total(const struct strait_text *text) {
    return text->n_total;
}

/* Whether the name says JSON Lines: "a.jsonl", "a.jsonl.zst" and the like. */
static int is_named_lines(const char *path) {
    const char *name = strrchr(path, '/');
    static const char *const endings[] = {"jsonl", "ndjson"};
    for (const char *dot = strchr(name == NULL ? path : name, '.'); dot != NULL;
         dot = strchr(dot + 1, '.'))
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
            const size_t n = strlen(endings[i]);
            if (strncasecmp(dot + 1, endings[i], n) == 0 && strchr(".", dot[1 + n]) != NULL)
                return 1;
        }
    return 0;
}

static strait_err start_file(struct strait_text *t) {
    t->path = t->spec.paths[t->next_path++];
    t->is_lines = t->spec.format == STRAIT_TEXT_JSONL || t->spec.format == STRAIT_TEXT_CHAT;
    if (t->spec.format == STRAIT_TEXT_AUTO)
        t->is_lines = t->spec.field != NULL || is_named_lines(t->path);
    t->line = 0;
    t->used = t->ahead.n = 0;
    return strait_input_open(t->path, t->spec.stop, &t->input);
}

/* Bytes of closed files are kept, so that progress covers all of them. */
static void end_file(struct strait_text *t) {
    t->n_read_before += strait_input_bytes_read(t->input);
    strait_input_close(&t->input);
}

/* Appends bytes of the file to `ahead`; *n_read is 0 at its end. Moves ahead.data: pointers into it
 * are invalid afterwards. */
static strait_err read_ahead(struct strait_text *t, size_t *n_read) {
    if (t->used > 0) {
        memmove(t->ahead.data, t->ahead.data + t->used, t->ahead.n - t->used);
        t->ahead.n -= t->used;
        t->used = 0;
    }
    if (t->ahead.n > DOCUMENT_MAX)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: a %s of more than %d MiB; split it into several files", t->path,
                           t->is_lines ? "line" : "document", DOCUMENT_MAX >> 20);
    STRAIT_TRY(strait_buffer_reserve((void **)&t->ahead.data, &t->ahead.capacity,
                                     t->ahead.n + READ_BYTES, 1));
    STRAIT_TRY(strait_input_read(t->input, t->ahead.data + t->ahead.n, READ_BYTES, n_read));
    t->ahead.n += *n_read;
    return STRAIT_OK;
}

static strait_err append_piece(struct strait_text *t, size_t n, strait_text_piece *piece) {
    STRAIT_TRY(strait_buffer_append(&piece->text, t->ahead.data + t->used, n));
    t->used += n;
    return STRAIT_OK;
}

static int is_visible(unsigned char c) {
    return c > ' ' && c < 0x7f;
}

/* Only between visible characters: a run of blank lines may be one token. */
size_t strait_text_find_split(const unsigned char *text, size_t n) {
    for (size_t at = n < 2 ? 0 : n - 1; at >= 2; at--)
        if (text[at - 1] == '\n' && is_visible(text[at - 2]) && is_visible(text[at])) return at;
    return 0;
}

/* The next piece of a plain file. It is extended until a place for a split is found. */
static strait_err next_plain(struct strait_text *t, strait_text_piece *piece) {
    const size_t want = t->piece_bytes;
    size_t searched = 0; // no split is possible before this offset
    for (;;) {
        const size_t have = t->ahead.n - t->used;
        if (want > 0 && have >= want) {
            const size_t cut = strait_text_find_split(t->ahead.data + t->used + searched,
                                                      have - searched);
            if (cut > 0) return append_piece(t, searched + cut, piece);
            searched = have - 2;
        }
        size_t n_read = 0;
        STRAIT_TRY(read_ahead(t, &n_read));
        if (n_read == 0) break;
    }
    piece->ends_document = 1;
    STRAIT_TRY(append_piece(t, t->ahead.n - t->used, piece));
    end_file(t);
    return STRAIT_OK;
}

/* The next run of the line that was read last. */
static strait_err next_run(struct strait_text *t, strait_text_piece *piece) {
    const size_t i = t->next_run++;
    const size_t start = i == 0 ? 0 : t->chat.runs[i - 1].end;
    piece->begins_document = i == 0;
    piece->ends_document = t->next_run == t->chat.n_runs;
    piece->is_untrained = !t->chat.runs[i].is_trained;
    return strait_buffer_append(&piece->text, t->chat.text.data + start,
                                t->chat.runs[i].end - start);
}

static strait_err read_chat(struct strait_text *t, const char *line, size_t n,
                            strait_text_piece *piece) {
    const char *shape = t->spec.chat_template != NULL ? t->spec.chat_template : strait_chat_plain;
    const strait_err err = strait_chat_parse(&t->chat, line, n, shape);
    if (err == STRAIT_EDATA) strait_err_prefix("%s:%lld", t->path, (long long)t->line);
    STRAIT_TRY(err);
    t->next_run = 0;
    return next_run(t, piece);
}

/* Appends the text of one line of JSON. Integers are read as reals, so that a number too large for
 * int64_t in an unrelated key is not an error. */
static strait_err read_line(struct strait_text *t, const char *line, size_t n,
                            strait_text_piece *piece) {
    const char *field = t->spec.field != NULL ? t->spec.field : "text";
    json_error_t error;
    json_t *object = json_loadb(line, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (object == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: line %lld, column %d: %s", t->path,
                           (long long)t->line, error.column, error.text);
    const json_t *value = json_object_get(object, field);
    strait_err err;
    if (json_is_string(value))
        err = strait_buffer_append(&piece->text, json_string_value(value),
                                   json_string_length(value));
    else
        err = STRAIT_FAIL(STRAIT_EDATA,
                          "%s: line %lld has no text under \"%s\"; name the key that holds it "
                          "(--field KEY)",
                          t->path, (long long)t->line, field);
    json_decref(object);
    piece->ends_document = 1;
    return err;
}

static int is_blank(const unsigned char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return 0;
    return 1;
}

/* The next line that is not blank; *is_end is set if there is none. */
static strait_err next_line(struct strait_text *t, strait_text_piece *piece, int *is_end) {
    size_t searched = 0;
    for (;;) {
        const unsigned char *start = t->ahead.data + t->used;
        const size_t have = t->ahead.n - t->used;
        const unsigned char *feed = have > searched
                                        ? memchr(start + searched, '\n', have - searched)
                                        : NULL;
        size_t n_read = 1;
        if (feed == NULL) {
            searched = have;
            STRAIT_TRY(read_ahead(t, &n_read));
            if (n_read > 0) continue;
            start = t->ahead.data;
        }
        const size_t n = feed != NULL ? (size_t)(feed - start) : have;
        t->used += n + (feed != NULL);
        t->line++;
        searched = 0;
        if (!is_blank(start, n))
            return t->spec.format == STRAIT_TEXT_CHAT ? read_chat(t, (const char *)start, n, piece)
                                                      : read_line(t, (const char *)start, n, piece);
        if (feed == NULL) break;
    }
    *is_end = 1;
    return STRAIT_OK;
}

strait_err strait_text_next(struct strait_text *text, strait_text_piece *piece) {
    const size_t before = piece->text.n;
    piece->is_over = piece->is_untrained = 0;
    piece->begins_document = 1; // of formats that need it, the others are whole
    if (text->next_run < text->chat.n_runs) return next_run(text, piece);
    do {
        piece->ends_document = 0; // an empty document is skipped together with its end
        if (text->input == NULL) {
            piece->is_over = text->next_path == text->spec.n_paths;
            if (piece->is_over) return STRAIT_OK;
            STRAIT_TRY(start_file(text));
        }
        if (!text->is_lines) {
            STRAIT_TRY(next_plain(text, piece));
            continue;
        }
        int is_end = 0;
        STRAIT_TRY(next_line(text, piece, &is_end));
        if (is_end) end_file(text);
    } while (piece->text.n == before);
    return STRAIT_OK;
}

strait_err strait_text_visit(const strait_text_spec *spec, strait_text_visitor visit, void *user) {
    struct strait_text *text = NULL;
    strait_text_piece piece = {.is_over = 0};
    STRAIT_TRY(strait_text_open(spec, 0, &text));
    strait_err err = STRAIT_OK;
    while (err == STRAIT_OK) {
        piece.text.n = 0;
        err = strait_text_next(text, &piece);
        if (err != STRAIT_OK || piece.is_over) break;
        err = visit(user, piece.text.data, piece.text.n);
    }
    strait_alloc_free(piece.text.data);
    strait_text_close(&text);
    return err;
}
