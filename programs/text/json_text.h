/* json_text.h - text as a JSON string, for commands that print JSON. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Prints n bytes as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void strait_json_text_print(FILE *to, const char *text, size_t n);
