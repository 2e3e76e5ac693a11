/* pattern.h - regular expressions of tokenizer files, matched with PCRE2.
 *
 * The files use Oniguruma's Ruby syntax, which differs from PCRE2's in a few places. \s and \w are
 * replaced by explicit classes, because PCRE2 counts U+180E as a space and does not count marks as
 * word characters. Classes inside classes, && and \h have another meaning in PCRE2 and are
 * rejected. Everything else is passed on unchanged. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* A compiled pattern. Any number of threads may share it. */
struct strait_pattern;

/* Match state and stack of one thread; used with every pattern. */
struct strait_matcher;

/* Compiles a pattern of n bytes. STRAIT_EDATA: it is wrong or not supported; the detail says
 * where. */
strait_err strait_pattern_open(const char *source, size_t n, struct strait_pattern **out);
void strait_pattern_close(struct strait_pattern **pattern); // accepts NULL

/* STRAIT_ENOMEM. */
strait_err strait_matcher_open(struct strait_matcher **out);
void strait_matcher_close(struct strait_matcher **matcher); // accepts NULL

typedef struct strait_match {
    size_t start, end; // both SIZE_MAX if nothing matches
} strait_match;

/* Finds the first match in text[from..n), which must be well-formed UTF-8. STRAIT_EDATA: PCRE2
 * reached its limit of backtracking on this text. */
strait_err strait_pattern_find(const struct strait_pattern *pattern, struct strait_matcher *matcher,
                               const unsigned char *text, size_t n, size_t from, strait_match *out);
