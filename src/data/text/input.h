/* input.h - the bytes of a file, or of standard input, unpacked on the way.
 *
 * gzip, xz and zstd are told by their first bytes, whatever the file is called; a file called .gz,
 * .xz or .zst that is none is refused. */
#pragma once

#include <strait/text.h>

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct strait_input;

int strait_input_is_stop_requested(strait_input_stop stop);

/* Opens `path`, or standard input for "-". Keeps `path`. */
strait_err strait_input_open(const char *path, strait_input_stop stop, struct strait_input **out);
void strait_input_close(struct strait_input **input); // accepts NULL

/* Reads up to n bytes; 0 of them only at the end. Packed data that is damaged or cut short is
 * STRAIT_EDATA naming the file. Blocks until there are some, or until it shall end:
 * STRAIT_EINTERRUPTED. */
strait_err strait_input_read(struct strait_input *input, void *out, size_t n, size_t *n_read);

/* Bytes taken from the file so far, before unpacking. */
int64_t strait_input_bytes_read(const struct strait_input *input);
