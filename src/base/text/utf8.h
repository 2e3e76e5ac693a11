/* utf8.h - UTF-8: decoding, encoding, and finding the bytes that are not well-formed.
 *
 * Text comes from outside and may hold any bytes. Functions say whether they need well-formed
 * text; none reads past the length it is given. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The length in bytes of the well-formed character at the start of text[0..n), or 0 if the bytes
 * are not well-formed: overlong forms, surrogates and code points over 0x10ffff are not. */
size_t strait_utf8_length(const unsigned char *text, size_t n);

/* The length of the well-formed text that text[0..n) starts with. */
size_t strait_utf8_valid(const unsigned char *text, size_t n);

/* The code point of a well-formed character. */
uint32_t strait_utf8_decode(const unsigned char *text);

/* Writes a code point as 1 to 4 bytes and returns their number. */
size_t strait_utf8_encode(uint32_t codepoint, unsigned char *out);

/* How many bytes (0 to 3) at the end of text[0..n) start a character that more bytes could
 * complete. */
size_t strait_utf8_incomplete(const unsigned char *text, size_t n);

/* Whether a code point has the Unicode property White_Space; and whether it may be part of a word
 * (a letter, mark, number or connector). */
int strait_utf8_is_space(uint32_t codepoint);
int strait_utf8_is_word(uint32_t codepoint);
