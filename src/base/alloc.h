/* alloc.h - counted allocation.
 *
 * Every allocation of the library goes through here, so that a test can assert that a training
 * step makes none, and can make any of them fail. Memory comes zeroed, unless one asks otherwise:
 * zeroed is closed. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for `count` items of `size` bytes, aligned to 64 bytes. STRAIT_ENOMEM names `what`
 * and the size. The caller releases it with strait_alloc_free. */
strait_err strait_alloc(size_t count, size_t size, const char *what, void **out);

/* The same with whatever was there before: for large room that is written before it is read, whose
 * pages are then taken from the system only as far as they are used. */
strait_err strait_alloc_unset(size_t count, size_t size, const char *what, void **out);

/* Grows *memory from `count` to `want` items, the new ones zeroed; *memory is untouched on error.
 */
strait_err strait_alloc_grow(void **memory, size_t count, size_t want, size_t size,
                             const char *what);

/* Counts memory that is about to come from elsewhere, a device's, among the allocations;
 * STRAIT_ENOMEM when a test makes this one fail. */
strait_err strait_alloc_admit(const char *what, size_t bytes);

/* A copy of a string, up to and with its ending zero. */
strait_err strait_alloc_string(const char *text, char **out);

void strait_alloc_free(void *memory); // accepts NULL

/* How many allocations were made so far, in all threads. */
int64_t strait_alloc_count(void);

/* How many of them are not freed, memory from elsewhere left aside. */
int64_t strait_alloc_live(void);

/* For tests: the n-th allocation from now fails, counting from 1; 0 switches it off. */
void strait_alloc_fail_at(int64_t n);
