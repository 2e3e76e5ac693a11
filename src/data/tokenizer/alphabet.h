/* alphabet.h - the visible characters that byte-level tokenizer files write bytes with (GPT-2's
 * bytes_to_unicode).
 *
 * Printable Latin-1 bytes are written as themselves, the other 68 as U+0100 and up, in order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The character that a byte is written as. */
uint32_t strait_alphabet_of_byte(unsigned char byte);

/* Converts text in the alphabet to bytes; `out` has space for n. Returns their number, or -1 if a
 * character is not in the alphabet. */
int64_t strait_alphabet_decode(const char *text, size_t n, unsigned char *out);

/* Converts n bytes to text in the alphabet; `out` has space for 2 n bytes. Returns its length. */
size_t strait_alphabet_encode(const unsigned char *bytes, size_t n, char *out);
