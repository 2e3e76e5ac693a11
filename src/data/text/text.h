/* text.h - reads documents from text files, one after the other.
 *
 * A plain file is one document. In a JSON Lines file (.jsonl, .ndjson) every line is a document: an
 * object with the text under a chosen key. Either may be compressed (data/text/input.h). "-" is
 * standard input. One thread uses a reader at a time. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/text/input.h"

#include <stddef.h>
#include <stdint.h>

struct strait_text;

/* A document or a part of one. The caller owns text.data and may reuse it between calls. */
typedef struct strait_text_piece {
    strait_buffer text;
    int begins_document, ends_document;
    int is_untrained; // part of a prompt (STRAIT_TEXT_CHAT)
    int is_over;      // set after the last piece: nothing was appended
} strait_text_piece;

/* Opens a reader. Files are opened one by one as they are needed, but a missing file is reported
 * now (STRAIT_EIO). Borrows the paths and the field until close. Plain documents are split after
 * lines into pieces of about piece_bytes; 0: they are not split. */
strait_err strait_text_open(const strait_text_spec *spec, size_t piece_bytes,
                            struct strait_text **out);
void strait_text_close(struct strait_text **text); // accepts NULL

/* Appends the next piece to piece->text; empty documents are skipped. Errors name the file and, for
 * JSON Lines, the line. */
strait_err strait_text_next(struct strait_text *text, strait_text_piece *piece);

/* Bytes read from all files so far, before decompression; and the sum of the file sizes, 0 if one
 * of them is unknown. */
int64_t strait_text_bytes_read(const struct strait_text *text);
int64_t strait_text_bytes_total(const struct strait_text *text);

/* The last offset in text[0..n) where the text may be split: after a line feed that follows a
 * visible ASCII character and precedes another. 0 if there is no such offset. Tokenizers for which
 * strait_tokenizer_can_split_lines holds give the same ids for the parts as for the whole. */
size_t strait_text_find_split(const unsigned char *text, size_t n);
