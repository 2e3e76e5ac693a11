/* roff.h - writes text in the macros of man(7), which man, groff and mandoc display.
 *
 * Characters that those programs take for requests are escaped, and lines are refilled. Input is
 * plain text: words separated by white space, paragraphs by empty lines. */
#pragma once

#include <stdio.h>

typedef struct strait_roff {
    FILE *to;
    int column; // of the current output line; 0: at its start
    int is_tag; // the tag of an item, one line however long it is
} strait_roff;

/* The page's first lines: "strait-train - summary" of section 1 or 5. */
void strait_roff_title(strait_roff *page, const char *name, int section, const char *summary);

void strait_roff_heading(strait_roff *page, const char *text);

/* Paragraphs, directly after a heading or in an item. */
void strait_roff_text(strait_roff *page, const char *text);

/* Starts a new line, or a new paragraph. */
void strait_roff_break(strait_roff *page);
void strait_roff_paragraph(strait_roff *page);

/* Starts an item of a list: the next line is its tag, the text after strait_roff_end is indented.
 */
void strait_roff_item(strait_roff *page);

/* Literal words in bold, and usage, in which flags ("--out") are bold and placeholders ("DIR"),
 * recognised by their capitals, are italic. */
void strait_roff_typed(strait_roff *page, const char *text);
void strait_roff_usage(strait_roff *page, const char *text);

/* Ends the current output line. Call it last on every page. */
void strait_roff_end(strait_roff *page);
