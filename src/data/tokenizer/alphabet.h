/* alphabet.h - the visible characters by which byte-level tokenizer files write bytes.
 *
 * Printable Latin-1 bytes stand for themselves; the other 68 are U+0100 and up, in order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t strait_alphabet_of_byte(unsigned char byte);

/* Turns text written in the alphabet into bytes; out has room for n. Says how many, or -1 when a
 * character is not of the alphabet. */
int64_t strait_alphabet_decode(const char *text, size_t n, unsigned char *out);

/* Writes bytes in the alphabet; out has room for 2 n. Says how many. */
size_t strait_alphabet_encode(const unsigned char *bytes, size_t n, char *out);
