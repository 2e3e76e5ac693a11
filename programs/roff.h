/* roff.h - text in the macros of man(7), which man, groff and mandoc show.
 *
 * Letters that those programs take for orders are escaped, and lines are filled anew, so that any
 * text will do: words between white space, paragraphs between empty lines. */
#pragma once

#include <stdio.h>

typedef struct strait_roff {
    FILE *to;
    int column; // of the line that is being filled; 0: none
} strait_roff;

/* The page's first lines: "strait-train - summary" of section 1 or 5. */
void strait_roff_title(strait_roff *page, const char *name, int section, const char *summary);

void strait_roff_heading(strait_roff *page, const char *text);

/* Paragraphs, directly behind a heading or in an item. */
void strait_roff_text(strait_roff *page, const char *text);

/* What goes on in a line of its own, or in a paragraph of its own. */
void strait_roff_break(strait_roff *page);
void strait_roff_paragraph(strait_roff *page);

/* An item of a list: its tag stands out, its text is set in by what follows. */
void strait_roff_item(strait_roff *page);

/* Words as they are typed, and those that stand for others: "--out" and "DIR". Flags among the
 * words of `usage` are told from the rest by their hyphens, names by their capitals. */
void strait_roff_typed(strait_roff *page, const char *text);
void strait_roff_usage(strait_roff *page, const char *text);

/* Ends the line that is being filled. Every page ends with it. */
void strait_roff_end(strait_roff *page);
