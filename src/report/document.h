/* document.h - a report written at once as one HTML page, one Markdown file and CSV files.
 *
 *     struct strait_document *d = NULL;
 *     strait_document_open("runs/study", "Title", &d);
 *     strait_document_text(d, "What was measured.");
 *     strait_document_table(d, "table", heads, 2);
 *     strait_document_cell(d, "%s", "dense");
 *     strait_document_cell(d, "%.4f", loss);
 *     strait_document_plot(d, "curves", &plot);
 *     strait_document_close(&d, 1);
 *
 * The page is self-contained: plots are inside it, and it loads nothing from elsewhere. One thread
 * uses a document. */
#pragma once

#include "report/plot.h"

struct strait_document;

/* Begins a report in an existing folder. The caller closes *out. */
strait_err strait_document_open(const char *folder, const char *title,
                                struct strait_document **out);

/* Begins a report that is one HTML page and nothing else, in the file `path`. */
strait_err strait_document_open_page(const char *path, const char *title,
                                     struct strait_document **out);

/* A heading, and a paragraph. Text is escaped. */
void strait_document_heading(struct strait_document *document, const char *text);
void strait_document_text(struct strait_document *document, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Text with its own lines and spaces: a file, or what a program printed. */
void strait_document_verbatim(struct strait_document *document, const char *text);

/* Begins a table of n columns. It is also written to NAME.csv, except where name is NULL. Ends the
 * table before it. */
void strait_document_table(struct strait_document *document, const char *name,
                           const char *const *heads, int n);

/* The next cell; a row ends with its last column. */
void strait_document_cell(struct strait_document *document, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A number with the given format of one double, or a dash if it is not finite. */
void strait_document_number(struct strait_document *document, const char *format, double value);

/* Draws the plot into the page and, of a report in a folder, into NAME.svg. A plot without a finite
 * point is left out, with a sentence that says so. */
strait_err strait_document_plot(struct strait_document *document, const char *name,
                                const strait_plot *plot);

/* Writes the page or, of a report in a folder, report.html, table.md and the CSV files if `writes`
 * is set, releases the document and sets *document to NULL. Accepts NULL in it. STRAIT_EIO,
 * STRAIT_ENOMEM: a file was not written; each file is replaced as a whole or not at all. */
strait_err strait_document_close(struct strait_document **document, int writes);
