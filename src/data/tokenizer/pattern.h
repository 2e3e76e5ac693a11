/* pattern.h - split patterns of tokenizer files, run by PCRE2.
 *
 * The files mean Oniguruma's Ruby syntax. What both engines spell alike is passed on; \s and \w are
 * spelled out, because PCRE2 counts U+180E as a space and no mark as a word character; classes
 * inside classes, && and \h, which mean something else in PCRE2, are refused. */
#pragma once

#include "base/error.h"

#include <stddef.h>

struct strait_pattern;

/* What one thread needs to match: opened once, used with every pattern. */
struct strait_matcher;

/* STRAIT_EDATA says where the pattern is wrong. */
strait_err strait_pattern_open(const char *source, size_t n, struct strait_pattern **out);
void strait_pattern_close(struct strait_pattern **pattern); // accepts NULL

strait_err strait_matcher_open(struct strait_matcher **out);
void strait_matcher_close(struct strait_matcher **matcher); // accepts NULL

typedef struct strait_match {
    size_t start, end; // both SIZE_MAX when nothing matches
} strait_match;

/* The first match in text[from..n), which must be well-formed UTF-8. STRAIT_EDATA when the pattern
 * gives up on this text. Does not allocate. */
strait_err strait_pattern_find(const struct strait_pattern *pattern, struct strait_matcher *matcher,
                               const unsigned char *text, size_t n, size_t from, strait_match *out);
