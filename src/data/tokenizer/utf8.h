/* utf8.h - walking over text that may be broken. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at text[0..n), or 0 when there is none. Overlong forms,
 * surrogates and numbers over 0x10ffff are not well-formed. */
size_t strait_utf8_length(const unsigned char *text, size_t n);

/* How far text[0..n) is well-formed. */
size_t strait_utf8_valid(const unsigned char *text, size_t n);

/* The number of a well-formed character. */
uint32_t strait_utf8_decode(const unsigned char *text);

/* Writes a character, at most 4 bytes; says how many. */
size_t strait_utf8_encode(uint32_t codepoint, unsigned char *out);

/* How many bytes at the end of text[0..n) begin a character that is not complete: 0 to 3. */
size_t strait_utf8_incomplete(const unsigned char *text, size_t n);

int strait_utf8_is_space(uint32_t codepoint); // Unicode White_Space
int strait_utf8_is_word(uint32_t codepoint);  // letter, mark, digit or connector
