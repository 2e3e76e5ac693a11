#include "report/document.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CELL_BYTES = 4096,
    TABLES_MAX = 16,
    MARKDOWN_COLUMNS = 120
};

/* A file that grows in memory until the document is closed. */
typedef struct sheet {
    char name[64];
    char *text; // of the stream; valid after it was flushed
    size_t bytes;
    FILE *stream;
} sheet;

struct strait_document {
    char path[STRAIT_PATH_MAX]; // the folder, or the only file
    int is_page;                // one file; the other formats are kept in memory and dropped
    sheet page, markdown, csv[TABLES_MAX];
    int n_csv;
    FILE *comma; // the CSV of the current table; NULL: it has none
    int n_columns, at;
};

/* Plots are drawn on white, also on a dark page. */
static const char style[] =
    ":root{--page:#fff;--text:#222;--line:#ddd;--soft:#f4f4f4;color-scheme:light dark}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#11151c;--text:#e6eaf0;--line:#303947;"
    "--soft:#1a202a}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:var(--text);background:var(--page);overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}\n"
    "th,td{border-bottom:1px solid var(--line);padding:3px 9px;text-align:right;"
    "white-space:nowrap}\n"
    "th:first-child,td:first-child{text-align:left}\n"
    "pre{background:var(--soft);padding:.8em;overflow-x:auto;white-space:pre-wrap}\n"
    "th{background:var(--soft)}h2{margin-top:2em}\n"
    "svg{max-width:100%;height:auto;margin:1em 0;background:#fff;border-radius:6px}\n";

static strait_err open_sheet(sheet *s, const char *name) {
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->stream = open_memstream(&s->text, &s->bytes);
    return s->stream != NULL ? STRAIT_OK : STRAIT_FAIL(STRAIT_ENOMEM, "no memory for %s", name);
}

static void put_html(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("&lt;", to);
        else if (*text == '&')
            fputs("&amp;", to);
        else
            fputc(*text, to);
    }
}

/* A bar would end a cell. */
static void put_markdown(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') fputc('\\', to);
        fputc(*text, to);
    }
}

/* A paragraph in lines of at most MARKDOWN_COLUMNS, unless a word is longer. */
static void put_wrapped(FILE *to, const char *text) {
    size_t used = 0;
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        if (used > 0 && used + 1 + word > MARKDOWN_COLUMNS) {
            fputc('\n', to);
            used = 0;
        }
        if (used > 0) used += (size_t)fprintf(to, " ");
        used += fwrite(text, 1, word, to);
        text += word;
        text += *text == ' ';
    }
    fputc('\n', to);
}

/* A field with a comma, a quote or a line break is quoted, and quotes in it are doubled. */
static void put_csv(FILE *to, const char *text) {
    if (text[strcspn(text, ",\"\n")] == '\0') {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

static strait_err open_document(const char *path, const char *title, int is_page,
                                struct strait_document **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_document), "report", &memory));
    struct strait_document *d = memory;
    d->is_page = is_page;
    strait_err err = strait_file_path(d->path, "%s", path);
    if (err == STRAIT_OK) err = open_sheet(&d->page, "report.html");
    if (err == STRAIT_OK) err = open_sheet(&d->markdown, "table.md");
    if (err != STRAIT_OK) {
        (void)strait_document_close(&d, 0);
        return err;
    }
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
          "<link rel=\"icon\" href=\"data:,\"><title>",
          d->page.stream);
    put_html(d->page.stream, title);
    fprintf(d->page.stream, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    put_html(d->page.stream, title);
    fputs("</h1>\n", d->page.stream);
    fprintf(d->markdown.stream, "# %s\n", title);
    *out = d;
    return STRAIT_OK;
}

strait_err strait_document_open(const char *folder, const char *title,
                                struct strait_document **out) {
    return open_document(folder, title, 0, out);
}

strait_err strait_document_open_page(const char *path, const char *title,
                                     struct strait_document **out) {
    return open_document(path, title, 1, out);
}

static void end_table(struct strait_document *d) {
    if (d->n_columns > 0) fputs("</table>\n", d->page.stream);
    d->n_columns = 0;
    d->comma = NULL;
}

void strait_document_heading(struct strait_document *document, const char *text) {
    end_table(document);
    fputs("<h2>", document->page.stream);
    put_html(document->page.stream, text);
    fputs("</h2>\n", document->page.stream);
    fprintf(document->markdown.stream, "\n## %s\n", text);
}

void strait_document_text(struct strait_document *document, const char *format, ...) {
    char text[CELL_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    end_table(document);
    fputs("<p>", document->page.stream);
    put_html(document->page.stream, text);
    fputs("</p>\n", document->page.stream);
    fputc('\n', document->markdown.stream);
    put_wrapped(document->markdown.stream, text);
}

void strait_document_verbatim(struct strait_document *document, const char *text) {
    end_table(document);
    fputs("<pre>", document->page.stream);
    put_html(document->page.stream, text);
    fputs("</pre>\n", document->page.stream);
    fprintf(document->markdown.stream, "\n```\n%s\n```\n", text);
}

/* A document has few tables; those beyond the limit are in the page only. */
static void begin_csv(struct strait_document *d, const char *name) {
    char file[64];
    if (name == NULL || d->is_page || d->n_csv == TABLES_MAX) return;
    (void)snprintf(file, sizeof file, "%s.csv", name);
    if (open_sheet(&d->csv[d->n_csv], file) != STRAIT_OK) return;
    d->comma = d->csv[d->n_csv++].stream;
}

void strait_document_table(struct strait_document *document, const char *name,
                           const char *const *heads, int n) {
    end_table(document);
    begin_csv(document, name);
    fputs("<table>\n<tr>", document->page.stream);
    fputs("\n|", document->markdown.stream);
    for (int i = 0; i < n; i++) {
        fputs("<th>", document->page.stream);
        put_html(document->page.stream, heads[i]);
        fputs("</th>", document->page.stream);
        fprintf(document->markdown.stream, " %s |", heads[i]);
        if (document->comma == NULL) continue;
        put_csv(document->comma, heads[i]);
        fputc(i + 1 < n ? ',' : '\n', document->comma);
    }
    fputs("</tr>\n", document->page.stream);
    fputs("\n|", document->markdown.stream);
    for (int i = 0; i < n; i++)
        fputs(" --- |", document->markdown.stream);
    fputc('\n', document->markdown.stream);
    document->n_columns = n;
    document->at = 0;
}

static void put_cell(struct strait_document *d, const char *text) {
    const int is_last = d->at + 1 == d->n_columns;
    fputs(d->at == 0 ? "<tr><td>" : "<td>", d->page.stream);
    put_html(d->page.stream, text);
    fputs(is_last ? "</td></tr>\n" : "</td>", d->page.stream);
    fputs(d->at == 0 ? "| " : " ", d->markdown.stream);
    put_markdown(d->markdown.stream, text);
    fputs(is_last ? " |\n" : " |", d->markdown.stream);
    if (d->comma != NULL) {
        put_csv(d->comma, text);
        fputc(is_last ? '\n' : ',', d->comma);
    }
    d->at = is_last ? 0 : d->at + 1;
}

void strait_document_cell(struct strait_document *document, const char *format, ...) {
    char text[CELL_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_cell(document, text);
}

void strait_document_number(struct strait_document *document, const char *format, double value) {
    char text[64] = "-";
    /* The format comes from our own code, never from a file. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isfinite(value)) (void)snprintf(text, sizeof text, format, value);
#pragma GCC diagnostic pop
    put_cell(document, text);
}

strait_err strait_document_plot(struct strait_document *document, const char *name,
                                const strait_plot *plot) {
    char *svg = NULL;
    char path[STRAIT_PATH_MAX];
    size_t bytes = 0;
    const strait_err err = strait_plot_render(plot, &svg, &bytes);
    if (err == STRAIT_EDATA) {
        strait_document_text(document, "%s: not drawn, there is no finite value yet.", plot->title);
        return STRAIT_OK;
    }
    STRAIT_TRY(err);
    end_table(document);
    fwrite(svg, 1, bytes, document->page.stream);
    fprintf(document->markdown.stream, "\n![%s](%s.svg)\n", plot->title, name);
    strait_err written = STRAIT_OK;
    if (!document->is_page) written = strait_file_path(path, "%s/%s.svg", document->path, name);
    if (written == STRAIT_OK && !document->is_page) written = strait_file_replace(path, svg, bytes);
    free(svg);
    return written;
}

/* The stream is closed first: only then is its text complete. */
static strait_err close_sheet(sheet *s, const char *path, int writes) {
    strait_err err = STRAIT_OK;
    if (s->stream == NULL) return STRAIT_OK;
    const int failed = ferror(s->stream) != 0;
    if (fclose(s->stream) != 0 || failed)
        err = STRAIT_FAIL(STRAIT_ENOMEM, "no memory for %s", s->name);
    if (err == STRAIT_OK && writes) err = strait_file_replace(path, s->text, s->bytes);
    free(s->text);
    return err;
}

strait_err strait_document_close(struct strait_document **document, int writes) {
    struct strait_document *d = *document;
    char path[STRAIT_PATH_MAX];
    strait_err first = STRAIT_OK;
    if (d == NULL) return STRAIT_OK;
    if (d->page.stream != NULL) {
        end_table(d);
        fputs("</body></html>\n", d->page.stream);
    }
    for (int i = 0; i < d->n_csv + 2; i++) {
        sheet *s = i == 0 ? &d->page : i == 1 ? &d->markdown : &d->csv[i - 2];
        strait_err err = d->is_page ? strait_file_path(path, "%s", d->path)
                                    : strait_file_path(path, "%s/%s", d->path, s->name);
        const int is_written = writes && first == STRAIT_OK && err == STRAIT_OK;
        const strait_err closed = close_sheet(s, path, is_written && (!d->is_page || i == 0));
        if (err == STRAIT_OK) err = closed;
        if (first == STRAIT_OK) first = err;
    }
    strait_alloc_free(d);
    *document = NULL;
    return first;
}
