/* input.h - the bytes of a file or of standard input, decompressed while they are read.
 *
 * gzip, xz and zstd are recognised by their first bytes, whatever the file is called. A file named
 * .gz, .xz or .zst that is not compressed is an error, since it is most likely damaged. So is data
 * whose first 8 KiB are not text: they have a NUL, or almost a third of them is not UTF-8. */
#pragma once

#include <strait/text.h>

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct strait_input;

/* Asks the caller's callback whether to stop; 0 if there is no callback. Any thread. */
int strait_input_is_stop_requested(strait_input_stop stop);

/* Opens `path`, or standard input for "-". Borrows `path` until close. STRAIT_EIO: it cannot be
 * opened. STRAIT_EDATA: it is not compressed although its name says so. */
strait_err strait_input_open(const char *path, strait_input_stop stop, struct strait_input **out);
void strait_input_close(struct strait_input **input); // accepts NULL

/* Reads up to n bytes; *n_read is 0 only at the end. Blocks until bytes arrive or the stop callback
 * returns true (STRAIT_EINTERRUPTED). STRAIT_EDATA: the compressed data is damaged or truncated, or
 * the file is not text or of an unsupported format; the detail names the file. */
strait_err strait_input_read(struct strait_input *input, void *out, size_t n, size_t *n_read);

/* Bytes read from the file so far, before decompression. */
int64_t strait_input_bytes_read(const struct strait_input *input);

/* The error for a Parquet file, with the command that converts it. Always STRAIT_EDATA. */
strait_err strait_input_refuse_parquet(const char *path);
