/* alloc.h - counted allocation.
 *
 * Every allocation of the library goes through these functions, so that tests can assert that a
 * training step allocates nothing, and can make any allocation fail. Memory is zeroed by default,
 * because a zeroed struct counts as closed everywhere. All functions are thread-safe. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Allocates zeroed memory for `count` items of `size` bytes, aligned to 64 bytes. STRAIT_ENOMEM:
 * the message names `what` and the size. The caller frees it with strait_alloc_free. */
strait_err strait_alloc(size_t count, size_t size, const char *what, void **out);

/* The same without zeroing, for large buffers that are written before they are read: the kernel
 * then commits only the pages that are used. */
strait_err strait_alloc_unset(size_t count, size_t size, const char *what, void **out);

/* Grows *memory from `count` to `want` items and zeroes the new ones. On error *memory is
 * unchanged. */
strait_err strait_alloc_grow(void **memory, size_t count, size_t want, size_t size,
                             const char *what);

/* Counts an allocation that another allocator, for example a GPU's, is about to make.
 * STRAIT_ENOMEM: a test wants this allocation to fail. */
strait_err strait_alloc_admit(const char *what, size_t bytes);

/* Allocates a copy of a string, including its terminating zero. */
strait_err strait_alloc_string(const char *text, char **out);

void strait_alloc_free(void *memory); // accepts NULL

/* Returns freed memory to the system where the C library can. Takes milliseconds: call it rarely.
 */
void strait_alloc_trim(void);

/* The number of allocations made so far, by all threads. */
int64_t strait_alloc_count(void);

/* The number of allocations not freed yet, without those counted for other allocators. */
int64_t strait_alloc_live(void);

/* For tests: makes the n-th allocation from now fail, counting from 1; 0 turns this off. */
void strait_alloc_fail_at(int64_t n);
