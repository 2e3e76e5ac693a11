/* text.h - documents, one after the other, from files of text.
 *
 * A plain file is one document. In a JSON Lines file (.jsonl, .ndjson) every line is one: an object
 * with the text under a chosen key. Either may be packed (data/input.h); "-" is standard input. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/text/input.h"

#include <stddef.h>
#include <stdint.h>

struct strait_text;

/* A document or a part of one. The memory is the caller's, reused between calls. */
typedef struct strait_text_piece {
    strait_buffer text;
    int ends_document;
    int is_over; // there was nothing more: text is empty
} strait_text_piece;

/* Opens each file when the ones before it are read. Borrows the paths and the field until close.
 * Plain documents are split after lines into pieces of about piece_bytes; 0: never. */
strait_err strait_text_open(const strait_text_spec *spec, size_t piece_bytes,
                            struct strait_text **out);
void strait_text_close(struct strait_text **text); // accepts NULL

/* Appends the next piece to piece->text; documents without text are passed over. Errors name the
 * file and, of JSON Lines, the line. */
strait_err strait_text_next(struct strait_text *text, strait_text_piece *piece);

/* Bytes read from all files so far, before unpacking; and their sizes, 0 when one is not known. */
int64_t strait_text_bytes_read(const struct strait_text *text);
int64_t strait_text_bytes_total(const struct strait_text *text);

/* The last place in text[0..n) where it may be cut: after a line feed that follows a visible ASCII
 * character and comes before another. 0 when there is none. Tokenizers for which
 * strait_tokenizer_may_cut_lines holds give the same ids for the parts as for the whole. */
size_t strait_text_cut(const unsigned char *text, size_t n);
