/* text.h - texts from files, peers and users, made fit to be shown to people.
 *
 * A name that somebody else chose may hold any bytes. Shown as it is, it could move the cursor of a
 * terminal, forge a log line or reverse the direction of the text around it. */
#pragma once

#include <stddef.h>

/* Replaces control characters, invisible format characters, line separators and bytes that are not
 * UTF-8 by '?', in place. Other characters of UTF-8 are unchanged. */
void strait_text_tame(char *text);

/* Copies as much of a text as fits, never part of a character; always terminated. */
void strait_text_copy(char *out, size_t capacity, const char *text);

/* How many columns a text takes on a terminal: combining marks none, East Asian wide characters and
 * most emoji two. Bytes that are not UTF-8 count as one each. */
int strait_text_columns(const char *text);

/* How many bytes at the start of a text fit in `columns`; whole characters with their marks. */
size_t strait_text_fit(const char *text, int columns);

/* Cuts a text to `columns` and to the capacity of `out`, and fills it up with spaces, for a table.
 */
void strait_text_cell(char *out, size_t capacity, const char *text, int columns);
